"""A queue, its traffic and what evaluates it, in time that stands still until it is moved."""

from __future__ import annotations

from typing import Any

from agenteval_otel.restraint import Restraint, RestraintSettings
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.testing import ManualClock

__all__ = ["Simulated"]

_STEP_S = 0.01
_DRAWS = 0x9E3779B97F4A7C15  # the golden section: draws that are spread evenly, the same in every run
SAMPLED = SamplingDecision(True, 1.0, "ratio")


class Simulated:
    """Calls come at a rate, at most so many a second are evaluated, and `Restraint` looks every quarter second.

    Attributes:
        queue: What the restraint reads; a test may set it itself.
        offered, taken, lost, passed_over: Calls so far.
        cpu_s, lanes_cpu_s: CPU seconds so far; each evaluated call takes `cost_s`.
    """

    def __init__(self, *, capacity: int = 64, served_per_s: float = 200.0, cost_s: float = 0.0, **limits: Any) -> None:
        self.clock = ManualClock(1_000.0)
        self.queue = {"size": 0, "capacity": capacity, "bytes": 0}
        self.served_per_s, self.cost_s = served_per_s, cost_s
        self.offered = self.taken = self.lost = self.passed_over = 0
        self.cpu_s = self.lanes_cpu_s = 0.0
        self._due = self._served = 0.0
        self._next_look = self.clock()
        self.restraint = Restraint(
            RestraintSettings(**limits), queue=lambda: self.queue, max_bytes=1_000_000, lost=lambda: self.lost,
            lanes_cpu_s=lambda: self.lanes_cpu_s, clock=self.clock, thread_time=lambda: self.cpu_s,
        )  # fmt: skip

    def run(self, seconds: float, calls_per_s: float = 0.0) -> None:
        """Let time pass under a steady load."""
        for _ in range(round(seconds / _STEP_S)):
            if self.clock() >= self._next_look:
                self._next_look += 0.25
                self.restraint.look()
            self._due += calls_per_s * _STEP_S
            while self._due >= 1:
                self._due -= 1
                self._call()
            self._serve()
            self.clock.advance(_STEP_S)

    def look(self, times: int = 1) -> None:
        """Look, a quarter second apart, with nothing going on but what the test set."""
        for _ in range(times):
            self.restraint.look()
            self.clock.advance(0.25)

    def _call(self) -> None:
        self.offered += 1
        decision = SAMPLED
        if self.restraint.keep is not None:
            decision = self.restraint.thin(SAMPLED, self.offered * _DRAWS % (1 << 64))
        if not decision.sampled:
            self.passed_over += 1
        elif self.queue["size"] >= self.queue["capacity"]:
            self.lost += 1
        else:
            self.queue["size"] += 1
            self.taken += 1

    def _serve(self) -> None:
        self._served = min(self._served + self.served_per_s * _STEP_S, self.queue["size"] + 1)
        served = min(int(self._served), self.queue["size"])
        self._served -= served
        self.queue["size"] -= served
        self.cpu_s += served * self.cost_s
