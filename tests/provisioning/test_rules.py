"""Rules from settings: what is generated and what is not, and that promtool takes them and finds
them true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
import yaml

from agenteval_otel import semconv as names
from agenteval_otel.engine.objectives import BreachSettings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.pages import PAGES
from agenteval_otel.provisioning.prometheus import Alert, alerts_of, files_of
from agenteval_otel.provisioning.prometheus.quality import burn_limit, burn_verdicts
from agenteval_otel.provisioning.prometheus.rules import Links
from agenteval_otel.provisioning.promql import AGENT, CRITERION, ENVIRONMENT, LABEL, quoted
from agenteval_otel.ui.access import Access

from .plans import (
    EVERYTHING,
    HOSTILE,
    accepted,
    criterion,
    loaded,
    plan_of,
    promtool,
    rules_of_everything,
    written,
)

RULES = (
    "rules/agenteval-recording.yaml",
    "rules/agenteval-alerts.yaml",
    "rules/agenteval-dashboards.yaml",
)
TESTS = (
    "tests/agenteval-alerts.test.yaml",
    "tests/agenteval-silence.test.yaml",
    "tests/agenteval-fleet.test.yaml",
)
OBJECTIVES = (1e-6, 0.5, 0.8, 0.9, 0.93, 0.95, 0.99, 0.9999, 1.0)

PLANS = {
    "everything": EVERYTHING,
    "nothing": plan_of(),
    "scaled": EVERYTHING.model_copy(update={"time_scale": 0.0005}),
    "no thresholds, no objectives": plan_of(criterion("a"), criterion("b", scale="numeric")),
    "hostile names": plan_of(
        criterion(HOSTILE, agents=(HOSTILE, "b"), objective=0.9),
        criterion(HOSTILE, other_agents=(HOSTILE, "b", "c|d"), objective=0.97),
        criterion(f"{HOSTILE}2", other_agents=("b",), scale="likert5", threshold=3.0),
        judge_models=(HOSTILE,),
    ),
    "evaluators that pass over some": plan_of(criterion("a"), seen_share=0.03),
    "one agent only": plan_of(criterion("a", agents=("b",), objective=0.99), agents=("b", "c")),
    "many agents": plan_of(
        criterion("a", agents=("b", "c"), objective=0.9),
        criterion("a", other_agents=("b", "c"), objective=0.95),
        criterion("d", objective=0.9),
    ),
    "objectives a": plan_of(
        *(criterion(f"o{number}", objective=item) for number, item in enumerate(OBJECTIVES[::2]))
    ),
    "objectives b": plan_of(
        *(criterion(f"o{number}", objective=item) for number, item in enumerate(OBJECTIVES[1::2]))
    ),
    "of the last": plan_of(
        criterion("a", objective=0.95, of_last=100),
        criterion("b", objective=0.9, of_last=100),
        criterion("c", objective=1.0, of_last=50),
        criterion("d", objective=1.0),
        criterion("e", objective=0.95),
        criterion("a", agents=("b",), objective=0.95),
    ),
    "an evaluator that is tried": plan_of(
        criterion("a.shadow", scale="numeric", threshold=0.5), criterion("b", objective=0.9)
    ),
    "of the last only": plan_of(criterion("a", objective=1.0, of_last=100)),
    "two hundred criteria": plan_of(
        *(
            criterion(f"c{number}", objective=(0.9, 0.95, 1.0, None)[number % 4])
            for number in range(199)
        ),
        criterion(HOSTILE, agents=(HOSTILE,), objective=1.0),
        agents=(HOSTILE,),
    ),
    "thresholds": plan_of(
        *(
            criterion(f"t{number}", scale="numeric", threshold=item)
            for number, item in enumerate((0.0, 0.05, 0.5, 0.95, 1.0))
        )
    ),
}


def chance_of_more(failures: float, verdicts: int, share: float) -> float:
    """How likely more than so many of the verdicts fail, where each does so with this probability."""
    fewer = 0.0
    for count in range(math.floor(failures + 1e-9) + 1):
        ways = (
            math.lgamma(verdicts + 1) - math.lgamma(count + 1) - math.lgamma(verdicts - count + 1)
        )
        fewer += math.exp(ways + count * math.log(share) + (verdicts - count) * math.log1p(-share))
    return 1.0 - fewer


def names_of(plan: MonitoringPlan) -> set[str]:
    return {alert.name.removeprefix("Agenteval") for alert in alerts_of(plan)}


@pytest.mark.backend
@pytest.mark.parametrize("name", PLANS)
def test_promtool_finds_the_rules_valid_and_their_scenarios_true(
    name: str, promtool_binary: Path, tmp_path: Path
) -> None:
    """With any settings the rules load without a warning, and each alert fires in its scenarios and
    no other.
    """
    folder = written(files_of(PLANS[name]), tmp_path)
    rules = [folder / item for item in RULES]
    accepted(promtool_binary, "check", "rules", "--lint=all", "--lint-fatal", *rules)
    if PLANS[name].time_scale == 1.0:
        accepted(promtool_binary, "test", "rules", *(folder / item for item in TESTS))


@pytest.mark.parametrize("name", PLANS)
def test_every_alert_has_a_scenario_in_which_it_fires(name: str) -> None:
    """No alert is tested by silence alone."""
    alerts = alerts_of(PLANS[name])
    fires = {fired for alert in alerts for scenario in alert.scenarios for fired in scenario.fires}
    assert fires == {alert.name for alert in alerts}


def test_without_thresholds_objectives_and_judges_only_the_monitoring_is_watched() -> None:
    """No alert about quality that nobody asked for, none about judges that are not there; without
    criteria none.
    """
    files = files_of(plan_of(judge_models=("m",), has_spend_limit=True))
    assert all(loaded(files[name]) == {"groups": []} for name in RULES)
    monitoring = {
        "MonitorBlind",
        "ServiceSilent",
        "CollectorDown",
        "QueueDropping",
        "PipelineFailing",
        "ExportLosing",
        "EvaluationErrors",
        "SamplingReduced",
        "SidecarAway",
    }
    assert names_of(PLANS["no thresholds, no objectives"]) == monitoring
    judged = plan_of(criterion("a"), judge_models=("m",))
    assert names_of(judged) == monitoring | {"JudgeFailing", "JudgeBreakerOpen", "JudgeDrifted"}
    assert names_of(judged.model_copy(update={"has_spend_limit": True})) - names_of(judged) == {
        "BudgetSpent"
    }


def test_a_criterion_has_the_alerts_that_its_settings_give_reason_to() -> None:
    """An objective is breached or burns, one of 1 is missed by any failure, a mean is compared
    where none is set.
    """

    def quality(**fields: object) -> set[str]:
        return names_of(plan_of(criterion("a", **fields))) - names_of(plan_of(criterion("a")))

    burns = {"ObjectiveBreached", "ObjectiveBurnSlow"}
    assert quality(objective=0.95) == burns
    assert quality(objective=1.0) == {"FailureSeen"}
    assert quality(objective=0.0) == set()
    assert quality(objective=0.95, of_last=100) == burns
    assert quality(objective=1.0, of_last=100) == {"ObjectiveBreached"}
    undetected = plan_of(
        criterion("a", objective=1.0, of_last=100), breach=BreachSettings(enabled=False)
    )
    assert "FailureSeen" in names_of(undetected)
    assert quality(objective=0.9, scale="numeric") == set()  # nothing says what passes
    assert quality(objective=0.9, scale="numeric", threshold=0.7) == burns
    assert quality(scale="numeric", threshold=0.7) == {"MeanBelowThreshold"}
    # any failure would pull the mean below it
    assert quality(scale="likert5", threshold=5.0) == set()
    assert quality(scale="likert5", threshold=1.0) == set()
    assert quality(scale="a word", threshold=7.0) == set()  # no place on a scale from 0 to 1


@pytest.mark.parametrize("objective", [1e-9, 0.001, 0.1, *OBJECTIVES[:-1], 0.999])
def test_the_limit_can_be_passed_and_lies_above_what_is_allowed(objective: float) -> None:
    """At any objective: allowed < limit < everything fails."""
    assert 1.0 - objective < burn_limit(objective) < 1.0


def test_windows_and_waiting_times_are_scaled_with_a_floor() -> None:
    """With `time_scale` a day is shorter, no window is too short for two samples, and the series
    keep their names.
    """
    scaled = files_of(PLANS["scaled"])
    recording = scaled[RULES[0]]
    # 15 minutes: compared with the age that processes tell, which no scale changes.
    assert set(re.findall(r"\[(.+?)\]", recording)) == {"43200ms", "3600ms", "2s", "1500ms", "15m"}
    assert "agenteval:pass_rate:2h" in recording
    assert [loaded(scaled[name])["groups"][0]["interval"] for name in RULES] == ["1s"] * 3
    waits = {rule.get("for") for rule in loaded(scaled[RULES[1]])["groups"][0]["rules"]}
    assert waits == {None, "30ms", "150ms", "300ms"}
    assert not {*TESTS} & scaled.keys()  # the day of measurements is one of 24 hours


def test_each_alert_says_who_how_bad_and_what_to_do() -> None:
    """Every rule has a severity, a summary, a description and the address of its runbook."""
    files = files_of(EVERYTHING, runbooks="https://wiki.example/{{a}}/")
    rules = loaded(files[RULES[1]])["groups"][0]["rules"]
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"] != rule["annotations"]["description"]
        assert rule["annotations"]["runbook_url"].startswith(
            'https://wiki.example/{{ "{{" }}a}}/agenteval-'
        )
    assert {rule["alert"] for rule in rules if rule["labels"]["severity"] == "page"} == {
        "AgentevalObjectiveBreached",
        "AgentevalMonitorBlind",
        "AgentevalCollectorDown",
    }


@pytest.mark.parametrize(
    ("objective", "verdicts"), [(0.1, 2451), (0.5, 273), (0.95, 100), (0.99, 270), (0.999, 2720)]
)
def test_a_few_failures_are_never_enough(objective: float, verdicts: int) -> None:
    """The minimum of verdicts grows where hardly any may fail and where most may: chance alone
    passes no limit.
    """
    assert burn_verdicts(objective) == (verdicts, 20)
    limit, allowed = burn_limit(objective), 1.0 - objective
    assert limit * verdicts >= 5
    assert chance_of_more(limit * verdicts, verdicts, allowed) < 0.0025


def series(metric: names.Instrument, values: str, labels: dict[str, str]) -> dict[str, str]:
    labels = {"job": HOSTILE, ENVIRONMENT: HOSTILE, CRITERION: HOSTILE, AGENT: HOSTILE, **labels}
    matchers = ", ".join(f"{name}={quoted(value)}" for name, value in labels.items())
    return {"series": f"{metric.prometheus_name}{{{matchers}}}", "values": values}


def with_test(folder: Path, test: dict[str, Any]) -> Path:
    """A file of promtool's that tests the rules of this folder."""
    tree = {
        "rule_files": [str(path) for path in sorted((folder / "rules").iterdir(), reverse=True)],
        "evaluation_interval": "1m",
        "group_eval_order": ["agenteval-recording-slow", "agenteval-recording", "agenteval-alerts"],
        "tests": [test],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump(tree, allow_unicode=True))
    return file


