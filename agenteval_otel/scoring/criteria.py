"""What criteria must hold to be scored by: each once, weights that make a mean, ranges that are ranges."""

from __future__ import annotations

from collections.abc import Sequence

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationCriteria

__all__ = ["check_criteria"]


def check_criteria(criteria: Sequence[EvaluationCriteria], *, path: str) -> None:
    """Refuse criteria that scores would be made up from.

    Not asked of the originals' form, where the first of two criteria counts and negative weights are used as they are.

    Raises:
        ConfigurationError: With every problem: a name that is blank or stands there twice, a negative weight, an
            objective outside of 0 to 1, a declared range with one end or none between its ends.
    """
    problems: list[tuple[str | None, str]] = []
    seen: set[str] = set()
    for index, criterion in enumerate(criteria):
        where = f"{path}[{index}]"
        if not criterion.name.strip():
            problems.append((f"{where}.name", "must not be blank"))
        elif criterion.name in seen:
            problems.append((path, f"criterion {criterion.name!r} stands there twice"))
        seen.add(criterion.name)
        if criterion.weight is not None and criterion.weight < 0:
            problems.append((f"{where}.weight", f"expected at least 0, found {criterion.weight:g}"))
        if criterion.objective is not None and not 0 <= criterion.objective <= 1:
            problems.append((f"{where}.objective", f"expected a number from 0 to 1, found {criterion.objective:g}"))
        problems += _of_range(criterion, where)
    if problems:
        raise ConfigurationError.of(problems)


def _of_range(criterion: EvaluationCriteria, where: str) -> list[tuple[str | None, str]]:
    low, high = criterion.minimum, criterion.maximum
    if (low is None) != (high is None):
        missing = "minimum" if low is None else "maximum"
        return [(f"{where}.{missing}", "a declared range needs both ends")]
    if low is not None and high is not None and low >= high:
        return [(f"{where}.maximum", f"expected more than the minimum {low:g}, found {high:g}")]
    return []
