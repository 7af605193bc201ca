"""Spans and events: the evaluated span, the run span, the result spans, the log of events, and their attributes.

A span that has ended takes no attributes, and results come after the answer, so they have their own carrier: the run
span, a child of the evaluated one. Outside any trace the handler gets its own ``invoke_agent`` span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from opentelemetry import _logs, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from agenteval_otel import semconv as names
from agenteval_otel.capture.text import CAP_CHARS, clean
from agenteval_otel.models import EvaluationResult, SpanReference
from agenteval_otel.models.judge_calls import Judgement
from agenteval_otel.models.value import construct
from agenteval_otel.telemetry.target import scope_version

Placement = Literal["child", "linked"]


def evaluated_attributes(criteria: Sequence[str]) -> dict[str, Any]:
    """What the evaluated span can know before it ends: that it is sampled, and for which criteria."""
    return {names.EVALUATION_SAMPLED: True, names.EVALUATION_CRITERIA: tuple(criteria)}


def agent_attributes(agent: str) -> dict[str, Any]:
    """The conventions' attributes of an agent's span."""
    return {names.OPERATION_NAME: names.OPERATION_INVOKE_AGENT, names.AGENT_NAME: agent}


def open_agent_span(
    tracer: trace.Tracer, agent: str, attributes: Mapping[str, Any], *, started_ns: int, context: Context | None = None
) -> Span:
    """Start the decorator's own ``invoke_agent {agent}`` span, at once or afterwards with its true start."""
    name = f"{names.OPERATION_INVOKE_AGENT} {agent}"
    return tracer.start_span(name, context=context, attributes=dict(attributes), start_time=started_ns)


def end_agent_span(span: Span, *, ended_ns: int, error_type: str | None, attributes: Mapping[str, Any]) -> None:
    """End the agent's span with its true end and what is known of its evaluation, in every case.

    Of the handler's exception it records the type, never the text.
    """
    try:
        if attributes and span.is_recording():  # the handler may have ended it
            span.set_attributes(attributes)
        if error_type is not None:
            span.set_attribute(names.ERROR_TYPE, error_type)
            span.set_status(Status(StatusCode.ERROR))
    finally:
        span.end(end_time=ended_ns)


def open_run_span(
    tracer: trace.Tracer, agent: str, evaluated: SpanContext | None, placement: Placement, *, started_ns: int,
    attributes: Mapping[str, Any] | None = None,
) -> Span | None:  # fmt: skip
    """Start the run span ``evaluation {agent}``; None when the evaluated trace is not sampled."""
    if evaluated is not None and not evaluated.trace_flags.sampled:
        return None
    links = [Link(evaluated)] if evaluated is not None and placement == "linked" else []
    return tracer.start_span(
        f"{names.OPERATION_EVALUATION} {agent}", context=Context() if links else context_of_span(evaluated),
        attributes={names.OPERATION_NAME: names.OPERATION_EVALUATION, names.AGENT_NAME: agent, **(attributes or {})},
        links=links, start_time=started_ns,
    )  # fmt: skip


def reference_of(span_context: SpanContext | None) -> SpanReference | None:
    """A span context written down; None for none and for invalid ones."""
    if span_context is None or not span_context.is_valid:
        return None
    return construct(SpanReference, {
        "trace_id": trace.format_trace_id(span_context.trace_id),
        "span_id": trace.format_span_id(span_context.span_id),
        "trace_flags": int(span_context.trace_flags),
        "trace_state": span_context.trace_state.to_header() if span_context.trace_state else "",
        "is_remote": span_context.is_remote,
    })  # fmt: skip


def context_of_span(span_context: SpanContext | None) -> Context:
    """The context of a span that may have ended; an empty one for none."""
    if span_context is None or not span_context.is_valid:
        return Context()
    return trace.set_span_in_context(NonRecordingSpan(span_context), Context())


def span_context_of(reference: SpanReference | None) -> SpanContext | None:
    """The span context that was written down, with its real flags."""
    if reference is None:
        return None
    return SpanContext(
        trace_id=int(reference.trace_id, 16), span_id=int(reference.span_id, 16), is_remote=reference.is_remote,
        trace_flags=TraceFlags(reference.trace_flags),
        trace_state=TraceState.from_header([reference.trace_state]) if reference.trace_state else None,
    )  # fmt: skip


# An enumeration's name is looked up in Python: once here instead of for each event.
_INFO = (_logs.SeverityNumber.INFO, _logs.SeverityNumber.INFO.name)
_WARN = (_logs.SeverityNumber.WARN, _logs.SeverityNumber.WARN.name)


class EventLog:
    """Writes events with a logger provider."""

    def __init__(self, provider: Any) -> None:
        self._logger = provider.get_logger(names.SCOPE_NAME, version=scope_version(), schema_url=names.SCHEMA_URL)

    def emit(
        self, name: str, *, context: Context, timestamp_ns: int, body: str, attributes: Mapping[str, Any], warn: bool
    ) -> None:
        """Write one event; every string must have been sanitised."""
        severity, severity_text = _WARN if warn else _INFO
        self._logger.emit(
            event_name=name, context=context, timestamp=timestamp_ns, severity_number=severity,
            severity_text=severity_text, body=body, attributes=attributes,
        )  # fmt: skip


def response_attributes(response: Any) -> dict[str, Any]:
    """What the events and the run span of one response have in common."""
    return _sanitised({
        names.RESPONSE_ID: response.response_id,
        names.AGENT_NAME: response.agent,
        names.CONVERSATION_ID: response.conversation_id,
        names.REQUEST_MODEL: response.model,
        names.SAMPLING_REASON: response.sampling_reason,
        names.SAMPLING_SCOPE: response.sampling_scope,
        names.SAMPLING_CLUSTERED: response.sampling_clustered or None,
        names.STREAM_END: response.stream_end,
    })  # fmt: skip


