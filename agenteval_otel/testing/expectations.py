"""What a test expects of an evaluation, and how it reads where the results are different."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.runtime.text import aligned, brief

Expected: TypeAlias = bool | float | str
"""Whether it passes, its least normalized score (0 to 1), or its label (``skipped`` and ``failed``
too).
"""
Row: TypeAlias = tuple[str, str, str, str]
"""The criterion, what was expected, what came, and why."""
_ROUNDING = 1e-9
_WIDTHS = (40, 24, 30, 300)
_TEXT = 200


def check_expected(
    aggregated: AggregatedEvaluationResult, expect: Mapping[str, Expected] | None = None
) -> None:
    """Check that each criterion is as in `expect`, else passed or skipped.

    Without `expect`, not all may skip.

    Raises:
        AssertionError: With a line for each criterion that is not: what was expected, what came,
            and why.
        ConfigurationError: `expect` names a criterion that has no result, or expects something
            impossible.
    """
    __tracebackhide__ = True
    expect = expect or {}
    names = list(dict.fromkeys(result.criterion_name for result in aggregated.results))
    for name, expected in expect.items():
        if name not in names:
            raise ConfigurationError(
                f"no criterion {name!r} is scored{known_choices(name, names)}", path="expect"
            )
        if isinstance(expected, float | int) and not 0 <= expected <= 1:
            raise ConfigurationError(
                f"expected a score from 0 to 1, found {expected}", path=f"expect.{name}"
            )
    wrong = []
    for result in aggregated.results:
        row = _row_of(result, expect.get(result.criterion_name))
        if row is not None:
            wrong.append(row)
    evaluators = {result.evaluator_id for result in aggregated.results}
    wrong += [
        (error.evaluator_type or "run", "no error", "error", error.message)
        for error in aggregated.run_errors or ()
        if error.evaluator_type not in evaluators
    ]
    is_any_scored = any(
        result.status == "scored" and not result.shadow for result in aggregated.results
    )
    if not wrong and not expect and not is_any_scored:
        skip_reasons = [result.skip_reason or "" for result in aggregated.results]
        reasons = ", ".join(dict.fromkeys(skip_reasons))
        wrong = [("every criterion", "a score", "skipped", reasons)]
    if wrong:
        raise AssertionError(_text(aggregated, wrong, names))


def _row_of(result: EvaluationResult, expected: Expected | None) -> Row | None:
    """Return what differs.

    None if the result is as expected. None too if its evaluator is only tried and `expected` is
    None.
    """
    if result.shadow and expected is None:
        return None
    passes = result.normalized == 1.0 if result.passed is None else result.passed
    is_scored = result.status == "scored"
    reason = result.error or result.skip_reason or result.reasoning or result.reason_code or ""
    if isinstance(expected, bool) or expected is None:
        should_pass = expected is not False
        met = is_scored and passes is should_pass
        if expected is None and result.status == "skipped":
            met = True
        limit = "" if result.threshold is None else f" from {result.threshold:g}"
        shown = "fail" if expected is False else f"pass{limit}"
        if is_scored and result.passed is None:
            hint = "without a threshold only the best score passes"
            reason = f"{hint}, reason: {reason}" if reason else hint
    elif isinstance(expected, str):
        met = expected in (result.label, result.status)
        shown = expected
    else:
        met = (
            is_scored
            and result.normalized is not None
            and result.normalized >= expected - _ROUNDING
        )
        shown = f"at least {expected:.2f}"
    if met:
        return None
    outcome: str = result.status
    if is_scored:
        outcome = result.label or ""
        if result.normalized is not None:
            rounded_down = int(result.normalized * 100 + _ROUNDING) / 100
            outcome = f"{outcome} {rounded_down:.2f}"
        outcome = outcome.strip()
    return result.criterion_name, shown, outcome, reason


def _text(
    aggregated: AggregatedEvaluationResult, wrong: Sequence[Row], names: Sequence[str]
) -> str:
    rows = [("criterion", "expected", "got", "reason"), *wrong]
    cells = []
    for row in rows:
        cells.append([brief(cell, limit) for cell, limit in zip(row, _WIDTHS, strict=True)])
    wrong_names = {name for name, *_ in wrong}
    others = [name for name in names if name not in wrong_names]
    count = f"{len(wrong)} of {len(aggregated.results) or len(wrong)}"
    lines = [f"{count} results are not as expected", *aligned(cells)]
    facts = [f"as expected: {', '.join(others)}"] if others else []
    snapshot = aggregated.input_snapshot
    for name in ("prompt", "ground_truth", "response"):
        value = getattr(snapshot, name, None)
        if value is not None:
            facts.append(f"{name}: {brief(repr(value), _TEXT)}")
    if facts:
        lines += ["", *facts]
    return "\n  ".join(lines)
