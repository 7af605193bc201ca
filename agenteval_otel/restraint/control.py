"""Restraint: looks at what the package costs its host, and says how much of the sampled answers still goes on.

It is looked after by a timer on the pool's own event loop, four times a second, while there is work or sampling is
below full: an idle process runs nothing. Doors read `keep` on the caller's thread and thin what they sampled; the
pool reads `code_only`.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from agenteval_otel.dispatch import Dispatcher
from agenteval_otel.restraint.ladder import CODE_ONLY, FULL, LEVELS, OFF, Ladder
from agenteval_otel.restraint.limits import Limits, Readings, Trouble
from agenteval_otel.restraint.loops import HostLoops
from agenteval_otel.restraint.measures import ADDED_WINDOW_S, WINDOW_S, AddedLatency, CpuMeter, QueueGauge, quantile
from agenteval_otel.restraint.settings import RestraintSettings
from agenteval_otel.restraint.thinning import thinned
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.sampling.base import SamplingDecision
from agenteval_otel.semconv import DROPPED_BYTES, DROPPED_QUEUE_FULL
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.log import log

__all__ = ["LOOK_EVERY_S", "Restraint"]

LOOK_EVERY_S: Final = 0.25
_GAUGES_S: Final = 60.0
_UNATTENDED_S: Final = 5.0


class _Lanes(Protocol):
    @property
    def cpu_s(self) -> float:
        """CPU seconds of the lanes' threads and child processes since the process began."""


