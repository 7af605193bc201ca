"""Targets: what must be reached for exit code 0: objectives of criteria, and what ``--fail-under`` asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agenteval_otel.cli.evaluate.tallies import ROUNDING, Tallies, Tally
from agenteval_otel.cli.evaluate.words import counted, exactly
from agenteval_otel.components import choices
from agenteval_otel.errors import ConfigurationError

__all__ = ["FailUnder", "Missed", "check_names", "missed"]


class FailUnder(NamedTuple):
    """A limit of the command line: for the mean of one criterion, or (no name) of the overall scores."""

    criterion: str | None
    limit: float

    @property
    def target(self) -> str:
        """In words."""
        return f"--fail-under is {self.limit:g}"

    @classmethod
    def parse(cls, text: str) -> FailUnder:
        """From ``criterion=0.8``, or ``0.8`` for all together.

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
    """A target that was not reached: whose (no name: all together), what it was, and what was found instead."""

    criterion: str | None
    target: str
    found: str

    def __str__(self) -> str:
        return f"{self.criterion or 'overall score'}: {self.found}, {self.target}"


def check_names(limits: Iterable[FailUnder], known: Sequence[str]) -> None:
    """Refuse limits for criteria that nobody scores.

    Raises:
        ConfigurationError: With those that are scored.
    """
    problems: list[tuple[str | None, str]] = [
        ("--fail-under", f"no criterion {limit.criterion!r} is scored{choices(limit.criterion, known)}")
        for limit in limits if limit.criterion is not None and limit.criterion not in known
    ]  # fmt: skip
    if problems:
        raise ConfigurationError.of(problems)


def missed(tallies: Tallies, limits: Sequence[FailUnder]) -> list[Missed]:
    """The targets that were not reached: objectives first, in the order of the criteria."""
    found = [*_objectives(tallies.criteria)]
    for limit in limits:
        if limit.criterion is None:
            mean = tallies.overall
            words = "no input has one" if mean is None else exactly(mean)
        else:
            tally = tallies.of(limit.criterion) or Tally(limit.criterion)
            mean = tally.mean
            words = f"no mean ({counted(tally)})" if mean is None else f"mean {exactly(mean)}"
        if mean is None or mean.mean < limit.limit - ROUNDING:
            found.append(Missed(limit.criterion, limit.target, words))
    return found


def _objectives(criteria: Iterable[Tally]) -> Iterator[Missed]:
    for tally in criteria:
        if tally.objective_met is not False or tally.objective is None:
            continue
        rate = tally.pass_rate
        if rate is not None:
            words = f"{tally.passed:,} of {rate.scores:,} passed, {exactly(rate, percent=True)}"
        else:
            words = f"no pass rate ({counted(tally)})"
            if tally.scored:
                words += ": a score passes or fails by its criterion's threshold, which has none"
        yield Missed(tally.name, f"the objective is {tally.objective * 100:g} %", words)
