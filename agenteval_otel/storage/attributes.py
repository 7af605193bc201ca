"""What a result says as attributes: of its event, of its span and of the run span."""

from __future__ import annotations

from typing import Any

from agenteval_otel import semconv as names
from agenteval_otel.capture.text import clean
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult

__all__ = ["event_attributes", "event_body", "run_attributes"]


def event_attributes(result: EvaluationResult, aggregated: AggregatedEvaluationResult) -> dict[str, Any]:
    """The attributes of one result, without content; a failure has ``error.type`` and neither score nor label."""
    scored = result.status == "scored"
    attributes = {
        names.EVALUATION_NAME: result.criterion_name,
        names.SCORE_VALUE: _number(result.score) if scored else None,
        names.SCORE_LABEL: result.label if scored else None,
        names.REASON_CODE: result.reason_code,
        names.ERROR_TYPE: (result.error_type or "error") if result.status == "failed" else None,
        names.RESPONSE_ID: aggregated.response_id,
        names.AGENT_NAME: aggregated.agent,
        names.CONVERSATION_ID: aggregated.conversation_id,
        names.REQUEST_MODEL: aggregated.model,
        names.EVALUATOR_ID: result.evaluator_id or result.evaluator_type,
        names.EVALUATOR_VERSION: result.evaluator_version,
        names.EVALUATOR_TYPE: result.evaluator_kind,
        names.SCORE_NORMALIZED: result.normalized if scored else None,
        names.THRESHOLD: result.threshold,
        names.SAMPLING_PROBABILITY: result.probability,
        names.SAMPLING_REASON: aggregated.sampling_reason,
        names.STREAM_END: aggregated.stream_end,
        names.SUSPECTED_INJECTION: True if result.suspected_injection else None,
    }
    return _sanitised(attributes)


def event_body(result: EvaluationResult) -> str:
    """One short line that reads well by itself, such as ``tone fail (too_harsh)``; no content."""
    if result.status == "failed":
        return clean(f"evaluation of {result.criterion_name} failed: {result.error_type or 'error'}", 256)
    found = result.label if result.label is not None else _number(result.score)
    reason = f" ({result.reason_code})" if result.reason_code else ""
    return clean(f"{result.criterion_name} {found}{reason}", 256)


def run_attributes(aggregated: AggregatedEvaluationResult, *, with_content: bool) -> dict[str, Any]:
    """The run span's attributes: scores first, core last, because the SDK evicts the oldest beyond its limit."""
    attributes: dict[str, Any] = {}
    for result in aggregated.results[: names.MAX_CRITERIA_PER_SPAN]:
        if result.status == "scored":
            attributes[names.criterion_score(result.criterion_name)] = _number(result.score)
            attributes[names.criterion_label(result.criterion_name)] = result.label
    if with_content and aggregated.input_snapshot is not None:
        attributes[names.USER_PROMPT] = aggregated.input_snapshot.prompt
        attributes[names.FULL_RESPONSE] = aggregated.input_snapshot.response_text
    failing = tuple(result.criterion_name for result in aggregated.results if result.passed is False)
    attributes |= {
        names.RESPONSE_ID: aggregated.response_id,
        names.CONVERSATION_ID: aggregated.conversation_id,
        names.REQUEST_MODEL: aggregated.model,
        names.SAMPLING_PROBABILITY: aggregated.sampling_probability,
        names.SAMPLING_REASON: aggregated.sampling_reason,
        names.STREAM_END: aggregated.stream_end,
        names.EVALUATION_MODULE: aggregated.agent,
        names.HAS_GROUND_TRUTH: aggregated.has_ground_truth,
        names.FAILED_CRITERIA: failing or None,
        names.OVERALL_SCORE: aggregated.overall_score,
    }
    return _sanitised(attributes)


def _number(score: Any) -> float | None:
    return float(score) if isinstance(score, bool | int | float) else None


def _sanitised(attributes: dict[str, Any]) -> dict[str, Any]:
    kept = {}
    for name, value in attributes.items():
        if value is None:
            continue
        # Nearly every text here is short and plain: seen at a glance, without the encoding that `clean` checks by.
        if isinstance(value, str) and not (
            type(value) is str and value.isascii() and len(value) < 256 and "\0" not in value
        ):
            value = clean(value)
        kept[name] = value
    return kept
