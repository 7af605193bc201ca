"""A monitored handler: where its calls are sampled and captured, on the caller's thread.

`enter` runs before the handler, `leave` after it. Nothing here raises into the host: errors are
counted, and the call continues unmonitored.

With cold caches, as in a service, each further Python function call costs a microsecond or two. So
what every sampled call needs is inlined here, and what only some need has a method.
"""

from __future__ import annotations

import os
import time
from asyncio import get_running_loop
from collections.abc import Callable
from sys import getsizeof
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanContext

from agenteval_otel.capture.annotations import flag_of
from agenteval_otel.capture.calls import CURRENT, EVALUATING, Arguments
from agenteval_otel.capture.detached import Unreadable
from agenteval_otel.config.process import follow
from agenteval_otel.engine.handler import HandlerSettings, prepare_models
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.engine.pipeline.pipeline import OPEN_SPAN_BYTES
from agenteval_otel.engine.task import HandlerCall, Task, fresh_call
from agenteval_otel.instrumentation.scope import PLAIN, SCOPE, SPAN_KEY, Scope, current_context
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.runtime.reentrancy import THREAD, under_evaluation
from agenteval_otel.sampling import AnswerFacts, SamplingContext, SamplingDecision
from agenteval_otel.sampling.key import LOW_64
from agenteval_otel.sampling.trace import head_ratio_of
from agenteval_otel.semconv import (
    ALREADY_MONITORED,
    CAPTURE_FAILED,
    NOT_RECORDED,
    PIPELINE_FAILED,
)
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.spans import add_to_agent_span, end_agent_span, open_agent_span

_now_ns = time.time_ns
_tick_ns = time.perf_counter_ns
_pid = os.getpid
_current_context = current_context
_fresh_call = fresh_call
_thread = THREAD
_LOOP_EVERY = 64  # calls between two looks at the event loop
_CALL_BYTES = 540  # of a call beside its texts and what was copied
_SOCKET_NAMES: Final = frozenset({"websocket", "ws"})
"""Names of a WebSocket among arguments without annotations, which `monitor` cannot refuse."""


class Binding:
    """Holds a handler's place in a pipeline.

    It is replaced as a whole, so that no call sees two halves.
    """

    __slots__ = ("outcomes", "pipeline", "sampling", "settings", "unsampled")

    def __init__(
        self, agent: str, settings: HandlerSettings, pipeline: Pipeline, *, of_spans: bool
    ) -> None:
        self.settings: Final = settings
        self.sampling: Final = settings.sampling  # of every call: one step less to read
        self.pipeline: Final = pipeline
        # The calls that spans show count under agents and services of their own.
        accounting = Accounting() if of_spans else pipeline.accounting
        self.outcomes: Final = accounting.outcome_counts(agent)
        self.unsampled: Final = accounting.fast_counters(agent)


