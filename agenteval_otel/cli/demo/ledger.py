"""The demo's own storage provider: what the evaluators found, kept as sums and, for trends, as the latest verdicts.

`save_result` runs on the pool's thread; the view reads from the event loop's. Points are only ever appended, so a copy
of a deque is all that reading needs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from agenteval_otel.cli.demo.changes import Point
from agenteval_otel.intervals import Estimate, WeightedSums, estimate_of
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult

__all__ = ["CriterionRecord", "Ledger", "estimate_of_points"]

_KEPT = 20_000


class CriterionRecord:
    """Everything about one criterion.

    Attributes:
        passes, scores: Sums over all verdicts and over all normalized scores.
        points: The latest verdicts, oldest first.
    """

    def __init__(self) -> None:
        self.passes, self.scores = WeightedSums(), WeightedSums()
        self.scored = self.failed = self.skipped = 0
        self.points: deque[Point] = deque(maxlen=_KEPT)

    def series(self) -> list[Point]:
        """The verdicts in the order in which their answers ended."""
        return sorted(self.points.copy(), key=lambda point: point.at_s)


class Ledger:
    """Collects results.

    Args:
        started_ns: The run's beginning, nanoseconds since the epoch; points are dated from it.

    Attributes:
        criteria: By name, in the order of the evaluators.
        probabilities: Evaluated responses by inclusion probability; None for unknown.
        lags_s: End of the answer to its results, the latest.
    """

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self.criteria: dict[str, CriterionRecord] = {}
        self.probabilities: Counter[float | None] = Counter()
        self.stream_ends: Counter[str] = Counter()
        self.lags_s: deque[float] = deque(maxlen=_KEPT)

    def __repr__(self) -> str:
        return f"<Ledger responses={self.probabilities.total()} criteria={list(self.criteria)}>"

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Take one response's results."""
        self.probabilities[aggregated.sampling_probability] += 1
        if aggregated.stream_end is not None:
            self.stream_ends[aggregated.stream_end] += 1
        ended_ns = aggregated.response_ended_ns or aggregated.ended_ns or self._started_ns
        if aggregated.ended_ns is not None:
            self.lags_s.append(max(0.0, (aggregated.ended_ns - ended_ns) / 1e9))
        at_s = (ended_ns - self._started_ns) / 1e9
        trace_id = aggregated.span.trace_id if aggregated.span else None
        for result in aggregated.results:
            self._add(result, at_s, trace_id)

    def _add(self, result: EvaluationResult, at_s: float, trace_id: str | None) -> None:
        record = self.criteria.setdefault(result.criterion_name, CriterionRecord())
        if result.status == "failed":
            record.failed += 1
        elif result.status == "skipped":
            record.skipped += 1
        else:
            record.scored += 1
        if result.status != "scored" or not result.probability:
            return  # of an unknown probability no weight is known: counted, in no mean
        weight = 1.0 / result.probability
        if result.normalized is not None:
            record.scores.add(result.normalized, weight)
        if result.passed is not None:
            record.passes.add(1.0 if result.passed else 0.0, weight)
            record.points.append(Point(at_s, result.passed, weight, result.reason_code, trace_id))


def estimate_of_points(points: Sequence[Point]) -> Estimate | None:
    """Pass rate with its interval."""
    return estimate_of((1.0 if point.passed else 0.0, point.weight) for point in points)