@pytest.mark.backend
def test_names_are_shown_as_they_are(promtool_binary: Path, tmp_path: Path) -> None:
    """A name with quotes, braces and templates in it comes out of selectors and texts unchanged."""
    plan = plan_of(criterion(HOSTILE, agents=(HOSTILE,), objective=0.9))
    places = {"runbooks": "https://wiki.example/{{x}}", "traces": "http://jaeger/"}
    folder = written(files_of(plan, **places, pages="https://scores.example/"), tmp_path)
    who = {CRITERION: HOSTILE, AGENT: HOSTILE, "job": HOSTILE, ENVIRONMENT: HOSTILE}
    service = f"{HOSTILE} in {HOSTILE}"
    link = "http://jaeger/search?lookback=1h&service={0}&tags=%7B%22gen_ai.evaluation.{0}.label%22%3A%22fail%22%7D"
    name = quote_plus(HOSTILE)
    links = {"traces_url": link.format(name)}
    answers = (
        f"https://scores.example/answers?agent={name}&criterion={name}&outcome=fail&time=evaluated"
    )
    page = {
        "exp_labels": {**who, "severity": "page"},
        "exp_annotations": {
            "summary": f"{HOSTILE} of {HOSTILE} ({service}) breaches its objective: 75% of the last answers fail",
            "description": (
                f"Fewer answers of the agent {HOSTILE} pass the criterion {HOSTILE} than its objective asks for. A "
                "process detected it, or the evidence of all processes together, each with at most one false alarm "
                "in `breach.false_alarm_every` verdicts. It lasts until there is evidence of the recovery."
            ),
            "runbook_url": "https://wiki.example/{{x}}/agenteval-objective-breached.md",
            # promtool's time begins with the epoch.
            "answers_url": f"{answers}&since={5 * 3600}&until={6 * 3600}",
            **links,
        },
    }
    ticket = {
        "exp_labels": {**who, "severity": "ticket", "objective": "0.9"},
        "exp_annotations": {
            "summary": f"75% of the answers fail {HOSTILE} of {HOSTILE} ({service}), and its objective allows 10 %",
            "description": (
                f"In the last 1d 75% of the answers failed the criterion {HOSTILE} of the agent {HOSTILE}. There and "
                "in the last 2h it is more than 28 %, 2.8 times what the objective of 0.9 allows."
            ),
            "runbook_url": "https://wiki.example/{{x}}/agenteval-objective-burn-slow.md",
            "answers_url": f"{answers}&since={-19 * 3600}&until={5 * 3600}",
            **links,
        },
    }
    test = {
        "interval": "1m",
        "input_series": [
            series(names.METRIC_RESULTS, "0+30x360", {LABEL: "fail"}),
            series(names.METRIC_RESULTS, "0+10x360", {LABEL: "pass"}),
            series(names.METRIC_OBJECTIVE_BREACH, "0x350 1x10", {}),
        ],
        "alert_rule_test": [
            {"eval_time": "5h", "alertname": "AgentevalObjectiveBurnSlow", "exp_alerts": [ticket]},
            {"eval_time": "6h", "alertname": "AgentevalObjectiveBreached", "exp_alerts": [page]},
        ],
    }
    accepted(promtool_binary, "test", "rules", with_test(folder, test))