class Handler:
    """Samples and captures the calls of one monitored handler.

    Args:
        settings_for: Returns the settings for a pipeline. It is called again when another pipeline
            is configured.
        follows: The pipeline is the process's, and so is the one that replaces it.
        keep_arguments: Hold the arguments for a ``capture=`` function.
        of_spans: The calls are what spans show, of any agent and service.
    """

    def __init__(
        self,
        agent: str,
        function: Callable[..., Any],
        settings_for: Callable[[Pipeline], HandlerSettings],
        pipeline: Pipeline,
        *,
        follows: bool,
        keep_arguments: bool,
        of_spans: bool = False,
    ) -> None:
        self.agent = agent
        self._of_spans = of_spans
        # Whether the call is current while the handler runs. Not for streams: they run in their
        # consumer's context, and no call may stay current across a yield.
        self.scoped = False
        # Whether calls are web requests. Their prompt is read later, with the answer. A span of
        # another process becomes the parent of their own span, and takes no attributes.
        self.of_requests = False
        self._settings_for = settings_for
        self._arguments = Arguments(function, keep=keep_arguments)
        self._has_socket = not _SOCKET_NAMES.isdisjoint(self._arguments.names)
        self._noted_prompt = keep_arguments  # a capture= function says what the prompt is
        self._count = 0
        self.scope = Scope(self.broken)
        self.bind(pipeline)
        if follows:
            follow(self, prepares=True)

    def __repr__(self) -> str:
        return f"<Handler {self.agent} {self.binding.settings!r}>"

    def bind(self, pipeline: Pipeline) -> None:
        """Use a pipeline from now on.

        Raises `ConfigurationError` if the handler's own settings do not fit.
        """
        settings = self._settings_for(pipeline)
        self.binding = Binding(self.agent, settings, pipeline, of_spans=self._of_spans)
        prepare_models(self.agent, settings.runner.evaluators, "evaluators")

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> HandlerCall | None:
        """Decide, count, and begin the call if it is sampled.

        Return None if the call is not monitored. A call that is not sampled is begun only
        for its span, or within another call.
        """
        try:
            outer = CURRENT.get()
            if outer is EVALUATING or (not _thread.is_host and under_evaluation()):
                return None
            binding = self.binding
            pipeline = binding.pipeline
            if not pipeline.enabled:
                binding.unsampled.disabled += 1
                return None if outer is None else self._begin_unsampled(False)
            sampling = binding.sampling
            span: Any = _current_context().get(SPAN_KEY)
            span_context: Any = None if span is None else span.get_span_context()
            if sampling.by_key and type(span_context) is PLAIN and span_context[5]:
                # As `SamplingKey.of_trace` has it: a call costs as much as the arithmetic. By
                # place: the two properties take 95 ns instead of 29, a sixth of an unsampled call.
                product = (span_context[0] ^ sampling.mask) * sampling.first
                randomness = ((product ^ (product >> 96)) * sampling.second >> 64) & LOW_64
            else:
                has_trace = span_context is not None and span_context.is_valid
                span = span if has_trace else None
                span_context = span_context if has_trace else None
                if sampling.only_recorded and has_trace and not _is_recorded(span, span_context):
                    binding.outcomes[NOT_RECORDED] += 1
                    return None if outer is None else self._begin_unsampled(False)
                randomness = sampling.randomness_of(span_context)
            if randomness >= sampling.threshold:
                binding.unsampled.not_sampled += 1
                wants_span = span is None and binding.settings.agent_span == "always"
                return (
                    None if outer is None and not wants_span else self._begin_unsampled(wants_span)
                )
            decision = sampling.sampled
            memo: dict[int, SamplingDecision] | None = None
            if decision is None:
                memo = {} if sampling.keeps_memo else None
                # By place, which takes less time: no answer, no input and no results yet.
                decision = sampling.decide(
                    SamplingContext(self.agent, randomness, None, None, memo, None, sampling.key)
                )
                randomness = randomness if decision.randomness is None else decision.randomness
            shedder = pipeline.load_shedder
            if decision.sampled and decision.settled and shedder.keep is not None:
                decision = shedder.thin(decision, randomness)
            if decision.settled and not decision.sampled and pipeline.unsampled_calls is None:
                binding.outcomes[decision.outcome] += 1
                wants_span = span is None and binding.settings.agent_span == "always"
                return (
                    None if outer is None and not wants_span else self._begin_unsampled(wants_span)
                )
        except Exception as error:
            self.broken("sampler", error)
            return None
        return self._begin(args, kwargs, span, span_context, decision, randomness, memo)

    def leave(
        self, call: HandlerCall, answer: object = None, error: BaseException | None = None
    ) -> None:
        """Take the answer or the exception of a call that was entered, and queue the call.

        It runs on the caller's thread and raises nothing.
        """
        try:
            if call.token is not None:
                self.scope.close(call)
            call.ended_ns = call.started_ns + _tick_ns() - call.started_tick
            if error is not None:
                call.error_type = type(error).__name__
            if not call.is_kept:
                self._end_span(call)
                return
            decision = call.decision
            is_open = decision is not None and not decision.settled
            if is_open and not self.decide_after(call):
                self._end_span(call)
                return
            size = self._keep(call, answer)
            if call.span is not None and not self._ends_late(call):
                self._end_span(call)
        except Exception as failure:
            self.broken("capture", failure, call, CAPTURE_FAILED)
            self._end_span(call)
            return
        pipeline = self.binding.pipeline
        try:
            call.settled = True  # the outcome is its task's from now on
            kept = pipeline.unsampled_calls
            if kept is not None and call.decision and not call.decision.sampled:
                kept.keep(call, size)
                return
            pipeline.submit(call, size)
            self._count += 1
            if self._count % _LOOP_EVERY == 0 or self._count == 1:
                self._note_loop()
        except Exception as failure:
            self._fail(call, failure)

    def _fail(self, call: HandlerCall, failure: Exception) -> None:
        """End a call that could not be queued. It may have its outcome already. Raises nothing."""
        try:
            task = self.binding.pipeline.engine.task_of(call)
            call.settled = not task.take_end()
            self.broken("dispatcher", failure, call)
            self._end_span(task)
            MEMORY.open_spans.release(call.span_bytes)
            call.span_bytes = 0
        except Exception:
            return  # the stack may be exhausted

    def pass_by(self, call: HandlerCall) -> None:
        """End a call whose answer a monitored call within it takes."""
        call.ended_ns = call.started_ns + _tick_ns() - call.started_tick
        if not call.settled:
            self.binding.outcomes[ALREADY_MONITORED] += 1
            call.settled = True
        self._end_span(call)

    def _keep(self, call: HandlerCall, answer: Any) -> int:
        """Detach the answer from the host. Return about how many bytes the call keeps alive."""
        # `call.size_bytes` counts what was copied; plain text is not copied, so `getsizeof`
        # measures it.
        size = _CALL_BYTES
        if type(call.prompt) is str:
            size += getsizeof(call.prompt)
        if type(answer) is str:
            call.answer = answer
            size += getsizeof(answer)
        elif answer is not None:
            call.keep_answer(answer)
        elif self._has_socket and call.chunks is None and call.error_type is None:
            call.answer = Unreadable("the handler", "it sends over a WebSocket", "no_answer")
        if call.facts is not None:
            call.keep_facts()
        span: Any = call.span or call.host_span
        call.host_span = None
        # the public property copies them, also where there are none: 970 ns instead of 80
        if getattr(span, "_events", None):
            facts = call.facts or {}
            if facts.keys().isdisjoint(("experiment", "arm")):
                call.facts = {**facts, **flag_of(span.events)}
        return size + call.size_bytes

    def _ends_late(self, call: HandlerCall) -> bool:
        """Tell whether the call's span may end on the background thread."""
        if not self.binding.pipeline.late_spans or call.pid != _pid():
            return False
        emitter = call.settings.emitter
        if emitter is None or not emitter.providers.takes_late_spans():
            return False
        if not MEMORY.open_spans.reserve(OPEN_SPAN_BYTES):
            return False
        call.span_bytes = OPEN_SPAN_BYTES
        return True

    def _end_span(self, call: HandlerCall | Task) -> None:
        """End the call's own span here and now.

        A forked child leaves the copy of its parent's span alone.
        """
        span = call.take_span()
        if span is None or call.pid != _pid():
            return
        try:
            emitter = self.binding.settings.emitter
            if emitter is not None and span.is_recording() and emitter.providers.is_gone("TRACES"):
                # counted as lost: its processors would drop it, each with a line of the SDK's
                return
            try:
                add_to_agent_span(span, call.span_attributes)
            finally:
                end_agent_span(span, ended_ns=call.ended_ns, error_type=call.error_type)
        except Exception as error:
            self.broken(SCOPE, error)

    def _kept_prompt(self, call: HandlerCall, prompt: object) -> Any:
        """Return a prompt that is no text, detached from the host. Log once if there is none."""
        is_missing = prompt is None and bool(self._arguments.names) and not self.of_requests
        if is_missing and not self._noted_prompt:
            self._note_prompt()
        return call.keep(prompt)

    def _note_prompt(self) -> None:
        """Log that no argument of the handler is its prompt, and what to do."""
        self._noted_prompt = True
        log.warning(
            "prompt_not_found",
            part=self.agent,
            arguments=", ".join(self._arguments.names),
            why="none of them is the prompt by its name, or the only text: call it `prompt` or "
            "`question`, pass capture=, or annotate(prompt=...)",
        )

    def _note_loop(self) -> None:
        """Let the load shedder measure the event loop that the handler runs on."""
        try:
            self.binding.pipeline.load_shedder.note_loop(get_running_loop())
        except RuntimeError:
            return  # it runs on none

    def decide_after(self, call: HandlerCall, outcomes: dict[str, int] | None = None) -> bool:
        """Call the sampler with the facts of the answer.

        Return False if the call is not processed further: then it counts among `outcomes`,
        else among the handler's own.
        """
        counts = self.binding.outcomes if outcomes is None else outcomes
        try:
            pipeline = self.binding.pipeline
            duration_s = (call.ended_ns - call.started_ns) / 1e9
            answer = AnswerFacts(
                duration_s, call.error_type, call.stream_end, call.conversation_id()
            )
            key = pipeline.shared.key
            context = SamplingContext(
                call.agent, call.randomness, answer, None, call.memo, None, key
            )
            decision = call.settings.sampler.decide(context)
            if decision.randomness is not None:
                call.randomness = decision.randomness
            shedder = pipeline.load_shedder
            if decision.settled and decision.sampled and shedder.keep is not None:
                decision = shedder.thin(decision, call.randomness)
            call.decision = decision
            call.answer_facts = answer
            if decision.settled and not decision.sampled:
                if pipeline.unsampled_calls is not None:
                    return True
                counts[decision.outcome] += 1
                call.settled = True
                return False
            span = call.host_span or call.span
            if span is not None and decision.settled and span.is_recording():
                span.set_attributes(call.settings.evaluated_attributes)
            return True
        except Exception as error:
            self.broken("sampler", error, call, outcomes=counts)
            return False

    def _begin(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        span: trace.Span | None,
        span_context: SpanContext | None,
        decision: SamplingDecision,
        randomness: int,
        memo: dict[int, SamplingDecision] | None,
    ) -> HandlerCall | None:
        try:
            arguments = self._arguments
            call = _fresh_call()
            outer = CURRENT.get()
            if outer is not None:
                outer.has_inner = True
            call.started_ns = _now_ns()
            call.started_tick = _tick_ns()
            settings = self.binding.settings
            call.settings = settings
            call.agent = self.agent
            call.decision = decision
            call.randomness = randomness
            call.memo = memo
            prompt = arguments.prompt(args, kwargs)
            call.prompt = prompt if type(prompt) is str else self._kept_prompt(call, prompt)
            if arguments.more:
                arguments.take(call, args, kwargs)
            is_outermost = span is None or (self.of_requests and span_context.is_remote)  # type: ignore[union-attr]
            if is_outermost and settings.agent_span != "never":
                self._open_own_span(call, decision)
            if span is not None and call.span is None:
                call.span_context = span_context
                sampling = settings.sampling
                if sampling.upstream_attribute is not None:
                    attributes = getattr(span, "attributes", None) or {}
                    call.upstream = attributes.get(sampling.upstream_attribute)
                # A root span: its `parent` is None. A span that shows no parent may not be one.
                if sampling.only_recorded and getattr(span, "parent", span) is None:
                    call.head_ratio = head_ratio_of(trace.get_tracer_provider())
                call.host_span = span
                if decision.sampled and decision.applies and span.is_recording():
                    span.set_attributes(settings.evaluated_attributes)
            if self.scoped:
                self.scope.open(call)
            return call
        except Exception as error:
            self.broken("capture", error, outcome=CAPTURE_FAILED)
            return None

    def _begin_unsampled(self, wants_span: bool) -> HandlerCall | None:
        """Begin an unsampled call, for its span or to keep its annotations from the outer call."""
        try:
            call = _fresh_call()
            outer = CURRENT.get()
            if outer is not None:
                outer.has_inner = True
            call.agent = self.agent
            call.started_ns = _now_ns()
            call.started_tick = _tick_ns()
            call.is_kept = False
            call.settled = True  # it is counted already
            if wants_span:
                self._open_own_span(call, None)
            if self.scoped:
                self.scope.open(call)
            return call
        except Exception as error:
            self.broken(SCOPE, error)  # the call is counted already
            return None

    def _open_own_span(self, call: HandlerCall, decision: SamplingDecision | None) -> None:
        settings = self.binding.settings
        # A decision that does not apply yet samples only if its sampler turns out to apply.
        surely = decision is not None and decision.sampled and decision.applies
        if not surely and settings.agent_span != "always":
            return
        tracer = settings.emitter.agent_tracer_now() if settings.emitter is not None else None
        if tracer is not None:
            call.span = open_agent_span(tracer, self.agent, started_ns=call.started_ns)
            if surely:
                call.span_attributes = settings.evaluated_attributes
            call.span_context = call.span.get_span_context()
            call.pid = _pid()

    def note_unread(self, error: BaseException) -> None:
        """Count that a part of a call cannot be read. The call has its outcome all the same."""
        self.binding.pipeline.broken("capture", error)

    def broken(
        self,
        part: str,
        error: BaseException,
        call: HandlerCall | None = None,
        outcome: str = PIPELINE_FAILED,
        outcomes: dict[str, int] | None = None,
    ) -> None:
        """Count what broke on the caller's thread.

        A call that was not settled yet is settled by it.
        """
        try:
            # A failure of the scope changes no outcome, and neither does one of a call that is not
            # kept or has its outcome.
            # By identity: at the end of the stack a comparison of texts has no room.
            if part is not SCOPE and (call is None or (call.is_kept and not call.settled)):
                # first, and without a call: the stack may be exhausted
                counts = self.binding.outcomes if outcomes is None else outcomes
                counts[outcome] += 1
                if call is not None:
                    call.settled = True
            self.binding.pipeline.broken(part, error)
        except Exception:
            return  # counting itself broke


def _is_recorded(span: trace.Span, span_context: SpanContext) -> bool:
    """Tell whether the current span is recorded, or one of ours below another process's will be."""
    return span.is_recording() or (span_context.is_remote and span_context.trace_flags.sampled)
