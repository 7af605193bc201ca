"""An evaluated response: what telemetry, objectives and storage receive of one answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import SpanContext, format_trace_id

from agenteval_otel.capture.assembly.conversations import Conversation
from agenteval_otel.capture.redaction.outgoing import Redaction, is_category, without_content
from agenteval_otel.engine.aggregation import Aggregation
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.run import WEIGHTED_MEAN, EvaluationRunner, RunOutcome, combined
from agenteval_otel.engine.task import AnswerSampling
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationInput,
    EvaluationResult,
    RunError,
    SpanReference,
)
from agenteval_otel.models.inputs import Annotations, is_blank
from agenteval_otel.models.results import HasUnit, Late
from agenteval_otel.models.value import construct, copy_with
from agenteval_otel.semconv import OTHER, TAG
from agenteval_otel.telemetry.spans import own_service_version, reference_of

_OF_THE_INPUT = (
    "agent_id",
    "session_id",
    "agent",
    "stream_end",
    "incomplete",
    "response_id",
    "conversation_id",
    "model",
    *Annotations.model_fields,
)


def aggregate(
    evaluation_input: EvaluationInput,
    outcome: RunOutcome,
    *,
    runner: EvaluationRunner,
    started_ns: int,
    ended_ns: int,
    metadata: Mapping[str, Any] | None = None,
    storage: str = "none",
    aggregation: Aggregation | None,
    overall: tuple[float | None, list[RunError]],
) -> AggregatedEvaluationResult:
    """Put the results of one run together. `overall` is what `combined` gave for them."""
    own_metadata = dict(metadata or {})
    score, run_errors = overall
    criteria_names = [criterion.name for criterion in outcome.criteria]
    snapshot: dict[str, Any] = {
        "evaluatorTypes": list(runner.labels),
        "criteriaNames": criteria_names,
        "storageProviderType": storage,
        "metadataKeys": list(own_metadata),
    }
    if aggregation is not None and aggregation.type != WEIGHTED_MEAN.type:
        snapshot["aggregation"] = aggregation.type  # the originals know the one only
    errors = [error.model_dump(by_alias=True) for error in run_errors]
    duration_ms = (ended_ns - started_ns) // 1_000_000
    fields = {name: getattr(evaluation_input, name) for name in _OF_THE_INPUT}
    fields["overall_score"] = score
    fields["results"] = tuple(outcome.results)
    fields["timestamp"] = ended_ns // 1_000_000
    fields["evaluation_config_snapshot"] = snapshot
    fields["metadata"] = {**own_metadata, "errors": errors, "durationMs": duration_ms}
    fields["run_errors"] = tuple(run_errors) or None
    fields["started_ns"] = started_ns
    fields["ended_ns"] = ended_ns
    fields["has_ground_truth"] = not is_blank(evaluation_input.ground_truth)
    # All of it comes from values that were validated when they were made.
    return construct(AggregatedEvaluationResult, fields)


_WORDS = ("label", "reason_code", "error_type", "score")


class EvaluatedResponse(HasUnit):
    """Holds one answer with its results, as telemetry shows them.

    Words that do not read like categories are ``_other``.

    Every text is redacted, but the free text of evaluators. The input is there with content capture
    alone.
    """

    __slots__ = (
        "_errors",
        "_evaluated",
        "_input",
        "_outcome",
        "_redaction",
        "_sampled",
        "_settings",
        "_span",
        "agent",
        "annotations",
        "call_id",
        "conversation",
        "conversation_id",
        "due_ns",
        "ended_ns",
        "has_ground_truth",
        "incomplete",
        "input_snapshot",
        "late",
        "model",
        "module",
        "overall_score",
        "response_ended_ns",
        "response_form",
        "response_id",
        "results",
        "sampling_clustered",
        "sampling_probability",
        "sampling_reason",
        "sampling_scope",
        "started_ns",
        "stream_end",
    )

    def __init__(
        self,
        evaluation_input: EvaluationInput,
        outcome: RunOutcome,
        settings: HandlerSettings,
        redaction: Redaction,
        on_broken: Callable[[str, BaseException], None],
        *,
        evaluated: SpanContext | None,
        call_id: str | None,
        started_ns: int,
        ended_ns: int,
        response_ended_ns: int | None,
        due_ns: int | None,
        late: Late | None,
        sampled: AnswerSampling,
        conversation: Conversation | None = None,
    ) -> None:
        self._input = evaluation_input
        self._outcome = outcome
        self._settings = settings
        self._redaction = redaction
        self._evaluated = evaluated
        self.conversation = conversation
        self._span: SpanReference | None = None
        self.call_id = call_id
        short = redaction.short
        self.agent = short("agent", evaluation_input.agent)
        self.module = short("module", evaluation_input.module)
        self.model = short("model", evaluation_input.model)
        self.response_id = short("response_id", evaluation_input.response_id)
        self.conversation_id = short("conversation_id", evaluation_input.conversation_id)
        self.annotations = evaluation_input.annotations
        for name, value in self.annotations.items():
            self.annotations[name] = redaction.text(value, name.removeprefix(TAG))
        self.stream_end = evaluation_input.stream_end
        self.response_form = evaluation_input.response_form
        self.incomplete = evaluation_input.incomplete
        self.has_ground_truth = not is_blank(evaluation_input.ground_truth)
        self.results: list[EvaluationResult] = [
            outgoing_words(result, redaction) for result in outcome.results
        ]
        self.overall_score, self._errors = combined(outcome, settings.aggregation, on_broken)
        self.started_ns = started_ns
        self.ended_ns = ended_ns
        self.response_ended_ns = response_ended_ns
        self.due_ns = due_ns
        self.late = late
        self._sampled = sampled.fields
        self.sampling_probability: float | None = self._sampled["sampling_probability"]
        self.sampling_reason: str | None = self._sampled["sampling_reason"]
        self.sampling_scope: str | None = self._sampled["sampling_scope"]
        self.sampling_clustered: bool = self._sampled["sampling_clustered"]
        self.input_snapshot: EvaluationInput | None = None
        if settings.content:
            self.input_snapshot = outcome.outgoing or redaction.input(evaluation_input)

    @property
    def span(self) -> SpanReference | None:
        if self._span is None:
            self._span = reference_of(self._evaluated)
        return self._span

    @property
    def _unit_ids(self) -> dict[str, str | None]:
        # As they came: ids that are redacted may be alike. The trace's is not taken from `span`, which
        # is needed for what is stored alone, and takes longer to make.
        trace_id = None
        if self._evaluated is not None and self._evaluated.is_valid:
            trace_id = format_trace_id(self._evaluated.trace_id)
        return {
            "conversation": self._input.conversation_id,
            "session": self._input.session_id,
            "trace": trace_id,
        }

    def aggregated(self) -> AggregatedEvaluationResult:
        """Return the frozen result, redacted, with content if that is captured."""
        outcome = self._outcome._replace(results=self.results)
        aggregated = aggregate(
            self._input,
            outcome,
            runner=self._settings.runner,
            started_ns=self.started_ns,
            ended_ns=self.ended_ns,
            storage="external",
            aggregation=self._settings.aggregation,
            overall=(self.overall_score, self._errors),
        )
        changes: dict[str, Any] = {
            "span": self.span,
            "call_id": self.call_id,
            "response_ended_ns": self.response_ended_ns,
            "late": self.late,
            **self._sampled,
        }
        if aggregated.service is None and aggregated.service_version is None:
            changes["service_version"] = self._redaction.short(
                "service_version", own_service_version()
            )
        if self.conversation is not None:
            of_whole = {"turns": len(self.conversation), "end": self.conversation.end}
            metadata = {**aggregated.metadata, "conversation": of_whole}
            aggregated = copy_with(aggregated, {"metadata": metadata})
        if self.response_form is not None:
            metadata = {**aggregated.metadata, "response_form": self.response_form}
            aggregated = copy_with(aggregated, {"metadata": metadata})
        if self._settings.content:
            changes["input_snapshot"] = self.input_snapshot
        else:
            changes["results"] = tuple(map(without_content, aggregated.results))
            if aggregated.run_errors:
                errors = [
                    copy_with(error, {"message": error.message.partition(":")[0]})
                    for error in aggregated.run_errors
                ]
                changes["run_errors"] = tuple(errors)
                shown = [error.model_dump(by_alias=True) for error in errors]
                changes["metadata"] = {**aggregated.metadata, "errors": shown}
        return self._redaction.result(copy_with(aggregated, changes), whole=False)


def outgoing_words(result: EvaluationResult, redaction: Redaction) -> EvaluationResult:
    """Return the result as telemetry may show it, nearly always the same object.

    Free text stays as it was.
    """
    changes: dict[str, Any] = {}
    fields = result.__dict__
    for name in _WORDS:
        value = fields[name]
        if isinstance(value, str):
            shown = redaction.short(name, value) if is_category(value) else OTHER
            if shown is not value:
                changes[name] = shown
    if result.judgement is not None:
        changes["judgement"] = redaction.model(result.judgement)
    return copy_with(result, changes) if changes else result