@pytest.mark.backend
@pytest.mark.parametrize("agent", ["", names.OTHER])
def test_answers_are_not_chosen_by_an_agent_that_has_no_name_of_its_own(
    agent: str, promtool_binary: Path, tmp_path: Path
) -> None:
    """Stored answers keep the name for which metrics have no room."""
    alert = Alert("Tried", "tried == 1", 0.0, "page", "fell", "It fell.", (), is_quality=True)
    rule = alert.rule(plan_of(), Links(runbooks=None, traces=None, pages="https://scores.example"))
    (tmp_path / "rules").mkdir()
    tree = {"groups": [{"name": "tried", "rules": [rule]}]}
    (tmp_path / "rules/tried.yaml").write_text(yaml.safe_dump(tree))
    url = "https://scores.example/answers?criterion=a&outcome=fail&time=evaluated&since=3600&until=7200"
    labels = {CRITERION: "a", AGENT: agent} if agent else {CRITERION: "a"}
    firing = {
        "exp_labels": {**labels, "severity": "page"},
        "exp_annotations": {"summary": "fell", "description": "It fell.", "answers_url": url},
    }
    matchers = ", ".join(f"{name}={quoted(value)}" for name, value in labels.items())
    test = {
        "interval": "1m",
        "input_series": [{"series": f"tried{{{matchers}}}", "values": "1x120"}],
        "alert_rule_test": [{"eval_time": "2h", "alertname": "Tried", "exp_alerts": [firing]}],
    }
    accepted(promtool_binary, "test", "rules", with_test(tmp_path, test))


