"""SeriesBudget: how many series the results of one criterion may make.

Agents and criteria are declared in code or configuration; the names of models and the categories of evaluators may
come from outside. Within the budget each has series of its own, first come, first served; what comes after shares
``_other``, for which there is always room left, as there is for both verdicts.
"""

from __future__ import annotations

from agenteval_otel import semconv as names

__all__ = ["SeriesBudget"]

# One each for the duration and for ``_other`` among the error types.
_LIMIT = names.MAX_SERIES - names.MAX_ERROR_TYPES - 2
_VERDICTS = (names.LABEL_PASS, names.LABEL_FAIL)
_SUMS = frozenset({("sum", "w"), ("sum", "w2"), ("sum", "squared")})

_BY_LABEL = ("weight", "weight_squared")

Series = frozenset[tuple[str | None, ...]]


class SeriesBudget:
    """Places results: one budget for each criterion of each agent. Used by one thread, the pool's."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str | None], set[tuple[str | None, ...]]] = {}
        self._shared: dict[tuple[str, str | None], str | None] = {}
        self._placed: dict[tuple[str, str | None, str | None, str | None, bool], tuple[str | None, str | None]] = {}

    def place(
        self, criterion: str, agent: str | None, model: str | None, label: str | None, has_verdict: bool
    ) -> tuple[str | None, str | None]:
        """The model and the label under which a result counts: its own, or ``_other`` for one or both.

        Args:
            criterion: The criterion's name.
            agent: The agent's name.
            model: The model's; one of a bounded number, as the label.
            label: The verdict or the category; None for a bare number.
            has_verdict: It passed or failed; then both verdicts count from 0.
        """
        key = (criterion, agent, model, label, has_verdict)
        placed = self._placed.get(key)
        if placed is None:
            placed = self._placed[key] = self._place_new((criterion, agent), model, label, has_verdict)
        return placed

    def _place_new(
        self, whose: tuple[str, str | None], model: str | None, label: str | None, has_verdict: bool
    ) -> tuple[str | None, str | None]:
        made = self._made.setdefault(whose, set())
        # Chosen once, so that there is one place for what has none of its own: with a model's name or without.
        shared = self._shared.setdefault(whose, None if model is None else names.OTHER)
        kept_free = _series(shared, names.LABEL_PASS, True) | _series(shared, names.OTHER, True)
        for one in ((model, label), (model, _other_label(label)), (shared, label), (shared, _other_label(label))):
            wanted = _series(*one, has_verdict)
            if len(made | wanted | kept_free) <= _LIMIT:
                made |= wanted
                return one
        last = (shared, label if label in _VERDICTS else names.OTHER)
        made |= _series(*last, has_verdict)
        return last


def _other_label(label: str | None) -> str | None:
    return label if label is None or label in _VERDICTS else names.OTHER


def _series(model: str | None, label: str | None, has_verdict: bool) -> Series:
    """What a result so labelled makes: its score, its counts and weights, and the agent's sums."""
    counted = {label, *_VERDICTS} if has_verdict else {label}
    weighed = set(_VERDICTS) if label in _VERDICTS else {label}  # the other verdict comes sooner or later
    series = {("results", model, one) for one in counted}
    series |= {(sums, model, one) for sums in _BY_LABEL for one in weighed}
    return frozenset({("score", model), *series}) | _SUMS
