"""The task: what the engine works on, such as an answer, a whole conversation, or a late ground truth.

Entry points and capabilities fill tasks in. The engine asks none of them for its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from opentelemetry.trace import Span, SpanContext
from opentelemetry.util.types import AttributeValue

from agenteval_otel.capture.assembly.conversations import Conversation
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.run import RunOutcome
from agenteval_otel.evaluators.base import Schedule
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.models.inputs import ResponseForm
from agenteval_otel.models.results import Late
from agenteval_otel.models.scoring.probability import Sampled, SamplingDecision
from agenteval_otel.sampling import AnswerFacts
from agenteval_otel.sampling.trace import NOTHING_KNOWN, Upstream
from agenteval_otel.semconv import SCOPE_RECEIVED, CaptureReason
from agenteval_otel.telemetry.accounting import Labels

Subject = Literal["answer", "conversation"]
"""What is evaluated: one answer, or all turns of a conversation together."""


class HandlerCall(CapturedCall):
    """Holds a call of a monitored handler, with how it was sampled and its open span.

    Attributes:
        settings: Of the handler, as they were when the call began.
        memo: What a sampler keeps that is asked again after the answer.
        answer_facts: What the sampler was told of the answer.
        span: Its own agent span, while that is open.
        host_span: The span of the host's that it ran in.
        span_attributes: Set right before the span ends: the SDK's cleaning of them would delay the
            caller.
        span_bytes: What its open span keeps alive.
        pid: Of the process that began it, which alone ends its span.
        upstream: Value of the span attribute for upstream sampling, where the settings name one.
        head_ratio: Share of the traces that the application's own sampler records, where the call
            is in its root.
        settled: Its outcome is counted, or is its task's.
        task: What the engine makes of it.
    """

    settings: HandlerSettings
    decision: SamplingDecision | None = None
    randomness = 0
    memo: dict[int, SamplingDecision] | None = None
    answer_facts: AnswerFacts | None = None
    span: Span | None = None
    host_span: Span | None = None
    span_attributes: Mapping[str, AttributeValue] = {}
    span_bytes = 0
    pid = 0
    upstream: AttributeValue | None = None
    head_ratio: float | None = None
    settled = False
    task: Task | None = None

    def take_span(self) -> Span | None:
        """Return the call's own span to the thread that asks first. Others get None."""
        span: Span | None = self.__dict__.pop("span", None)  # in one step
        return span


fresh_call: Final[Callable[[], HandlerCall]] = partial(object.__new__, HandlerCall)
"""A call that is yet to be filled in: the caller's thread makes them without running `__init__`."""


class UnderWay:
    """Describes what is done with a task at the moment."""

    def settle(self, outcome: str) -> str:
        """Let nothing more be emitted, and return the outcome that matches what was. Any thread."""
        return outcome


class Selection(NamedTuple):
    """Says which evaluators of a handler run for a task.

    Attributes:
        schedule: Those that run at once, or those that wait for the off-peak window.
        labels: These alone. None for all of the schedule.
        results: What is there already, in place of any evaluator.
    """

    schedule: Schedule = "immediate"
    labels: frozenset[str] | None = None
    results: Sequence[EvaluationResult] = ()

    @property
    def is_part(self) -> bool:
        """Tell whether some evaluators were chosen by name: the others have had their say."""
        return self.labels is not None


