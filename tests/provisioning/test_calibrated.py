"""Where a calibration record exists, rules and dashboards have the corrected pass rate, and say
which they show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from agenteval_otel.config import Settings
from agenteval_otel.config.process import build
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.calibration.agreement import LabelledRow, agreement_of
from agenteval_otel.offline.calibration.record import CalibrationRecord, CalibrationRecords
from agenteval_otel.provisioning import MonitoringPlan, promql
from agenteval_otel.provisioning.grafana import files_of as dashboards_of
from agenteval_otel.provisioning.prometheus import files_of
from agenteval_otel.provisioning.prometheus.rules import SHOWN
from agenteval_otel.testing import ScriptedJudge

from .plans import loaded

JUDGE = LLMJudge(
    "Is it polite?", criterion_name="polite", judge=ScriptedJudge(fallback={}), objective=0.9
)
# Of 100 good answers the judge passes 90, of 100 bad ones 25.
ROWS = [LabelledRow(number < 90, True, cluster=number) for number in range(100)]
ROWS += [LabelledRow(number < 25, False, cluster=100 + number) for number in range(100)]


def record(**fields: object) -> CalibrationRecord:
    known = agreement_of(ROWS).model_dump()
    signature = {
        "evaluator_id": JUDGE.signature["evaluator_id"],
        "evaluator_version": JUDGE.fingerprint,
    }
    return CalibrationRecord(
        **{**known, "criterion": "polite", **signature, "made": "2026-11-20", **fields}
    )


def plan(*records: CalibrationRecord) -> MonitoringPlan:
    return MonitoringPlan.of(
        build(Settings(evaluators=[JUDGE])), calibrations=CalibrationRecords(records)
    )


@pytest.fixture(scope="module")
def rules() -> dict[str, Mapping[str, str]]:
    """Prometheus' files with a record and without."""
    return {"corrected": files_of(plan(record())), "plain": files_of(plan())}


@pytest.mark.parametrize(
    ("mean", "verdicts"), [(0.5, 400.0), (0.86, 60.0), (0.3, 2_000.0), (0.02, 50.0), (1.0, 30.0)]
)
def test_prometheus_computes_what_the_record_corrects(mean: float, verdicts: float) -> None:
    """The expressions with numbers in the place of series, against the correction in Python."""
    expected = record().corrected(Estimate(mean, 0.0, 1.0, int(verdicts), verdicts))
    assert expected is not None
    names = {"sqrt": math.sqrt, "clamp_min": max, "clamp_max": min}
    low, high = (expected.low, expected.high)
    for word, value in {"": expected.mean, "_low": low, "_high": high}.items():
        expression = promql.corrected(record(), repr(mean), repr(verdicts))[
            f"corrected_pass_rate{word}"
        ]
        assert eval(expression.replace("^", "**"), names) == pytest.approx(value, abs=1e-9), word


def test_the_rules_have_the_corrected_rate_of_calibrated_criteria(rules: Any) -> None:
    """For each window that dashboards offer, of this criterion alone; without a record there is
    none.
    """
    groups = loaded(rules["corrected"]["rules/agenteval-dashboards.yaml"])["groups"]
    of_dashboards = [rule for group in groups for rule in group["rules"]]
    corrected = {
        rule["record"]: rule["expr"] for rule in of_dashboards if "corrected" in rule["record"]
    }
    assert sorted(corrected) == sorted(
        f"agenteval:corrected_pass_rate{end}:{window}"
        for end in ("", "_low", "_high")
        for window in SHOWN
    )
    assert all(
        '{gen_ai_evaluation_name="polite"}' in expression for expression in corrected.values()
    )
    assert "corrected" not in rules["plain"]["rules/agenteval-dashboards.yaml"]


@pytest.mark.parametrize("fields", [{"evaluator_version": "another"}, {"criterion": "other"}])
def test_a_record_of_another_judge_corrects_nothing(fields: dict[str, object]) -> None:
    """Nor does one of another criterion, or of rows from which nothing can be corrected."""
    assert [item.calibration for item in plan(record(**fields)).criteria] == [None]
    few = agreement_of(ROWS[:101]).model_dump()
    assert [item.calibration for item in plan(record(**few)).criteria] == [None]


def test_dashboards_say_which_they_show() -> None:
    """A column where there is a record, and words where there is none."""
    for made, words in (
        (plan(record()), "agreement with people"),
        (plan(), "not measured on your judge"),
    ):
        overview = dashboards_of(made)["dashboards/overview.json"]
        assert ("agenteval:corrected_pass_rate:" in overview) is (
            made.criteria[0].calibration is not None
        )
        texts = " ".join(re.findall(r'"content": "(.*?)(?<!\\)"', overview))
        assert words in texts.replace("&#10;", " ").lower(), texts
        assert "as the judges say" in overview.lower()


def test_alerts_say_which_they_show(rules: Any) -> None:
    """Alerts about quality decide by verdicts as they are, and tell the corrected share where there
    is one.
    """
    for kind, files in rules.items():
        (group,) = loaded(files["rules/agenteval-alerts.yaml"])["groups"]
        estimates = {
            rule["alert"]: rule["annotations"].get("estimate", "") for rule in group["rules"]
        }
        breached = estimates["AgentevalObjectiveBreached"]
        assert "as the judge says" in breached
        assert ("corrected_pass_rate:1d" in breached) is (kind == "corrected")
        assert estimates["AgentevalServiceSilent"] == ""
