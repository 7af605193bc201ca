"""Targets of a run: the criteria's objectives, ``--fail-under`` and ``--fail-under-lower``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.comparison import Comparison
from agenteval_otel.offline.reports.figures import exactly, setting
from agenteval_otel.offline.reports.totals import ROUNDING, CriterionTotals, TargetOutcome, Totals


class FailUnder(NamedTuple):
    """A limit of the command line: for the mean of a criterion, or (None) of the overall scores.

    Attributes:
        lower: It applies to the lower end of the mean's 95 % interval.
    """

    criterion: str | None
    limit: float
    lower: bool = False

    @property
    def option(self) -> str:
        return "--fail-under-lower" if self.lower else "--fail-under"

    @classmethod
    def parse(cls, text: str, *, lower: bool = False) -> FailUnder:
        """Read a limit from ``criterion=0.8``, or ``0.8`` for the overall scores."""
        name, _, limit = text.rpartition("=")
        with contextlib.suppress(ValueError):
            if 0 <= float(limit) <= 1 and (name.strip() or "=" not in text):
                return cls(name.strip() or None, float(limit), lower)
        raise ConfigurationError(
            f"expected CRITERION=LIMIT or LIMIT, from 0 to 1, found {text!r}",
            path=cls(None, 0.0, lower).option,
        )


class Summary(NamedTuple):
    """Holds the results of a run.

    `sources` are the names of its sources in order. `duration_s` tells how long the evaluation
    took.
    `comparison` compares the run with the baseline, if there is one.
    """

    totals: Totals
    sources: Sequence[str]
    limits: Sequence[FailUnder]
    targets: Sequence[TargetOutcome]
    duration_s: float
    comparison: Comparison | None = None

    @property
    def missed(self) -> list[TargetOutcome]:
        missed = [target for target in self.targets if not target.met]
        for drop in self.comparison.drops if self.comparison else ():
            value, low, high, _ = drop.difference
            reached = f"dropped by {-value:.3f} (95 % interval {-high:.3f} to {-low:.3f})"
            before = f"the --baseline has {drop.a.mean:.3f}"
            missed.append(TargetOutcome(drop.name, "baseline", False, before, reached))
        return missed


def check_names(limits: Iterable[FailUnder], known: Sequence[str]) -> None:
    """Refuse limits for criteria that no evaluator scores, and name the scored ones."""
    wrong: list[tuple[str | None, str]] = []
    for limit in limits:
        name = limit.criterion
        if name is not None and name not in known:
            problem = f"no criterion {name!r} is scored{known_choices(name, known)}"
            wrong.append((limit.option, problem))
    if wrong:
        raise ConfigurationError.of(wrong)


def targets_of(totals: Totals, limits: Sequence[FailUnder]) -> Iterator[TargetOutcome]:
    """Yield every target: objectives first, in the order of the criteria."""
    for criterion in totals.criteria:
        if criterion.objective is not None:
            shown = setting(criterion.objective)
            met = criterion.objective_met is True
            words = f"the objective is {shown}"
            yield TargetOutcome(criterion.name, shown, met, words, _pass_rate(criterion))
    for limit in limits:
        if limit.criterion is None:
            mean = totals.overall
            reached = "no input has one" if mean is None else exactly(mean)
        else:
            by_name = {criterion.name: criterion for criterion in totals.criteria}
            criterion = by_name.get(limit.criterion) or CriterionTotals(limit.criterion)
            mean = criterion.mean
            reached = f"no mean ({criterion})" if mean is None else f"mean {exactly(mean)}"
        met = mean is not None and _reaches(mean, limit)
        shown = f"{limit.limit:g}"
        words = f"{limit.option} is {shown}"
        yield TargetOutcome(limit.criterion, shown, met, words, reached)


def _reaches(mean: Estimate, limit: FailUnder) -> bool:
    """Tell whether a mean, or the lower end of its interval, is known and reaches the limit."""
    least = limit.limit - ROUNDING
    if limit.lower:
        return mean.has_interval and mean.low >= least
    return mean.is_known and mean.mean >= least


def _pass_rate(criterion: CriterionTotals) -> str:
    rate = criterion.pass_rate
    if rate is not None:
        return f"{criterion.passed:,} of {rate.scores:,} passed, {exactly(rate, rate=True)}"
    hint = ""
    if criterion.scored:
        hint = ": the criterion needs a threshold, which decides whether a score passes"
    return f"no pass rate ({criterion}){hint}"
