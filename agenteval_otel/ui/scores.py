"""A score in words: its value with its scale, and what it stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.ui.text import brief, duration_text

_VERDICTS = ("pass", "fail", "passed", "failed", "true", "false", "yes", "no")
_LONGEST = 60
_FELT_NS = 1_000_000


def score_text(result: EvaluationResult) -> str:
    """Return a score with its scale: ``0.35 of 1, passes from 0.5``.

    The text is empty if the verdict beside it says as much.
    """
    score = result.score
    has_verdict = result.passed is not None
    if score is None or (has_verdict and isinstance(score, bool)):
        return ""
    if isinstance(score, bool | str):
        text = str(score).lower() if isinstance(score, bool) else score
        is_verdict = has_verdict and text.strip().lower() in _VERDICTS
        return "" if is_verdict else brief(text, _LONGEST)
    text = _number(score)
    if result.normalized is not None:
        is_same = math.isclose(result.normalized, score, abs_tol=1e-9)
        text = f"{text} of 1" if is_same else f"{text}, which is {result.normalized:.2f} of 1"
    if has_verdict and result.threshold is not None:
        text = f"{text}, passes from {_number(result.threshold)}"
    return text


def took_text(result: EvaluationResult) -> str:
    """Return how long the evaluator took. The text is empty if that is not known."""
    if result.started_ns is None or result.ended_ns is None:
        return ""
    took_ns = result.ended_ns - result.started_ns
    return "" if took_ns < _FELT_NS else f"took {duration_text(took_ns / 1e9)}"


def skips_of(results: Iterable[EvaluationResult]) -> list[tuple[str, list[str]]]:
    """Return the reasons of skips, each with the criteria that were skipped for it."""
    names: dict[str, list[str]] = {}
    for result in results:
        if result.status == "skipped":
            names.setdefault(result.skip_reason or "", []).append(result.criterion_name)
    return list(names.items())


def stands_for(probability: float | None) -> str:
    """Return for how many answers a result stands, by its inclusion probability."""
    if not probability or not math.isfinite(probability):
        return "an unknown number of answers"
    if probability >= 1:
        return "this answer"
    return f"{1 / probability:,.3g} answers"


def all_stand_for(evaluation: AggregatedEvaluationResult) -> str:
    """Return what all results of an evaluation stand for. The text is empty if they differ."""
    different = {stands_for(result.probability) for result in evaluation.results}
    return different.pop() if len(different) == 1 else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.3g}"
