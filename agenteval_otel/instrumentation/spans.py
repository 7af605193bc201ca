"""Answers that spans show, and the span processor of this process.

The answers are fed to the engine as calls of `@monitor` are.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from sys import getsizeof
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from agenteval_otel.capture.assembly.traces import AssembledTrace, TraceAssembler
from agenteval_otel.capture.calls import CURRENT, EVALUATING, call_id_of_span
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.capture.spans.answer import environment_of
from agenteval_otel.capture.spans.forwarded import ForwardedAnswer
from agenteval_otel.capture.spans.span import ReadEvent, ReadSpan, span_of_sdk
from agenteval_otel.capture.spans.trace import Mapped, TraceReading, read_traces
from agenteval_otel.capture.text import clean
from agenteval_otel.config.process import default_pipeline, follow
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.engine.pipeline.exit import watch_exit
from agenteval_otel.engine.task import Follower, HandlerCall, Task
from agenteval_otel.instrumentation.handler import Handler
from agenteval_otel.models.value import completed, copy_with, stored_fields
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import MEMORY, kept_bytes
from agenteval_otel.runtime.reentrancy import THREAD, under_evaluation
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.semconv import (
    ALREADY_MONITORED,
    ANNOTATIONS,
    CAPTURE_FAILED,
    EVALUATION_SAMPLED,
    OPERATION_EVALUATION,
    OPERATION_NAME,
    SCOPE_NAME,
    SERVICE_NAME,
    SERVICE_VERSION,
    SPANS_NOT_UNDERSTOOD,
    SPANS_OURS,
    SPANS_READ,
    CaptureReason,
)
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.telemetry.accounting import Labels

_AT_ONCE: Final = 64
_MAX_CHARS: Final = 200
_TASK_BYTES: Final = 2_048
_SPAN_BYTES: Final = 1_024
_ATTRIBUTE_BYTES: Final = 128  # of an attribute beside its texts: its place, and a number
_NUMBERS: Final = frozenset({bool, int, float})
_LEAST_TICK_S: Final = 0.05
_MOST_TICK_S: Final = 0.5
_SHUTDOWN_S: Final = 1.0
_MOST_LOST: Final = 10_000  # traces that lost a span since the last look


class SpanEvaluation:
    """Evaluates the answers of assembled traces. Each counts as one call of its agent.

    For one thread. Raises nothing.

    Spans of this package and what lies below them, judges' calls among them, are no answers. An
    answer below a call that `@monitor` or the middleware evaluates counts as ``already_monitored``.

    Args:
        nested_agents: Evaluate agents below another one too, where they have a name of their own.
        pipeline: Instead of the process's.
        is_remote: The spans are of other processes.
    """

    def __init__(
        self,
        *,
        nested_agents: bool = False,
        pipeline: Pipeline | None = None,
        is_remote: bool = True,
    ) -> None:
        self._nested = nested_agents
        self._pipeline = pipeline
        self._is_remote = is_remote
        self._handlers: dict[str, Handler] = {}
        self._forgotten = 0

    def evaluate(
        self, traces: Sequence[AssembledTrace], followers: Sequence[Follower | None] = ()
    ) -> None:
        """Submit the answers of the traces, each with its follower if there are any.

        All traces are read first, which takes less time than both steps for each.
        """
        foreign_spans = [without_evaluations(trace.spans) for trace in traces]
        readings = read_traces(foreign_spans, nested_agents=self._nested, failed_later=self._fail)
        followers = followers or [None] * len(traces)
        for trace, foreign, reading, follower in zip(
            traces, foreign_spans, readings, followers, strict=True
        ):
            self._count(reading, ours=len(trace.spans) - len(foreign), foreign=len(foreign))
            self._submit(trace, reading, follower)

    def is_mark(self, value: str, trace_id: int) -> bool:
        """Tell whether a process with our key marked the trace as an evaluation."""
        pipeline = self._pipeline or default_pipeline()
        return pipeline.sampled.key.is_mark(value, trace_id)

    def _submit(
        self, trace: AssembledTrace, reading: TraceReading, follower: Follower | None
    ) -> None:
        pipeline = self._pipeline or default_pipeline()
        monitored = below(trace.spans, _monitored(trace.spans))
        for name, count in reading.failed.items():
            self._fail(name, count)
        for mapped in reading.answers:
            if trace.incomplete is not None:
                completed(mapped.input, {"incomplete": trace.incomplete})
            try:
                is_monitored = mapped.span.span_id in monitored
                self._take(mapped, trace.size_bytes, follower, is_monitored=is_monitored)
            except Exception as error:
                pipeline.broken("spans", error)

    def evaluate_forwarded(self, answer: ForwardedAnswer, follower: Follower | None = None) -> None:
        """Evaluate an answer that an application's `@monitor` sent, by its sampling decision."""
        pipeline = self._pipeline or default_pipeline()
        try:
            read, sampled = answer.read()
            sampled = pipeline.sampled.as_forwarded(sampled)
            agent = agent_of(read.agent, answer.resource)
            place = place_of(answer.resource)
            settings = self._handler(agent).binding.settings
            service = labels_of(place)
            if not (pipeline.enabled and settings.enabled):
                pipeline.accounting.fast_counters(agent, service).disabled += 1
                return
            task = Task(settings, agent, pipeline.answers)
            if answer.trace_id and answer.span_id:
                flags = TraceFlags(answer.flags)
                task.target = SpanContext(answer.trace_id, answer.span_id, True, flags)
            duration_s = max(0.0, read.duration_s or 0.0)
            task.ended_ns = answer.event.time_ns
            task.started_ns = task.ended_ns - int(duration_s * 1e9)
            task.error_type = read.error_type
            task.sampled = sampled
            task.randomness = sampled.randomness
            task.decision = SamplingDecision(True, sampled.probability, sampled.reason or "unknown")
            task.service = service
            task.call_id = answer.call_id
            task.is_referenced = answer.call_id is not None
            if read.environment:  # annotated
                place.pop("environment", None)
            task.input = copy_with(read, {**place, "agent": agent})
        except Exception as error:
            pipeline.accounting.fail("spans:unreadable")
            log.warning("answer_unreadable", part="sidecar", error_type=type(error).__name__)
            return
        _submit(pipeline, task, _TASK_BYTES + kept_bytes(task.input), follower)

    def _fail(self, name: str, count: int = 1) -> None:
        (self._pipeline or default_pipeline()).accounting.fail(f"spans:{name}", count)

    def _count(self, reading: TraceReading, *, ours: int, foreign: int) -> None:
        """Count the spans of a trace: those of evaluations, and the others by what became of them."""
        count = (self._pipeline or default_pipeline()).accounting.count_spans
        for scope, spans in reading.not_understood.items():
            count(SPANS_NOT_UNDERSTOOD, spans, scope)
        count(SPANS_OURS, ours)
        count("left_out", reading.left_out)
        count(SPANS_READ, foreign - reading.left_out - reading.not_understood.total())

    def count_assembled(self, assembler: TraceAssembler) -> None:
        """Count the spans that were not read with a trace. The assembler then counts anew."""
        count = (self._pipeline or default_pipeline()).accounting.count_spans
        unread = assembler.unread
        assembler.unread = Counter()
        for (outcome, scope), spans in unread.items():
            count(outcome, spans, scope)
        count("late", assembler.late)
        assembler.late = 0
        count("left_out", assembler.left_out)
        assembler.left_out = 0
        forgotten = assembler.forgotten - self._forgotten
        self._forgotten = assembler.forgotten
        if forgotten > 0:
            (self._pipeline or default_pipeline()).accounting.fail("spans:forgotten", forgotten)
            log.warning(
                "spans_forgotten",
                part="spans",
                reason="there is no memory to know the spans of finished answers for longer",
                fix="in a sidecar raise remember_bytes, or lower remember_s",
            )

    def _handler(self, agent: str) -> Handler:
        """Return the handler with the agent's settings.

        There is one for each agent that the settings name, whatever service it comes from,
        and one for all others.
        """
        pipeline = self._pipeline or default_pipeline()
        name = pipeline.handlers.name_of(agent)
        handler = self._handlers.get(name)
        if handler is None:
            handler = Handler(
                name,
                _answered,
                lambda used: used.handler(name),
                pipeline,
                follows=self._pipeline is None,
                keep_arguments=False,
                of_spans=True,
            )
            self._handlers[name] = handler
        return handler

    def _take(
        self,
        mapped: Mapped,
        trace_bytes: int,
        follower: Follower | None,
        *,
        is_monitored: bool,
    ) -> None:
        span = mapped.span
        agent = agent_of(mapped.input.agent, mapped.span.resource)
        place = place_of(span.resource) if self._is_remote else {}
        handler = self._handler(agent)
        service = labels_of(place)
        binding = handler.binding
        settings = binding.settings
        pipeline = binding.pipeline
        sampling = settings.sampling
        if is_monitored:
            pipeline.accounting.outcome_counts(agent, service)[ALREADY_MONITORED] += 1
            return
        if not pipeline.enabled:
            pipeline.accounting.fast_counters(agent, service).disabled += 1
            return
        reason = _unreadable(mapped)
        if reason is not None:
            what = mapped.content_switch or "none of the answer's parts is text"
            problem = CaptureError(f"no content captured: {what}", reason=reason)
            pipeline.accounting.count_detail(agent, service, CAPTURE_FAILED, reason)
            pipeline.broken("capture", problem)
            return
        call = HandlerCall(agent)
        call.settings = settings
        call.span_context = _context_of(span, is_remote=self._is_remote)
        call.call_id = call_id_of_span(span.span_id)
        call.started_ns = span.start_ns
        call.ended_ns = max(span.start_ns, span.end_ns)
        call.error_type = mapped.input.error_type
        call.stream_end = mapped.input.stream_end
        if sampling.upstream_attribute is not None:
            upstream = span.attributes.get(sampling.upstream_attribute)
            # An open conversation keeps this value, so a text is cut. A number stays as it is.
            call.upstream = upstream[:_MAX_CHARS] if isinstance(upstream, str) else upstream
        call.conversation = mapped.input.conversation_id or mapped.input.session_id
        call.memo = {} if sampling.keeps_memo else None
        call.randomness = sampling.randomness_of(call.span_context)
        if not handler.decide_after(call, pipeline.accounting.outcome_counts(agent, service)):
            return
        task = Task.of(call, pipeline.answers)
        task.call = None  # its spans go
        task.service = service
        task.input = completed(mapped.input, _known(pipeline, mapped, agent, place))
        if settings.content and settings.storage is not None:
            completed(task.input, {"steps": mapped.steps()})
        # a text of JSON may be a quarter of what it says
        size_bytes = _TASK_BYTES + kept_bytes(stored_fields(task.input))
        if mapped.answer.reads_later:
            size_bytes += trace_bytes  # the input keeps the spans
        kept = pipeline.unsampled_calls
        if kept is not None and task.decision is not None and not task.decision.sampled:
            kept.keep(task, size_bytes)
        else:
            _submit(pipeline, task, size_bytes, follower)


