"""The door: where a call of a monitored handler meets the route, on the caller's thread.

`enter` is asked before the handler runs and answers with a captured call or None; `leave` takes what came out. Between
them stands only the handler. Nothing here raises into the host: what breaks is counted, and the call goes on as if it
were not monitored. Only what the host itself raises passes through.

On a caller that is cold, as in a service, each further call of a Python function costs a microsecond or two. So what
every sampled call needs stands here in the open, and what only some need has a method.
"""

from __future__ import annotations

import time
import weakref
from asyncio import get_running_loop
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanContext

from agenteval_otel.capture import CURRENT, EVALUATING, Arguments, CapturedCall
from agenteval_otel.capture.calls import fresh_call
from agenteval_otel.dispatch.own import THREAD, under_evaluation
from agenteval_otel.instrumentation.current import PLAIN, SPAN_KEY, current_context
from agenteval_otel.instrumentation.gate import Gate
from agenteval_otel.instrumentation.scope import SCOPE, Scope
from agenteval_otel.models import StreamEnd
from agenteval_otel.pipeline import Pipeline, Plan, default_pipeline
from agenteval_otel.pipeline.judges import say_what_is_missing
from agenteval_otel.sampling import AnswerFacts, SamplingContext, SamplingDecision, draw_from
from agenteval_otel.sampling.ratio import LOW_64, NO_STATE
from agenteval_otel.semconv import CAPTURE_FAILED, PIPELINE_FAILED
from agenteval_otel.telemetry.spans import end_agent_span, open_agent_span

__all__ = ["Door", "following"]

_now_ns, _tick_ns = time.time_ns, time.perf_counter_ns
_current_context, _fresh_call, _thread = current_context, fresh_call, THREAD
_MEASURED_EVERY = 64


