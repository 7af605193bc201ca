"""Plan: what one monitored handler wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace
from opentelemetry.trace import SpanContext

from agenteval_otel.capture import CapturedCall
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.pipeline.judges import judges_of
from agenteval_otel.runner import EvaluationRunner
from agenteval_otel.sampling import Escalation, Sampler, SamplingContext, SamplingDecision
from agenteval_otel.semconv import CRITERION_NAME, CRITERION_NAME_RULE, DISABLED, OUTCOMES, PIPELINE_FAILED
from agenteval_otel.storage import FanOutStorage, OtlpStorageProvider
from agenteval_otel.telemetry.spans import (
    agent_attributes,
    end_agent_span,
    evaluated_attributes,
    open_agent_span,
    open_run_span,
)

if TYPE_CHECKING:
    from agenteval_otel.pipeline.route import Pipeline

__all__ = ["AgentDefaults", "Plan", "first_said"]


class AgentDefaults(NamedTuple):
    """What one agent's handlers get where they bring nothing of their own; None comes from the pipeline.

    Attributes:
        criteria: See `Plan`.
        enabled: False counts the agent's calls as disabled, whatever its handlers bring.
        escalation: False has all evaluators see every sampled answer.
    """

    evaluators: Sequence[Evaluator] | None = None
    sampler: Sampler | None = None
    criteria: Sequence[EvaluationCriteria] | None = None
    enabled: bool = True
    escalation: Escalation | bool | None = None


def first_said(*escalations: Escalation | bool | None) -> Escalation | None:
    """The first that is said; None where that says that there is none, or nobody says anything."""
    said = next((one for one in escalations if one is not None), None)
    return said if isinstance(said, Escalation) else None


class _Off(Sampler):
    """Passes every call over, as disabled."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return _DISABLED


_DISABLED = SamplingDecision(False, None, "disabled", DISABLED)


class Plan:
    """What one monitored handler wants: evaluators, sampler, storage.

    Attributes:
        criteria: What the inputs name as asked for; empty where nothing differs from what the evaluators declare.
        objectives: By the criterion's name, where it has one; nothing can lie below an objective of 0.
        floor: The least probability with which a sampled answer goes on to escalated evaluators.

    Args:
        criteria: What differs, by the criterion's name, from what the evaluators declare; only the fields that were
            set on each. Names that no evaluator declares are left alone.
        enabled: False passes every call over.
        escalation: Which answers the evaluators of the second stage see; all where it is None.

    Raises:
        ConfigurationError: No evaluator, or a criterion whose name cannot be part of an attribute name.
    """

    def __init__(
        self,
        *,
        agent: str,
        evaluators: Sequence[Evaluator],
        sampler: Sampler,
        storage: Sequence[Any],
        pipeline: Pipeline,
        capture: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
        own_span: str = "sampled",
        criteria: Sequence[EvaluationCriteria] = (),
        enabled: bool = True,
        escalation: Escalation | None = None,
    ) -> None:
        if not evaluators:
            raise ConfigurationError("expected at least one evaluator", path="evaluators")
        self.agent, self.capture, self.function = agent, capture, function
        self._thin, self._broken = pipeline.restraint.thin, pipeline.broken
        self.sampler, self.own_span = (sampler, own_span) if enabled else (_Off(), "never")
        parts: Any = {"executor": pipeline.executor, "redaction": pipeline.redaction, "escalation": escalation}
        self.runner = EvaluationRunner(evaluators, **parts)
        self.criteria = _changed(self.runner.criteria, criteria) if criteria else ()
        if self.criteria:
            self.runner = EvaluationRunner(evaluators, criteria=self.criteria, **parts)
        self.objectives = {one.name: one.objective for one in self.runner.criteria if one.objective}
        self.floor = 1.0 if escalation is None else escalation.floor
        self.storage = FanOutStorage(storage, pipeline.storage_failed)
        self.emitter = next((provider for provider in storage if isinstance(provider, OtlpStorageProvider)), None)
        if self.emitter is not None:
            judges = [judge.guarded() for _, judge in judges_of(self.runner.evaluators)]
            self.emitter.observe(
                pipeline.accounting, pipeline.dispatcher.state, pipeline.restraint.gauges, judges=judges
            )
        self._asks_models = any(evaluator.calls_model for evaluator in self.runner.evaluators)
        names = [criterion.name for criterion in self.runner.criteria]
        _check_slugs(names)
        self.evaluated_attributes = evaluated_attributes(names)
        self.unsampled_attributes = agent_attributes(agent)
        self.agent_attributes = {**self.unsampled_attributes, **self.evaluated_attributes}

    def decide_on(self, evaluation_input: EvaluationInput, call: CapturedCall) -> str | None:
        """Have a sampler that reads the answer decide, on the pool; the outcome when the call goes no further."""
        try:
            context = SamplingContext(call.agent, call.draw, call.answer_facts, evaluation_input, call.memo)
            decision = self.sampler.decide(context)
            if decision.sampled and decision.applies:
                decision = self._thin(decision, call.draw)
            call.decision = decision
            call.draw = call.draw if decision.draw is None else decision.draw
            if decision.sampled and decision.applies:
                return None
            return OUTCOMES[OUTCOMES.index(decision.outcome)]  # one that is unknown could not be counted
        except Exception as error:
            self._broken("sampler", error)
            return PIPELINE_FAILED

    def open_run_span(self, call: CapturedCall, started_ns: int, room: bool) -> trace.Span | None:
        """The run span of a call; None where none is wanted, or nobody would see it. Pool thread only."""
        tracer = self.emitter.tracer() if self.emitter is not None else None
        if self.emitter is None or tracer is None or not room:
            return None
        if call.span_context is None and self.own_span != "never":
            # No trace around the handler, and no tracer yet when it began: its span is written now, with true times.
            span = open_agent_span(tracer, call.agent, self.agent_attributes, started_ns=call.started_ns)
            end_agent_span(span, ended_ns=call.ended_ns, error_type=call.error_type)
            call.span_context = span.get_span_context()
        return open_run_span(tracer, call.agent, call.span_context, self.emitter.placement, started_ns=started_ns)

    def watch_judges(self, evaluated: SpanContext | None) -> None:
        """Have what the running task asks judges counted by the emitter, on the pool's thread."""
        if self._asks_models and self.emitter is not None:
            self.emitter.watch_judges(evaluated)

    def __repr__(self) -> str:
        return f"<Plan {self.agent} {self.runner!r}>"


def _changed(
    declared: Sequence[EvaluationCriteria], criteria: Sequence[EvaluationCriteria]
) -> tuple[EvaluationCriteria, ...]:
    """The declared criteria with the fields that are set on those of the same name."""
    changes = {
        criterion.name: {name: getattr(criterion, name) for name in criterion.model_fields_set}
        for criterion in criteria
    }
    return tuple(criterion.model_copy(update=changes.get(criterion.name, {})) for criterion in declared)


def _check_slugs(names: Sequence[str]) -> None:
    for name in names:
        if not CRITERION_NAME.fullmatch(name):
            raise ConfigurationError(
                f"criterion name {name!r} must be a slug: {CRITERION_NAME_RULE}{_hint(name)}", path="evaluators"
            )


def _hint(name: str) -> str:
    return "; name a lambda: Func(criterion_name=..., function=...)" if name == "<lambda>" else ""