def event_attributes(result: EvaluationResult, common: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of one result, without content; a failure has ``error.type`` and neither score nor label."""
    evaluator_id = result.evaluator_id or result.evaluator_type
    signature = _signature(result.criterion_name, evaluator_id, result.evaluator_version, result.evaluator_kind)
    attributes = {**signature, **common, **_of_judgement(result.judgement)}
    if result.reason_code is not None:
        attributes[names.REASON_CODE] = _plain(result.reason_code)
    if result.threshold is not None:
        attributes[names.THRESHOLD] = result.threshold
    if result.probability is not None:
        attributes[names.SAMPLING_PROBABILITY] = result.probability
    if result.sampling_reason is not None:
        attributes[names.SAMPLING_REASON] = _plain(result.sampling_reason)
    if result.suspected_injection:
        attributes[names.SUSPECTED_INJECTION] = True
    if result.status == "failed":
        attributes[names.ERROR_TYPE] = _plain(result.error_type or "error")
        return attributes
    if (number := _number(result.score)) is not None:
        attributes[names.SCORE_VALUE] = number
    if result.label is not None:
        attributes[names.SCORE_LABEL] = _plain(result.label)
    if result.normalized is not None:
        attributes[names.SCORE_NORMALIZED] = result.normalized
    return attributes


def _of_judgement(judgement: Judgement | None) -> dict[str, Any]:
    if judgement is None:
        return {}
    return _sanitised({
        names.JUDGE_MODEL: judgement.model or None,
        names.JUDGE_RESPONSE_ID: judgement.response_id,
        names.JUDGE_INPUT_TOKENS: judgement.input_tokens,
        names.JUDGE_OUTPUT_TOKENS: judgement.output_tokens,
        names.JUDGE_CACHE_READ_TOKENS: judgement.cache_read_tokens,
        names.JUDGE_CACHE_WRITE_TOKENS: judgement.cache_write_tokens,
        names.JUDGE_COST: judgement.cost_usd,
        names.JUDGE_CACHED: judgement.from_cache or None,
    })  # fmt: skip


@lru_cache(maxsize=1024)  # evaluators are configured: the same few come with every response
def _signature(criterion: str, evaluator: str, version: str | None, kind: str) -> Mapping[str, Any]:
    return _sanitised({
        names.EVALUATION_NAME: criterion, names.EVALUATOR_ID: evaluator, names.EVALUATOR_VERSION: version,
        names.EVALUATOR_TYPE: kind,
    })  # fmt: skip


def event_body(result: EvaluationResult) -> str:
    """One short line that reads well by itself, such as ``tone fail (too_harsh)``; no content."""
    if result.status == "failed":
        return _plain(f"evaluation of {result.criterion_name} failed: {result.error_type or 'error'}", 256)
    value = result.label if result.label is not None else _number(result.score)
    reason = f" ({result.reason_code})" if result.reason_code else ""
    return _plain(f"{result.criterion_name} {value}{reason}", 256)


def score_attributes(results: Sequence[EvaluationResult]) -> dict[str, Any]:
    """Score and label of each criterion that was scored, for the agent span and the run span."""
    attributes: dict[str, Any] = {}
    for result in results[: names.MAX_CRITERIA_PER_SPAN]:
        if result.status == "scored":
            score_name, label_name = _score_names(result.criterion_name)
            if (number := _number(result.score)) is not None:
                attributes[score_name] = number
            if result.label is not None:
                attributes[label_name] = _plain(result.label)
    return attributes


@lru_cache(maxsize=1024)
def _score_names(criterion: str) -> tuple[str, str]:
    return names.criterion_score(criterion), names.criterion_label(criterion)


def run_attributes(
    response: Any, *, scores: Mapping[str, Any], common: Mapping[str, Any], with_content: bool
) -> dict[str, Any]:
    """The run span's attributes: scores first, core last, because the SDK evicts the oldest beyond its limit."""
    attributes = dict(scores)
    if with_content and response.input_snapshot is not None:
        snapshot = response.input_snapshot
        attributes |= _sanitised({names.USER_PROMPT: snapshot.prompt, names.FULL_RESPONSE: snapshot.response_text})
    attributes.update(common)
    if response.sampling_probability is not None:
        attributes[names.SAMPLING_PROBABILITY] = response.sampling_probability
    if response.agent is not None:
        attributes[names.EVALUATION_MODULE] = common[names.AGENT_NAME]
    attributes[names.HAS_GROUND_TRUTH] = response.has_ground_truth
    failing = tuple(result.criterion_name for result in response.results if result.passed is False)
    if failing:
        attributes[names.FAILED_CRITERIA] = failing
    if response.overall_score is not None:
        attributes[names.OVERALL_SCORE] = response.overall_score
    return attributes


def _number(score: Any) -> float | None:
    return float(score) if isinstance(score, bool | int | float) else None


def _sanitised(attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _plain(value) if isinstance(value, str) else value
        for name, value in attributes.items() if value is not None
    }  # fmt: skip


def _plain(text: str, limit: int = CAP_CHARS) -> str:
    # Most texts are short ASCII and need not pass the slower checks of `clean`.
    is_plain = type(text) is str and text.isascii() and len(text) <= 256 and "\0" not in text
    return text if is_plain else clean(text, limit)
