"""The demo's support agent: it thinks, uses tools, streams, is slow now and then, and fails.

It plays the application: its own trace (request, agent, model and tool spans) stands around the monitored calls, as it
would in a service with tracing. The answers are scripted; the waiting is real.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from agenteval_otel import annotate, monitor
from agenteval_otel.cli.demo.answers import SYSTEM, answer_text
from agenteval_otel.cli.demo.script import Turn
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.semconv import (
    AGENT_NAME,
    CONVERSATION_ID,
    ERROR_TYPE,
    OPERATION_INVOKE_AGENT,
    OPERATION_NAME,
    REQUEST_MODEL,
)

__all__ = ["AGENT", "SLOW_S", "OrderSystemError", "SupportAgent"]

AGENT = "support"
SLOW_S = 1.0
"""Answers that take longer are slow, at the demo's own pace."""
_MODEL = "scripted-1"
_OPEN_CONVERSATIONS = 256


class OrderSystemError(Exception):
    """The shop's order system did not answer."""


class SupportAgent:
    """Answers planned turns, through `monitor`.

    Args:
        pipeline: Where the answers are evaluated.
        tracer: The application's own; spans are made and not kept without an exporter.
        pace: Factor of every latency; 1 is lifelike.
    """

    def __init__(self, pipeline: Pipeline, tracer: trace.Tracer | None, *, pace: float = 1.0) -> None:
        self._tracer, self._pace = tracer, pace
        self._conversations: dict[int, list[dict[str, Any]]] = {}
        monitored = monitor(agent=AGENT, pipeline=pipeline)
        self._answer, self._stream = monitored(self._plain_answer), monitored(self._streamed_answer)

    async def take(self, turn: Turn) -> None:
        """Take one request: what a web framework would call. The agent's failures end here, as an error page would."""
        attributes = {
            OPERATION_NAME: OPERATION_INVOKE_AGENT, AGENT_NAME: AGENT, CONVERSATION_ID: _conversation_id(turn),
            "app.prompt.version": turn.release,
        }  # fmt: skip
        messages = self._conversations.pop(turn.conversation, None) or [{"role": "system", "content": SYSTEM}]
        messages = [*messages, {"role": "user", "content": turn.question}]
        with self._request(turn) as request, self._span(f"invoke_agent {AGENT}", attributes) as span:
            try:
                answer = await (self._read(messages, turn) if turn.streamed else self._answer(messages, turn))
            except OrderSystemError as error:
                for failed in (span, request):
                    _failed(failed, type(error).__name__)
                return
        while len(self._conversations) >= _OPEN_CONVERSATIONS:  # most of them have ended, and nobody says so
            del self._conversations[next(iter(self._conversations))]
        self._conversations[turn.conversation] = [*messages, {"role": "assistant", "content": answer}]

    async def _read(self, messages: list[dict[str, Any]], turn: Turn) -> str:
        """Read a stream, as a browser would: to its end, or until the reader walks away."""
        chunks: list[str] = []
        stream = self._stream(messages, turn)
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == turn.leave_after:
                break
        await stream.aclose()
        return "".join(chunks)

    async def _plain_answer(self, messages: list[dict[str, Any]], turn: Turn) -> str:
        latency = self._begin(turn)
        await self._use_tool(turn, latency)
        with self._chat():
            await self._wait(latency.uniform(0.1, 0.35) + (latency.uniform(1.2, 1.8) if turn.slow else 0.0))
        if turn.mood == "failed":
            raise OrderSystemError("no answer within 3 s")
        return self._finish(turn)

    async def _streamed_answer(self, messages: list[dict[str, Any]], turn: Turn) -> AsyncGenerator[str, None]:
        latency = self._begin(turn)
        await self._use_tool(turn, latency)
        await self._wait(latency.uniform(0.05, 0.2) + (latency.uniform(1.2, 1.8) if turn.slow else 0.0))
        words = self._finish(turn).split(" ")
        for start in range(0, len(words), 3):
            yield " ".join(words[start : start + 3]) + (" " if start + 3 < len(words) else "")
            await self._wait(latency.uniform(0.01, 0.03))

    def _begin(self, turn: Turn) -> random.Random:
        annotate(
            model=_MODEL, conversation_id=_conversation_id(turn), metadata={"prompt_version": turn.release},
            response_id=f"demo-{turn.conversation}-{turn.place}",
        )  # fmt: skip
        return random.Random(turn.choice)

    def _finish(self, turn: Turn) -> str:
        text = answer_text(turn.mood, turn.topic, turn.choice)
        annotate(
            finish_reason="length" if turn.mood == "cut" else "stop",
            usage={"input_tokens": 180 + 40 * turn.place, "output_tokens": len(text) // 4},
        )
        return text

    async def _use_tool(self, turn: Turn, latency: random.Random) -> None:
        if turn.mood == "empty":
            return  # neither a tool nor a word: with a tool call a turn may well have no text
        name, arguments = turn.topic.tool, {"topic": turn.topic.word, "conversation": _conversation_id(turn)}
        with self._span(f"execute_tool {name}", {OPERATION_NAME: "execute_tool", "gen_ai.tool.name": name}) as span:
            await self._wait(latency.uniform(0.02, 0.12))
            result = {"error": "upstream timeout"} if turn.tool_fails else {"status": "ok", "note": turn.topic.fact}
            if turn.tool_fails:
                _failed(span, "upstream_timeout")
        annotate(tool_calls=[{"name": name, "arguments": arguments, "result": result}])

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._pace)

    @contextmanager
    def _request(self, turn: Turn) -> Iterator[trace.Span]:
        """The request's span; without an exporter a span that only gives the trace its id, from the script."""
        if self._tracer is not None:
            with self._tracer.start_as_current_span(
                "POST /support", kind=SpanKind.SERVER, attributes={"http.request.method": "POST"}
            ) as span:
                yield span
            return
        context = trace.SpanContext(turn.trace_id, (turn.choice << 16) + turn.place + 1, is_remote=False)
        with trace.use_span(trace.NonRecordingSpan(context)) as span:
            yield span

    @contextmanager
    def _span(self, name: str, attributes: dict[str, Any]) -> Iterator[trace.Span | None]:
        if self._tracer is None:
            yield None
            return
        with self._tracer.start_as_current_span(name, attributes=attributes) as span:
            yield span

    @contextmanager
    def _chat(self) -> Iterator[None]:
        if self._tracer is None:
            yield
            return
        with self._tracer.start_as_current_span(
            f"chat {_MODEL}", kind=SpanKind.CLIENT, attributes={OPERATION_NAME: "chat", REQUEST_MODEL: _MODEL}
        ):
            yield


def _conversation_id(turn: Turn) -> str:
    return f"c-{turn.conversation:04d}"


def _failed(span: trace.Span | None, error_type: str) -> None:
    if span is not None:
        span.set_attribute(ERROR_TYPE, error_type)
        span.set_status(trace.StatusCode.ERROR)
