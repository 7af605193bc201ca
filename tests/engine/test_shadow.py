"""Shadow: an evaluator is tried beside the present one; its results are emitted and stored, and
decide nothing.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, Score, Suite, monitor
from agenteval_otel.config.process import build
from agenteval_otel.config.settings import Settings
from agenteval_otel.errors import ConfigurationError, EvaluationSkipped
from agenteval_otel.evaluators import KeywordCoverage, RuleBased
from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from agenteval_otel.offline.run import run_evaluation_sync
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.grafana.texts import criterion_text
from agenteval_otel.provisioning.prometheus import alerts_of
from agenteval_otel.sampling import Escalation, ResultSampler
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from agenteval_otel.testing import RecordedTelemetry
from agenteval_otel.testing.expectations import check_expected
from tests.telemetry.support import Watch, points
from tests.testing.doubles import Fixed, Free, Raw, Thinking, config_of

INPUT = EvaluationInput(response="the answer", prompt="the question")
PRESENT = Free(criterion_name="tone", value=0.75, threshold=0.5)
TRIED = Free(
    criterion_name="tone", value=2, scale="likert5", threshold=4, objective=0.9, shadow=True
)


def broken(_: EvaluationInput) -> Any:
    raise ValueError("down")


def absent(_: EvaluationInput) -> Any:
    raise EvaluationSkipped("nothing to say")


async def thought(_: EvaluationInput) -> Score:
    return Score(value=0.25)


def outcomes_of(
    *evaluators: Any, evaluation_input: EvaluationInput = INPUT, **fields: Any
) -> list[tuple[Any, ...]]:
    results = run_evaluation_sync(evaluation_input, config_of(*evaluators, **fields)).results
    return [
        (result.criterion_name, result.shadow, result.status, result.normalized)
        for result in results
    ]


@pytest.mark.parametrize("order", [1, -1], ids=["behind", "before"])
def test_it_stands_beside_the_present_evaluator(order: int) -> None:
    """Both score the same answer, each on its own scale and threshold; the overall score is that of
    the present one.
    """
    result = run_evaluation_sync(INPUT, config_of(*[PRESENT, TRIED][::order]))
    by_name = {
        part.criterion_name: (part.normalized, part.label, part.shadow) for part in result.results
    }
    assert by_name == {"tone": (0.75, "pass", False), "tone.shadow": (0.25, "fail", True)}
    assert result.overall_score == 0.75


@pytest.mark.parametrize(
    "aggregation", ["weighted_mean", "once_per_criterion", "minimum", "all_must_pass"]
)
def test_no_aggregation_sees_it(aggregation: str) -> None:
    """Neither a mean nor the worst score; alone it gives no overall score."""
    assert run_evaluation_sync(
        INPUT, config_of(PRESENT, TRIED, aggregation=aggregation)
    ).overall_score in (0.75, 1.0)
    assert (
        run_evaluation_sync(INPUT, config_of(TRIED, aggregation=aggregation)).overall_score is None
    )


@pytest.mark.parametrize(
    ("evaluator", "status", "normalized"),
    [
        (Thinking(action=thought, criterion_name="tone", shadow=True), "scored", 0.25),
        (Fixed(criterion_name="tone", value=0.25, execution="thread", shadow=True), "scored", 0.25),
        (
            KeywordCoverage(
                criterion_name="tone", expected_keywords=["no"], execution="process", shadow=True
            ),
            "scored",
            0.0,
        ),
        (
            Raw(
                name="tone",
                shadow=True,
                results=(
                    EvaluationResult(criterion_name="tone", score=0.25, evaluator_type="Raw"),
                ),
            ),
            "scored",
            0.25,
        ),
        (Raw(name="tone", shadow=True, results=()), "skipped", None),
        (Free(criterion_name="tone", action=absent, shadow=True), "skipped", None),
        (Free(criterion_name="tone", action=broken, shadow=True), "failed", None),
    ],
    ids=["async", "thread", "process", "own results", "no result", "skip", "failure"],
)
def test_wherever_it_runs_and_whatever_comes(
    evaluator: Any, status: str, normalized: float | None
) -> None:
    """Scores, skips and failures have the shadow's name."""
    assert outcomes_of(PRESENT, evaluator)[1] == ("tone.shadow", True, status, normalized)


