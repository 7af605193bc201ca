"""Load shedding on a clock that the test moves: when it reduces sampling, how far, and how it
recovers.
"""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.engine.load_shedding import (
    FULL,
    NO_MODEL_CALLS,
    OFF,
    REDUCED,
    CostMeter,
    LoadShedder,
    LoadSheddingSettings,
    LoopLag,
    Work,
    thinned,
)
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.sampling.base import RANDOMNESS_RANGE, threshold_of
from agenteval_otel.semconv import SHED
from agenteval_otel.testing import ManualClock

_STEP_S = 0.01
# the golden section: randomness that is spread evenly, the same in every run
_SPREAD = 0x9E3779B97F4A7C15
SAMPLED = SamplingDecision(True, 1.0, "ratio")


class Simulated:
    """Calls come at a rate, at most `served_per_s` are evaluated, and the shedder looks four times
    a second.

    Attributes:
        queued, capacity: The queue; a call that finds it full is lost.
        offered, taken, lost, shed: Calls so far.
        judged: Answers wait for judges instead of the background thread.
    """

    def __init__(
        self,
        *,
        capacity: int = 1_000_000,
        served_per_s: float = 200.0,
        judged: bool = False,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock(1_000.0)
        self.queued = 0
        self.capacity = capacity
        self.served_per_s = served_per_s
        self.judged = judged
        self.offered = self.taken = self.lost = self.shed = 0
        self.meter = CostMeter({"async": 8})
        self._due = self._served = 0.0
        self._next_look = self.clock()
        self.loop_lag = LoopLag(self.clock)
        self.shedder = LoadShedder(
            LoadSheddingSettings(**settings),
            work=self.work,
            clock=self.clock,
            loop_lag=self.loop_lag,
        )

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

    def look(self) -> None:
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
        if not served:
            return
        cost_s = served / self.served_per_s
        if self.judged:
            self.meter.note(served, 0.0, {"async": 8 * cost_s})
        else:
            self.meter.note(served, cost_s, {})


STATE = ("level", "keep", "skip_models")


def state(load: Simulated) -> tuple[object, ...]:
    return tuple(getattr(load.shedder, name) for name in STATE)


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("served_per_s", [50, 400])
def test_overload_reduces_sampling_and_loses_no_call(served_per_s: int, judged: bool) -> None:
    load = Simulated(served_per_s=served_per_s, judged=judged)
    load.run(40.0, 2 * served_per_s)
    taken, drain_s = load.taken, []
    for _ in range(60):
        load.run(1.0, 2 * served_per_s)
        drain_s.append(load.work().drain_s)
    assert load.lost == 0
    assert max(drain_s) <= 20.0
    assert (load.taken - taken) / 60.0 >= 0.7 * served_per_s
    assert not load.shedder.skip_models


@pytest.mark.parametrize("times", [2, 10])
def test_sampling_recovers_after_the_load(times: int) -> None:
    load = Simulated(served_per_s=200)
    load.run(20.0, times * 200)
    assert load.shedder.level >= REDUCED
    load.run(load.work().drain_s, 20)
    assert load.shedder.look(), "reduced it has to be asked again"
    load.run(30.0, 20)
    assert state(load) == (FULL, None, False)
    load.queued = 0
    assert not load.shedder.look()


def test_a_backlog_that_shrinks_reduces_sampling_no_further() -> None:
    load = Simulated(served_per_s=1_000)
    load.run(5.0, 500)
    load.queued = 15_000
    load.run(20.0, 100)
    assert load.shed == 0


def test_a_queue_that_overflows_reduces_sampling() -> None:
    load = Simulated(capacity=64, served_per_s=200)
    load.run(10.0, 400)
    lost, offered = load.lost, load.offered
    load.run(50.0, 400)
    assert load.shedder.level == REDUCED
    assert (load.lost - lost) / (load.offered - offered) <= 0.05


def test_work_that_stands_still_leads_to_no_model_calls_and_not_to_off() -> None:
    load = Simulated(served_per_s=200)
    load.run(5.0, 100)
    load.served_per_s = 0.001
    load.run(60.0, 1_000)
    assert state(load) == (NO_MODEL_CALLS, 1 / 64, True)


class LateLoop:
    """A host's loop that is late, while answers are evaluated; by default its start is over."""

    def __init__(self, *, caused_by_us: bool, grace_s: float = 0.0) -> None:
        self.load, self._caused_by_us = Simulated(grace_s=grace_s), caused_by_us

    def run(self, seconds: float, *, late_s: float = 0.1) -> set[int]:
        """The levels met; where we are the cause, lateness is in proportion to what goes on."""
        levels = set()
        for _ in range(round(seconds / 0.25)):
            shedder = self.load.shedder
            share = 1.0 if shedder.keep is None else shedder.keep
            self.load.queued = 1
            self.load.loop_lag.add(late_s * share if self._caused_by_us else late_s)
            self.load.look()
            levels.add(shedder.level)
        return levels

    def run_until_off(self) -> LoadShedder:
        """Be very late, because of us, until nothing is evaluated any more."""
        for _ in range(60):
            if self.load.shedder.level == OFF:
                break
            self.run(1.0, late_s=6.0)
        assert self.load.shedder.level == OFF
        return self.load.shedder


def test_loop_lag_of_ours_comes_below_its_bound() -> None:
    loop = LateLoop(caused_by_us=True)
    loop.run(20.0)
    assert OFF not in loop.run(60.0)
    late = loop.load.loop_lag.since(loop.load.clock() - 30.0)
    assert sum(late) / len(late) <= 0.08


def test_loop_lag_of_the_hosts_own_does_not_stop_evaluation() -> None:
    """A loop that stays as late while we do little is the host's matter: sampling is full most of
    the time.
    """
    loop = LateLoop(caused_by_us=False)
    assert REDUCED in loop.run(10.0)
    loop.run(15.0)
    assert loop.load.shedder.level == FULL
    assert loop.run(30.0) == {FULL}
    assert OFF not in loop.run(300.0)


def test_loop_lag_of_ours_at_the_least_rate_leads_to_off() -> None:
    shedder = LateLoop(caused_by_us=True).run_until_off()
    assert shedder.thin(SAMPLED, 0).outcome == SHED


def test_a_loop_that_is_late_at_the_start_sheds_nothing() -> None:
    """The grace period begins with the first answer, however long nothing came before; a loop that
    is late after it reduces sampling.
    """
    loop = LateLoop(caused_by_us=False, grace_s=60.0)
    loop.load.clock.advance(500.0)
    assert loop.run(59.0, late_s=2.0) == {FULL}
    assert loop.load.shedder.gauges()["loop_lag"] == 2.0
    assert REDUCED in loop.run(10.0, late_s=2.0)


def test_a_long_queue_at_the_start_reduces_sampling() -> None:
    """The grace period is about the loop alone: overload lowers sampling, and a queue that overflows
    does, from the first seconds on.
    """
    for load in (Simulated(grace_s=3_600.0), Simulated(grace_s=3_600.0, capacity=1_000)):
        load.run(40.0, 1_000)
        assert load.shedder.level >= REDUCED
        assert load.shed > 0


@pytest.mark.parametrize(
    "settings",
    [{"enabled": False}, {"max_drain_s": None, "max_loop_lag_s": None, "capacity": 6_000}],
)
def test_without_a_bound_it_measures_and_reduces_nothing(settings: dict[str, Any]) -> None:
    """Switched off, or without bounds, sampling stays full, and drain time is exported all the
    same.
    """
    load = Simulated(**settings)
    for _ in range(20):
        load.loop_lag.add(1.0)
    load.run(30.0, 1_000)
    decision = SamplingDecision(True, None, "function")
    assert load.shedder.thin(decision, 3) is decision
    assert load.shedder.level == FULL
    assert load.shedder.gauges()["drain_time"] == pytest.approx(load.queued / 200, rel=0.1)


def test_loop_lag_without_work_of_ours_changes_nothing() -> None:
    load = Simulated(grace_s=0.0)
    for _ in range(50):
        load.loop_lag.add(1.0)
        load.look()
    assert load.shedder.level == FULL


def test_one_call_a_second_goes_on_when_nobody_looks() -> None:
    """The background thread ended while sampling was off: one call a second wakes it, of unknown
    probability.
    """
    loop = LateLoop(caused_by_us=True)
    shedder = loop.run_until_off()
    loop.load.clock.advance(10.0)
    first, second = (shedder.thin(SAMPLED, 0) for _ in range(2))
    assert (first.sampled, first.probability) == (True, None)
    assert (second.sampled, second.outcome, second.probability) == (False, SHED, 0.0)
    loop.load.clock.advance(1.0)
    assert shedder.thin(SAMPLED, 0).sampled


def test_changes_of_level_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    load = Simulated(served_per_s=200)
    with caplog.at_level(logging.WARNING, "agenteval_otel"):
        load.run(20.0, 400)
        load.run(30.0)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    for fact in (
        "sampling_reduced",
        " s (limit 10 s): every second sampled answer is left out. See docs/load-shedding.md",
        "part='reduced'",
        "level=1",
        "measure='drain_time'",
        "bound=10.0",
        "value=",
    ):
        assert fact in lines[0]
    assert "sampling_recovered" in lines[1]
    assert "level=0" in lines[1]


DRAWS = st.integers(0, RANDOMNESS_RANGE - 1)
SHARES = st.floats(0, 1)


@given(DRAWS, SHARES, SHARES, st.floats(0.01, 1))
def test_a_smaller_share_is_part_of_a_larger_one(
    randomness: int, item: float, other: float, probability: float
) -> None:
    if randomness >= threshold_of(probability):
        return
    decision = SamplingDecision(True, probability, "ratio")
    small, large = (thinned(decision, randomness, share) for share in sorted((item, other)))
    assert large.sampled or not small.sampled
    assert large.probability == probability * max(item, other)
    assert large.sampled or large.outcome == SHED


def test_the_decisions_own_draw_counts() -> None:
    """A sampler that draws for a whole conversation is cut by that draw, not by the response's."""
    decision = SamplingDecision(True, 0.5, "conversation", randomness=threshold_of(0.1))
    assert thinned(decision, threshold_of(0.4), 0.5).sampled
    assert not thinned(decision, 0, 0.1).sampled


@pytest.mark.parametrize("probability", [None, 0.3])
def test_a_sampler_that_draws_by_itself_is_thinned_by_the_share(probability: float | None) -> None:
    dice = random.Random(5)
    decision = SamplingDecision(True, probability, "function")
    kept = sum(thinned(decision, dice.getrandbits(64), 0.25).sampled for _ in range(5_000))
    assert abs(kept / 5_000 - 0.25) < 0.03  # five deviations
    if probability is None:
        assert thinned(decision, 0, 0.5).probability is None


@settings(deadline=None, max_examples=25)  # thousands of draws: a busy machine takes longer
@given(st.lists(SHARES, min_size=1, max_size=4), st.floats(0.05, 1), st.integers(0, 2**32))
def test_weighted_counts_are_unbiased(shares: list[float], probability: float, seed: int) -> None:
    dice, calls = random.Random(seed), 4_000
    estimate = variance = 0.0
    for number in range(calls):
        share, randomness = max(0.05, shares[number % len(shares)]), dice.getrandbits(64)
        if randomness >= threshold_of(probability):
            continue
        decision = thinned(SamplingDecision(True, probability, "ratio"), randomness, share)
        if decision.sampled:
            assert decision.probability is not None
            estimate += 1 / decision.probability
    variance = (
        sum(1 / (probability * max(0.05, share)) - 1 for share in shares) / len(shares) * calls
    )
    assert abs(estimate - calls) <= 5 * variance**0.5 + 1e-6