class AnswerSampling(NamedTuple):
    """Says how one answer was sampled.

    Attributes:
        probability: That it was sampled here. None where that is unknown.
        upstream: How it was sampled before it came here.
        reason: Why it was sampled, by the sampler's word.
        is_clustered: Other answers of its trace are sampled with it.
        least: The least probability of a sampled answer. None where the sampler does not know it.
    """

    probability: float | None = None
    upstream: Upstream = NOTHING_KNOWN
    reason: str | None = None
    is_clustered: bool = False
    least: float | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Return it as the fields of a result."""
        received = self.probability is not None and self.upstream.probability is None
        return {
            "sampling_probability": self.upstream.applied(self.probability),
            "sampling_reason": self.reason,
            "sampling_scope": SCOPE_RECEIVED if received else None,
            "sampling_clustered": self.is_clustered,
        }

    def sent(self, randomness: int | None) -> Sampled:
        """Return it as it is written down or sent, to be taken up by another process."""
        return Sampled(
            self.probability,
            self.reason,
            randomness or 0,
            self.upstream.probability,
            self.upstream.same_randomness,
            self.is_clustered,
            self.least,
        )


NOT_DRAWN: Final = AnswerSampling()
"""Of what is not drawn, such as feedback."""


class Origin:
    """Knows what a task was made from, and hears its end. Override what is needed.

    Attributes:
        opens_span: Evaluators that take a while run below the run span.
    """

    opens_span = True

    def input(self) -> EvaluationInput | None:
        """Return the input, if it is made only when the task is worked on. Background thread."""
        return None

    def starting(self) -> AbstractContextManager[object]:
        """Return what holds while the evaluators are started. Background thread."""
        return nullcontext()

    def completed(self, outcome: RunOutcome) -> RunOutcome | None:
        """Return what the evaluators gave, changed or not, or None if there is nothing to emit."""
        return outcome

    def settle(self, task: Task, outcome: str) -> None:
        """Take the outcome of the task, exactly once. Any thread. Must not block."""


class Follower:
    """Hears how tasks go on, beside their origins. Must not block.

    An example is a journal that keeps what is not delivered.
    """

    def opened(self) -> None:
        """Know that one more task is about to be submitted. The thread that submits."""

    def settle(self, outcome: str) -> None:
        """Take the outcome of a task. Any thread."""

    def delivered(self) -> None:
        """Know that what a settled task gave is exported and stored.

        It is called once for each task, and never for one that was dropped at the end. The thread
        that calls `Pipeline.export`.
        """


class Task:
    """Holds what the engine works on.

    What most tasks never set are defaults of the class.

    Attributes:
        settings: Of the handler whose evaluators run.
        agent: Who answered.
        origin: Who made it, and hears its end.
        call: What the handler took and gave, where the input is to be built of it.
        input: The input, where there is one already.
        service: Attributes of the service that answered, where that is another one.
        call_id: The answer's own id: its span's where spans show it, else made when it is first
            asked for.
        is_referenced: The application knew the id when the answer came.
        target: The span that scores belong to: of an answer, or of a conversation's last turn.
        links: The spans of a conversation's turns.
        subject: What is evaluated.
        conversation: The turns, where these are evaluated together.
        decision: What the sampler said of it here.
        sampling: How its answer was sampled, where that is known already. Else it is worked out.
        randomness: The one that decided. None where nothing is drawn any more.
        sampled: How an application sampled the answer that it sent to this sidecar.
        started_ns: When the answer began, Unix time.
        ended_ns: When its evaluation became due: at the end of the answer, or of the wait after it.
            0 if it is never due.
        answered_ns: When the answer was complete, if its evaluation waited after that. Otherwise 0:
            it is `ended_ns`.
        error_type: Of what the handler raised.
        select: Which evaluators run.
        late: Why its results come after others of the same answer.
        span: Its own agent span, while that is open. See `HandlerCall` for what belongs to it.
        stays: It is evaluated here, and was not taken over. None while no capability has heard of
            it.
        under_way: What is done with it at the moment.
        follower: Hears the outcome too, and when its results are delivered.
        response_form: How its answer is judged.
        capture_reason: Why its answer is not understood.
    """

    call: HandlerCall | None = None
    input: EvaluationInput | None = None
    service: Labels = ()
    call_id: str | None = None
    is_referenced = False
    target: SpanContext | None = None
    links: Sequence[SpanContext] = ()
    subject: Subject = "answer"
    conversation: Conversation | None = None
    decision: SamplingDecision | None = None
    sampling: AnswerSampling | None = None
    randomness: int | None = None
    memo: dict[int, SamplingDecision] | None = None
    answer_facts: AnswerFacts | None = None
    upstream: AttributeValue | None = None
    head_ratio: float | None = None
    sampled: Sampled | None = None
    started_ns = 0
    ended_ns = 0
    answered_ns = 0
    error_type: str | None = None
    select = Selection()
    late: Late | None = None
    span: Span | None = None
    span_attributes: Mapping[str, AttributeValue] = {}
    pid = 0
    stays: bool | None = None
    under_way: UnderWay | None = None
    follower: Follower | None = None
    response_form: ResponseForm | None = None
    capture_reason: CaptureReason | None = None

    def __init__(self, settings: HandlerSettings, agent: str, origin: Origin) -> None:
        self.settings = settings
        self.agent = agent
        self.origin = origin

    @classmethod
    def of(cls, queued: Queued, origin: Origin) -> Task:
        """Return the task of what was queued: the same each time.

        Its open span goes along. Any thread, but the caller's: a call costs it nothing
        more.
        """
        if isinstance(queued, Task):
            return queued
        if queued.task is not None:
            return queued.task
        made = cls._of_call(queued, origin)
        task: Task = queued.__dict__.setdefault("task", made)  # of two threads one has made it
        if task is made:
            span = queued.take_span()
            if span is not None:
                task.span = span
        return task

    @classmethod
    def _of_call(cls, call: HandlerCall, origin: Origin) -> Task:
        task = cls(call.settings, call.agent, origin)
        task.call = call
        task.call_id = call.call_id
        task.is_referenced = call.is_referenced
        task.target = call.span_context
        task.decision = call.decision
        task.randomness = call.randomness
        task.memo = call.memo
        task.answer_facts = call.answer_facts
        task.upstream = call.upstream
        task.head_ratio = call.head_ratio
        task.started_ns = call.started_ns
        task.ended_ns = call.ended_ns
        task.error_type = call.error_type
        task.span_attributes = call.span_attributes
        task.pid = call.pid
        return task

    @property
    def in_queue(self) -> Queued:
        """Return what was queued: the call, where it is one of a handler."""
        return self if self.call is None else self.call

    @property
    def is_fresh(self) -> bool:
        """Tell whether it is evaluated for the first time, and nothing of it was given or waited."""
        return self.late is None and not self.select.results

    @property
    def has_known_id(self) -> bool:
        """Tell whether the application may know the id, also since the answer came."""
        return self.is_referenced or (self.call is not None and self.call.is_referenced)

    @property
    def has_ended(self) -> bool:
        """Tell whether its outcome is given, or is about to be."""
        return "_end" in self.__dict__

    def take_end(self) -> bool:
        """Return True to the one that asks first, on whichever thread: it calls `finish` then."""
        own = object()
        return self.__dict__.setdefault("_end", own) is own  # in one step

    def finish(self, outcome: str) -> None:
        """Have the outcome counted. For the one alone that has taken the end."""
        if self.follower is not None:
            self.follower.settle(outcome)
        self.origin.settle(self, outcome)

    def take_span(self) -> Span | None:
        """Return the open agent span to the thread that asks first. Others get None."""
        span: Span | None = self.__dict__.pop("span", None)  # in one step
        return span


Queued: TypeAlias = HandlerCall | Task
"""What waits in the queue. The background thread makes tasks of calls."""