class Door:
    """One monitored handler's door.

    Args:
        agent: The agent's name.
        function: The undecorated handler.
        make_plan: Gives the plan for a pipeline; called again when another pipeline is configured.
        pipeline: The pipeline to use; the process's configured one, now and later, when None.
        keep_arguments: Hold the arguments for a ``capture=`` function.

    Attributes:
        scoped: `enter` makes the call the current one until `leave`; for handlers that run in one go. A stream's
            context is its consumer's, so nothing is held there across a yield.
        scope: Makes a call the current one, and its own span the current span.
        gate: What the pipeline in use says; replaced as a whole.
    """

    def __init__(
        self,
        agent: str,
        function: Callable[..., Any],
        make_plan: Callable[[Pipeline], Plan],
        *,
        pipeline: Pipeline | None,
        keep_arguments: bool,
    ) -> None:
        self.agent = agent
        self.scoped = False
        self._make_plan = make_plan
        self._arguments = Arguments(function, keep=keep_arguments)
        self._sampled = 0
        self.scope = Scope(self._broken)
        self.bind(pipeline or default_pipeline())
        if pipeline is None:
            _FOLLOWING.add(self)

    def __repr__(self) -> str:
        return f"<Door {self.agent} {self.gate.plan!r}>"

    def bind(self, pipeline: Pipeline) -> None:
        """Use a pipeline from now on.

        Raises:
            ConfigurationError: The handler's own settings do not fit.
        """
        self.gate = Gate(self.agent, self._make_plan(pipeline), pipeline)
        say_what_is_missing(self.agent, self.gate.plan.runner.evaluators)

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CapturedCall | None:
        """Decide, count, and for a sampled call begin it; None when the call goes by unmonitored."""
        try:
            outer = CURRENT.get()
            if outer is EVALUATING or (not _thread.is_host and under_evaluation()):
                return None
            gate = self.gate
            if not gate.pipeline.enabled:
                gate.tally.disabled += 1
                return None if outer is None else self._aside(False)
            span: Any = _current_context().get(SPAN_KEY)
            span_context: Any = None if span is None else span.get_span_context()
            if type(span_context) is PLAIN and span_context[5] and span_context[4] is NO_STATE:
                draw = span_context[0] & LOW_64  # as `draw_from` has it; by place, because three properties cost more
            else:
                if span_context is not None and not span_context.is_valid:
                    span = span_context = None
                draw = draw_from(span_context)
            if draw >= gate.bound:
                gate.tally.not_sampled += 1
                wants_span = gate.spans_always and span is None
                return None if outer is None and not wants_span else self._aside(wants_span)
            decision = gate.taken
            memo: dict[int, SamplingDecision] | None = None
            if decision is None:
                memo = {} if gate.keeps_memo else None
                decision = gate.decide(SamplingContext(self.agent, draw, None, None, memo))
                draw = draw if decision.draw is None else decision.draw
            if decision.sampled and decision.settled and gate.restraint.keep is not None:
                decision = gate.restraint.thin(decision, draw)
            if decision.settled and not decision.sampled:
                gate.cell[decision.outcome] += 1
                wants_span = gate.spans_always and span is None
                return None if outer is None and not wants_span else self._aside(wants_span)
        except Exception as error:
            self._broken("sampler", error)
            return None
        return self._begin(args, kwargs, span, span_context, decision, draw, memo)

    def leave(self, call: CapturedCall, answer: Any = None, error: BaseException | None = None) -> None:
        """Take the answer or the exception of a call that was entered, and send it on its way."""
        try:
            began = _tick_ns()
            if call.token is not None:
                self.scope.close(call)
            call.ended_ns = call.started_ns + began - call.started_tick
            if error is not None:
                call.error_type = type(error).__name__
            decision = call.decision
            goes_on = call.plan is not None and (decision is None or decision.settled or self._decide_after(call))
            if call.span is not None:
                end_agent_span(call.span, ended_ns=call.ended_ns, error_type=call.error_type)
                call.span = None
            if not goes_on:
                return
            if type(answer) is str:
                call.answer = answer
            elif answer is not None:
                call.keep_answer(answer)
        except Exception as failure:
            self._broken("capture", failure, call, CAPTURE_FAILED)
            return
        try:
            self.gate.submit(call)
            if call.added_ns:
                self._note(call.added_ns + _tick_ns() - began)
        except Exception as failure:
            self._broken("dispatcher", failure, call)

    def _note(self, added_ns: int) -> None:
        """Tell the restraint what this call cost, and of the event loop that it ran on."""
        restraint = self.gate.restraint
        restraint.note_added(added_ns)
        try:
            loop = get_running_loop()
        except RuntimeError:
            return
        restraint.note_loop(loop)

    def _decide_after(self, call: CapturedCall) -> bool:
        """Ask the sampler again, now that the answer is there; False when the call goes no further."""
        try:
            gate = self.gate
            duration_s = (call.ended_ns - call.started_ns) / 1e9
            answer = AnswerFacts(duration_s, call.error_type, call.stream_end, call.said_conversation())
            decision = call.plan.sampler.decide(SamplingContext(self.agent, call.draw, answer, None, call.memo))
            call.draw = call.draw if decision.draw is None else decision.draw
            if decision.settled and decision.sampled and gate.restraint.keep is not None:
                decision = gate.restraint.thin(decision, call.draw)
            call.decision, call.answer_facts = decision, answer
            if decision.settled and not decision.sampled:
                gate.cell[decision.outcome] += 1
                call.settled = True
                return False
            span = call.host_span or call.span
            if span is not None and decision.settled and span.is_recording():
                span.set_attributes(call.plan.evaluated_attributes)
            call.host_span = None
            return True
        except Exception as error:
            self._broken("sampler", error, call)
            return False

    def leave_stream(
        self, call: CapturedCall, chunks: list[Any], end: StreamEnd, error: BaseException | None, *, truncated: bool
    ) -> None:
        """`leave` for a streamed answer: the chunks that were kept, how it ended, and whether more chunks came."""
        call.keep_stream(chunks, end, truncated=truncated)
        self.leave(call, None, error)

    def _begin(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        span: trace.Span | None,
        span_context: SpanContext | None,
        decision: SamplingDecision,
        draw: int,
        memo: dict[int, SamplingDecision] | None,
    ) -> CapturedCall | None:
        try:
            gate, arguments, call = self.gate, self._arguments, _fresh_call()
            call.started_ns, call.started_tick = _now_ns(), _tick_ns()
            plan = call.plan = gate.plan
            call.agent, call.decision, call.draw, call.memo = self.agent, decision, draw, memo
            prompt = arguments.prompt(args, kwargs)
            call.prompt = prompt if type(prompt) is str else call.keep(prompt)
            if arguments.more:
                arguments.take(call, args, kwargs)
            if span is None and gate.spans:
                self._open_own_span(call, decision)
            elif span is not None:
                call.span_context = span_context
                if not (decision.sampled and decision.applies):
                    call.host_span = span
                elif span.is_recording():
                    span.set_attributes(plan.evaluated_attributes)
            if self.scoped:
                self.scope.open(call)
            if not self._sampled % _MEASURED_EVERY:
                call.added_ns = _tick_ns() - call.started_tick
            self._sampled += 1
            return call
        except Exception as error:
            self._broken("capture", error, outcome=CAPTURE_FAILED)
            return None

    def _aside(self, wants_span: bool) -> CapturedCall | None:
        """A call that is not evaluated but stands between: what its tasks annotate is not the outer call's."""
        try:
            call = _fresh_call()
            call.agent, call.started_ns, call.started_tick = self.agent, _now_ns(), _tick_ns()
            call.settled = True  # it is counted already
            if wants_span:
                self._open_own_span(call, None)
            if self.scoped:
                self.scope.open(call)
            return call
        except Exception as error:
            self._broken(SCOPE, error)  # the call is counted already
            return None

    def _open_own_span(self, call: CapturedCall, decision: SamplingDecision | None) -> None:
        plan = self.gate.plan
        surely = decision is not None and decision.sampled and decision.applies
        if not surely and plan.own_span != "always":
            return
        tracer = plan.emitter.tracer_now() if plan.emitter is not None else None
        if tracer is not None:
            attributes = plan.agent_attributes if surely else plan.unsampled_attributes
            call.span = open_agent_span(tracer, self.agent, attributes, started_ns=call.started_ns)
            call.span_context = call.span.get_span_context()

    def _broken(
        self, part: str, error: BaseException, call: CapturedCall | None = None, outcome: str = PIPELINE_FAILED
    ) -> None:
        """Count what broke on the caller's thread; a call that was not settled yet is settled by it."""
        try:
            # By identity: at the end of the stack a comparison of texts has no room.
            if part is not SCOPE and (call is None or (call.plan is not None and not call.settled)):
                self.gate.cell[outcome] += 1  # first, and without a call: the stack may be exhausted
                if call is not None:
                    call.settled = True
            self.gate.pipeline.broken(part, error)
        except Exception:
            return  # counting itself broke: there is nobody left to tell


_FOLLOWING: weakref.WeakSet[Door] = weakref.WeakSet()


def following() -> list[Door]:
    """Every door that follows the configured pipeline."""
    return list(_FOLLOWING)