def test_alerts_link_to_the_pages_where_there_are_pages() -> None:
    """To those on this machine unless an address is named, and to none where there are none."""
    for address, begins in (
        ({}, f"{PAGES}/answers?"),
        ({"pages": "https://scores.example/agents/"}, "https://scores.example/agents/answers?"),
    ):
        assert answers_urls(**address)
        assert [url for url in answers_urls(**address) if not url.startswith(begins)] == []
    assert answers_urls(pages="none") == []
    assert Access(8629).address.startswith(f"{PAGES}/")
    for wrong in ("scores.example", "javascript:alert(1)", "", "http://"):
        with pytest.raises(ConfigurationError, match="pages: must be an address"):
            answers_urls(pages=wrong)


def answers_urls(**options: str) -> list[str]:
    """Return the links of the alerts about quality of a plan."""
    plan = plan_of(criterion("a", objective=0.9), criterion("b", scale="numeric", threshold=0.5))
    (group,) = loaded(files_of(plan, **options)["rules/agenteval-alerts.yaml"])["groups"]
    annotations = [rule["annotations"] for rule in group["rules"]]
    return [entry["answers_url"] for entry in annotations if "answers_url" in entry]


@pytest.mark.backend
@pytest.mark.parametrize(
    ("breach", "failures", "at", "paged"),
    [
        ("_x20 1", "_x20 1", "20m", True),
        ("0x15 1x9", "0+1x25", "25m", True),
        ("0x15 1x9 _x30", "0+1x25 _x30", "52m", False),
    ],
    ids=["first export", "lasts", "process ended"],
)
def test_a_breach_is_one_alert_with_its_own_text(
    breach: str, failures: str, at: str, paged: bool, promtool_binary: Path, tmp_path: Path
) -> None:
    """With `of_last`, without, and where a failure is a ticket; only the statistics claim how rare
    false alarms are.
    """
    plan = plan_of(
        criterion("last", objective=0.95, of_last=100),
        criterion("strict_last", objective=1.0, of_last=100),
        criterion("strict", objective=1.0),
        criterion("evidence", objective=0.95),
    )
    folder = written(files_of(plan), tmp_path)
    labels = {"job": "shop", AGENT: "x"}
    lines = [
        series(metric, values, {**labels, CRITERION: item.name, **label})
        for item in plan.criteria
        for metric, values, label in (
            (names.METRIC_OBJECTIVE_BREACH, breach, {}),
            (names.METRIC_RESULTS, failures, {LABEL: "fail"}),
            (names.METRIC_RESULTS, failures.replace("1", "0"), {LABEL: "pass"}),
        )
    ]
    wanted = {("FailureSeen", "strict")}
    wanted |= (
        {("ObjectiveBreached", name) for name in ("last", "strict_last", "evidence")}
        if paged
        else set()
    )
    samples = [
        {"labels": f'{{alertname="Agenteval{name}", {CRITERION}="{item}"}}', "value": 1}
        for name, item in sorted(wanted)
    ]
    firing = {
        "expr": f"count by (alertname, {CRITERION}) "
        '(ALERTS{alertname=~".*Breached|.*Seen",alertstate="firing"})',
        "eval_time": at,
        "exp_samples": samples,
    }
    test = {"interval": "1m", "input_series": lines, "promql_expr_test": [firing]}
    accepted(promtool_binary, "test", "rules", with_test(folder, test))
    texts = {
        alert.labels.get("of_last"): alert.description
        for alert in alerts_of(plan)
        if "Breached" in alert.name
    }
    assert "at most one false alarm" in texts[None]
    assert "false alarm" not in texts["100"]
    assert "the last 100 verdicts" in texts["100"]


