"""What queries of the dashboards give, by promtool: marks of versions, several services, a week."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from agenteval_otel import semconv as names
from agenteval_otel.provisioning.grafana import files_of
from agenteval_otel.provisioning.prometheus import files_of as rules_of
from agenteval_otel.provisioning.promql import AGENT, CRITERION, ENVIRONMENT, LABEL

from .plans import accepted, criterion, loaded, plan_of, written
from .queries import annotations_of, queries_of

pytestmark = pytest.mark.backend

PLAN = plan_of(
    criterion("tone", scale="numeric", threshold=0.5, objective=0.9),
    dimensions=("gen_ai.prompt.version",),
)
OF_RATE = ("passed", "failed", "answers", "pass_rate")
Wanted = tuple[str, str, Mapping[str, float]]
"""An expression, when it is asked for, and what it gives by labels."""


def check(
    promtool: Path,
    folder: Path,
    series: Mapping[str, str],
    wanted: Sequence[Wanted],
    rules: Path | None = None,
) -> None:
    """Ask for the expressions over these series, with a value a minute, or every ten with rules."""
    asked = [
        {
            "expr": expression,
            "eval_time": at,
            "exp_samples": [{"labels": labels, "value": value} for labels, value in given.items()],
        }
        for expression, at, given in wanted
    ]
    every = "10m" if rules else "1m"
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    tree: dict[str, Any] = {
        "rule_files": [str(rules)] if rules else [],
        "evaluation_interval": every,
        "fuzzy_compare": True,
        "tests": [{"interval": every, "input_series": inputs, "promql_expr_test": asked}],
    }
    file = folder / "queries.test.yaml"
    file.write_text(yaml.safe_dump(tree))
    accepted(promtool, "test", "rules", file)


@pytest.mark.parametrize("queries", ["recorded", "raw"])
@pytest.mark.parametrize("name", ["Releases", "Prompt versions"])
def test_a_version_is_marked_once_when_it_begins(
    queries: str, name: str, promtool_binary: Path, tmp_path: Path
) -> None:
    """Not again after an outage of hours, but after more than a day; one beside it changes nothing."""
    files = files_of(PLAN, queries=queries)
    (expression,) = {
        mark.expression for mark in annotations_of(files, {}, interval="1m") if mark.panel == name
    }
    label = "service_version" if name == "Releases" else "gen_ai_prompt_version"
    metric = f"{'agenteval_version' if name == 'Releases' else label}:units:1d"
    if queries == "raw":
        raw = names.METRIC_RESPONSES if name == "Releases" else names.METRIC_RESULTS
        metric = raw.prometheus_name
    first = f'{metric}{{job="shop", {label}="1"}}'
    second = f'{metric}{{job="shop", {ENVIRONMENT}="production", {label}="2"}}'
    nameless = f'{metric}{{job="shop"}}'
    series = {
        first: "_x10 1+0x120 _x180 1+0x60 _x1700 1+0x10",
        second: "_x30 1+0x2000",
        nameless: "1+0x2000",
    }
    mark_of_first = {f'{{job="shop", {label}="1"}}': 1.0}
    check(
        promtool_binary,
        tmp_path,
        series,
        [
            (expression, "9m", {}),
            (expression, "10m", mark_of_first),
            (expression, "11m", {}),
            (expression, "30m", {f'{{job="shop", {ENVIRONMENT}="production", {label}="2"}}': 1.0}),
            (expression, "311m", {}),  # back after three hours
            (expression, "312m", {}),
            (expression, "2072m", mark_of_first),
        ],
    )


def test_a_band_is_of_one_service_and_each_has_a_line(
    promtool_binary: Path, tmp_path: Path
) -> None:
    """Two bands in a panel would be filled as one. Counts add up."""
    words = {"pass_rate_high": 0.9, "pass_rate": 0.8, "pass_rate_low": 0.7, "answers": 10.0}
    series = {
        f'agenteval:{word}:1h{{job="{job}", {AGENT}="support", {CRITERION}="tone"}}': f"{value}x5"
        for word, value in words.items()
        for job in ("shop", "desk")
    }
    labels = f'agenteval:%s:1h{{job="shop", {AGENT}="support", {CRITERION}="tone"}}'
    line = {'{job="shop"}': 0.8, '{job="desk"}': 0.8}
    given = {
        ".*": [{}, {}, line, {}, {"{}": 20.0}],
        "shop": [
            {labels % "pass_rate_high": 0.9},
            {labels % "pass_rate_low": 0.7},
            {'{job="shop"}': 0.8},
            {},
            {"{}": 10.0},
        ],
    }
    wanted: list[Wanted] = []
    for job, samples in given.items():
        values = {"job": job, "criterion": "tone", "agent": "support"}
        asked = [
            query.expression
            for query in queries_of(files_of(PLAN), values)
            if query.panel == "Pass rate of $agent"
        ]
        wanted += [(query, "3m", sample) for query, sample in zip(asked, samples, strict=True)]
    check(promtool_binary, tmp_path, series, wanted)


def test_a_week_is_the_sum_of_its_hours(promtool_binary: Path, tmp_path: Path) -> None:
    """A rate of four verdicts an hour of which three pass, for eight days."""
    folder = written(rules_of(PLAN), tmp_path)
    asked = [f"agenteval:{word}:{size}" for size in ("1h", "6h", "7d") for word in OF_RATE]
    kept = []
    for name in ("recording", "dashboards"):  # all others would take minutes
        groups = loaded((folder / f"rules/agenteval-{name}.yaml").read_text())["groups"]
        kept += [rule for group in groups for rule in group["rules"] if rule["record"] in asked]
    assert {rule["record"] for rule in kept} == {*asked}
    kept.sort(key=lambda rule: asked.index(rule["record"]))
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "rates", "rules": kept}]}))
    metric = names.METRIC_RESULTS.prometheus_name
    of_tone = f'job="shop", {AGENT}="support", {CRITERION}="tone"'
    series = {
        f'{metric}{{{of_tone}, {LABEL}="pass"}}': f"0+0.5x{8 * 144}",
        f'{metric}{{{of_tone}, {LABEL}="fail"}}': f"0+0.1666666666666667x{8 * 144}",
    }
    wanted: list[Wanted] = [
        ("round(agenteval:answers:7d, 1)", "191h", {f"{{{of_tone}}}": 7 * 24 * 4.0}),
        ("round(agenteval:pass_rate:7d, 0.001)", "191h", {f"{{{of_tone}}}": 0.75}),
        ("round(agenteval:answers:6h, 1)", "191h", {f"{{{of_tone}}}": 24.0}),
    ]
    check(promtool_binary, tmp_path, series, wanted, rules)
