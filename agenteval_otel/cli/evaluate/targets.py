"""Targets that decide the exit code: the criteria's objectives and ``--fail-under``; and the summary with both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agenteval_otel.cli.evaluate.totals import ROUNDING, CriterionTotals, Totals
from agenteval_otel.cli.figures import exactly, setting
from agenteval_otel.components import choices
from agenteval_otel.errors import ConfigurationError


class FailUnder(NamedTuple):
    """A limit of the command line: for the mean of a criterion, or (None) of the overall scores."""

    criterion: str | None
    limit: float

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


class Target(NamedTuple):
    """What a criterion (None: the overall scores) should reach.

    Attributes:
        shown: In tables: a percentage applies to the pass rate (an objective), a plain number to the mean.
        met: Whether it was reached; not without any score.
        target: In full: ``the objective is 90 %``.
        reached: What was reached instead of a missed target.
    """

    criterion: str | None
    shown: str
    met: bool
    target: str = ""
    reached: str = ""

    def __str__(self) -> str:
        return f"{self.criterion or 'overall score'}: {self.reached}, {self.target}"


class Summary(NamedTuple):
    """The results of a run: the names of its sources in order, and how long the evaluation took."""

    totals: Totals
    sources: Sequence[str]
    limits: Sequence[FailUnder]
    targets: Sequence[Target]
    duration_s: float

    @property
    def missed(self) -> list[Target]:
        return [target for target in self.targets if not target.met]


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


def targets_of(totals: Totals, limits: Sequence[FailUnder]) -> Iterator[Target]:
    """Every target: objectives first, in the order of the criteria."""
    for criterion in totals.criteria:
        if criterion.objective is not None:
            shown = setting(criterion.objective)
            met = criterion.objective_met is True
            yield Target(criterion.name, shown, met, f"the objective is {shown}", _pass_rate(criterion))
    for limit in limits:
        if limit.criterion is None:
            mean = totals.overall
            reached = "no input has one" if mean is None else exactly(mean)
        else:
            criterion = totals.get(limit.criterion) or CriterionTotals(limit.criterion)
            mean = criterion.mean
            reached = f"no mean ({criterion})" if mean is None else f"mean {exactly(mean)}"
        met = mean is not None and mean.mean >= limit.limit - ROUNDING
        yield Target(limit.criterion, f"{limit.limit:g}", met, f"--fail-under is {limit.limit:g}", reached)


def _pass_rate(criterion: CriterionTotals) -> str:
    rate = criterion.pass_rate
    if rate is not None:
        return f"{criterion.passed:,} of {rate.scores:,} passed, {exactly(rate, rate=True)}"
    hint = ": the criterion needs a threshold, which decides whether a score passes" if criterion.scored else ""
    return f"no pass rate ({criterion}){hint}"
