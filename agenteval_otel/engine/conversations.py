"""Turns of live answers, put together; a closed conversation goes through the engine as one call of
its agent.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from opentelemetry.trace import SpanContext

from agenteval_otel.capture.assembly.conversations import (
    Conversation,
    ConversationAssembler,
    ConversationKey,
    ConversationSettings,
    End,
)
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.engine.capability import Capability
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.scoring.probability import SamplingDecision, probability_of
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.telemetry import Accounting

_CALL_BYTES = 2_048
# evaluated for what a user said of it: the rest of its conversation was not sampled
_FEEDBACK = "feedback"
_UNKNOWN = SamplingDecision(True, None, "unknown")


class Conversations(Capability):
    """The conversations of one pipeline. `submit` takes a call and about how many bytes it keeps
    alive.
    """

    name = "conversations"

    def __init__(
        self,
        settings: ConversationSettings | None,
        accounting: Accounting,
        submit: Callable[[CapturedCall, int], Any],
        broken: Callable[[str, BaseException], None],
    ) -> None:
        self._settings = settings or ConversationSettings()
        self._accounting = accounting
        self._submit = submit
        self._broken = broken
        MEMORY.conversations.max_bytes = self._settings.max_bytes
        self._reset()
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<Conversations {self.assembler!r}>"

    def _reset(self) -> None:  # in a forked child too: its parent evaluates what is open
        self.assembler = ConversationAssembler(self._settings, MEMORY.conversations)
        self._closed: deque[Conversation] = deque()
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def join(self, call: CapturedCall, turn: EvaluationInput) -> None:
        """Add an answer as a turn to its conversation, on the background thread. Raises nothing."""
        decision = call.decision or _UNKNOWN
        span = call.span_context
        if call.joined or decision.reason == _FEEDBACK:
            return
        call.joined = True
        id = turn.conversation_id or turn.session_id
        if id is None:
            self._accounting.fail("conversations:no_id")
            return
        last = (
            call.settings,
            decision.reason,
            call.randomness,
            None if span is None else span.trace_state,
            call.upstream,
            call.sampled,
            call.call_id,
            call.ended_ns,
        )
        try:
            closed, had_room = self.assembler.add(
                ConversationKey(id, call.agent, turn.service),
                turn,
                span=span,
                started_ns=call.started_ns,
                last=last,
                probability=probability_of(decision),
                now_s=time.monotonic(),
            )
        except Exception as error:  # a value without a JSON form
            self._broken("conversations", error)
            return
        if not had_room:
            self._accounting.conversation_counts(call.agent)["dropped"] += 1
        self._closed += closed
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer[0] is not loop or turn.conversation_ends:
            self._look(loop)

    def submit_closed(self) -> None:
        """Submit what was closed meanwhile. It is not called while an answer is being worked on."""
        while self._closed:
            self._send(self._closed.popleft())

    def close_all(self, end: End) -> int:
        """Submit what was closed, close and submit every open conversation, and return how many
        were open.
        """
        self.submit_closed()
        number = 0
        for number, conversation in enumerate(self.assembler.take_all(end), 1):  # noqa: B007
            self._send(conversation)
        return number

    def drain(self, reason: End) -> bool:
        """Close and submit every open conversation. Return whether there was any."""
        return self.close_all(reason) > 0

    def close(self, timeout_s: float) -> bool:
        """Count what is still open as dropped. Returns True: its answers have their outcomes."""
        self.drop_all()
        return True

    def erase(self, erasure: Erasure) -> dict[str, int]:
        """Remove the open conversations that match, and return how many. Any thread. Each one
        counts as dropped.
        """

        def is_concerned(conversation: Conversation) -> bool:
            if conversation.key.id in erasure.conversations:
                return True
            return erasure.concerns_input(conversation.input(), conversation.started_ns)

        removed = self.assembler.remove(is_concerned)
        for conversation in removed:
            self._accounting.conversation_counts(conversation.key.agent)["dropped"] += 1
        return {"open conversations": len(removed)}

    def drop_all(self) -> None:
        """Count what is still open as dropped: nothing takes it any more."""
        for conversation in (*self._closed, *self.assembler.take_all("shutdown")):
            self._accounting.conversation_counts(conversation.key.agent)["dropped"] += 1
        self._closed.clear()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what is over, and look again when the next one will be."""
        now_s = time.monotonic()
        self._closed += self.assembler.take(now_s)
        timer, self._timer = self._timer, None
        if timer is not None and timer[0] is loop:
            timer[1].cancel()
        next_s = self.assembler.next_s()
        if next_s is not None:
            # In a context of its own: the timer would keep that of a call alive.
            context = contextvars.Context()
            self._timer = (
                loop,
                loop.call_later(max(0.0, next_s - now_s), self._on_timer, loop, context=context),
            )

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look(loop)
        self.submit_closed()

    def _send(self, conversation: Conversation) -> None:
        (
            settings,
            reason,
            randomness,
            trace_state,
            upstream,
            sampled,
            call_id,
            answered_ns,
        ) = conversation.last
        call = CapturedCall(settings, conversation.key.agent)
        call.turns = conversation
        call.decision = SamplingDecision(
            True, conversation.probability, reason, randomness=randomness
        )
        call.randomness = randomness
        call.upstream = upstream
        call.sampled = sampled
        # As its span: of the last turn, from which its evaluators tell it apart.
        call.call_id = call_id
        spans = conversation.spans(trace_state)
        call.span_context = spans[-1] if spans else None
        # Closed now: that the user was silent for half an hour is no lag.
        call.started_ns = conversation.started_ns
        call.ended_ns = time.time_ns()
        call.answered_ns = answered_ns
        self._submit(call, _CALL_BYTES + conversation.size_bytes + conversation.unpacked_bytes)


def links_of(call: CapturedCall) -> list[SpanContext]:
    """Return the spans of the turns, for a call that is a whole conversation."""
    if call.waited is not None:
        return list(call.waited.links)
    return [] if call.turns is None else call.turns.spans()