# --- the generated tests can fail ---


def scaled(pattern: str, factor: float) -> Callable[[str], str]:
    """Every number that the pattern finds, times the factor."""
    return lambda text: re.sub(
        pattern, lambda match: f"{float(match[0]) * factor:.6f}", text, flags=re.MULTILINE
    )


SHARE, LEAST = r"(?<=[<>] )0\.\d+", r"(?<=>= )\d\d+$"
MUTATIONS: dict[str, Callable[[str], str]] = {
    "limits a tenth higher": scaled(SHARE, 1.1),
    "limits a tenth lower": scaled(SHARE, 0.9),
    "minimum counts a tenth higher": scaled(LEAST, 1.1),
    "minimum counts a tenth lower": scaled(LEAST, 0.9),
    "without the second condition": lambda text: re.sub(
        r"(?s)\nand .*?(?=\nand |\Z)", "", text, count=1
    ),
    "without the last condition": lambda text: text.rpartition("\nand ")[0] or text,
    "without what follows unless and or": lambda text: re.sub(r"\n(unless|or) .*", "", text),
}


def failing(output: str) -> set[str]:
    """The alerts that fired for other services than expected."""
    pairs = re.findall(r"exp: (.*)\n *got: (.*)", output)
    different = (
        set(re.findall(r"{.*?}", expected)) ^ set(re.findall(r"{.*?}", got))
        for expected, got in pairs
    )
    return {
        name
        for samples in different
        for name in re.findall(r'alertname="(\w+)"', " ".join(samples))
    }


