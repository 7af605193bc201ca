"""Attributes of a result: of its event, its span and the run span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from agenteval_otel import semconv as names
from agenteval_otel.capture.text import CAP_CHARS, clean
from agenteval_otel.models import EvaluationResult
from agenteval_otel.models.judge_calls import Judgement


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