class Restraint:
    """One pipeline's self-restraint.

    Args:
        settings: The limits; the defaults when left out.
        queue: Gives the queue's ``size``, ``capacity`` and ``bytes``; a capacity of 0 is no queue, and nothing to look
            after.
        max_bytes: What the queue may hold; 0 where bytes are no limit.
        lost: Calls so far that found the queue full.
        lanes_cpu_s: CPU seconds of the lanes' threads and child processes.
        fail: Counts that a part broke.
        clock: Monotonic seconds.
        thread_time: CPU seconds of the calling thread.

    Attributes:
        keep: None at full; else the share in [0, 1) of sampled responses that goes on. Read on callers' threads.
        code_only: Evaluators that call a model sit out.
    """

    def __init__(
        self,
        settings: RestraintSettings | None = None,
        *,
        queue: Callable[[], Mapping[str, int]],
        max_bytes: int = 0,
        lost: Callable[[], int] = lambda: 0,
        lanes_cpu_s: Callable[[], float] = lambda: 0.0,
        fail: Callable[[str], object] = lambda part: None,
        clock: Callable[[], float] = time.monotonic,
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self.settings = settings or RestraintSettings()
        self._clock, self.fail = clock, fail
        self._queue = QueueGauge(queue, max_bytes, lost)
        self._cpu = CpuMeter(lanes_cpu_s, thread_time)
        self._added, self._loops = AddedLatency(clock), HostLoops(clock)
        self.note_added: Callable[[int], None] = self._added.note
        """One sampled call's cost to its caller, in nanoseconds; cheap, from any thread."""
        self.note_loop: Callable[[asyncio.AbstractEventLoop], None] = self._loops.note
        """A host's event loop, on its own thread: it is measured for a few seconds. Cheap, never raises."""
        self.begin_again()
        reset_in_child(self.begin_again)

    @classmethod
    def over(
        cls,
        dispatcher: Dispatcher,
        accounting: Accounting,
        lanes: _Lanes,
        settings: RestraintSettings | None = None,
    ) -> Restraint:
        """One that looks after a dispatcher's queue and what the lanes take."""

        def lost() -> int:
            outcomes = accounting.outcomes()
            return outcomes[DROPPED_QUEUE_FULL] + outcomes[DROPPED_BYTES]

        max_bytes: int = getattr(dispatcher, "max_bytes", 0)
        return cls(
            settings, queue=dispatcher.state, max_bytes=max_bytes, lost=lost,
            lanes_cpu_s=lambda: lanes.cpu_s, fail=accounting.fail,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Restraint {LEVELS[self.level]} keep={self.keep}>"

    @property
    def level(self) -> int:
        """0 full, 1 reduced, 2 code only, 3 off."""
        return self._ladder.level

    def begin_again(self) -> None:
        """At full, nothing measured: at start, and in a forked child."""
        self._ladder, self._limits = Ladder(self.settings.least_share), Limits(self.settings)
        self.keep: float | None = None
        self.code_only = False
        self._attended: Callable[[], Any] = _nothing
        self._busy = False
        self._looked_at = self._let_by_at = float("-inf")
        self._queue.begin_again()
        self._cpu.begin_again()
        self._added.begin_again()
        self._loops.begin_again()

    def thin(self, decision: SamplingDecision, draw: int) -> SamplingDecision:
        """A sampled, settled decision with the share that is kept; on any thread, never raises."""
        keep = self.keep
        if keep is None:
            return decision
        now = self._clock()
        if now - self._looked_at > _UNATTENDED_S and now - self._let_by_at >= 1.0:
            # The timer ended with its thread: one call a second goes by, which has the pool look again.
            self._let_by_at = now
            return decision._replace(probability=None)
        return thinned(decision, draw, keep)

    def attend(self) -> None:
        """Called with each call on the pool's loop: sets the timer unless it is set; never raises."""
        self._busy = True
        try:
            loop = asyncio.get_running_loop()
            if self._attended() is loop:
                return
            if not self._queue.capacity():
                return
            self._attended = weakref.ref(loop)
            self._queue.begin_again()
            self.look()
            self._wait(loop)
        except Exception as error:  # a dispatcher or a loop of a kind of its own: nothing is looked after
            self._broken(error)

    def look(self) -> None:
        """Measure, and take a step where one is due; on the pool's thread."""
        now = self._looked_at = self._clock()
        ladder = self._ladder
        self._cpu.read(now)
        readings = Readings(
            self._queue.read(now), self._cpu.shares(max(now - WINDOW_S, ladder.moved_at)),
            self._loops.since(max(now - WINDOW_S, ladder.moved_at)),
            self._added.since(max(now - ADDED_WINDOW_S, ladder.moved_at)),
        )  # fmt: skip
        if not self.settings.enabled:
            return
        before = ladder.level
        trouble = self._limits.trouble(readings, before, now)
        if trouble is not None:
            ladder.down(now, trouble.deepest)
        elif self._limits.is_well(readings, now):
            ladder.up(now)
        else:
            ladder.hold()
        self.code_only = ladder.level >= CODE_ONLY
        self.keep = None if ladder.level == FULL else 0.0 if ladder.level == OFF else ladder.share
        if ladder.level != before:
            self._tell(before, trouble)

    def gauges(self) -> dict[str, float]:
        """What is exported, by the instrument's key; what is not known is left out. From any thread.

        ``level``; ``cpu_share`` of one core over the last five seconds of work, 0 when there was none lately;
        ``loop_lag`` and ``added_latency``, in seconds, the worst and the 99th percentile of the last minute.
        """
        now = self._clock()
        worked = now - self._looked_at <= WINDOW_S
        found = {
            "level": float(self.level),
            "cpu_share": self._cpu.shares(self._looked_at - WINDOW_S).total if worked else 0.0,
        }
        if late := self._loops.since(now - _GAUGES_S):
            found["loop_lag"] = max(late)
        if added := self._added.since(now - _GAUGES_S):
            found["added_latency"] = quantile(added, 0.99)
        return found

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._busy = False
        loop.call_later(LOOK_EVERY_S, self._rung, loop, context=contextvars.Context())

    def _rung(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._attended() is not loop:
            return  # another worker's loop took over
        try:
            self.look()
            if self._busy or self.level != FULL or not self._queue.is_empty():
                self._wait(loop)
                return
        except Exception as error:
            self._broken(error)
        self._attended = _nothing

    def _tell(self, before: int, trouble: Trouble | None) -> None:
        level = LEVELS[self.level]
        if trouble is not None:
            log.warning(
                "sampling_stepped_down", part=level, level=self.level, keep=self.keep, measure=trouble.measure,
                value=round(trouble.value, 4), limit=trouble.limit,
            )  # fmt: skip
        else:
            log.warning("sampling_recovered", part=level, level=self.level, keep=self.keep, was=LEVELS[before])

    def _broken(self, error: Exception) -> None:
        # Without measurements nobody may stay held back.
        self.keep, self.code_only, self._attended = None, False, _nothing
        self._ladder.begin_again()
        self.fail("restraint")
        log.warning("part_failed", part="restraint", error_type=type(error).__name__)


def _nothing() -> None:
    """Stands for a loop that is not there."""
