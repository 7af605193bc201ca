"""The agent's own span, where the handler runs in no trace."""

from __future__ import annotations

import time
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from agenteval_otel import monitor
from agenteval_otel.evaluators import ResponseHealth
from tests.telemetry.support import Watch, trace_of
from tests.testing.doubles import Free


def test_it_is_an_invoke_agent_span(watch: Watch) -> None:
    """Without a current span the call gets ``invoke_agent {agent}`` with its attributes; the run is
    its child.
    """
    before = time.time_ns()
    watch.answer(ResponseHealth(), Free(), traced=False)
    own, run = watch.span("invoke_agent support"), watch.span()
    assert dict(own.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "support",
        "agenteval.evaluation.sampled": True,
        "agenteval.evaluation.criteria": ("response_health", "fixed"),
    }
    assert (own.parent, own.kind, own.status.status_code) == (
        None,
        SpanKind.INTERNAL,
        StatusCode.UNSET,
    )
    assert trace_of(run.parent) == trace_of(own.context)
    assert before - 10**9 < own.start_time <= own.end_time < time.time_ns() + 10**9


@pytest.mark.parametrize("ratio", [1.0, 0.0])
def test_a_handler_that_raises(watch: Watch, ratio: float) -> None:
    """The span of a call that raised, evaluated or not, is an ERROR with the exception's class,
    never its text.
    """
    error = TimeoutError("secret host name")
    watch.answer(ResponseHealth(), error=error, traced=False, agent_span="always", ratio=ratio)
    own = watch.span("invoke_agent support")
    assert (own.status.status_code, own.status.description) == (StatusCode.ERROR, None)
    assert own.attributes["error.type"] == "TimeoutError"
    assert not own.events
    assert "secret" not in repr(own.attributes)


@pytest.mark.parametrize(
    ("agent_span", "ratio", "expected"),
    [
        ("sampled", 1.0, 1),
        ("sampled", 0.0, 0),
        ("always", 1.0, 1),
        ("always", 0.0, 1),
        ("never", 1.0, 0),
        ("never", 0.0, 0),
    ],
)
def test_which_calls_get_one(watch: Watch, agent_span: str, ratio: float, expected: int) -> None:
    """``sampled`` calls, ``always`` all, ``never`` none: then the run span is a root."""
    watch.answer(ResponseHealth(), traced=False, agent_span=agent_span, ratio=ratio)
    spans = watch.telemetry.spans("invoke_agent")
    assert len(spans) == expected
    for span in spans:
        assert ("agenteval.evaluation.sampled" in (span.attributes or {})) is (ratio == 1.0)
    runs = watch.telemetry.spans("evaluation")
    assert len(runs) == ratio
    assert all((run.parent is None) is (agent_span == "never") for run in runs)
    host = watch.answer(ResponseHealth(), agent_span=agent_span, ratio=ratio)
    assert len(watch.telemetry.spans("invoke_agent")) == expected, (
        "within a trace the current span is used instead"
    )
    about = {
        "agenteval.evaluation.sampled": True,
        "agenteval.evaluation.criteria": ("response_health",),
    }
    assert dict(host.attributes) == (about if ratio else {})


def test_the_handlers_own_spans_nest_below(watch: Watch) -> None:
    """What a handler or a stream traces inside is a child of its own span, which is not current
    outside of it.
    """
    inner = watch.telemetry.tracer()

    @monitor(agent="support", pipeline=watch.pipeline([ResponseHealth()]))
    def stream(question: str) -> Any:
        for chunk in ("a", "b"):
            inner.start_span("inner").end()
            yield chunk

    @monitor(agent="support", pipeline=watch.pipeline([ResponseHealth()]))
    def handler(question: str) -> str:
        inner.start_span("inner").end()
        return "answer"

    chunks = stream("q")
    next(chunks)
    assert not trace.get_current_span().get_span_context().is_valid
    assert watch.telemetry.spans("invoke_agent") == [], "it is open until the last chunk"
    assert list(chunks) == ["b"]
    handler("q")
    assert not trace.get_current_span().get_span_context().is_valid
    of_stream, of_handler = (
        trace_of(own.context) for own in watch.telemetry.spans("invoke_agent support")
    )
    assert [trace_of(span.parent) for span in watch.telemetry.spans("inner")] == [
        of_stream,
        of_stream,
        of_handler,
    ]


def test_a_tracer_that_comes_later(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no tracer was to be had at the call, its span is written afterwards, with its true times
    and error.
    """
    monkeypatch.setattr(watch.emitter.emitter.providers, "agent_tracer_now", lambda: None)
    seen: dict[str, int] = {}

    @monitor(agent="support", pipeline=watch.pipeline([ResponseHealth()]))
    def handler(question: str) -> str:
        seen["inside"] = time.time_ns()
        raise TimeoutError

    watch.call(handler, traced=False)
    own, run = watch.span("invoke_agent support"), watch.span()
    assert own.start_time <= seen["inside"] <= own.end_time + 1_000_000
    assert own.end_time <= run.start_time + 1_000_000
    assert trace_of(run.parent) == trace_of(own.context)
    assert own.status.status_code is StatusCode.ERROR
    (event,) = watch.telemetry.events()
    assert (event.trace_id, event.span_id) == trace_of(own.context)
