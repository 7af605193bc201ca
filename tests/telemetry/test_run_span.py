"""The run span: a child of the evaluated span that carries every score."""

from __future__ import annotations

import time

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanKind, StatusCode

from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.testing import RecordedTelemetry
from tests.telemetry.support import Watch, skip, trace_of
from tests.testing.doubles import Fixed, Free, Thinking


def fail(_: EvaluationInput) -> Score:
    raise ValueError("secret text")


def test_it_is_a_child_of_the_evaluated_span(watch: Watch) -> None:
    """The run span is INTERNAL, of our scope, as long as the run, and a child of the span around
    the handler.
    """
    before = time.time_ns()
    host = watch.answer(Fixed())
    run = watch.span()
    assert before - 10**9 < run.start_time <= run.end_time < time.time_ns() + 10**9
    for unknown in (
        "gen_ai.request.model",
        "gen_ai.conversation.id",
        "gen_ai.response.id",
        "agenteval.stream.end",
    ):
        assert unknown not in run.attributes
    assert run.attributes["gen_ai.evaluation.has_ground_truth"] is False
    assert (run.parent.trace_id, run.parent.span_id) == trace_of(host)
    assert (run.kind, run.name, run.status.status_code) == (
        SpanKind.INTERNAL,
        "evaluation support",
        StatusCode.UNSET,
    )
    assert run.instrumentation_scope.name == "agenteval_otel"
    assert run.instrumentation_scope.schema_url
    assert run.attributes["gen_ai.operation.name"] == "evaluation"


def test_it_carries_scores_and_labels(watch: Watch) -> None:
    """Every scored criterion has its raw score and label, skips and failures neither; annotated
    facts stand beside.
    """
    watch.answer(
        Free(criterion_name="tone", value=4, scale="likert5", threshold=4),
        Free(criterion_name="flag", value=False),
        Free(criterion_name="kind", value="polite", scale="words"),
        Free(criterion_name="bad", action=fail),
        Free(criterion_name="none", action=skip),
        ResponseHealth(),
        facts={
            "ground_truth": "so",
            "model": "m-1",
            "conversation_id": "c-1",
            "response_id": "r-1",
        },
    )
    result = dict(watch.span().attributes)
    scores = {name: value for name, value in result.items() if name.endswith((".score", ".label"))}
    assert scores == {
        "gen_ai.evaluation.tone.score": 4.0,
        "gen_ai.evaluation.tone.label": "pass",
        "gen_ai.evaluation.flag.score": 0.0,
        "gen_ai.evaluation.flag.label": "fail",
        "gen_ai.evaluation.kind.label": "polite",
        "gen_ai.evaluation.response_health.score": 1.0,
        "gen_ai.evaluation.response_health.label": "pass",
    }
    assert type(result["gen_ai.evaluation.tone.score"]) is float
    assert result["agenteval.evaluation.overall_score"] == pytest.approx((0.75 + 0 + 1) / 3)
    assert result["agenteval.evaluation.failed_criteria"] == ("flag",)
    assert result["gen_ai.evaluation.module"] == "support"
    assert result["gen_ai.evaluation.has_ground_truth"] is True
    assert (result["gen_ai.request.model"], result["gen_ai.conversation.id"]) == ("m-1", "c-1")
    assert result["gen_ai.response.id"] == "r-1"
    assert result["agenteval.sampling.probability"] == 1.0
    assert result["agenteval.sampling.reason"] == "ratio"


def test_the_module_follows_what_is_annotated(watch: Watch) -> None:
    """The part of the system that answered, as the ground truth is looked up by it; else the agent."""
    watch.answer(Free(), facts={"metadata": {"module": "FAQAgent"}})
    assert watch.span().attributes["gen_ai.evaluation.module"] == "FAQAgent"
    assert watch.span().attributes["gen_ai.agent.name"] == "support"


@pytest.mark.parametrize("count", [50, 51, 130])
def test_many_criteria_do_not_push_the_core_out(watch: Watch, count: int) -> None:
    """With more criteria than a span takes, scores are left out and the core attributes stand."""
    watch.answer(
        *(Free(criterion_name=f"c{index}", value=0.2, threshold=0.5) for index in range(count))
    )
    actual = watch.span().attributes
    for name in (
        "gen_ai.evaluation.module",
        "gen_ai.evaluation.has_ground_truth",
        "agenteval.evaluation.overall_score",
        "agenteval.sampling.probability",
        "agenteval.evaluation.failed_criteria",
    ):
        assert name in actual
    assert len([name for name in actual if name.endswith(".score")]) >= 50
    assert watch.span().dropped_attributes == 0


@pytest.mark.parametrize(
    ("detail", "written"),
    [
        ("auto", {"thinking", "bad"}),
        ("result", {"thinking", "bad", "free", "cpu"}),
        ("response", set()),
        ("none", None),
    ],
)
def test_result_spans_by_detail(
    telemetry: RecordedTelemetry, detail: str, written: set[str] | None
) -> None:
    """``auto`` writes them for models and failures, ``result`` for all but skips; ``none`` leaves
    out the run span.
    """
    watch = Watch(telemetry, detail=detail)
    watch.answer(
        Thinking(),
        Free(criterion_name="bad", action=fail),
        Free(criterion_name="free"),
        Fixed(criterion_name="cpu"),
        Free(criterion_name="none", action=skip),
    )
    watch.shutdown()
    assert len(telemetry.events()) == 4
    if written is None:
        assert telemetry.spans("evaluation") == []
        return
    run = watch.span()
    results = [span for span in telemetry.spans("evaluation ") if span is not run]
    assert {span.name.removeprefix("evaluation ") for span in results} == written
    for span in results:
        assert (span.parent.trace_id, span.parent.span_id) == trace_of(run.context)
        assert span.end_time >= span.start_time >= run.start_time - 1_000_000
        failed = span.name == "evaluation bad"
        assert span.status.status_code is (StatusCode.ERROR if failed else StatusCode.UNSET)
        assert ("error.type" in span.attributes) is failed
        assert ("gen_ai.evaluation.score.value" in span.attributes) is not failed
    assert "secret text" not in repr([dict(span.attributes) for span in results])


@pytest.mark.parametrize("sampled", [True, False])
def test_linked_placement(sampled: bool) -> None:
    """``linked`` puts the run span into a trace of its own, with one link; an unsampled trace gets
    events only.
    """
    telemetry = RecordedTelemetry(sampler=ALWAYS_ON if sampled else ALWAYS_OFF)
    watch = Watch(telemetry, placement="linked")
    host = watch.answer(ResponseHealth())
    watch.shutdown()
    (event,) = telemetry.events()
    assert (event.trace_id, event.span_id) == trace_of(host)
    assert event.trace_flags.sampled is sampled
    runs = telemetry.spans("evaluation support")
    assert [(run.parent, [trace_of(link.context) for link in run.links]) for run in runs] == (
        [(None, [trace_of(host)])] if sampled else []
    )
    assert all(run.context.trace_id != trace_of(host)[0] for run in runs)
    telemetry.shutdown()


def test_spans_of_judges_nest_below_it(watch: Watch) -> None:
    """The run span is the current span while evaluators run, so a judge's own model call is its
    child.
    """

    async def judge(_: EvaluationInput) -> None:
        watch.telemetry.tracer().start_span("chat judge").end()

    watch.answer(Thinking(action=judge))
    assert trace_of(watch.span("chat judge").parent) == trace_of(watch.span().context)
