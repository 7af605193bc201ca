"""Conversations: turns of live answers, put together.

A closed conversation goes through the engine as one task of its agent.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from typing import NamedTuple

from opentelemetry.trace import TraceState
from opentelemetry.util.types import AttributeValue

from agenteval_otel.capture.assembly.conversations import (
    Conversation,
    ConversationAssembler,
    ConversationKey,
    ConversationSettings,
    End,
)
from agenteval_otel.engine.capability import Capability, Host, MakeCapability
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.task import Origin, Task
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.scoring.probability import Sampled, SamplingDecision, probability_of
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.semconv import DROPPED_QUEUE_FULL, DROPPED_SHUTDOWN, EVALUATED
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.telemetry import Accounting

_TASK_BYTES = 2_048
# evaluated for what a user said of it: the rest of its conversation was not sampled
_FEEDBACK = "feedback"
_UNKNOWN = SamplingDecision(True, None, "unknown")


class LastTurn(NamedTuple):
    """Keeps what is needed of the turn that began last.

    A conversation is evaluated as the answer of this turn was.
    """

    settings: HandlerSettings
    reason: str
    randomness: int | None
    trace_state: TraceState | None
    upstream: AttributeValue | None
    sampled: Sampled | None
    call_id: str | None
    ended_ns: int


class _Closed(Origin):
    """Holds a closed conversation, whose outcome counts as one."""

    def __init__(self, conversation: Conversation, accounting: Accounting) -> None:
        self._conversation = conversation
        self._accounting = accounting

    def input(self) -> EvaluationInput:
        """Return the turns as one input."""
        return self._conversation.input()

    def settle(self, task: Task, outcome: str) -> None:
        """Count the conversation."""
        if outcome in (DROPPED_QUEUE_FULL, DROPPED_SHUTDOWN):
            word = "dropped"
        else:
            word = "evaluated" if outcome == EVALUATED else "failed"
        self._accounting.conversation_counts(task.agent)[word] += 1


class Conversations(Capability):
    """Keeps the conversations of one pipeline."""

    name = "conversations"
    subject = "conversation"

    @classmethod
    def made_by(cls, settings: ConversationSettings) -> MakeCapability:
        """Return what makes them for a pipeline."""
        return lambda host: cls(settings, host)

    def __init__(self, settings: ConversationSettings, host: Host) -> None:
        self._settings = settings
        self._accounting = host.accounting
        self._submit = host.submit
        self._broken = host.broken
        MEMORY.conversations.max_bytes = self._settings.max_bytes
        self._reset()
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<Conversations {self.assembler!r}>"

    def _reset(self) -> None:  # in a forked child too: its parent evaluates what is open
        self.assembler = ConversationAssembler(self._settings, MEMORY.conversations)
        self._closed: deque[Conversation] = deque()
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def on_answer(self, task: Task, evaluation_input: EvaluationInput) -> bool:
        """Join an answer to its conversation, where evaluators of whole conversations run."""
        if task.settings.runner.of_conversations:
            self.join(task, evaluation_input)
        return True

    def after_list(self) -> None:
        """Submit what was closed meanwhile. Not before: a queue may work on it at once."""
        while self._closed:
            self._send(self._closed.popleft())

    def join(self, task: Task, turn: EvaluationInput) -> None:
        """Add an answer as a turn to its conversation, on the background thread. Raises nothing."""
        decision = task.decision or _UNKNOWN
        span = task.target
        if decision.reason == _FEEDBACK:
            return
        id = turn.conversation_id or turn.session_id
        if id is None:
            self._accounting.fail("conversations:no_id")
            return
        trace_state = None if span is None else span.trace_state
        last = LastTurn(
            task.settings,
            decision.reason,
            task.randomness,
            trace_state,
            task.upstream,
            task.sampled,
            task.call_id,
            task.ended_ns,
        )
        try:
            key = ConversationKey(id, task.agent, turn.service)
            probability = probability_of(decision)
            closed, had_room = self.assembler.add(
                key,
                turn,
                span=span,
                started_ns=task.started_ns,
                last=last,
                probability=probability,
                now_s=time.monotonic(),
            )
        except Exception as error:  # a value without a JSON form
            self._broken("conversations", error)
            return
        if not had_room:
            self._accounting.conversation_counts(task.agent)["dropped"] += 1
        self._closed += closed
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer[0] is not loop or turn.conversation_ends:
            self._look(loop)

    def close_all(self, end: End) -> int:
        """Submit every conversation, and return how many were open.

        Those that are closed already come first. Open ones are closed and then submitted.
        """
        self.after_list()
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
        """Remove the open conversations that match, and return how many.

        Any thread. Each one counts as dropped.
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
        timer = self._timer
        self._timer = None
        if timer is not None and timer[0] is loop:
            timer[1].cancel()
        next_s = self.assembler.next_s()
        if next_s is not None:
            # In a context of its own: the timer would keep that of a call alive.
            context = contextvars.Context()
            delay_s = max(0.0, next_s - now_s)
            handle = loop.call_later(delay_s, self._on_timer, loop, context=context)
            self._timer = (loop, handle)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look(loop)
        self.after_list()

    def _send(self, conversation: Conversation) -> None:
        last: LastTurn = conversation.last
        task = Task(last.settings, conversation.key.agent, _Closed(conversation, self._accounting))
        task.subject = "conversation"
        task.conversation = conversation
        task.links = conversation.spans()
        task.decision = SamplingDecision(
            True, conversation.probability, last.reason, randomness=last.randomness
        )
        task.randomness = last.randomness
        task.upstream = last.upstream
        task.sampled = last.sampled
        # As its span: of the last turn, from which its evaluators tell it apart.
        task.call_id = last.call_id
        spans = conversation.spans(last.trace_state)
        task.target = spans[-1] if spans else None
        # Closed now: that the user was silent for half an hour is no lag.
        task.started_ns = conversation.started_ns
        task.ended_ns = time.time_ns()
        task.answered_ns = last.ended_ns
        self._submit(task, _TASK_BYTES + conversation.size_bytes + conversation.unpacked_bytes)