@pytest.mark.backend
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_changed_rule_is_noticed(mutation: str, promtool_binary: Path, tmp_path: Path) -> None:
    """For every alert that the change touches its generated test fails."""
    files = rules_of_everything()
    tree = loaded(files[RULES[1]])
    changed = set()
    for rule in tree["groups"][0]["rules"]:
        mutated = MUTATIONS[mutation](rule["expr"])
        if mutated != rule["expr"]:
            changed.add(rule["alert"])
        rule["expr"] = mutated
    folder = written({**files, RULES[1]: yaml.safe_dump(tree)}, tmp_path)
    code, message = promtool(promtool_binary, "test", "rules", *(folder / item for item in TESTS))
    assert changed
    assert code != 0
    assert changed - failing(message) == set()


SUMMED: dict[str, Callable[[str], str]] = {
    "runs are added": lambda text: text.replace("max by", "sum by"),
    "each look counts runs": lambda text: re.sub(r"\nunless .*", "", text),
    "first values do not count": lambda text: re.sub(r"\n  or\n .*", "", text),
    "an old process counts in full": lambda text: re.sub(r" and .*age_seconds < 900", "", text),
    "nothing is lost": lambda text: re.sub(r"(?s)\)\n- sum by.*", ")", text),
    "evidence is not remembered": lambda text: re.sub(
        r"last_over_time\(agenteval:objective_wealth.* or 0 ", "0 ", text
    ),
    "a gap ends the evidence": lambda text: re.sub(
        r"last_over_time\((agenteval:objective_wealth)\[15m\]\)", r"\1", text
    ),
    "nobody joins": lambda text: re.sub(r"(?s)  \+ on .*\n\),", ",", text),
    "without a limit": lambda text: text.replace("2000000000)", "1e280)"),
}


@pytest.mark.backend
@pytest.mark.parametrize("mutation", SUMMED)
def test_a_changed_sum_is_noticed(mutation: str, promtool_binary: Path, tmp_path: Path) -> None:
    """The scenarios of several processes find a rule that counts too much, or too little."""
    files = rules_of_everything()
    tree = loaded(files[RULES[0]])
    (group,) = (group for group in tree["groups"] if group["name"] == "agenteval-recording-fleet")
    before = [rule["expr"] for rule in group["rules"]]
    for rule in group["rules"]:
        rule["expr"] = SUMMED[mutation](rule["expr"])
    assert before != [rule["expr"] for rule in group["rules"]]
    folder = written({**files, RULES[0]: yaml.safe_dump(tree)}, tmp_path)
    code, message = promtool(promtool_binary, "test", "rules", folder / TESTS[2])
    assert code != 0
    assert failing(message) == {"AgentevalObjectiveBreached"}