def _known(
    pipeline: Pipeline, mapped: Mapped, agent: str, place: Mapping[str, str]
) -> dict[str, str]:
    """Return the fields that the settings and the resource give an input."""
    known = {"agent": agent}
    if mapped.user_id is not None:
        known["user_id"] = clean(pipeline.engine.user_id(mapped.user_id), _MAX_CHARS)
    if "service" in place:
        known["service"] = place["service"]
        version = mapped.span.resource.get(SERVICE_VERSION)
        if version:
            known["service_version"] = clean(str(version), _MAX_CHARS)
    return known


def _submit(pipeline: Pipeline, task: Task, size_bytes: int, follower: Follower | None) -> None:
    if follower is not None:
        task.follower = follower
        follower.opened()
    pipeline.submit(task, size_bytes)


def place_of(resource: Mapping[str, Any]) -> dict[str, str]:
    """Return the service and the environment of a resource, as far as it has them."""
    place = {"service": resource.get(SERVICE_NAME), "environment": environment_of(resource)}
    return {name: clean(str(value), _MAX_CHARS) for name, value in place.items() if value}


def labels_of(place: Mapping[str, str]) -> Labels:
    """Return the attributes of a service and an environment."""
    return tuple((ANNOTATIONS[fact], value) for fact, value in place.items())


