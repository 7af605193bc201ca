"""What leaves, with content capture and without: scores, words that are nobody's, and only if asked for, text.

Free text of an evaluator may quote the conversation: its reasoning, metadata, the messages of its errors. What it calls
a category, a reason or a kind of error is let out if it reads like one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.semconv import OTHER

__all__ = ["with_content", "without_content"]

_CATEGORY = re.compile(r"[^\W_][\w.:/+-]{0,39}(?: [\w.:/+-]{1,20}){0,2}")


def _is_category(word: str) -> bool:
    """Whether a text reads like a category: at most 40 characters, three words and three digits."""
    return len(word) <= 40 and _CATEGORY.fullmatch(word) is not None and sum(map(str.isdigit, word)) <= 3


def with_content(aggregated: AggregatedEvaluationResult, facts: Mapping[str, Any]) -> AggregatedEvaluationResult:
    """The result with further facts; what should be a category is one, because it becomes an attribute."""
    return aggregated.model_copy(update={**facts, "results": tuple(map(_in_words, aggregated.results))})


def without_content(aggregated: AggregatedEvaluationResult, facts: Mapping[str, Any]) -> AggregatedEvaluationResult:
    """The same, with what may quote the conversation left out."""
    errors = tuple(
        error.model_copy(update={"message": error.message.partition(":")[0]}) for error in aggregated.run_errors or ()
    )
    metadata = {**aggregated.metadata, "errors": [error.model_dump(by_alias=True) for error in errors]}
    results = tuple(_without(_in_words(result)) for result in aggregated.results)
    return aggregated.model_copy(
        update={**facts, "results": results, "run_errors": errors or None, "metadata": metadata}
    )  # fmt: skip


def _in_words(result: EvaluationResult) -> EvaluationResult:
    words = {name: getattr(result, name) for name in ("label", "reason_code", "error_type", "score")}
    wrong = {name: OTHER for name, word in words.items() if isinstance(word, str) and not _is_category(word)}
    return result.model_copy(update=wrong) if wrong else result


def _without(result: EvaluationResult) -> EvaluationResult:
    update: dict[str, Any] = {
        "reasoning": None, "metadata": None, "error": result.error and (result.error_type or "error"),
    }  # fmt: skip
    if result.skip_reason is not None:
        reason = result.skip_reason.partition(":")[0]
        update["skip_reason"] = reason if _is_category(reason) else "skipped"
    return result.model_copy(update=update)
