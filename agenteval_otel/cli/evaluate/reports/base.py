"""Contract of reports: they see each input's results as they come, and the sums at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, NamedTuple

from agenteval_otel.cli.evaluate.dataset import Row
from agenteval_otel.cli.evaluate.tallies import Tallies, Tally
from agenteval_otel.cli.evaluate.targets import FailUnder, Missed
from agenteval_otel.models import AggregatedEvaluationResult

__all__ = ["Report", "Summary"]


class Summary(NamedTuple):
    """What was found in all inputs.

    Attributes:
        tallies: The sums.
        sources: Names of the sources, in order.
        limits: What ``--fail-under`` asked for.
        missed: The targets that were not reached.
        duration_s: How long the evaluation took.
    """

    tallies: Tallies
    sources: Sequence[str]
    limits: Sequence[FailUnder]
    missed: Sequence[Missed]
    duration_s: float

    def targets_of(self, tally: Tally | None) -> list[tuple[str, bool]]:
        """What must hold for a criterion (None: for the overall scores), and whether it does.

        A percentage is that of the pass rate (an objective), a plain number that of the mean.
        """
        name = None if tally is None else tally.name
        found = []
        if tally is not None and tally.objective is not None:
            found.append((f"{tally.objective * 100:g} %", tally.objective_met is True))
        unreached = {(one.criterion, one.target) for one in self.missed}
        for limit in self.limits:
            if limit.criterion == name:
                found.append((f"{limit.limit:g}", (name, limit.target) not in unreached))
        return found


class Report:
    """Writes what was found to an open file; it neither opens nor closes it."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def add(self, row: Row, aggregated: AggregatedEvaluationResult) -> None:
        """Take the results of one input; inputs come in the order of the dataset. Most reports need the sums alone."""
        return

    def finish(self, summary: Summary) -> None:
        """Write the report. Raises `OSError` when it cannot be written."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what was kept for the report, written or not."""
        return
