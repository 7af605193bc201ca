"""Limits: whether what was measured is trouble, and whether it is well.

Between the two lies a stretch where sampling stays as it is. Trouble of the queue ends when fewer answers call a model,
so it never switches evaluation off; what the host itself feels may.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from agenteval_otel.restraint.ladder import CODE_ONLY, FULL, OFF
from agenteval_otel.restraint.measures import CpuShares, QueueReading, quantile
from agenteval_otel.restraint.settings import RestraintSettings

__all__ = ["Limits", "Readings", "Trouble"]

_FULL_SOON_S: Final = 2.0
_FULL_LATER_S: Final = 10.0
_AT_FIRST_S: Final = 4.5
_AFTER_A_STEP_S: Final = 2.0
_FEW: Final = 8
_WELL: Final = 0.75
_AT_WORK: Final = 0.05


class Readings(NamedTuple):
    """What was measured, since the last step and within the windows.

    Attributes:
        late: How late the host's loops were, in seconds.
        added: What calls cost their callers, in seconds.
    """

    queue: QueueReading = QueueReading()
    cpu: CpuShares = CpuShares()
    late: list[float] = []
    added: list[float] = []


class Trouble(NamedTuple):
    """Which measure is past which limit, and the level that it may lead to."""

    measure: str
    value: float
    limit: float
    deepest: int = OFF


class Limits:
    """Judges readings by the settings."""

    def __init__(self, settings: RestraintSettings) -> None:
        self._settings = settings
        self.lag = _LagOfOurs(settings.loop_lag_s)

    def trouble(self, readings: Readings, level: int, now: float) -> Trouble | None:
        """The first measure that is past its limit: the queue's fast, the others after some seconds of evidence."""
        self.lag.look(readings, now)
        return self._queue(readings.queue) or self._cpu(readings.cpu, level) or self._host(readings, now)

    def is_well(self, readings: Readings, now: float) -> bool:
        """Whether every measure is far enough below its limit for a step up."""
        settings, cpu, queue = self._settings, readings.cpu, readings.queue
        limit = settings.queue_share
        if limit is not None and not (queue.share < limit / 2 or (queue.share < limit and queue.change_per_s < 0)):
            return False
        if settings.pool_cpu_share is not None and cpu.pool > _WELL * settings.pool_cpu_share:
            return False
        if settings.cpu_share is not None and cpu.total > _WELL * settings.cpu_share:
            return False
        if not self.lag.is_well(readings, now):
            return False
        added = settings.added_latency_s
        return added is None or quantile(readings.added, 0.5) <= _WELL * added

    def _queue(self, queue: QueueReading) -> Trouble | None:
        limit = self._settings.queue_share
        if limit is None:
            return None
        soon_s = _FULL_LATER_S if queue.share >= limit else _FULL_SOON_S
        return Trouble("queue", queue.share, limit, CODE_ONLY) if queue.lost or queue.full_in_s < soon_s else None

    def _cpu(self, cpu: CpuShares, level: int) -> Trouble | None:
        if cpu.over_s < (_AT_FIRST_S if level == FULL else _AFTER_A_STEP_S):
            return None
        for measure, value, limit in (
            ("pool_cpu", cpu.pool, self._settings.pool_cpu_share), ("cpu", cpu.total, self._settings.cpu_share)
        ):  # fmt: skip
            if limit is not None and value > limit:
                return Trouble(measure, value, limit)
        return None

    def _host(self, readings: Readings, now: float) -> Trouble | None:
        if (late := self.lag.trouble(readings, now)) is not None:
            return late
        limit, cost_s = self._settings.added_latency_s, quantile(readings.added, 0.5)
        if limit is not None and len(readings.added) >= _FEW and cost_s > limit:
            return Trouble("added_latency", cost_s, limit)
        return None


class _LagOfOurs:
    """Whether a late loop is our doing.

    It is taken for ours while we are at work. When we then do a quarter of the work and it is as late as before, it is
    not: for a minute it counts no more, and for twice as long after each time that this is found again.
    """

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._before: tuple[float, float] | None = None
        self._ignored_until, self._ignore_s = float("-inf"), 60.0

    def look(self, readings: Readings, now: float) -> None:
        """Find out whether doing less has helped."""
        if self._before is None or len(readings.late) < _FEW:
            return
        late_s, share = quantile(readings.late, 0.9), readings.cpu.total
        was_late_s, share_was = self._before
        if self._limit_s is None or late_s <= _WELL * self._limit_s:
            self._before, self._ignore_s = None, 60.0
        elif late_s > 0.7 * was_late_s and share <= max(_AT_WORK, share_was / 4):
            self._before, self._ignored_until = None, now + self._ignore_s
            self._ignore_s = min(600.0, 2 * self._ignore_s)

    def trouble(self, readings: Readings, now: float) -> Trouble | None:
        """The lag, where it is past the limit and may be ours."""
        if self._limit_s is None or len(readings.late) < _FEW or now < self._ignored_until:
            return None
        late_s = quantile(readings.late, 0.9)
        if late_s <= self._limit_s or readings.cpu.total < _AT_WORK:
            return None
        self._before = self._before or (late_s, readings.cpu.total)
        return Trouble("loop_lag", late_s, self._limit_s)

    def is_well(self, readings: Readings, now: float) -> bool:
        """Whether the loop is in time, or its lateness none of ours."""
        if self._limit_s is None or now < self._ignored_until or not readings.late:
            return True
        return quantile(readings.late, 0.9) <= _WELL * self._limit_s
