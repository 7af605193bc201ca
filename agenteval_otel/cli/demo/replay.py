"""Replay: the recorded agent says again what it said, as fast as the queue takes it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

from agenteval_otel import annotate, monitor
from agenteval_otel.cli.demo.recording import RecordedTurn, Recording
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.semconv import AGENT_NAME, CONVERSATION_ID, OPERATION_INVOKE_AGENT, OPERATION_NAME

__all__ = ["ReplayTraffic"]

_AGENT = "recorded"
_WAITING = 256
_WAITING_BYTES = 16 * 1024 * 1024
_PAUSE_S = 0.005


class ReplayTraffic:
    """A recording in the agent's place.

    Args:
        pipeline: Where the answers are evaluated; its queue sets the pace.
        recording: What is replayed.
        limit: At most so many calls.
        tracer: The application's own, or None.
    """

    def __init__(self, pipeline: Pipeline, recording: Recording, *, limit: int | None, tracer: Any) -> None:
        self._recording, self._limit, self._tracer = recording, limit, tracer
        self._queue = pipeline.dispatcher.state
        self._say = monitor(agent=_AGENT, pipeline=pipeline)(self._recorded_answer)
        self._stopped = False
        self.calls = 0

    @property
    def done(self) -> float:
        """Share of the file, or of the limit, that is over."""
        by_calls = self.calls / self._limit if self._limit else 0.0
        return max(self._recording.done, by_calls)

    @property
    def news(self) -> str:
        """How far the file is read."""
        return f"line {self._recording.line} of {self._recording.path.name}"

    def stop(self) -> None:
        """Replay nothing more."""
        self._stopped = True

    async def run(self) -> None:
        """Replay until the end of the file, the limit or `stop`."""
        turns = self._recording.turns()
        try:
            for turn in turns:
                while self._is_crowded() and not self._stopped:  # noqa: ASYNC110 - a queue that empties tells nobody
                    await asyncio.sleep(_PAUSE_S)
                if self._stopped:
                    return
                self.calls += 1
                attributes = {OPERATION_NAME: OPERATION_INVOKE_AGENT, AGENT_NAME: _AGENT,
                              CONVERSATION_ID: turn.conversation}  # fmt: skip
                with self._tracer.start_as_current_span(f"invoke_agent {_AGENT}", attributes=attributes) if (
                    self._tracer is not None
                ) else nullcontext():  # fmt: skip
                    await self._say(turn.messages, turn)
                await asyncio.sleep(0)
                if self.calls == self._limit:
                    return
        finally:
            turns.close()

    async def _recorded_answer(self, messages: list[dict[str, Any]], turn: RecordedTurn) -> str:
        annotate(model="recorded", conversation_id=turn.conversation, tool_calls=turn.tool_calls)
        return turn.answer

    def _is_crowded(self) -> bool:
        queue = self._queue()
        return queue["size"] >= _WAITING or queue["bytes"] >= _WAITING_BYTES