def agent_of(agent: str | None, resource: Mapping[str, Any]) -> str:
    """Return the agent's name, else that of its service."""
    return clean(str(agent or resource.get(SERVICE_NAME) or "unknown"), _MAX_CHARS)


def _answered() -> None:
    """Stand for the function that spans do not show."""


def _unreadable(mapped: Mapped) -> CaptureReason | None:
    """Return why an answer is not evaluated, or None for one with something to judge."""
    if mapped.content_switch is not None:
        return "no_content"
    return "unknown_parts" if mapped.is_unread else None


def _context_of(span: ReadSpan, *, is_remote: bool) -> SpanContext:
    state = TraceState.from_header([span.trace_state]) if span.trace_state else None
    return SpanContext(span.trace_id, span.span_id, is_remote, TraceFlags(span.flags), state)


def _monitored(spans: list[ReadSpan]) -> list[int | None]:
    """Return the ids of spans evaluated elsewhere.

    They are marked with `EVALUATION_SAMPLED`, or the parent of a run span.
    """
    monitored: list[int | None] = []
    for span in spans:
        # As our code sets it. What a client sends as baggage becomes an attribute as text.
        if span.attributes.get(EVALUATION_SAMPLED) is True:
            monitored.append(span.span_id)
        if span.scope == SCOPE_NAME and span.attributes.get(OPERATION_NAME) == OPERATION_EVALUATION:
            monitored.append(span.parent_id)
    return monitored


