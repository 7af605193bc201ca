"""Measures: what the package takes of its host, over the last few seconds."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

__all__ = [
    "ADDED_WINDOW_S",
    "WINDOW_S",
    "AddedLatency",
    "CpuMeter",
    "CpuShares",
    "QueueGauge",
    "QueueReading",
    "quantile",
]

WINDOW_S: Final = 5.0
ADDED_WINDOW_S: Final = 10.0


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that `share` of them do not exceed; 0 of none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


class CpuShares(NamedTuple):
    """CPU time as shares of one core, and the seconds that they were measured over."""

    pool: float = 0.0
    total: float = 0.0
    over_s: float = 0.0


class CpuMeter:
    """CPU time of the thread that reads it, which is the pool's, and of the lanes.

    Args:
        lanes_cpu_s: CPU seconds of the lanes' threads and child processes since the process began.
        thread_time: CPU seconds of the thread that calls it.
    """

    def __init__(self, lanes_cpu_s: Callable[[], float], thread_time: Callable[[], float] = time.thread_time) -> None:
        self._lanes_cpu_s, self._thread_time = lanes_cpu_s, thread_time
        self._thread = 0
        self._points: deque[tuple[float, float, float]] = deque(maxlen=64)

    def read(self, now: float) -> None:
        """Take a reading, on the pool's thread; a thread that replaced another begins a series of its own."""
        if self._thread != threading.get_ident():
            self._thread = threading.get_ident()
            self._points.clear()
        self._points.append((now, self._thread_time(), self._lanes_cpu_s()))

    def shares(self, since: float) -> CpuShares:
        """The shares from the first reading that is not before `since` to the last."""
        points = [point for point in list(self._points) if point[0] >= since]
        if len(points) < 2:
            return CpuShares()
        first, last = points[0], points[-1]
        over_s = last[0] - first[0]
        if over_s <= 0:
            return CpuShares()
        pool_s, lanes_s = max(0.0, last[1] - first[1]), max(0.0, last[2] - first[2])
        return CpuShares(pool_s / over_s, (pool_s + lanes_s) / over_s, over_s)

    def begin_again(self) -> None:
        """Forget the readings."""
        self._points.clear()


class QueueReading(NamedTuple):
    """How full the queue is, 0 to 1; how that changes, per second; and calls that it lost since the last reading."""

    share: float = 0.0
    change_per_s: float = 0.0
    lost: int = 0

    @property
    def full_in_s(self) -> float:
        """When it is full if it goes on like this; infinite where it does not rise."""
        return (1.0 - self.share) / self.change_per_s if self.change_per_s > 0 else math.inf


class QueueGauge:
    """Reads the queue by items and by bytes: the fuller of the two counts.

    Args:
        state: Gives ``size``, ``capacity`` and ``bytes``.
        max_bytes: What the queue may hold; 0 where bytes are no limit.
        lost: Calls so far that found the queue full.
    """

    def __init__(self, state: Callable[[], Mapping[str, int]], max_bytes: int, lost: Callable[[], int]) -> None:
        self._state, self._max_bytes, self._lost = state, max_bytes, lost
        self._last: tuple[float, float, int] | None = None

    def read(self, now: float) -> QueueReading:
        """Take a reading; the first after `begin_again` knows no change."""
        state = self._state()
        share = state["size"] / state["capacity"] if state["capacity"] else 0.0
        if self._max_bytes:
            share = max(share, state["bytes"] / self._max_bytes)
        before, lost = self._last, self._lost()
        self._last = (now, share, lost)
        if before is None or now <= before[0]:
            return QueueReading(share)
        return QueueReading(share, (share - before[1]) / (now - before[0]), max(0, lost - before[2]))

    def capacity(self) -> int:
        """How many calls it holds; 0 where there is no queue."""
        return self._state()["capacity"]

    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is under evaluation."""
        return self._state()["size"] <= 0

    def begin_again(self) -> None:
        """Forget the last reading: the next is the first."""
        self._last = None


class AddedLatency:
    """What sampled calls cost their callers, as their doors measured it now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._costs: deque[tuple[float, int]] = deque(maxlen=128)

    def note(self, ns: int) -> None:
        """One call's cost in nanoseconds; from any thread."""
        self._costs.append((self._clock(), ns))

    def since(self, moment: float) -> list[float]:
        """Costs in seconds, since a moment."""
        return [ns / 1e9 for noted_at, ns in list(self._costs) if noted_at > moment]

    def begin_again(self) -> None:
        """Forget all."""
        self._costs.clear()
