"""PromQL in pieces: what is escaped, and that Prometheus computes the same as
`agenteval_otel.models.intervals`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel import semconv as names
from agenteval_otel.models import intervals
from agenteval_otel.models.intervals import UnitSums
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL
from agenteval_otel.semconv import Instrument
from agenteval_otel.telemetry.metrics import UnitIncrements

from .plans import HOSTILE, accepted

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(text=TEXTS)
def test_a_value_matches_itself(text: str) -> None:
    """A regular expression of a value finds that value, as Python has it."""
    # RE2's way to write it
    assert re.fullmatch(promql.matching(text).replace(r"\x{fffd}", "\ufffd"), text)


def test_the_replacement_character_is_matched_by_a_pattern_of_ascii() -> None:
    """Prometheus writes a rule's expression anew and does not read U+FFFD in what it has written."""
    assert promql.one_of("a", ("\ufffd",)) == r'a=~"\\x{fffd}"'
    assert promql.one_of("a", ("b\ufffd", "c"), sign="!~") == r'a!~"b\\x{fffd}|c"'
    assert promql.quoted("\ufffd") == r'"\ufffd"'


@given(text=TEXTS)
def test_a_string_stays_on_its_line_and_within_its_quotes(text: str) -> None:
    """Nothing in a value ends the string: no quote that is not escaped, no control character."""
    inner = promql.quoted(text)[1:-1]
    assert re.fullmatch(r'(?:[^"\\\x00-\x1f\x7f]|\\["\\nrtbf]|\\u[0-9a-f]{4}|\\x7f)*', inner)


# Weights of passes and of fails; `many` have enough of both, `rare` stand on Kish's number.
WEIGHED = {
    "many": ([1.0] * 30 + [20.0] * 40, [1.0] * 20 + [20.0] * 9),
    "rare": ([20.0] * 60, [1.0] * 3),
    "all pass": ([5.0] * 40, []),
    "all fail": ([], [2.0] * 12),
    "even": ([1.0] * 90, [1.0] * 10),
}
# Conversations of two to five turns, with their weights: they pass or fail mostly as a whole.
CONVERSATIONS = [
    [(float(number % 4 > 0 or turn == 0), (1.0, 4.0)[number % 3 == 0]) for turn in range(size)]
    for number, size in enumerate([2, 3, 4, 5] * 8)
]
UNITS = {"conversations": CONVERSATIONS, "few conversations": CONVERSATIONS[:19]}
PREFERRED = {"conversations": 7, "many": 70, "even": 91}
OF_UNITS = (
    names.METRIC_UNITS,
    names.METRIC_UNIT_WEIGHT_SQUARED,
    names.METRIC_UNIT_FAILED,
    names.METRIC_UNIT_FAILED_SQUARED,
    names.METRIC_UNIT_SCORE,
    names.METRIC_UNIT_SCORE_SQUARED,
)
UNWEIGHED = {"plain": (90, 10), "plain, all pass": (40, 0), "nothing": (0, 0)}
BY = ("job",)


def sums_of(passes: list[float], fails: list[float], preferred: int = 0) -> UnitSums:
    sums = UnitSums()
    for score, weights in ((1.0, passes), (0.0, fails)):
        for weight in weights:
            sums.add(score, weight, is_baseline=sums.count >= preferred)
    return sums


def sums_of_units(units: list[list[tuple[float, float]]], preferred: int = 0) -> UnitSums:
    sums = UnitSums()
    for number, turns in enumerate(units):
        for score, weight in turns:
            sums.add(score, weight, number, is_baseline=sums.count >= preferred)
    return sums


def split(units: list[list[tuple[float, float]]]) -> tuple[list[float], list[float]]:
    turns = [turn for unit in units for turn in unit]
    passes, fails = ([w for score, w in turns if score == wanted] for wanted in (1.0, 0.0))
    return passes, fails


def counted(job: str, name: str, value: float, **labels: str) -> dict[str, str]:
    # Eleven points a minute apart: within ten minutes it grows by the value.
    pairs = {"job": job, CRITERION: HOSTILE, AGENT: "a", **labels}
    result = ", ".join(f"{label}={promql.quoted(item)}" for label, item in pairs.items())
    return {"series": f"{name}{{{result}}}", "values": f"0+{value / 10:.12g}x20"}


def sums_by_job() -> dict[str, UnitSums]:
    plain = {job: ([1.0] * p, [1.0] * f) for job, (p, f) in UNWEIGHED.items()}
    return {
        **{job: sums_of(*of, PREFERRED.get(job, 0)) for job, of in (WEIGHED | plain).items()},
        **{job: sums_of_units(of, PREFERRED.get(job, 0)) for job, of in UNITS.items()},
    }


def totals_of(job: str, units: list[list[tuple[float, float]]]) -> list[float]:
    """Return the counters of `OF_UNITS`, turn by turn."""
    increments, totals = UnitIncrements(), [0.0] * len(OF_UNITS)
    for number, turns in enumerate(units):
        for score, weight in turns:
            added = increments.add(job, number, weight, weight * (1 - score), weight * score)
            totals = [total + amount for total, amount in zip(totals, added, strict=True)]
    return totals