def below(spans: Iterable[ReadSpan], tops: list[Any]) -> set[int]:
    """Return the ids of these spans, and of all below them."""
    is_below = dict.fromkeys(tops, True)  # by id, of each span that was looked at
    if not is_below:
        return set()
    by_id = {span.span_id: span for span in spans}
    for span in by_id.values():
        path: list[int] = []  # from the span up to one that is known
        current: ReadSpan | None = span
        while current is not None and current.span_id not in is_below:
            # until its parents say otherwise; in a circle they do not
            is_below[current.span_id] = False
            path.append(current.span_id)
            current = None if current.parent_id is None else by_id.get(current.parent_id)
        if current is not None and is_below[current.span_id]:
            is_below |= dict.fromkeys(path, True)
    return {span_id for span_id, is_one in is_below.items() if is_one}


def without_evaluations(spans: Sequence[ReadSpan]) -> Sequence[ReadSpan]:
    """Return the spans that are neither evaluations nor below one."""
    ours = below(spans, [span.span_id for span in spans if span.is_evaluation])
    return [span for span in spans if span.span_id not in ours] if ours else spans


def trace_is_concerned(
    erasure: Erasure, trace_id: int, spans: Sequence[ReadSpan], events: Sequence[ReadEvent]
) -> bool:
    """Tell whether a span or an event has one of the ids as a value, or ended before the moment."""
    all_events = list(events)
    for span in spans:
        if erasure.is_before(span.end_ns) or erasure.is_mentioned(span.attributes):
            return True
        all_events.extend(span.events)
    for event in all_events:
        if erasure.is_before(event.time_ns):
            return True
        if erasure.is_mentioned((event.attributes, event.body)):
            return True
    return False


