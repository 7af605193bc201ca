"""Passes feedback to the pipeline, joined with its answer.

That happens at once, or when the answer comes. If it does not come, the feedback has no trace.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from opentelemetry.trace import SpanContext

from agenteval_otel.config.process import current_pipeline, default_pipeline, follow
from agenteval_otel.engine.capability import Capability, Evaluated
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.engine.signals import USED, LateTruth, TruthSignal
from agenteval_otel.engine.task import Origin, Selection, Task
from agenteval_otel.instrumentation.feedback.answers import RecentAnswer, RecentAnswers, Seen
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.memory import MEMORY, kept_bytes
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.semconv import EVALUATED
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.telemetry import Accounting

_MAX_WAITING: Final = 4_096  # pieces of feedback that nothing has taken yet
_MAX_UNJOINED: Final = 1_000  # pieces of feedback whose answer has not come
_JOIN_S: Final = 60.0
_TICK_S: Final = 1.0
_ERASURE_WAITS_S: Final = 2.0  # for a capability that looks at feedback
_GOOD: Final = 0.5  # a score from which on nothing is complained about
_RESULT_BYTES: Final = 2_048


class Feedback(NamedTuple):
    """Holds a score of a person or of the application, or a ground truth.

    It also has what it says of the answer that it is about.

    Attributes:
        key: Equal for repeated scores. None for a ground truth, which may be repeated until used.
        call_id: Of its reference.
    """

    key: Any
    span_context: SpanContext | None
    agent: str | None
    response_id: str | None
    conversation_id: str | None
    call_id: str | None
    user_id: str | None = None
    result: EvaluationResult | None = None
    truth: LateTruth | None = None

    @property
    def part(self) -> str:
        """Return the word under which its outcome is counted."""
        return "feedback" if self.truth is None else "ground_truth"

    @property
    def exact_ids(self) -> list[Any]:
        """Return the ids that lead to one answer and no other."""
        span = self.span_context
        return [("call", self.call_id), None if span is None else (span.trace_id, span.span_id)]

    @property
    def ids(self) -> list[Any]:
        """Return the ids that lead to its answer, the most exact first.

        A trace and a conversation lead to their newest answer.
        """
        span = self.span_context
        trace_id = None if span is None else span.trace_id
        others = [("response", self.response_id), ("conversation", self.conversation_id)]
        return [*self.exact_ids, trace_id, *others]


class _Said(Origin):
    """Settles what a person or the application says of an answer.

    That is no response, and is without the outcome of one.
    """

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting

    def settle(self, task: Task, outcome: str) -> None:
        """Count feedback that was lost."""
        if outcome != EVALUATED:
            self._accounting.fail("feedback:dropped")


class _EvaluatedAnswers(Capability):
    """Tells the recorder which answers are evaluated, behind all that keeps them."""

    name = "feedback"

    def __init__(self, note: Callable[[Evaluated], None]) -> None:
        self._note = note

    def on_response(self, evaluated: Evaluated) -> None:
        """Let feedback be joined with the answer from now on."""
        self._note(evaluated)


class Recorder:
    """Hands on what it takes, on a thread of its own.

    There is one for the process. It raises nothing.
    """

    def __init__(self) -> None:
        self._worker = Worker(
            "agenteval-feedback",
            max_waiting=_MAX_WAITING,
            idle_s=_TICK_S,
            on_idle=self._let_go,
            stays=True,
        )
        self.reset()
        reset_in_child(self.reset)
        pipeline = current_pipeline()
        if pipeline is not None:
            self.bind(pipeline)
        follow(self)

    def __repr__(self) -> str:
        return f"<Recorder unjoined={len(self._unjoined)}>"

    def reset(self) -> None:
        """Forget everything, in a forked child: what was recorded is the parent's."""
        self._answers = RecentAnswers()
        self._seen = Seen()
        self._unjoined: deque[tuple[float, Feedback, int]] = deque()  # with their bytes
        # Held while feedback is looked at: an erasure would miss what is out of the queue then.
        self._joining = threading.RLock()
        self._missed: deque[Erasure] = deque()  # erasures that a hanging capability kept waiting

    def bind(self, pipeline: Pipeline) -> None:
        """Feed this pipeline from now on, and hear of what it evaluates."""
        if pipeline.capabilities.of(_EvaluatedAnswers) is None:
            pipeline.capabilities.add(_EvaluatedAnswers(self._note))
        pipeline.sources.add(self)

    def take(self, feedback: Feedback) -> bool:
        """Take a piece of feedback, on any thread. Return False if there is no room."""
        pipeline = default_pipeline()
        if self not in pipeline.sources:  # one that nothing configured
            self.bind(pipeline)
        size_bytes = _RESULT_BYTES + kept_bytes(feedback)
        if pipeline.has_room() and MEMORY.feedback.reserve(size_bytes):
            if self._worker.submit(partial(self._record, feedback, size_bytes)):
                return True
            MEMORY.feedback.release(size_bytes)
        _count(f"{feedback.part}:dropped")
        return False

    def know(self, answer: RecentAnswer) -> None:
        """Join later feedback with this answer, as if this process had evaluated it. Any thread."""
        self._answers.add(answer, None)

    def drain(self, timeout_s: float, *, last: bool = False) -> bool:
        """Hand on what was taken, with `last` also what waits for its answer.

        Return False if the time ran out.
        """
        if not self._worker.has_thread:
            return True
        done = threading.Event()
        return self._worker.submit(partial(self._let_go, done, last)) and done.wait(timeout_s)

    def state(self) -> dict[str, int]:
        """Return nothing: what waits for its answer is no call."""
        return {}

    def erase(self, erasure: Erasure) -> int:
        """Give up feedback that waits for its answer, and forget the answers of the conversations.

        A capability that hangs on a signal does not hold the erasure up. What it looks at is given
        up when it returns.
        """
        self._answers.remove(erasure.conversations)
        if not self._joining.acquire(timeout=_ERASURE_WAITS_S):
            self._missed.append(erasure)
            return 0
        try:
            return self._remove_matching(erasure)
        finally:
            self._joining.release()

    def _remove_matching(self, erasure: Erasure) -> int:
        concerned = [item for item in self._unjoined if _is_concerned(item[1], erasure)]
        for item in concerned:
            self._unjoined.remove(item)
            MEMORY.feedback.release(item[2])
        return len(concerned)

    def _erase_missed(self) -> None:
        while self._missed:
            self._remove_matching(self._missed.popleft())

    def _note(self, evaluated: Evaluated) -> None:
        """Note that an answer was evaluated. It is called on the background thread."""
        task = evaluated.task
        response = evaluated.response
        if not evaluated.is_counted or task.select.is_part:
            return
        answer = RecentAnswer(
            task.target, task.agent, response.response_id, response.conversation_id, task.call_id
        )
        self._answers.add(answer, task.call_id if task.has_known_id else None)

    def _record(self, feedback: Feedback, size_bytes: int) -> None:
        """Join it with its answer, or have it wait. Its memory is reserved."""
        with self._joining:
            waits = False
            try:
                waits = not self._try_to_settle(feedback)
            finally:
                if not waits:
                    MEMORY.feedback.release(size_bytes)
            if waits:
                self._wait_for_answer(feedback, size_bytes)
            self._erase_missed()

    def _wait_for_answer(self, feedback: Feedback, size_bytes: int) -> None:
        if len(self._unjoined) >= _MAX_UNJOINED:
            _, oldest, oldest_bytes = self._unjoined.popleft()
            MEMORY.feedback.release(oldest_bytes)
            self._give_up(oldest)
        self._unjoined.append((time.monotonic() + _JOIN_S, feedback, size_bytes))

    def _try_to_settle(self, feedback: Feedback) -> bool:
        """Pass the feedback on, unless it came before. Return False if it waits for its answer."""
        if feedback.result is not None:
            if not self._seen.is_new(feedback.key):
                _count("feedback:repeated")
                return True
            self._evaluate_after_all(feedback, feedback.result)
        return self._try_to_join(feedback)

    def _try_to_join(self, feedback: Feedback) -> bool:
        """Submit it where its answer is known, or where no id could lead to one.

        Return False if it waits for its answer.
        """
        span = feedback.span_context
        names_span = span is not None and bool(span.span_id)
        answer = self._answers.find(self._ids_of(feedback))
        if feedback.truth is not None:
            return self._offer_truth(feedback, feedback.truth, is_known=answer is not None)
        if answer is not None:
            feedback = feedback._replace(
                span_context=span if names_span else answer.span_context,
                agent=feedback.agent or answer.agent,
                response_id=feedback.response_id or answer.response_id,
                conversation_id=feedback.conversation_id or answer.conversation_id,
                call_id=feedback.call_id or answer.call_id,
            )
        elif not names_span:
            may_find_answer = feedback.response_id or feedback.conversation_id or span
            if may_find_answer:
                return False
        self._submit(feedback)
        return True

    def _ids_of(self, feedback: Feedback) -> list[Any]:
        """Return the ids to look up.

        They are only exact ones if possible, as a trace or conversation may lead to another answer.
        """
        exact_ids = feedback.exact_ids
        if feedback.call_id is not None:
            return exact_ids
        if self._answers.find(exact_ids) is not None:
            return exact_ids
        return feedback.ids

    def _offer_truth(self, feedback: Feedback, truth: LateTruth, *, is_known: bool) -> bool:
        """Offer a ground truth to the capabilities. Return False if its answer may still come."""
        capabilities = default_pipeline().capabilities
        became = capabilities.on_signal(TruthSignal(self._ids_of(feedback), truth))
        if became is None and not is_known and capabilities.hear_signals:
            return False
        if became != USED:
            _count(f"ground_truth:{became or 'not_awaited'}")
        return True

    def _give_up(self, feedback: Feedback) -> None:
        """Give up waiting for its answer.

        A score is recorded without one, and a ground truth is of no use.
        """
        _count(f"{feedback.part}:unjoined")
        if feedback.truth is None:
            self._submit(feedback)

    def _evaluate_after_all(self, feedback: Feedback, result: EvaluationResult) -> None:
        """Evaluate a call that was not sampled, if it is still kept and this is a complaint."""
        pipeline = default_pipeline()
        is_low = result.normalized is None or result.normalized < _GOOD
        is_complaint = result.passed is not True and is_low
        if pipeline.unsampled_calls is None or not is_complaint:
            return
        taken = pipeline.unsampled_calls.take(*self._ids_of(feedback))
        if taken is not None:
            pipeline.submit(*taken)

    def _let_go(self, done: Any = None, last: bool = False) -> None:
        """Look again for the answers of what waits. What waited long is recorded without one."""
        try:
            kept = default_pipeline().unsampled_calls
            if kept is not None:
                kept.expire()
            default_pipeline().capabilities.expire()
            with self._joining:
                self._look_again(last=last)
                self._erase_missed()
        finally:
            if done is not None:
                done.set()

    def _look_again(self, *, last: bool) -> None:
        waiting = self._unjoined
        self._unjoined = deque()
        for until_s, feedback, size_bytes in waiting:
            if not self._try_to_join(feedback):
                if not last and time.monotonic() < until_s:
                    self._unjoined.append((until_s, feedback, size_bytes))
                    continue
                self._give_up(feedback)
            MEMORY.feedback.release(size_bytes)

    def _submit(self, feedback: Feedback) -> None:
        pipeline = default_pipeline()
        if not pipeline.enabled:
            _count("feedback:disabled")
            return
        assert feedback.result is not None
        agent = feedback.agent or ""
        task = Task(pipeline.settings_of(agent), agent, _Said(pipeline.accounting))
        task.select = Selection(results=(feedback.result,))
        task.call_id = feedback.call_id
        span = feedback.span_context
        task.target = span if span is not None and span.is_valid else None
        facts = {
            "agent": agent or None,
            "response_id": feedback.response_id,
            "conversation_id": feedback.conversation_id,
            "user_id": feedback.user_id,
        }
        known_facts = {name: value for name, value in facts.items() if value}
        task.input = EvaluationInput(**known_facts)
        size_bytes = _RESULT_BYTES + kept_bytes(feedback.result) + kept_bytes(task.input)
        pipeline.submit(task, size_bytes)


def _is_concerned(feedback: Feedback, erasure: Erasure) -> bool:
    return (
        feedback.conversation_id in erasure.conversations
        or feedback.user_id in erasure.users
        or erasure.is_before(feedback.result.ended_ns if feedback.result else None)
    )


def _count(what: str) -> None:
    default_pipeline().accounting.fail(what)


RECORDER: Final = Recorder()
"""Of the process, made when feedback is imported: it hears of the answers that come before the
first feedback.
"""
