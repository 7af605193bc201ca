"""The run as its onlookers see it: one moment's numbers, read while agent and evaluators go on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from agenteval_otel.cli.demo.changes import Drop, Point, align, common_time, find_drops
from agenteval_otel.cli.demo.ledger import Ledger
from agenteval_otel.cli.demo.tables import Window, percent
from agenteval_otel.cli.demo.traffic import Traffic
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.semconv import NOT_SAMPLED

__all__ = ["RunState"]

_DROPS_EVERY_S = 1.0
_RECENT_SHARE = 0.25


class RunState:
    """What view, progress lines and summary read.

    Args:
        pipeline, ledger, traffic: The run's parts.
        seconds: How long it is meant to last; None for a replay, which lasts as long as it lasts.
        sampling: The sampling rule, in words.
        outlet: Where things are sent, in words; None for nowhere.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        ledger: Ledger,
        traffic: Traffic,
        *,
        seconds: float | None,
        sampling: str,
        outlet: str | None,
    ) -> None:
        self.pipeline, self.ledger, self.traffic = pipeline, ledger, traffic
        self.seconds, self.sampling, self.outlet = seconds, sampling, outlet
        self.interrupted = False
        self.answered_s: float | None = None
        self._started = time.monotonic()
        self._drops: tuple[float, list[Drop]] = (float("-inf"), [])

    @property
    def elapsed_s(self) -> float:
        """Since the first call; stands still when the last answer is there."""
        return self.answered_s if self.answered_s is not None else time.monotonic() - self._started

    def begin(self) -> None:
        """The first call is about to come."""
        self._started = time.monotonic()

    def end(self) -> None:
        """The last answer is there."""
        self.answered_s = time.monotonic() - self._started

    @property
    def outcomes(self) -> dict[str, int]:
        """What became of the calls so far."""
        return self.pipeline.accounting.outcomes()

    @property
    def queue(self) -> dict[str, int]:
        """The queue's gauges: ``size``, ``bytes`` and ``max_bytes``."""
        return self.pipeline.dispatcher.state()

    @property
    def sampled(self) -> tuple[int, int]:
        """Calls whose fate is sealed, and how many of them the sampler took."""
        outcomes = self.outcomes
        seen = sum(outcomes.values()) + self.queue["size"]
        return seen, seen - outcomes[NOT_SAMPLED]

    def window(self) -> Window:
        """The recent part: the latest quarter of the time, or of a replay's verdicts."""
        if self.seconds is None:
            return Window("last quarter", lambda points: points[-max(1, int(len(points) * _RECENT_SHARE)) :])
        length_s = self.seconds * _RECENT_SHARE
        since = self.elapsed_s - length_s

        def cut(points: Sequence[Point]) -> Sequence[Point]:
            return [point for point in points if point.at_s >= since]

        return Window(f"last {length_s:g} s", cut)

    def drops(self, *, fresh: bool = False) -> list[Drop]:
        """What fell; looked for once a second, or now."""
        looked, found = self._drops
        now = time.monotonic()
        if fresh or now - looked >= _DROPS_EVERY_S:
            found = find_drops({name: record.series() for name, record in list(self.ledger.criteria.items())})
            self._drops = (now, found)
        return found

    def final_drops(self) -> list[Drop]:
        """What fell, all told from the moment on that they share, the deepest fall first."""
        drops = self.drops(fresh=True)
        series = {drop.criterion: self.ledger.criteria[drop.criterion].series() for drop in drops}
        at_s = common_time(drops, series)
        if at_s is None:
            return drops
        aligned = [align(drop, series[drop.criterion], at_s) for drop in drops]
        return sorted(aligned, key=lambda drop: drop.difference.value)

    def part_of(self, at_s: float) -> str:
        """A moment as a share of the time that has passed."""
        return percent(min(1.0, at_s / max(self.elapsed_s, 0.001)))

    def lag_ms(self) -> tuple[float, float] | None:
        """From the end of an answer to its scores: median and 95th percentile, in milliseconds."""
        lags = sorted(self.ledger.lags_s.copy())
        if not lags:
            return None
        return 1000 * statistics.median(lags), 1000 * lags[min(len(lags) - 1, int(0.95 * len(lags)))]