class AgentEvalSpanProcessor(SpanProcessor):
    """Evaluates the answers that GenAI spans of other instrumentation show, in this process.

    ``provider.add_span_processor(AgentEvalSpanProcessor())``. The thread that ends a span keeps a
    reference to it and nothing more. The spans of a trace are put together, read by the registered
    mappers and sampled on a thread of the processor's own, and evaluated as calls of `@monitor`
    are. Results stand in the trace of the evaluated span.

    Args:
        quiet_s: How long no span of a trace may have ended before its answer is evaluated. At least
            0.
        nested_agents: Evaluate agents below another one too, where they have a name of their own.
        pipeline: Instead of the process's.
    """

    def __init__(
        self, *, quiet_s: float = 1.0, nested_agents: bool = False, pipeline: Pipeline | None = None
    ) -> None:
        self._quiet_s = quiet_s
        self._evaluation = SpanEvaluation(
            nested_agents=nested_agents, pipeline=pipeline, is_remote=False
        )
        self._pipeline = pipeline
        tick_s = min(max(quiet_s / 4, _LEAST_TICK_S), _MOST_TICK_S)
        self._worker = Worker(
            "agenteval-spans", max_waiting=64, idle_s=tick_s, on_idle=self._look, stays=True
        )
        self._reset()
        reset_in_child(self._reset)
        (pipeline or default_pipeline()).sources.add(self)
        if pipeline is None:
            follow(self)

    def __repr__(self) -> str:
        return f"<AgentEvalSpanProcessor {self._assembler!r}>"

    def _reset(self) -> None:
        self._inbox: deque[tuple[ReadableSpan, int]] = deque()
        self._lost: deque[int] = deque(maxlen=_MOST_LOST)
        self._assembler = TraceAssembler(
            quiet_s=self._quiet_s,
            parent_wait_s=max(60.0, self._quiet_s),
            is_mark=self._evaluation.is_mark,
        )
        self._is_shut_down = False

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing: a span is read when it has ended."""

    def on_end(self, span: ReadableSpan) -> None:
        """Keep the span for the background thread. Raises nothing, and takes no lock."""
        try:
            if (
                self._is_shut_down
                or CURRENT.get() is EVALUATING
                or (not THREAD.is_host and under_evaluation())
            ):
                return  # a judge's call, or another one of an evaluator
            context = span.context
            if context is None or not context.trace_flags.sampled:
                return
            size_bytes = _size_of(span)
            if not MEMORY.read_spans.reserve(size_bytes):
                self._lost.append(context.trace_id)
                self._drop()
                return
            self._inbox.append((span, size_bytes))
            if not self._worker.has_thread:
                watch_exit()
                self._worker.start()
        except Exception as error:
            self._broken(error)

    def bind(self, pipeline: Pipeline) -> None:
        """Drain with this pipeline from now on. It is called when another one is configured."""
        pipeline.sources.add(self)

    def drain(self, timeout_s: float, *, last: bool = False) -> bool:
        """Submit the answers that have come so far, with `last` also those that wait for a parent.

        Return False if the time ran out.
        """
        if not self._worker.has_thread:
            return True
        done = threading.Event()
        return self._worker.submit(partial(self._look, done, last)) and done.wait(timeout_s)

    def erase(self, erasure: Erasure) -> int:
        """Remove the waiting traces that match the erasure, and return how many."""
        if not self._worker.has_thread:
            return 0
        removed = list[int]()
        done = threading.Event()

        def remove() -> None:
            try:
                self._look()
                before = self._assembler.size_bytes
                removed.extend(self._assembler.remove(partial(trace_is_concerned, erasure)))
                self._assembler.close(removed)
                MEMORY.read_spans.release(before - self._assembler.size_bytes)
            finally:
                done.set()

        if self._worker.submit(remove):
            done.wait()
        return len(removed)

    def state(self) -> dict[str, int]:
        """Return what waits: traces, and the spans' bytes, of the budget that all parts share."""
        return {"size": self._assembler.traces, "bytes": self._assembler.size_bytes, "max_bytes": 0}

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Evaluate the answers that have come so far.

        Blocks for at most so long. Return True if all were evaluated.

        A model call whose parent has not ended yet goes on waiting for it: it may be a step of an
        agent's answer. Results are not flushed: the provider that asks has its own processors for
        them.
        """
        deadline = time.monotonic() + timeout_millis / 1e3
        drained = self.drain(timeout_millis / 1e3)
        pipeline = self._pipeline or default_pipeline()
        return pipeline.dispatcher.flush(max(0.0, deadline - time.monotonic())) and drained

    def shutdown(self) -> None:
        """Evaluate what has come, and take no further span. Blocks for at most three seconds.

        The results are passed on when this returns: processors that the provider shuts down later
        export them.
        """
        if not self._is_shut_down:
            self.drain(_SHUTDOWN_S, last=True)
            self._is_shut_down = True
            (self._pipeline or default_pipeline()).dispatcher.flush(_SHUTDOWN_S)
            self._worker.close(_SHUTDOWN_S)

    def _look(self, done: threading.Event | None = None, last: bool = False) -> None:
        """Assemble what has ended and evaluate what is complete, on the processor's own thread.

        With `done` there is no wait for a quiet trace, and `last` takes every trace as it is.
        """
        assembler = self._assembler
        now_s = time.monotonic()
        waiting_bytes = assembler.size_bytes
        try:
            CURRENT.set(EVALUATING)
            for _ in range(len(self._lost)):
                assembler.lose(self._lost.popleft())
            for _ in range(len(self._inbox)):
                span, size_bytes = self._inbox.popleft()
                waiting_bytes += size_bytes
                self._add(span, size_bytes, now_s)
            if last:
                complete = assembler.take_all()
            elif done is not None:
                complete = assembler.take(now_s, quiet_s=0.0)
            else:
                complete = assembler.take(now_s, quiet_s=None)
            while traces := list(islice(complete, _AT_ONCE)):
                self._evaluation.evaluate(traces)
            self._evaluation.count_assembled(assembler)
        except Exception as error:
            self._broken(error)
        finally:
            MEMORY.read_spans.release(waiting_bytes - assembler.size_bytes)
            if done is not None:
                done.set()

    def _add(self, span: ReadableSpan, size_bytes: int, now_s: float) -> None:
        try:
            read = span_of_sdk(span)
            if span.parent is not None and span.parent.is_remote:
                read.parent_id = None  # it ends in another process: there is nothing to wait for
            if not self._assembler.add(read, size_bytes, now_s):
                self._drop()
        except Exception as error:
            self._broken(error)

    def _drop(self) -> None:
        (self._pipeline or default_pipeline()).accounting.count_spans("dropped", 1)
        log.warning("spans_dropped", part="spans")

    def _broken(self, error: Exception) -> None:
        try:
            (self._pipeline or default_pipeline()).broken("spans", error)
        except Exception:
            return  # counting itself broke


def _size_of(span: ReadableSpan) -> int:
    """Return how many bytes a span keeps alive.

    They are its texts and lists as Python keeps them, and about what all else takes. The
    resource is the provider's. It runs on the host's thread, for a few microseconds.
    """
    size_bytes = _SPAN_BYTES + getsizeof(span.name) + _size_of_attributes(span.attributes)
    if span.status.description is not None:
        size_bytes += getsizeof(span.status.description)
    parts: list[Any] = [*span.events, *span.links]
    for part in parts:
        size_bytes += _SPAN_BYTES + _size_of_attributes(part.attributes)
    return size_bytes


def _size_of_attributes(attributes: Any) -> int:
    if not attributes:
        return 0
    try:
        plain = attributes.copy()  # the SDK's mapping reads each value in Python: ten times slower
    except AttributeError:
        plain = dict(attributes)
    size_bytes = _ATTRIBUTE_BYTES * len(plain) + sum(map(getsizeof, plain))
    for value in plain.values():
        kind = type(value)
        if kind is str:
            size_bytes += getsizeof(value)
        elif kind not in _NUMBERS:
            size_bytes += kept_bytes(value)
    return size_bytes
