"""A queue, its calls and what evaluates them, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

from agenteval_otel.pipeline.load_shedding import CostMeter, LoadShedder, LoadSheddingSettings, Work
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.testing import ManualClock

__all__ = ["SAMPLED", "Simulated"]

_STEP_S = 0.01
_SPREAD = 0x9E3779B97F4A7C15  # the golden section: randomness that is spread evenly, the same in every run
SAMPLED = SamplingDecision(True, 1.0, "ratio")


class Simulated:
    """Calls come at a rate, at most `served_per_s` are evaluated, and the shedder looks four times a second.

    Attributes:
        queued, capacity: The queue; a call that finds it full is lost.
        offered, taken, lost, shed: Calls so far.
        judged: Answers wait for judges instead of the background thread.
    """

    def __init__(
        self, *, capacity: int = 1_000_000, served_per_s: float = 200.0, judged: bool = False, **settings: Any
    ) -> None:
        self.clock = ManualClock(1_000.0)
        self.queued, self.capacity, self.served_per_s, self.judged = 0, capacity, served_per_s, judged
        self.offered = self.taken = self.lost = self.shed = 0
        self.meter = CostMeter({"async": 8})
        self._due = self._served = 0.0
        self._next_look = self.clock()
        self.shedder = LoadShedder(LoadSheddingSettings(**settings), work=self.work, clock=self.clock)

    def work(self) -> Work:
        return Work(self.queued, self.meter.drain_s(self.queued, {"async": 0.0}), self.lost)

    def run(self, seconds: float, calls_per_s: float = 0.0) -> None:
        for _ in range(round(seconds / _STEP_S)):
            if self.clock() >= self._next_look:
                self._next_look += 0.25
                self.shedder.look()
            self._due += calls_per_s * _STEP_S
            while self._due >= 1:
                self._due -= 1
                self.call()
            self._serve()
            self.clock.advance(_STEP_S)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.shedder.look()
            self.clock.advance(0.25)

    def call(self) -> None:
        self.offered += 1
        decision = self.shedder.thin(SAMPLED, self.offered * _SPREAD % (1 << 64))
        if not decision.sampled:
            self.shed += 1
        elif self.queued >= self.capacity:
            self.lost += 1
        else:
            self.queued += 1
            self.taken += 1

    def _serve(self) -> None:
        self._served = min(self._served + self.served_per_s * _STEP_S, self.queued + 1)
        served = min(int(self._served), self.queued)
        self._served -= served
        self.queued -= served
        cost_s = served / self.served_per_s
        if self.judged:
            self.meter.note(served, 0.0, {"async": 8 * cost_s})
        else:
            self.meter.note(served, cost_s, {})
