"""An answer of several agents, evaluated from its spans and stored with its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, StatusCode, Tracer, set_span_in_context

from agenteval_otel.evaluators import Contains
from agenteval_otel.instrumentation.spans import AgentEvalSpanProcessor
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage.sql import SqliteStorageProvider
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with

START_NS = 1_790_000_000 * 10**9
LIMIT_MS = 60_000
QUESTION = "Where is my refund for order 4711?"
ANSWER = "Your refund was sent on Monday, please allow three days."
FIRST_CALL = {"type": "tool_call", "id": "c-1", "name": "lookup_order", "arguments": {"id": 4711}}
SECOND_CALL = {"type": "tool_call", "id": "c-2", "name": "ask_bank", "arguments": {"order": 4711}}


def messages(role: str, *parts: Any) -> str:
    return json.dumps([{"role": role, "parts": list(parts)}])


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


class Trace:
    """Makes spans with fixed times, in seconds from the beginning of the trace."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def span(
        self,
        operation: str,
        began_s: float,
        ended_s: float,
        parent: Span | None = None,
        **given: Any,
    ) -> Span:
        attributes = {f"gen_ai.{name.replace('__', '.')}": value for name, value in given.items()}
        span = self._tracer.start_span(
            f"{operation} {given.get('tool__name', '')}".strip(),
            context=None if parent is None else set_span_in_context(parent),
            start_time=START_NS + int(began_s * 1e9),
            attributes={"gen_ai.operation.name": operation, **attributes},
        )
        self._ends.append((span, START_NS + int(ended_s * 1e9)))
        return span

    def answer_of_several_agents(self) -> None:
        """Retrieval, three model calls, two tools, and an agent with a failing tool below one of them."""
        self._ends: list[tuple[Span, int]] = []
        model: dict[str, Any] = {
            "request__model": "claude-sonnet",
            "usage__input_tokens": 900,
            "usage__output_tokens": 90,
        }
        root = self.span("invoke_agent", 0, 8, agent__name="support")
        documents = json.dumps(["Refunds take three days.", "Orders ship on Mondays."])
        self.span(
            "retrieval",
            0.1,
            0.6,
            root,
            retrieval__query__text="refund times",
            retrieval__documents=documents,
        )
        self.span(
            "chat",
            0.7,
            2.2,
            root,
            input__messages=messages("user", text(QUESTION)),
            output__messages=messages("assistant", FIRST_CALL, SECOND_CALL),
            response__finish_reasons=["tool_calls"],
            **model,
        )
        self.span(
            "execute_tool",
            2.3,
            2.9,
            root,
            tool__name="lookup_order",
            tool__call__id="c-1",
            tool__call__result='{"state": "sent"}',
        )
        tool = self.span(
            "execute_tool", 2.9, 6.2, root, tool__name="ask_bank", tool__call__id="c-2"
        )
        bank = self.span("invoke_agent", 3.0, 6.1, tool, agent__name="bank")
        self.span("chat", 3.1, 4.0, bank, **{**model, "request__model": "small-1"})
        failing = self.span("execute_tool", 4.1, 6.0, bank, tool__name="read_ledger")
        failing.set_attribute("error.type", "TimeoutError")
        failing.set_status(StatusCode.ERROR, "the ledger is slow")
        self.span(
            "chat",
            6.3,
            7.9,
            root,
            output__messages=messages("assistant", text(ANSWER)),
            response__finish_reasons=["stop"],
            **model,
        )
        for span, ended_ns in reversed(self._ends):
            span.end(ended_ns)


def store_traced(path: Path, content: str = "span_and_event") -> None:
    """Evaluate the answer in this process by the spans that it makes, and store the result."""
    telemetry = RecordedTelemetry()
    provider: TracerProvider = telemetry.tracer_provider
    pipeline = pipeline_with(
        sampler=RatioSampler(ratio=1.0),
        evaluators=(Contains(substrings=["please"], criterion_name="polite"),),
        storage=(telemetry.storage(content=content), SqliteStorageProvider(path=str(path))),
    )
    processor = AgentEvalSpanProcessor(quiet_s=0.0, pipeline=pipeline)
    provider.add_span_processor(processor)
    Trace(provider.get_tracer("an-agent-library")).answer_of_several_agents()
    assert processor.force_flush(LIMIT_MS)
    processor.shutdown()
    pipeline.shutdown(60.0)
    telemetry.shutdown()
