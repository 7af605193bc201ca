"""Simulation of the breach detector over many streams of verdicts at once: how soon a drop is detected."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agenteval_otel.objectives.track import BETS, BreachSettings

_LIMIT = 1e280


class ParallelEvidence:
    """`track.Evidence` for a breach, of `streams` independent streams; each `add` is one verdict of every stream.

    Args:
        objective: The share of verdicts that should pass, above 0 and below 1.
        enough: The evidence from which a stream alarms.
    """

    def __init__(self, streams: int, *, objective: float, enough: float) -> None:
        self._objective, self._enough = objective, enough * len(BETS)
        self._bets = np.array(BETS)[:, np.newaxis]
        self._wealth = np.zeros((len(BETS), streams))

    def add(self, passed: npt.NDArray[np.bool_], share: npt.NDArray[np.float64] | float = 1.0) -> npt.NDArray[np.bool_]:
        """Add a verdict of each stream, shape (streams,); whether it has enough evidence. `share` as in `Evidence`."""
        paid = (self._objective - passed) * share / (1.0 - self._objective)
        self._wealth = np.minimum((self._wealth + 1.0) * (1.0 + self._bets * paid), _LIMIT)
        return np.asarray(self._wealth.sum(axis=0) >= self._enough)

    def restart(self, streams: npt.NDArray[np.bool_]) -> None:
        """Start these streams anew."""
        self._wealth[:, streams] = 0.0


def verdicts_to_alarm(
    settings: BreachSettings, objective: float, rate: float, *, streams: int = 400, most: int = 20_000, seed: int = 0
) -> npt.NDArray[np.int64]:
    """How many verdicts a drop to a pass rate takes to its alarm, evenly sampled: sorted, shape (streams,).

    Those that do not alarm within `most` count as `most`. Without the evidence from before the drop, which only helps.
    """
    evidence = ParallelEvidence(streams, objective=objective, enough=settings.false_alarm_every)
    random, counts = np.random.default_rng(seed), np.full(streams, most)
    for number in range(1, most):
        alarms = evidence.add(random.random(streams) < rate)
        if number >= settings.minimum:
            counts[alarms & (counts == most)] = number
            if counts.max() < most:
                break
    return np.sort(counts)
