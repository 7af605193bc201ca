"""Targets that decide the exit code: the criteria's objectives and ``--fail-under``; and the summary with both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agenteval_otel.cli.evaluate.totals import ROUNDING, CriterionTotals, Totals
from agenteval_otel.cli.figures import exactly, setting
from agenteval_otel.components import choices
from agenteval_otel.errors import ConfigurationError

__all__ = ["FailUnder", "Missed", "Summary", "check_names", "missed_targets"]


class FailUnder(NamedTuple):
    """A limit of the command line: for the mean of one criterion, or (None) of the overall scores."""

    criterion: str | None
    limit: float

    @property
    def target(self) -> str:
        """As messages show it."""
        return f"--fail-under is {self.limit:g}"

    @classmethod
    def parse(cls, text: str) -> FailUnder:
        """From ``criterion=0.8``, or ``0.8`` for the overall scores.

        Raises:
            ConfigurationError: It is neither.
        """
        name, _, number = text.rpartition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        if not 0 <= limit <= 1 or (not name.strip() and "=" in text):
            raise ConfigurationError(
                f"expected CRITERION=LIMIT or LIMIT, from 0 to 1, found {text[:60]!r}", path="--fail-under"
            )
        return cls(name.strip() or None, limit)


class Missed(NamedTuple):
    """A missed target: its criterion (None: the overall scores), the target, and what was found instead."""

    criterion: str | None
    target: str
    reached: str

    def __str__(self) -> str:
        return f"{self.criterion or 'overall score'}: {self.reached}, {self.target}"


class Summary(NamedTuple):
    """The results of a run.

    Attributes:
        sources: Names of the sources, in order.
        limits: The values of ``--fail-under``.
        missed: The targets that were missed.
        duration_s: How long the evaluation took.
    """

    totals: Totals
    sources: Sequence[str]
    limits: Sequence[FailUnder]
    missed: Sequence[Missed]
    duration_s: float

    def targets_of(self, criterion: CriterionTotals | None) -> list[tuple[str, bool]]:
        """The targets of a criterion (None: of the overall scores), and whether each is met.

        A percentage applies to the pass rate (an objective), a plain number to the mean.
        """
        name = None if criterion is None else criterion.name
        targets = []
        if criterion is not None and criterion.objective is not None:
            targets.append((setting(criterion.objective), criterion.objective_met is True))
        missed = {(target.criterion, target.target) for target in self.missed}
        return targets + [
            (f"{limit.limit:g}", (name, limit.target) not in missed)
            for limit in self.limits if limit.criterion == name
        ]  # fmt: skip

    @property
    def has_targets(self) -> bool:
        """Whether any target is set."""
        return any(map(self.targets_of, (None, *self.totals.criteria)))


def check_names(limits: Iterable[FailUnder], known: Sequence[str]) -> None:
    """Refuse limits for criteria that no evaluator scores.

    Raises:
        ConfigurationError: With the scored ones.
    """
    problems: list[tuple[str | None, str]] = [
        ("--fail-under", f"no criterion {limit.criterion!r} is scored{choices(limit.criterion, known)}")
        for limit in limits if limit.criterion is not None and limit.criterion not in known
    ]  # fmt: skip
    if problems:
        raise ConfigurationError.of(problems)


def missed_targets(totals: Totals, limits: Sequence[FailUnder]) -> list[Missed]:
    """The missed targets: objectives first, in the order of the criteria."""
    missed = list(_missed_objectives(totals.criteria))
    for limit in limits:
        if limit.criterion is None:
            mean = totals.overall
            reached = "no input has one" if mean is None else exactly(mean)
        else:
            criterion = totals.get(limit.criterion) or CriterionTotals(limit.criterion)
            mean = criterion.mean
            reached = f"no mean ({criterion})" if mean is None else f"mean {exactly(mean)}"
        if mean is None or mean.mean < limit.limit - ROUNDING:
            missed.append(Missed(limit.criterion, limit.target, reached))
    return missed


def _missed_objectives(criteria: Iterable[CriterionTotals]) -> Iterator[Missed]:
    for criterion in criteria:
        if criterion.objective_met is not False or criterion.objective is None:
            continue
        rate = criterion.pass_rate
        if rate is not None:
            reached = f"{criterion.passed:,} of {rate.scores:,} passed, {exactly(rate, rate=True)}"
        else:
            reached = f"no pass rate ({criterion})"
            if criterion.scored:
                reached += ": the criterion needs a threshold, which decides whether a score passes"
        yield Missed(criterion.name, f"the objective is {setting(criterion.objective)}", reached)
