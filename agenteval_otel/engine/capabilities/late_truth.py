"""Evaluated answers whose evaluators lack a ground truth that is to come.

They are kept for a while, compressed and bounded.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agenteval_otel.capture.assembly.conversations import packed, unpacked
from agenteval_otel.engine.capability import Capability, Evaluated, Host, MakeCapability
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.run import RunOutcome
from agenteval_otel.engine.signals import USED, LateTruth, Signal
from agenteval_otel.engine.task import AnswerSampling, Origin, Selection, Task
from agenteval_otel.evaluators.ground_truth.index import NormalizedQuery
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.models.inputs import NO_GROUND_TRUTH, is_blank
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.memory import MEMORY, kept_bytes
from agenteval_otel.semconv import EVALUATED, SHADOW
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.telemetry import Accounting

_ANSWER_BYTES: Final = 1_536  # beside its fields
_TASK_BYTES: Final = 2_048
_MAX_JOINED: Final = 30_000  # ids of answers that have their truth: about 10,000 answers


class PendingAnswer(Origin):
    """Keeps what is needed of an answer, and how the evaluators that waited are run.

    Attributes:
        settings: Of its handler. None once they were replaced.
        labels: Of the evaluators that wait.
        sampling: How the answer was sampled.
    """

    def __init__(
        self,
        task: Task,
        evaluation_input: EvaluationInput,
        outcome: RunOutcome,
        sampling: AnswerSampling,
        accounting: Accounting,
    ) -> None:
        missing = [result for result in outcome.results if _lacks_truth(result.skip_reason)]
        self.settings: HandlerSettings | None = task.settings
        self.agent = task.agent
        self.sampling = sampling
        self._accounting = accounting
        self._service = task.service
        self._target = task.target
        self._started_ns = task.started_ns
        self._call_id = task.call_id
        self._answered_ns = task.answered_ns or task.ended_ns
        self._packed = packed(evaluation_input)
        self.labels = frozenset(result.evaluator_id or "" for result in missing)
        # As they were: escalation and rates of evaluators decided when the answer came.
        self._facts = {
            result.criterion_name: (result.probability, result.sampling_reason)
            for result in missing
        }
        names = {name.removesuffix(SHADOW) for name in self._facts}
        self._criteria: tuple[EvaluationCriteria, ...] = tuple(
            criterion
            for criterion in outcome.criteria
            if criterion.name.removesuffix(SHADOW) in names
        )
        self.keys = _keys(task, evaluation_input)
        self.until_s = 0.0
        self.size_bytes = _ANSWER_BYTES + kept_bytes(self._packed) + kept_bytes(self.keys)

    def is_about(self, prompt: str | None) -> bool:
        """Tell whether this is its question: equal but for case, Unicode form and whitespace.

        None is any.
        """
        if prompt is None:
            return True
        text = NormalizedQuery.of(prompt).text
        own_prompt = unpacked(self._packed).prompt or ""
        return text == NormalizedQuery.of(own_prompt).text

    def is_concerned(self, erasure: Erasure) -> bool:
        return erasure.concerns_input(unpacked(self._packed), self._started_ns)

    def task(self, settings: HandlerSettings, truth: LateTruth) -> tuple[Task, int]:
        """Return what the pipeline takes, and about how many bytes it keeps alive.

        The task has no outcome of a response: the answer has one.
        """
        task = Task(settings, self.agent, self)
        task.late = "ground_truth"
        task.select = Selection(labels=self.labels)
        task.sampling = self.sampling
        task.service = self._service
        task.target = self._target
        task.call_id = self._call_id
        # Its truth came now: that the answer waited for it is no lag.
        task.started_ns = self._started_ns
        task.ended_ns = time.time_ns()
        task.answered_ns = self._answered_ns
        known = unpacked(self._packed)
        metadata = {**(known.metadata or {}), "ground_truth": {"match": "late"}}
        fields: dict[str, Any] = {"ground_truth": truth.answer, "metadata": metadata}
        if self._criteria:
            fields["criteria"] = self._criteria
        task.input = copy_with(known, fields)
        return task, _TASK_BYTES + kept_bytes(task.input)

    def completed(self, outcome: RunOutcome) -> RunOutcome:
        """Return the results that were missing, each as likely as it was then.

        A part of the answer has no overall score.
        """
        results: list[EvaluationResult] = []
        for result in outcome.results:
            facts = self._facts.get(result.criterion_name)
            if facts is not None:
                probability, reason = facts
                changes = {"probability": probability, "sampling_reason": reason}
                results.append(copy_with(result, changes))
        return outcome._replace(results=results, criteria=())

    def settle(self, task: Task, outcome: str) -> None:
        """Count a truth that was lost."""
        if outcome != EVALUATED:
            self._accounting.fail("ground_truth:dropped")


class PendingAnswers(Capability):
    """Keeps the pending answers of a pipeline, within time and memory.

    Any thread may call. The lock is held for microseconds.

    What becomes of an answer that gets no truth is counted as ``ground_truth:<what>``.

    Args:
        window_s: How long an answer is kept. With 0 it is not kept at all.
        by_agent: The same for single agents.
    """

    name = "ground_truth"

    @classmethod
    def made_by(cls, window_s: float, by_agent: Mapping[str, float]) -> MakeCapability:
        """Return what makes them for a pipeline."""
        return lambda host: cls(window_s, by_agent, host)

    def __init__(
        self,
        window_s: float,
        by_agent: Mapping[str, float],
        host: Host,
    ) -> None:
        self._window_s = window_s
        self._by_agent = by_agent
        self._host = host
        self._accounting = host.accounting
        self._broken = host.broken
        self._reset()
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<PendingAnswers {len(self)}>"

    def __len__(self) -> int:
        return sum(map(len, self._by_window.values()))

    def _reset(self) -> None:
        self._lock = threading.RLock()
        # By the length of their window: within one the oldest end first.
        self._by_window: dict[float, dict[int, PendingAnswer]] = {}
        self._places: dict[Any, PendingAnswer] = {}
        self._joined: OrderedDict[Any, bytes] = OrderedDict()
        self._next: PendingAnswers | None = None
        self._is_closed = False

    def on_response(self, evaluated: Evaluated) -> None:
        """Keep an answer whose results are counted, but for late results."""
        task = evaluated.task
        if evaluated.is_counted and not task.select.is_part:
            self.keep(task, evaluated.input, evaluated.outcome, evaluated.sampling)

    def on_signal(self, signal: Signal) -> str | None:
        """Evaluate what waited for a ground truth, and return what has become of the truth.

        The return value is `USED`, ``not_awaited`` or a reason of `take`. It is None if no answer
        waits for the truth.
        """
        answer = self.take(signal.ids, signal.truth)
        if answer is None or isinstance(answer, str):
            return answer
        try:
            settings = answer.settings or self._host.settings_of(answer.agent)
            if answer.labels.isdisjoint(settings.runner.labels):  # other evaluators since a reload
                return "not_awaited"
            self._host.submit(*answer.task(settings, signal.truth))
        except Exception as error:  # the answer waits no more
            self._broken("ground_truth", error)
            self._count("dropped")
        return USED

    def retire(self) -> None:
        """Let the answers go that no other pipeline took over."""
        self._let_go(all_of_them=True)

    def close(self, timeout_s: float) -> bool:
        """Let all answers go. Returns True: each has its outcome."""
        self._let_go(all_of_them=True)
        return True

    def keep(
        self,
        task: Task,
        evaluation_input: EvaluationInput,
        outcome: RunOutcome,
        sampling: AnswerSampling,
    ) -> None:
        """Keep an answer if evaluators lack its ground truth, on the background thread.

        Raises nothing.
        """
        window_s = self._by_agent.get(task.agent, self._window_s)
        is_known = not is_blank(evaluation_input.ground_truth)
        if not window_s or task.subject != "answer" or is_known:
            return None
        if not any(_lacks_truth(result.skip_reason) for result in outcome.results):
            return None
        try:
            answer = PendingAnswer(task, evaluation_input, outcome, sampling, self._accounting)
        except Exception as error:  # a value without a JSON form
            return self._broken("ground_truth", error)
        if not answer.keys:
            return self._count("no_id")
        self.expire()
        answer.until_s = time.monotonic() + window_s
        return self._keep(answer, window_s)

    def _keep(self, answer: PendingAnswer, window_s: float) -> None:
        with self._lock:
            if self._next is not None:  # of an answer that ran while the settings changed
                answer.settings = None
                return self._next._keep(answer, window_s)
            while not MEMORY.pending_answers.reserve(answer.size_bytes):
                oldest = self._oldest()
                if not oldest:
                    return self._count("no_room")
                self._remove(oldest)
                self._count("no_room")
            self._add(answer, window_s)
            if self._is_closed:
                self._let_go(all_of_them=True)
        return None

    def take(self, keys: Iterable[Any], truth: LateTruth) -> PendingAnswer | str | None:
        """Return the answer for the first known of these ids, or why the truth is not used.

        The reasons are ``repeated``, ``contradicted`` (an earlier, different one was used)
        and ``other_question``. Return None if no such answer waits.
        """
        self.expire()
        with self._lock:
            answer = next((self._places[key] for key in keys if key in self._places), None)
            if answer is None:
                before = next((self._joined[key] for key in keys if key in self._joined), None)
                if before is None:
                    return None
                return "repeated" if before == truth.digest else "contradicted"
            if not answer.is_about(truth.prompt):
                return "other_question"
            self._remove(answer)
            for key in answer.keys:
                self._joined[key] = truth.digest
            while len(self._joined) > _MAX_JOINED:
                self._joined.popitem(last=False)
            return answer

    def expire(self) -> None:
        """Let the answers go whose time is over."""
        self._let_go()

    def _let_go(self, *, all_of_them: bool = False) -> None:
        now_s = time.monotonic()
        with self._lock:
            self._is_closed |= all_of_them
            for answers in self._by_window.values():
                while answers and (all_of_them or next(iter(answers.values())).until_s <= now_s):
                    self._remove(next(iter(answers.values())))
                    self._count("shutdown" if all_of_them else "expired")

    def erase(self, erasure: Erasure) -> dict[str, int]:
        """Remove the answers that match the erasure, and return how many."""
        with self._lock:
            every: list[PendingAnswer] = []
            for answers in self._by_window.values():
                every.extend(answers.values())
            concerned = [answer for answer in every if answer.is_concerned(erasure)]
            for answer in concerned:
                self._remove(answer)
                self._count("erased")
        return {"answers that wait for their truth": len(concerned)}

    def take_over(self, before: PendingAnswers) -> None:
        """Take the answers of another pipeline, and from now on those of its tasks that still run."""
        with before._lock, self._lock:
            before._next = self
            for window_s, answers in before._by_window.items():
                for answer in answers.values():
                    answer.settings = None  # its evaluators have ended with the pipeline
                    self._add(answer, window_s)
            self._joined.update(before._joined)
            before._by_window = {}
            before._places = {}
            before._joined = OrderedDict()

    def _add(self, answer: PendingAnswer, window_s: float) -> None:
        self._by_window.setdefault(window_s, {})[id(answer)] = answer
        for key in answer.keys:
            self._places[key] = answer

    def _oldest(self) -> PendingAnswer | None:
        firsts = (next(iter(answers.values())) for answers in self._by_window.values() if answers)
        return min(firsts, key=lambda answer: answer.until_s, default=None)

    def _remove(self, answer: PendingAnswer) -> None:
        for answers in self._by_window.values():
            if answers.pop(id(answer), None) is not None:
                MEMORY.pending_answers.release(answer.size_bytes)
        for key in answer.keys:
            if self._places.get(key) is answer:
                del self._places[key]

    def _count(self, what: str) -> None:
        self._accounting.fail(f"ground_truth:{what}")


def _lacks_truth(skip_reason: str | None) -> bool:
    return skip_reason is not None and skip_reason.partition(":")[0] == NO_GROUND_TRUTH


def _keys(task: Task, evaluation_input: EvaluationInput) -> list[Any]:
    """Return the ids that lead to it. Trace and conversation lead to their newest answer."""
    span = task.target
    keys: list[Any] = []
    if span is not None and span.is_valid:
        keys = [(span.trace_id, span.span_id), span.trace_id]
    ids = {
        "call": task.call_id if task.has_known_id else None,
        "response": evaluation_input.response_id,
        "conversation": evaluation_input.conversation_id or evaluation_input.session_id,
    }
    keys += [(kind, value) for kind, value in ids.items() if value is not None]
    return keys
