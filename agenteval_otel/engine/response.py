"""An evaluated response: what telemetry, objectives and storage are given of one answer.

The frozen `AggregatedEvaluationResult` is built where somebody asks for it: for storage, callbacks and offline callers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import SpanContext

from agenteval_otel.capture.outgoing import Redaction
from agenteval_otel.engine.aggregated import aggregate, combined
from agenteval_otel.engine.content import outgoing_words, with_content, without_content
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.run import RunOutcome
from agenteval_otel.ground_truth.base import is_blank
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, EvaluationResult, SpanReference
from agenteval_otel.telemetry.spans import reference_of

__all__ = ["EvaluatedResponse"]


class EvaluatedResponse:
    """One answer with its results. Every text of it is redacted, free text of evaluators is left to `results`' readers.

    Attributes:
        results: As telemetry shows them: labels and reasons that do not read like categories stand as ``_other``.
        input_snapshot: The redacted input, with content capture alone.
    """

    __slots__ = (
        "_errors", "_evaluated", "_input", "_on_broken", "_outcome", "_redaction", "_sampled", "_settings", "_span",
        "agent", "conversation_id", "ended_ns", "has_ground_truth", "input_snapshot", "model", "overall_score",
        "response_ended_ns", "response_id", "results", "sampling_clustered",
        "sampling_probability", "sampling_reason", "sampling_scope", "started_ns", "stream_end",
    )  # fmt: skip

    def __init__(
        self,
        evaluation_input: EvaluationInput,
        outcome: RunOutcome,
        settings: HandlerSettings,
        redaction: Redaction,
        on_broken: Callable[[str, BaseException], None],
        *,
        evaluated: SpanContext | None,
        started_ns: int,
        ended_ns: int,
        response_ended_ns: int,
        sampled: Mapping[str, Any],
    ) -> None:
        self._input, self._outcome, self._settings = evaluation_input, outcome, settings
        self._redaction, self._on_broken, self._evaluated = redaction, on_broken, evaluated
        self._span: SpanReference | None = None
        short = redaction.short
        self.agent = short("agent", evaluation_input.agent)
        self.model = short("model", evaluation_input.model)
        self.response_id = short("response_id", evaluation_input.response_id)
        self.conversation_id = short("conversation_id", evaluation_input.conversation_id)
        self.stream_end = evaluation_input.stream_end
        self.has_ground_truth = not is_blank(evaluation_input.ground_truth)
        self.results: list[EvaluationResult] = [outgoing_words(result, redaction) for result in outcome.results]
        self.overall_score, self._errors = combined(outcome, settings.aggregation, on_broken)
        self.started_ns, self.ended_ns, self.response_ended_ns = started_ns, ended_ns, response_ended_ns
        self._sampled = sampled
        self.sampling_probability: float | None = sampled["sampling_probability"]
        self.sampling_reason: str | None = sampled["sampling_reason"]
        self.sampling_scope: str | None = sampled["sampling_scope"]
        self.sampling_clustered: bool = sampled["sampling_clustered"]
        self.input_snapshot: EvaluationInput | None = None
        if settings.content:
            self.input_snapshot = outcome.outgoing or redaction.input(evaluation_input)

    def __repr__(self) -> str:
        return f"<EvaluatedResponse {self.agent} {self.overall_score}>"

    @property
    def span(self) -> SpanReference | None:
        """The evaluated span, written down."""
        if self._span is None:
            self._span = reference_of(self._evaluated)
        return self._span

    def aggregated(self) -> AggregatedEvaluationResult:
        """The frozen result, redacted, with content where that is captured."""
        aggregated = aggregate(
            self._input, self._outcome, runner=self._settings.runner, started_ns=self.started_ns,
            ended_ns=self.ended_ns, storage="external", aggregation=self._settings.aggregation,
            overall=(self.overall_score, self._errors),
        )  # fmt: skip
        facts: dict[str, Any] = {
            "span": self.span,
            "response_ended_ns": self.response_ended_ns,
            **self._sampled,
        }
        if self._settings.content:
            aggregated = with_content(aggregated, {**facts, "input_snapshot": self.input_snapshot})
        else:
            aggregated = without_content(aggregated, facts)
        return self._redaction.result(aggregated, snapshot=False)
