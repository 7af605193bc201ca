"""What the breach detectors do on average.

The module computes how soon a drop is detected, and how often chance looks like a drop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agenteval_otel.engine.objectives.evidence import BETS
from agenteval_otel.engine.objectives.shared_evidence import SharedSums
from agenteval_otel.engine.objectives.track import BreachSettings, Objective

_LIMIT = 1e280
MOST_AT_ONCE = 300.0
"""The most that evidence grows between two looks, as a logarithm: beyond, numbers would end."""


class ParallelEvidence:
    """Collects `Evidence` for a breach, of `streams` independent streams.

    Each `add` is one verdict of every stream.

    Args:
        objective: The share of verdicts that should pass, above 0 and below 1.
        enough: The evidence from which a stream alarms.
    """

    def __init__(self, streams: int, *, objective: float, enough: float) -> None:
        self._objective = objective
        self._enough = enough * len(BETS)
        self._bets = np.array(BETS)[:, np.newaxis]
        self._wealth = np.zeros((len(BETS), streams))

    def add(
        self, passed: npt.NDArray[np.bool_], share: npt.NDArray[np.float64] | float = 1.0
    ) -> npt.NDArray[np.bool_]:
        """Add a verdict of each stream, shape (streams,).

        Return whether each has enough evidence. `share` is as in `Evidence`.
        """
        paid = (self._objective - passed) * share / (1.0 - self._objective)
        self._wealth = np.minimum((self._wealth + 1.0) * (1.0 + self._bets * paid), _LIMIT)
        return np.asarray(self._wealth.sum(axis=0) >= self._enough)

    def restart(self, streams: npt.NDArray[np.bool_]) -> None:
        """Start these streams anew."""
        self._wealth[:, streams] = 0.0


class SummedEvidence:
    """Computes what Prometheus's rules make of the sums of several processes.

    It is `quality.summing_rules` in Python.

    Args:
        processes: Their sums, all of which began at 0.
        enough: The evidence from which it alarms.
    """

    def __init__(self, processes: Sequence[SharedSums], *, enough: float) -> None:
        self._processes = processes
        self._enough = enough
        self._seen = [_Seen() for _ in processes]
        self._had_run = False
        self.restart()

    @property
    def value(self) -> float:
        """Return the mean wealth of gamblers who bet differently."""
        return sum(self._wealth) / len(BETS)

    def restart(self) -> None:
        """Let all gamblers go."""
        self._wealth = [0.0] * len(BETS)

    def look(self) -> bool:
        """Count what has come since the last look, and tell whether there is enough evidence."""
        net = [0.0] * len(BETS)
        run_gains = [0.0] * len(BETS)
        verdicts = 0
        for sums, seen in zip(self._processes, self._seen, strict=True):
            verdicts += sums.verdicts - seen.verdicts
            for at in range(len(BETS)):
                net[at] += sums.gains[at] - sums.losses[at] - seen.net[at]
                run_gains[at] = max(run_gains[at], sums.run_gains[at] - seen.run_gains[at])
            seen.remember(sums)
        # Of two looks, one counts the runs: an outage reaches the exports of a minute.
        if self._had_run:
            run_gains = [0.0] * len(BETS)
        self._had_run = any(run_gains)
        grown: list[float] = []
        for wealth, own, of_run in zip(self._wealth, net, run_gains, strict=True):
            factor = math.exp(min(own + of_run, MOST_AT_ONCE))
            grown.append(min(wealth * factor + verdicts, _LIMIT))
        self._wealth = grown
        return self.value >= self._enough


class _Seen:
    """Remembers the sums of a process at the last look."""

    def __init__(self) -> None:
        self.net = [0.0] * len(BETS)
        self.run_gains = [0.0] * len(BETS)
        self.verdicts = 0

    def remember(self, sums: SharedSums) -> None:
        self.net = [gain - loss for gain, loss in zip(sums.gains, sums.losses, strict=True)]
        self.run_gains = [*sums.run_gains]
        self.verdicts = sums.verdicts


class ParallelLast:
    """Computes `track.LastVerdicts` of `streams` independent streams.

    All of their verdicts passed before the first `add`.
    """

    def __init__(self, streams: int, objective: Objective) -> None:
        self._failed = np.zeros((objective.of_last or 1, streams), dtype=np.bool_)
        self._failures = np.zeros(streams, dtype=np.int64)
        self._at = 0
        self._allowed = allowed_failures(objective)

    def add(self, passed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Add a verdict of each stream, shape (streams,). Return which objectives are breached."""
        failed = ~passed
        self._failures += failed.astype(np.int64) - self._failed[self._at]
        self._failed[self._at] = failed
        self._at = (self._at + 1) % len(self._failed)
        return np.asarray(self._failures > self._allowed)


def verdicts_to_alarm(
    settings: BreachSettings,
    objective: float,
    rate: float,
    *,
    of_last: int | None = None,
    streams: int = 400,
    most: int = 20_000,
    seed: int = 0,
) -> npt.NDArray[np.int64]:
    """Return how many verdicts a drop to a pass rate takes to its alarm, evenly sampled.

    The numbers are sorted, shape (streams,).

    Streams that do not alarm within `most` count as `most`. The evidence from before the drop is
    left out, which only helps. With `of_last`, everything passed before in the streams.
    """
    detector: ParallelEvidence | ParallelLast
    if of_last is None:
        detector = ParallelEvidence(streams, objective=objective, enough=settings.false_alarm_every)
    else:
        detector = ParallelLast(streams, Objective(objective, of_last))
    minimum = settings.minimum if of_last is None else 1
    random = np.random.default_rng(seed)
    counts = np.full(streams, most)
    for number in range(1, most):
        alarms = detector.add(random.random(streams) < rate)
        if number >= minimum:
            counts[alarms & (counts == most)] = number
            if counts.max() < most:
                break
    return np.sort(counts)


def allowed_failures(objective: Objective) -> int:
    """Return how many of the last `of_last` verdicts may fail without a breach, evenly sampled."""
    size = objective.of_last or 1
    passing = math.ceil(objective.share * size)
    # The product is rounded; what counts is the share itself, as the detector computes it.
    if (passing - 1) / size >= objective.share:
        passing -= 1
    return size - passing


class ByChance(NamedTuple):
    """Tells what chance does.

    `in_breach` is the share of the time in breach, `verdicts` the mean number of verdicts between
    two breaches.
    """

    in_breach: float
    verdicts: float


def by_chance(objective: Objective, failing: float) -> ByChance:
    """Compute `ByChance` for an agent of which each verdict fails with this probability.

    The probability is above 0 and below 1. The result is exact with even sampling.

    A breach begins where the limit is reached, a pass leaves the last verdicts and a failure comes.
    """
    size = objective.of_last or 1
    allowed = allowed_failures(objective)
    begins = _binomial(allowed, size - 1, failing) * failing * (1.0 - failing)
    in_breach = math.fsum(_binomial(count, size, failing) for count in range(allowed + 1, size + 1))
    verdicts = 1.0 / begins if begins > 0.0 else math.inf
    return ByChance(in_breach, verdicts)


def _binomial(count: int, size: int, share: float) -> float:
    """Return how likely exactly `count` of `size` are, each with probability `share`."""
    if count > size:
        return 0.0
    ways = math.lgamma(size + 1)
    ways -= math.lgamma(count + 1)
    ways -= math.lgamma(size - count + 1)
    inside = count * math.log(share)
    outside = (size - count) * math.log1p(-share)
    return math.exp(ways + inside + outside)
