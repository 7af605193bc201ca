"""What leaves, with content capture and without: scores, words that are nobody's, and only if asked for, text.

Free text of an evaluator may quote the conversation: its reasoning, metadata, the messages of its errors. What it calls
a category, a reason or a kind of error is let out if it reads like one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agenteval_otel.capture.outgoing import Redaction
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.models.value import replaced
from agenteval_otel.semconv import OTHER

__all__ = ["outgoing_words", "with_content", "without_content"]

_CATEGORY = re.compile(r"[^\W_][\w.:/+-]{0,39}(?: [\w.:/+-]{1,20}){0,2}")


_WORDS = ("label", "reason_code", "error_type", "score")
_MAX_CHARS = 40


def _is_category(word: str) -> bool:
    """Whether a text reads like a category: at most 40 characters, three words and three digits."""
    return len(word) <= _MAX_CHARS and _reads_like_one(word if type(word) is str else str.__str__(word))


@lru_cache(maxsize=1024)  # the same few words come with every answer
def _reads_like_one(word: str) -> bool:
    return _CATEGORY.fullmatch(word) is not None and sum(map(str.isdigit, word)) <= 3


def outgoing_words(result: EvaluationResult, redaction: Redaction) -> EvaluationResult:
    """The result as telemetry may show it: words that do not read like a category are ``_other``, all are redacted.

    Nearly always that is the same object. Free text (reasoning, metadata) stands as it was.
    """
    changes: dict[str, Any] = {}
    fields = result.__dict__
    for name in _WORDS:
        word = fields[name]
        if isinstance(word, str):
            shown = redaction.short(name, word) if _is_category(word) else OTHER
            if shown is not word:
                changes[name] = shown
    if result.judgement is not None:
        changes["judgement"] = redaction.model(result.judgement)
    return replaced(result, changes) if changes else result


def with_content(aggregated: AggregatedEvaluationResult, facts: Mapping[str, Any]) -> AggregatedEvaluationResult:
    """The result with further facts; what should be a category is one, because it becomes an attribute."""
    results = tuple(_changed(result, _in_words(result)) for result in aggregated.results)
    return replaced(aggregated, {**facts, "results": results})


def without_content(aggregated: AggregatedEvaluationResult, facts: Mapping[str, Any]) -> AggregatedEvaluationResult:
    """The same, with what may quote the conversation left out."""
    results = tuple(_changed(result, _without(result, _in_words(result))) for result in aggregated.results)
    update = {**facts, "results": results}
    if aggregated.run_errors:
        errors = tuple(replaced(error, {"message": error.message.partition(":")[0]}) for error in aggregated.run_errors)
        update["run_errors"] = errors
        update["metadata"] = {**aggregated.metadata, "errors": [error.model_dump(by_alias=True) for error in errors]}
    return replaced(aggregated, update)


def _changed(result: EvaluationResult, changes: dict[str, Any]) -> EvaluationResult:
    return replaced(result, changes) if changes else result


def _in_words(result: EvaluationResult) -> dict[str, Any]:
    held = result.__dict__
    return {
        name: OTHER for name in _WORDS if isinstance(word := held[name], str) and not _is_category(word)
    }  # fmt: skip


def _without(result: EvaluationResult, changes: dict[str, Any]) -> dict[str, Any]:
    """The changes, and those that take free text out."""
    for name in ("reasoning", "metadata"):
        if getattr(result, name) is not None:
            changes[name] = None
    if result.error:
        changes["error"] = changes.get("error_type", result.error_type) or "error"
    if result.skip_reason is not None:
        reason = result.skip_reason.partition(":")[0]
        changes["skip_reason"] = reason if _is_category(reason) else "skipped"
    return changes
