"""An evaluated response: what telemetry, objectives and storage receive of one answer, and how it
was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import SpanContext, get_tracer_provider

from agenteval_otel.capture.assembly.conversations import Conversation
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.capture.redaction.outgoing import Redaction, is_category, without_content
from agenteval_otel.capture.spans.forwarded import Sampled
from agenteval_otel.engine.aggregation import Aggregation
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.run import WEIGHTED_MEAN, EvaluationRunner, RunOutcome, combined
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationInput,
    EvaluationResult,
    RunError,
    SpanReference,
)
from agenteval_otel.models.inputs import Annotations, is_blank
from agenteval_otel.models.results import HasUnit, Late
from agenteval_otel.models.scoring.probability import probability_of
from agenteval_otel.models.value import construct, copy_with
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling.key import PROCESS_KEY, SamplingKey
from agenteval_otel.sampling.trace import (
    NOTHING_KNOWN,
    CallsPerTrace,
    SamplingSettings,
    Upstream,
    believed,
    head_ratio_of,
    upstream_of,
)
from agenteval_otel.semconv import OTHER, SCOPE_RECEIVED, TAG, UPSTREAM_TOO_SMALL
from agenteval_otel.telemetry.accounting import Accounting
from agenteval_otel.telemetry.spans import own_service_version, reference_of

_OF_THE_INPUT = (
    "agent_id",
    "session_id",
    "agent",
    "stream_end",
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
    snapshot: dict[str, Any] = {
        "evaluatorTypes": list(runner.labels),
        "criteriaNames": [criterion.name for criterion in outcome.criteria],
        "storageProviderType": storage,
        "metadataKeys": list(own_metadata),
    }
    if aggregation is not None and aggregation.type != WEIGHTED_MEAN.type:
        snapshot["aggregation"] = aggregation.type  # the originals know the one only
    errors = [error.model_dump(by_alias=True) for error in run_errors]
    # All of it comes from values that were validated when they were made.
    return construct(
        AggregatedEvaluationResult,
        {
            **{name: getattr(evaluation_input, name) for name in _OF_THE_INPUT},
            "overall_score": score,
            "results": tuple(outcome.results),
            "timestamp": ended_ns // 1_000_000,
            "evaluation_config_snapshot": snapshot,
            "metadata": {
                **own_metadata,
                "errors": errors,
                "durationMs": (ended_ns - started_ns) // 1_000_000,
            },
            "run_errors": tuple(run_errors) or None,
            "started_ns": started_ns,
            "ended_ns": ended_ns,
            "has_ground_truth": not is_blank(evaluation_input.ground_truth),
        },
    )


_WORDS = ("label", "reason_code", "error_type", "score")


class EvaluatedResponse(HasUnit):
    """One answer with its results, as telemetry shows them: words that do not read like categories
    are ``_other``.

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
        sampled: Mapping[str, Any],
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
        self._sampled = sampled
        self.sampling_probability: float | None = sampled["sampling_probability"]
        self.sampling_reason: str | None = sampled["sampling_reason"]
        self.sampling_scope: str | None = sampled["sampling_scope"]
        self.sampling_clustered: bool = sampled["sampling_clustered"]
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
        # As they came: ids that are redacted may be alike.
        return {
            "conversation": self._input.conversation_id,
            "session": self._input.session_id,
            "trace": None if self.span is None else self.span.trace_id,
        }

    def aggregated(self) -> AggregatedEvaluationResult:
        """Return the frozen result, redacted, with content if that is captured."""
        aggregated = aggregate(
            self._input,
            self._outcome._replace(results=self.results),
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
            aggregated = copy_with(
                aggregated, {"metadata": {**aggregated.metadata, "conversation": of_whole}}
            )
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
    """Return the result as telemetry may show it, nearly always the same object. Free text stays as
    it was.
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


class SamplingRecord:
    """How the answers of one pipeline are sampled: by which key, with what probability, among which
    answers.
    """

    def __init__(self, settings: SamplingSettings, accounting: Accounting) -> None:
        self.settings = settings
        self._accounting = accounting
        self.key = PROCESS_KEY
        if settings.key is not None:
            # a variable may hold bytes that are no UTF-8
            secret = settings.key.encode("utf-8", "surrogatepass")
            self.key = SamplingKey(secret, is_set=True)
        self.calls = CallsPerTrace()
        self._has_looked = False

    def of(self, call: CapturedCall) -> tuple[float | None, Upstream, dict[str, Any]]:
        """Return the probability among this process's responses, what came before it, and the
        result's facts.
        """
        decision = call.decision
        by_trace = self.settings.unit == "trace"
        probability = probability_of(decision) if decision else None
        if (sampled := call.sampled) is not None:  # by the application that sent the answer
            upstream = Upstream(sampled.upstream, sampled.same_randomness)
            is_clustered = sampled.clustered
        else:
            # A decision with randomness of its own (a conversation's) is independent of what the
            # trace's decided.
            nests = by_trace and (decision is None or decision.randomness is None)
            upstream = upstream_of(
                call.span_context,
                self.settings,
                call.upstream,
                by_trace=nests,
                head_ratio=call.head_ratio,
            )
            is_clustered = nests and self._is_clustered(call)
            self._compare_with_head_sampling(call)
        if upstream.unknown:
            self._note_unknown(upstream.unknown)
            probability = None
            upstream = NOTHING_KNOWN
        received = probability is not None and upstream.probability is None
        return (
            probability,
            upstream,
            {
                "sampling_probability": upstream.applied(probability),
                "sampling_reason": decision.reason if decision else None,
                "sampling_scope": SCOPE_RECEIVED if received else None,
                "sampling_clustered": is_clustered,
            },
        )

    @staticmethod
    def least_of(settings: HandlerSettings, upstream: Upstream, keep: float | None) -> float | None:
        """Return the least probability of a sampled answer, or None if the sampler does not know
        it.
        """
        least = settings.least_probability
        return None if least is None else upstream.applied(least * (keep or 1.0))

    def as_forwarded(self, sampled: Sampled) -> Sampled:
        """Return how an application sampled the answer that it sent, as far as that is believed."""
        least = self.settings.upstream_least
        if sampled.least is not None and sampled.least < least:
            sampled = sampled._replace(least=None)
        if sampled.probability is None:
            return sampled
        # the smallest of its numbers: the share here, the share before, and both together
        together = Upstream(sampled.upstream, sampled.same_randomness).applied(sampled.probability)
        numbers = (sampled.probability, sampled.upstream, together)
        smallest = min(number for number in numbers if number is not None)
        if not believed(Upstream(smallest), self.settings).unknown:
            return sampled
        self._note_unknown(UPSTREAM_TOO_SMALL)
        return sampled._replace(probability=None, upstream=None, least=None)

    def _note_unknown(self, reason: str) -> None:
        """Count an answer whose probability others stated and that is not believed."""
        self._accounting.fail(f"probability:{reason}")
        log.warning("probability_unknown", part=reason)

    def _compare_with_head_sampling(self, call: CapturedCall) -> None:
        """Log once if most of the evaluated answers have no recorded trace."""
        if self._has_looked or call.span_context is None or call.span_context.is_remote:
            return
        if call.input is not None:
            return  # it was read from spans, which are recorded
        self._has_looked = True
        settings = self.settings
        if settings.only_recorded or "trace_id" in settings.trust:
            return
        ratio = head_ratio_of(get_tracer_provider())
        if ratio is not None and ratio < 1.0:
            log.warning("head_sampling_ignored", part="sampling", ratio=ratio)

    def _is_clustered(self, call: CapturedCall) -> bool:
        if call.span_context is not None and self.calls.add(call.agent, call.span_context.trace_id):
            log.warning(
                "handler_repeats_in_trace",
                part=call.agent,
                why="all calls of a trace are sampled together, so intervals are too narrow: set sampling.unit: call",
            )
        return call.agent in self.calls.repeating
