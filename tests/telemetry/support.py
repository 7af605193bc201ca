"""A handler in a trace, evaluated into recorded telemetry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agenteval_otel import annotate, monitor
from agenteval_otel.engine.capabilities.judge_health import JudgeHealth, JudgeHealthSettings
from agenteval_otel.engine.capabilities.objectives.watch import Objectives, ObjectiveSettings
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.semconv import INSTRUMENTS
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with

__all__ = ["Watch", "collected", "fail", "points", "skip", "start_no_thread", "trace_of"]


class Watch:
    """Builds one pipeline on recorded telemetry, calls monitored handlers on it and gives what was
    emitted.
    """

    def __init__(self, telemetry: RecordedTelemetry, **storage: Any) -> None:
        self.telemetry = telemetry
        self.emitter = telemetry.storage(**storage)
        self.pipelines: list[Pipeline] = []

    def pipeline(
        self,
        evaluators: Sequence[Any],
        *,
        agent_span: str = "sampled",
        ratio: float = 1.0,
        more: Sequence[Any] = (),
    ) -> Pipeline:
        made = pipeline_with(
            sampler=RatioSampler(ratio=ratio),
            evaluators=tuple(evaluators),
            storage=(self.emitter, *more),
            dispatcher=InlineDispatcher(),
            agent_span=agent_span,
            capabilities=(
                Objectives.made_by(ObjectiveSettings()),
                JudgeHealth.made_by(JudgeHealthSettings()),
            ),
        )
        self.pipelines.append(made)
        return made

    def answer(
        self,
        *evaluators: Any,
        answer: Any = "An answer.",
        error: BaseException | None = None,
        traced: bool = True,
        facts: dict[str, Any] | None = None,
        agent: str = "support",
        **settings: Any,
    ) -> Any:
        """One call of a handler that answers so, in a trace of the host's unless told otherwise;
        gives its span.
        """

        @monitor(agent=agent, pipeline=self.pipeline(evaluators, **settings))
        def handler(question: str) -> Any:
            annotate(**(facts or {}))
            if error is not None:
                raise error
            return answer

        return self.call(handler, traced)

    def call(self, handler: Callable[[str], Any], traced: bool = True) -> Any:
        if not traced:
            self._try(handler)
            return None
        with self.telemetry.tracer().start_as_current_span("host work") as span:
            self._try(handler)
        return span

    def _try(self, handler: Callable[[str], Any]) -> None:
        try:
            handler("A question?")
        except Exception:
            return

    def span(self, prefix: str = "evaluation support") -> Any:
        (actual,) = self.telemetry.spans(prefix)
        return actual

    def shutdown(self) -> None:
        for pipeline in self.pipelines:
            pipeline.shutdown(5)


def fail(_: EvaluationInput) -> Score:
    """An evaluator that fails, with text that leaves by no way."""
    raise EvaluationError("secret text", error_type="rate_limited")


def skip(_: EvaluationInput) -> Score:
    """An evaluator that has nothing to say."""
    raise EvaluationSkipped("nothing")


def start_no_thread(patch: pytest.MonkeyPatch) -> None:
    """Have no thread start, as at a process's exit or at its limit of threads."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    patch.setattr(threading.Thread, "start", refuse)


def trace_of(span: Any) -> tuple[int, int]:
    context = span.get_span_context() if isinstance(span, trace.Span) else span
    return context.trace_id, context.span_id


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    """The metrics that a reader collects now, by name."""
    data: Any = reader.get_metrics_data()
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def points(telemetry: RecordedTelemetry, name: str) -> dict[tuple[Any, ...], Any]:
    """Values by those of the attributes, sorted by the attributes' names; every attribute is a
    declared one.
    """
    (instrument,) = (item for item in INSTRUMENTS if item.name == name)
    actual = {}
    for point in telemetry.points(name):
        assert set(point.attributes) <= set(instrument.attributes)
        actual[tuple(value for _, value in sorted(point.attributes.items()))] = getattr(
            point, "value", point
        )
    return actual
