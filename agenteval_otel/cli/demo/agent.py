"""The demo's application: an agent that answers the traffic through `monitor`.

Request, agent, model and tool spans are the application's own. The answers are scripted; the waiting is real.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

from opentelemetry.trace import NoOpTracer, Span, SpanKind, StatusCode, Tracer

from agenteval_otel import annotate, monitor
from agenteval_otel import semconv as names
from agenteval_otel.cli.demo.traffic import Turn
from agenteval_otel.pipeline import Pipeline

_MODEL = "scripted-1"


class OrderSystemError(Exception):
    """The shop's order system did not answer."""


class Agent:
    """Answers turns. `pace` multiplies every latency."""

    def __init__(self, name: str, pipeline: Pipeline, tracer: Tracer | None = None, *, pace: float = 1.0) -> None:
        self._name, self._tracer, self._pace = name, tracer or NoOpTracer(), pace
        self._latency = random.Random(7)
        monitored = monitor(agent=name, pipeline=pipeline)
        self._answer, self._stream = monitored(self._plain_answer), monitored(self._streamed_answer)

    async def serve(self, turn: Turn) -> None:
        """Serve one request, as a web framework would call it. Failures of the agent end here."""
        span = self._tracer.start_as_current_span
        attributes: dict[str, Any] = {
            names.OPERATION_NAME: names.OPERATION_INVOKE_AGENT, names.AGENT_NAME: self._name,
            names.CONVERSATION_ID: turn.conversation, "app.prompt.version": turn.release,
        }  # fmt: skip
        with (
            span(f"POST /{self._name}", kind=SpanKind.SERVER, attributes={"http.request.method": "POST"}) as request,
            span(f"invoke_agent {self._name}", attributes=attributes) as agent,
        ):
            try:
                if turn.streamed:
                    async for _ in self._stream(turn.messages, turn):
                        pass
                else:
                    await self._answer(turn.messages, turn)
            except OrderSystemError as error:
                _set_failed(request, type(error).__name__)
                _set_failed(agent, type(error).__name__)

    async def _plain_answer(self, messages: list[dict[str, Any]], turn: Turn) -> str:
        await self._use_tools(turn)
        chat = {names.OPERATION_NAME: "chat", names.REQUEST_MODEL: _MODEL}
        with self._tracer.start_as_current_span(f"chat {_MODEL}", kind=SpanKind.CLIENT, attributes=chat):
            await self._wait(0.1, 0.35, turn)
        if turn.kind == "failed":
            raise OrderSystemError("no answer within 3 s")
        return self._finished(turn)

    async def _streamed_answer(self, messages: list[dict[str, Any]], turn: Turn) -> AsyncGenerator[str, None]:
        await self._use_tools(turn)
        await self._wait(0.05, 0.2, turn)
        words = self._finished(turn).split(" ")
        for start in range(0, len(words), 3):
            yield " ".join(words[start : start + 3]) + (" " if start + 3 < len(words) else "")
            await self._wait(0.01, 0.03)

    async def _use_tools(self, turn: Turn) -> None:
        """Annotate the call, and wait for its tools."""
        annotate(model=_MODEL, conversation_id=turn.conversation, metadata={"prompt_version": turn.release})
        for call in turn.tool_calls:
            tool = str(call.get("function", call).get("name"))
            attributes = {names.OPERATION_NAME: "execute_tool", "gen_ai.tool.name": tool}
            with self._tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes) as span:
                await self._wait(0.02, 0.12)
                if isinstance(call["result"], dict) and "error" in call["result"]:
                    _set_failed(span, "upstream_timeout")
        if turn.tool_calls:
            annotate(tool_calls=turn.tool_calls)

    def _finished(self, turn: Turn) -> str:
        if turn.kind != "recorded":
            usage = {"input_tokens": 180 + 40 * len(turn.messages), "output_tokens": len(turn.answer) // 4}
            annotate(finish_reason="length" if turn.kind == "cut" else "stop", usage=usage)
        return turn.answer

    async def _wait(self, low_s: float, high_s: float, turn: Turn | None = None) -> None:
        slow_s = self._latency.uniform(1.2, 1.8) if turn is not None and turn.slow else 0.0
        await asyncio.sleep((self._latency.uniform(low_s, high_s) + slow_s) * self._pace)


def _set_failed(span: Span, error_type: str) -> None:
    span.set_attribute(names.ERROR_TYPE, error_type)
    span.set_status(StatusCode.ERROR)