def test_evaluators_of_several_criteria_and_of_any() -> None:
    """All results of rules for several criteria; and of an evaluator that answers what it is asked
    for.
    """
    rules = [
        {"type": "length", "criterion": "short", "max": 5},
        {"type": "length", "criterion": "long", "min": 5},
    ]
    scores = outcomes_of(RuleBased(rules=rules, shadow=True))
    assert [(name, shadow, score) for name, shadow, _, score in scores] == [
        ("short.shadow", True, 0.0),
        ("long.shadow", True, 1.0),
    ]

    class AnswersAny(Raw):
        def criteria(self) -> tuple[EvaluationCriteria, ...]:
            return ()

        async def evaluate(self, evaluation_input: Any, criteria: Any) -> list[EvaluationResult]:
            return [
                EvaluationResult(criterion_name=part.name, score=1.0, evaluator_type="Any")
                for part in criteria
            ]

    both = outcomes_of(
        AnswersAny(),
        AnswersAny(shadow=True),
        criteria=[EvaluationCriteria(name="x", scale="numeric")],
    )
    assert both == [("x", False, "scored", 1.0), ("x.shadow", True, "scored", 1.0)]


def test_what_is_asked_for_is_asked_of_both() -> None:
    """An input's criterion goes to both evaluators; its form for the shadow alone goes to the
    shadow.
    """
    strict = EvaluationCriteria(
        name="tone.shadow", scale="numeric", threshold=0.9, weight=3, objective=1.0
    )
    numeric = EvaluationCriteria(name="tone", scale="numeric", threshold=0.7)
    same = Free(criterion_name="tone", value=0.75, shadow=True)

    def labels(*criteria: EvaluationCriteria) -> dict[str, str | None]:
        asked = EvaluationInput(response="the answer", criteria=criteria)
        results = run_evaluation_sync(asked, config_of(PRESENT, same)).results
        return {result.criterion_name: result.label for result in results}

    assert labels(numeric) == {"tone": "pass", "tone.shadow": "pass"}
    assert labels(numeric, strict) == {"tone": "pass", "tone.shadow": "fail"}
    assert labels(EvaluationCriteria(name="other")) == {}


def test_promoted_it_has_the_version_that_was_tried() -> None:
    """The version is that of the configuration, whether the evaluator is tried or present."""
    assert TRIED.fingerprint == TRIED.model_copy(update={"shadow": False}).fingerprint


def test_a_present_criterion_cannot_take_its_name() -> None:
    """A name with the shadow's ending is refused."""
    with pytest.raises(ConfigurationError, match=r"must not end with '\.shadow'"):
        Free(criterion_name="tone.shadow")


def test_telemetry_marks_it(telemetry: RecordedTelemetry) -> None:
    """Events bear the mark, metrics the name; it is among no failed criteria and in no overall
    score.
    """
    watch = Watch(telemetry)
    watch.answer(PRESENT, TRIED)
    events = {
        event.attributes["gen_ai.evaluation.name"]: dict(event.attributes)
        for event in telemetry.events()
    }
    assert events["tone.shadow"]["agenteval.evaluation.shadow"] is True
    assert "agenteval.evaluation.shadow" not in events["tone"]
    run = dict(watch.span().attributes)
    assert run["gen_ai.evaluation.tone.shadow.label"] == "fail"
    assert run["agenteval.evaluation.overall_score"] == 0.75
    assert "agenteval.evaluation.failed_criteria" not in run
    counted = {name for key in points(telemetry, "agenteval.evaluation.results") for name in key}
    assert {"tone", "tone.shadow"} <= counted
    watch.shutdown()


