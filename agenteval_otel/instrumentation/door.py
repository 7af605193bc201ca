"""The door: where a call of a monitored handler meets the route, on the caller's thread.

`enter` is asked before the handler runs and answers with a captured call or None; `leave` takes what came out. Between
them stands only the handler. Nothing here raises into the host: what breaks is counted, and the call goes on as if it
were not monitored. Only what the host itself raises passes through.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanContext

from agenteval_otel.capture import CURRENT, EVALUATING, Arguments, CapturedCall, snapshot
from agenteval_otel.models import StreamEnd
from agenteval_otel.pipeline import Pipeline, Plan, default_pipeline
from agenteval_otel.sampling import AnswerFacts, SamplingContext, SamplingDecision, draw_from
from agenteval_otel.semconv import CAPTURE_FAILED, DISABLED, PIPELINE_FAILED
from agenteval_otel.telemetry.spans import end_agent_span, open_agent_span

__all__ = ["Door", "following"]

_now_ns, _tick_ns = time.time_ns, time.perf_counter_ns
_current_context = otel_context.get_current
# Where a context holds its span. `trace.get_current_span` costs a third of what a call that goes by may cost; the key
# that it reads is private, so it is asked for by the front door.
_SPAN_KEY = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, otel_context.Context())))


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
        cell: The agent's outcomes.
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
        self._take = Arguments(function, keep=keep_arguments).take
        self.bind(pipeline or default_pipeline())
        if pipeline is None:
            _FOLLOWING.add(self)

    def __repr__(self) -> str:
        return f"<Door {self.agent} {self._plan!r}>"

    def bind(self, pipeline: Pipeline) -> None:
        """Use a pipeline from now on.

        Raises:
            ConfigurationError: The handler's own settings do not fit.
        """
        plan = self._make_plan(pipeline)
        # A sampler that looks at nothing but the draw says so: no context has to be built to ask it.
        by_draw: Callable[[int], SamplingDecision] | None = getattr(plan.sampler, "by_draw", None)
        self._plan, self._decide, self._submit, self._by_draw = plan, plan.sampler.decide, pipeline.submit, by_draw
        self._keeps_memo = getattr(plan.sampler, "keeps_memo", False)
        self._spans_always = plan.own_span == "always"
        self.cell = pipeline.accounting.cell(self.agent)
        self._pipeline = pipeline

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CapturedCall | None:
        """Decide, count, and for a sampled call begin it; None when the call goes by unmonitored."""
        try:
            outer = CURRENT.get()
            if outer is EVALUATING:
                return None
            if not self._pipeline.enabled:
                self.cell[DISABLED] += 1
                return None if outer is None else self._aside(False)
            span: Any = _current_context().get(_SPAN_KEY)
            span_context = None if span is None else span.get_span_context()
            if span_context is not None and not span_context.is_valid:
                span = span_context = None
            draw = draw_from(span_context)
            by_draw = self._by_draw
            memo: dict[int, SamplingDecision] | None = None
            if by_draw is not None:
                decision = by_draw(draw)
            else:
                memo = {} if self._keeps_memo else None
                decision = self._decide(SamplingContext(self.agent, draw, None, None, memo))
            if decision.settled and not decision.sampled:
                self.cell[decision.outcome] += 1
                wants_span = self._spans_always and span is None
                return None if outer is None and not wants_span else self._aside(wants_span)
        except Exception as error:
            self._broken("sampler", error)
            return None
        return self._begin(args, kwargs, span, span_context, decision, draw, memo)

    def leave(self, call: CapturedCall, answer: Any = None, error: BaseException | None = None) -> None:
        """Take the answer or the exception of a call that was entered, and send it on its way."""
        try:
            if call.token is not None:
                self.close_scope(call)
            call.ended_ns = call.started_ns + _tick_ns() - call.started_tick
            if error is not None:
                call.error_type = type(error).__name__
            decision = call.decision
            goes_on = call.plan is not None and (decision is None or decision.settled or self._decide_after(call))
            if call.span is not None:
                end_agent_span(call.span, ended_ns=call.ended_ns, error_type=call.error_type)
                call.span = None
            if not goes_on:
                return
            call.answer = snapshot(answer)
        except Exception as failure:
            self._broken("capture", failure, call, CAPTURE_FAILED)
            return
        try:
            self._submit(call)
        except Exception as failure:
            self._broken("dispatcher", failure, call)

    def _decide_after(self, call: CapturedCall) -> bool:
        """Ask the sampler again, now that the answer is there; False when the call goes no further."""
        try:
            duration_s = (call.ended_ns - call.started_ns) / 1e9
            answer = AnswerFacts(duration_s, call.error_type, call.stream_end, call.said_conversation())
            decision = call.plan.sampler.decide(SamplingContext(self.agent, call.draw, answer, None, call.memo))
            call.decision, call.answer_facts = decision, answer
            if decision.settled and not decision.sampled:
                self.cell[decision.outcome] += 1
                call.settled = True
                return False
            call.draw = call.draw if decision.draw is None else decision.draw
            span = call.host_span or call.span
            if span is not None and decision.settled and span.is_recording():
                span.set_attributes(call.plan.evaluated_attributes)
            call.host_span = None
            return True
        except Exception as error:
            self._broken("sampler", error, call)
            return False

    def leave_stream(self, call: CapturedCall, chunks: list[Any], end: StreamEnd, error: BaseException | None) -> None:
        """`leave` for a streamed answer: the chunks that were passed on, and how it ended."""
        call.chunks, call.stream_end = chunks, end
        self.leave(call, None, error)

    def _open_scope(self, call: CapturedCall) -> None:
        """Make the call the current one, and its own span the current span, for the code that follows."""
        try:
            call.token = CURRENT.set(call)
            if call.span is not None:
                self.attach_span(call)
        except Exception as error:
            self._broken("scope", error)

    def close_scope(self, call: CapturedCall) -> None:
        """Undo what `enter` opened; a coroutine closed from elsewhere runs in another context, with nothing to undo."""
        token, call.token = call.token, None
        try:
            if token is not None and CURRENT.get() is call:
                CURRENT.reset(token)
            if call.attached is not None:
                self.detach_span(call)
        except ValueError:
            call.attached = None  # a copy of the context that it was opened in: it ends with that copy
        except Exception as error:
            self._broken("scope", error)

    def attach_span(self, call: CapturedCall) -> None:
        """Make the call's own span, if it has one, the current span; never held across a yield."""
        try:
            if call.span is not None:
                context = trace.set_span_in_context(call.span)
                call.attached = (context, otel_context.attach(context))
        except Exception as error:
            self._broken("scope", error)

    def detach_span(self, call: CapturedCall) -> None:
        """Undo `attach_span`."""
        try:
            if call.attached is not None:
                context, token = call.attached
                call.attached = None
                if otel_context.get_current() is context:
                    otel_context.detach(token)
        except Exception as error:
            self._broken("scope", error)

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
            plan = self._plan
            call = CapturedCall(plan, self.agent)
            call.decision, call.draw, call.memo = decision, draw, memo
            surely = decision.sampled and decision.applies
            self._take(call, args, kwargs)
            call.started_ns, call.started_tick = _now_ns(), _tick_ns()
            if span is not None:
                call.span_context = span_context
                if not surely:
                    call.host_span = span
                elif span.is_recording():
                    span.set_attributes(plan.evaluated_attributes)
            elif surely and plan.own_span != "never":
                self._open_own_span(call, plan, plan.agent_attributes)
            elif self._spans_always:
                self._open_own_span(call, plan, plan.unsampled_attributes)
            if self.scoped:
                self._open_scope(call)
            return call
        except Exception as error:
            self._broken("capture", error, outcome=CAPTURE_FAILED)
            return None

    def _aside(self, wants_span: bool) -> CapturedCall | None:
        """A call that is not evaluated but stands between: what its tasks annotate is not the outer call's."""
        try:
            call = CapturedCall(None, self.agent)
            call.started_ns, call.started_tick = _now_ns(), _tick_ns()
            if wants_span:
                self._open_own_span(call, self._plan, self._plan.unsampled_attributes)
            if self.scoped:
                self._open_scope(call)
            return call
        except Exception as error:
            self._broken("scope", error)  # the call is counted already
            return None

    def _open_own_span(self, call: CapturedCall, plan: Plan, attributes: dict[str, Any]) -> None:
        tracer = plan.emitter.tracer_now() if plan.emitter is not None else None
        if tracer is not None:
            call.span = open_agent_span(tracer, self.agent, attributes, started_ns=call.started_ns)
            call.span_context = call.span.get_span_context()

    def _broken(
        self, part: str, error: BaseException, call: CapturedCall | None = None, outcome: str = PIPELINE_FAILED
    ) -> None:
        """Count what broke on the caller's thread; a call that was not settled yet is settled by it."""
        try:
            if part != "scope" and (call is None or (call.plan is not None and not call.settled)):
                self.cell[outcome] += 1  # first, and without a call: the stack may be exhausted
                if call is not None:
                    call.settled = True
            self._pipeline.broken(part, error)
        except Exception:
            return  # counting itself broke: there is nobody left to tell


_FOLLOWING: weakref.WeakSet[Door] = weakref.WeakSet()


def following() -> list[Door]:
    """Every door that follows the configured pipeline."""
    return list(_FOLLOWING)
