"""Sampling that is decided after the answer: by rules on the caller's thread, by content on the
pool's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from opentelemetry import trace

from agenteval_otel import annotate, monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.models import EvaluationInput
from agenteval_otel.sampling import (
    ConversationSampler,
    ErrorSampler,
    FirstOfSampler,
    FunctionSampler,
    PatternSampler,
    RatioSampler,
    Sampler,
    SamplingContext,
    SamplingDecision,
)
from agenteval_otel.testing import RecordedTelemetry
from tests.instrumentation.support import outcomes_of
from tests.pipelines import pipeline_with
from tests.testing.doubles import Free, Keeping

NOTHING = RatioSampler(ratio=0.0)


class Route:
    """A pipeline that keeps its results and records what it emits."""

    def __init__(self, sampler: Any, *, agent_span: str = "sampled", **free: Any) -> None:
        self.kept, self.telemetry = Keeping(), RecordedTelemetry()
        self.pipeline = pipeline_with(
            sampler=sampler,
            evaluators=(Free(**free),),
            storage=(self.kept, self.telemetry.storage()),
            dispatcher=InlineDispatcher(),
            agent_span=agent_span,
        )

    def monitor(self, function: Any) -> Any:
        return monitor(agent="support", pipeline=self.pipeline)(function)

    @property
    def outcomes(self) -> dict[str, int]:
        return outcomes_of(self.pipeline)

    @property
    def reasons(self) -> list[tuple[str | None, float | None]]:
        return [(saved.sampling_reason, saved.sampling_probability) for saved in self.kept.saved]


def failing(question: str) -> str:
    if question == "bad":
        raise TimeoutError(question)
    return f"about {question}"


def test_an_error_is_picked_after_the_ratio_left_it_out() -> None:
    """Failures are evaluated with probability 1, with a span of their true times; every call has
    one outcome.
    """
    route = Route(FirstOfSampler(samplers=(ErrorSampler(), NOTHING)))
    handler = route.monitor(failing)
    assert [handler("a"), handler("b")] == ["about a", "about b"]
    with pytest.raises(TimeoutError):
        handler("bad")
    assert route.outcomes == {"evaluated": 1, "not_sampled": 2}
    assert route.reasons == [("error", 1.0)]
    (own,) = route.telemetry.spans("invoke_agent")
    (run,) = route.telemetry.spans("evaluation")
    assert own.attributes is not None
    assert own.attributes["agenteval.evaluation.sampled"] is True
    assert own.attributes["error.type"] == "TimeoutError"
    assert run.parent is not None
    assert run.parent.span_id == own.context.span_id
    assert (own.start_time or 0) <= (own.end_time or 0) <= (run.start_time or 0)


def test_what_is_sure_gets_its_span_before() -> None:
    """Where the draw alone says yes the span is open while the handler runs, whatever rules come
    after.
    """
    route = Route(FirstOfSampler(samplers=(ErrorSampler(), RatioSampler(ratio=1.0))))

    @route.monitor
    def handler(question: str) -> str:
        route.telemetry.tracer().start_span("inner").end()
        return question

    handler("a")
    (inner,) = route.telemetry.spans("inner")
    (own,) = route.telemetry.spans("invoke_agent")
    assert inner.parent is not None
    assert inner.parent.span_id == own.context.span_id


@pytest.mark.parametrize("agent_span", ["always", "never"])
def test_spans_say_whether_the_call_is_evaluated(agent_span: str) -> None:
    """A current span of the host's, and an own one under ``always``, say so after the answer, and
    only where it is.
    """
    route = Route(FirstOfSampler(samplers=(ErrorSampler(), NOTHING)), agent_span=agent_span)
    handler = route.monitor(failing)
    for question in ("a", "bad"):
        for around in (
            route.telemetry.tracer().start_as_current_span(question),
            trace.use_span(trace.INVALID_SPAN),
        ):
            with around, suppress(TimeoutError):
                handler(question)
    said = [
        (span.name, "agenteval.evaluation.sampled" in (span.attributes or {}))
        for span in route.telemetry.spans()
        if not span.name.startswith("evaluation ")
    ]
    own = (
        [("invoke_agent support", False), ("invoke_agent support", True)]
        if agent_span == "always"
        else []
    )
    assert sorted(said) == [("a", False), ("bad", True), *own]


def test_an_async_stream_that_is_left() -> None:
    """The rules hear of abandoned streams too; the chunks that were read are what is evaluated."""
    seen: list[EvaluationInput] = []

    def note(evaluation_input: EvaluationInput) -> bool:
        seen.append(evaluation_input)
        return evaluation_input.stream_end == "abandoned"

    route = Route(FunctionSampler(function=note))

    @route.monitor
    async def stream(question: str) -> AsyncGenerator[str, None]:
        for chunk in ("a", "b", "c"):
            yield chunk

    async def read() -> None:
        reading = stream("q")
        assert [await anext(reading), await anext(reading)] == ["a", "b"]
        await reading.aclose()
        assert [chunk async for chunk in stream("q")] == ["a", "b", "c"]

    asyncio.run(read())
    assert [item.response_text for item in seen] == ["ab", "abc"]
    assert route.outcomes == {"evaluated": 1, "not_sampled": 1}


def test_content_is_read_on_the_pools_side_only() -> None:
    """A pattern's call is passed on and decided there: not sampled is still counted as not sampled."""
    route = Route(FirstOfSampler(samplers=(PatternSampler(pattern="refund"), NOTHING)))
    handler = route.monitor(failing)
    handler("refund")
    handler("weather")
    assert route.outcomes == {"evaluated": 1, "not_sampled": 1}
    assert route.reasons == [("pattern", 1.0)]


@pytest.mark.parametrize("message", ["c-1", 7, UUID(int=5)])
def test_a_conversation_is_kept_whole(message: Any) -> None:
    """All turns of a conversation are decided alike, and evaluators' own rates cut from the
    conversation's draw.
    """
    route = Route(ConversationSampler(ratio=0.5), sample_rate=0.25)

    @route.monitor
    def handler(question: str, conversation: Any) -> str:
        annotate(conversation_id=conversation)
        return question

    for _ in range(20):
        handler("q", message)
    assert len(route.outcomes) == 1
    assert {len(saved.results) for saved in route.kept.saved} <= {0, 1}
    assert len({len(saved.results) for saved in route.kept.saved}) <= 1


class _Breaks(Sampler):
    """Raises when it is asked for the n-th time about a call."""

    at: int = 1

    def decide(self, context: SamplingContext) -> SamplingDecision:
        requests = 1 + (context.answer is not None) + (context.evaluation_input is not None)
        if requests == self.at:
            raise RuntimeError("broken")
        return SamplingDecision(False, None, "later", settled=False)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("traced", [True, False])
def test_a_sampler_that_breaks_costs_only_the_evaluation(at: int, traced: bool) -> None:
    """Whenever a sampler raises, the caller gets the answer, the call is counted once, and no span
    stays open.
    """
    route = Route(_Breaks(at=at), agent_span="always")
    handler = route.monitor(failing)
    with (
        route.telemetry.tracer().start_as_current_span("host")
        if traced
        else trace.use_span(trace.INVALID_SPAN)
    ):
        assert handler("a") == "about a"
        with pytest.raises(TimeoutError):
            handler("bad")
    assert route.outcomes == {"pipeline_failed": 2}
    assert route.pipeline.accounting.failures == {"sampler": 2}
    assert len(route.telemetry.spans("invoke_agent")) == (0 if traced or at == 1 else 2)