def test_it_is_stored(tmp_path: Path) -> None:
    """In JSON lines and in a database, where it is found by its name."""
    result = run_evaluation_sync(INPUT, config_of(PRESENT, TRIED))

    async def work() -> list[tuple[str, bool]]:
        json_file, sql = (
            JsonFileStorageProvider(path=tmp_path / "r.jsonl"),
            SqlStorageProvider(path=tmp_path / "r.db"),
        )
        for provider in (json_file, sql):
            await provider.save_result(result)
            await provider.close()
        stored = sql.query(criterion="tone.shadow")
        return [(item.result.criterion_name, item.result.shadow) for item in stored]

    assert asyncio.run(work()) == [("tone.shadow", True)]
    (line,) = (tmp_path / "r.jsonl").read_text().splitlines()
    assert [part["shadow"] for part in json.loads(line)["results"]] == [False, True]


def test_no_objective_is_watched(telemetry: RecordedTelemetry) -> None:
    """A criteria set that gives the shadow an objective changes nothing: no breach is reported,
    however bad it is.
    """
    breaches: list[Any] = []
    pipeline = build(
        Settings(
            evaluators=[PRESENT, TRIED],
            storage=[telemetry.storage()],
            on_breach=breaches.append,
            dispatcher="inline",
            sample_rate=1.0,
            criteria={
                "default": [{"name": "tone.shadow", "objective": 0.9, "of_last": 1, "weight": 9}]
            },
        )
    )
    handler = pipeline.handler("agent")
    assert dict(handler.objectives) == {}
    answer = monitor(pipeline=pipeline)(lambda question: "so")
    for _ in range(50):
        answer("x")
    assert pipeline.flush(5)
    assert breaches == []
    assert pipeline.accounting.results["scored"] == 100
    pipeline.shutdown(5)


def test_alerts_leave_it_out_and_dashboards_mark_it() -> None:
    """Settings with a shadow give the alerts of those without, and a text that says what it is."""
    plans = []
    for evaluators in ([PRESENT], [PRESENT, TRIED]):
        pipeline = build(Settings(evaluators=evaluators, storage=[]))
        plans.append(MonitoringPlan.of(pipeline))
        pipeline.shutdown(5)
    without, plan = plans
    assert [alert.expression for alert in alerts_of(plan)] == [
        alert.expression for alert in alerts_of(without)
    ]
    errors = next(alert for alert in alerts_of(plan) if alert.name == "AgentevalEvaluationErrors")
    assert errors.expression.count('gen_ai_evaluation_name!~".+[.]shadow"') >= 2
    assert [item.name for item in plan.criteria] == ["tone", "tone.shadow"]
    assert "A trial of an evaluator" in criterion_text(plan.criteria[1])
    alone = MonitoringPlan(criteria=plan.criteria[1:])
    assert alerts_of(alone) == []


def test_escalation_does_not_look_at_it() -> None:
    """A bad score of a shadow sends nothing to the judge."""
    judge = Thinking(criterion_name="judged")
    rule = Escalation(baseline_rate=0.000001, rules=[ResultSampler(below=0.5)])
    assert outcomes_of(PRESENT, TRIED, judge, escalation=rule)[-1][:3] == (
        "judged",
        False,
        "skipped",
    )
    low = Free(criterion_name="other", value=0.25)
    assert outcomes_of(PRESENT, low, judge, escalation=rule)[-1][:3] == ("judged", False, "scored")


def test_no_test_fails_by_it() -> None:
    """Suites and assertions show it and pass; what a test says it expects of it is checked."""
    failing = Free(criterion_name="other", action=broken, shadow=True)
    suite = Suite(evaluators=[failing, PRESENT, TRIED]).run_sync(INPUT)
    assert suite.check()
    assert (list(suite.scores), suite.errors, suite.not_run) == (["tone"], {}, ())
    assert "shadow" in str(suite)
    assert not Suite(evaluators=[TRIED]).run_sync(INPUT), "nothing that counts was scored"
    result = run_evaluation_sync(INPUT, config_of(failing, PRESENT, TRIED))
    check_expected(result)
    with pytest.raises(AssertionError, match=r"tone\.shadow"):
        check_expected(result, {"tone.shadow": True})
    with pytest.raises(AssertionError, match="every criterion"):
        check_expected(run_evaluation_sync(INPUT, config_of(TRIED)))