def measured() -> list[dict[str, str]]:
    built: list[dict[str, str]] = []

    def add(job: str, metric: Instrument, value: float, **labels: str) -> None:
        built.append(counted(job, metric.prometheus_name, value, **labels))

    sums = sums_by_job()
    for job, verdicts in (WEIGHED | {job: split(of) for job, of in UNITS.items()}).items():
        for label, weights in zip((names.LABEL_PASS, names.LABEL_FAIL), verdicts, strict=True):
            of_label = {LABEL: label}
            add(job, names.METRIC_RESULTS, len(weights), **of_label)
            add(job, names.METRIC_WEIGHT, sum(weights), **of_label)
            squares = sum(item * item for item in weights)
            add(job, names.METRIC_WEIGHT_SQUARED, squares, **of_label)
        of_scores = f"{names.METRIC_SCORE.prometheus_name}_count"
        built.append(counted(job, of_scores, sum(map(len, verdicts))))
        add(job, names.METRIC_WEIGHTED_SCORE, sums[job].wy)
        add(job, names.METRIC_WEIGHTED_SCORE_W2, sums[job].w2y)
        add(job, names.METRIC_WEIGHTED_SCORE_SQUARED_W2, sums[job].w2y2)
    for job, units in UNITS.items():
        for metric, total in zip(OF_UNITS, totals_of(job, units), strict=True):
            add(job, metric, total)
    for job, preferred in PREFERRED.items():
        add(job, names.METRIC_PREFERRED, preferred)
    for job, (passed, failed) in UNWEIGHED.items():
        for label, count in ((names.LABEL_PASS, passed), (names.LABEL_FAIL, failed)):
            add(job, names.METRIC_RESULTS, count, **{LABEL: label})
        built.append(counted(job, f"{names.METRIC_SCORE.prometheus_name}_count", passed + failed))
        built.append(counted(job, f"{names.METRIC_SCORE.prometheus_name}_sum", passed))
    return built


def expectations() -> dict[str, dict[str, float]]:
    """What each recorded series should be, by job."""
    sums = sums_by_job()
    there = {job: estimate for job, of in sums.items() if (estimate := of.estimate()) is not None}
    shown = {job: item for job, item in there.items() if item.has_interval}
    assert "nothing" not in there
    assert there.keys() - shown.keys() == {"all fail", "few conversations", "even"}
    means = {job: mean for job, of in sums.items() if (mean := of.mean()) is not None}
    halves = {
        job: 1.96
        * max(item.apart, item.variance if item.units < item.scores else item.between) ** 0.5
        for job, item in means.items()
        if job in shown
    }
    return {
        "pass_rate": {job: item.mean for job, item in there.items()},
        "verdicts": {job: item.effective for job, item in there.items()},
        "pass_rate_low": {job: item.low for job, item in shown.items()},
        "pass_rate_high": {job: item.high for job, item in shown.items()},
        "mean_score": {job: item.mean for job, item in means.items()},
        "mean_score_low": {job: max(0.0, means[job].mean - half) for job, half in halves.items()},
        "mean_score_high": {job: min(1.0, means[job].mean + half) for job, half in halves.items()},
        "scores": {job: item.kish for job, item in means.items()},
    }


def recorded(word: str) -> str:
    return f"recorded:{word}"


def checked(expression: str, expected: dict[str, float]) -> list[dict[str, Any]]:
    """The expression has exactly these series, and the value of each to a millionth."""
    requests = {f"group by (job) ({expression})": list(expected)}
    for job, value in expected.items():
        of_job = f"{expression}{{job={promql.quoted(job)}}}"
        requests[f"abs({of_job} - {value:.12g}) < bool 1e-6"] = [job]
    return [
        {
            "expr": request,
            "eval_time": "15m",
            "exp_samples": [
                {"labels": f"{{job={promql.quoted(job)}}}", "value": 1} for job in jobs
            ],
        }
        for request, jobs in requests.items()
    ]


@pytest.mark.backend
def test_prometheus_computes_what_intervals_computes(
    promtool_binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates, means and both ends of the intervals, weighted and plain; of no traffic no rate at
    all.
    """
    monkeypatch.setattr(intervals, "Z95", 1.96)  # as in the expressions, which people read
    matchers = promql.one_of(CRITERION, (HOSTILE,))
    expressions = {
        word: promql.sum_of(word, matchers, "10m", BY) for word in promql.SUMS
    } | promql.estimates(recorded)
    rules = [
        {"record": recorded(word), "expr": expression} for word, expression in expressions.items()
    ]
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "a", "rules": rules}]}, allow_unicode=True)
    )
    requested = [
        item
        for word, expected in expectations().items()
        for item in checked(recorded(word), expected)
    ]
    tests = [{"interval": "1m", "input_series": measured(), "promql_expr_test": requested}]
    tree = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "expressions.yaml").write_text(yaml.safe_dump(tree, allow_unicode=True))
    accepted(promtool_binary, "test", "rules", tmp_path / "expressions.yaml")
