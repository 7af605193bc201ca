"""Restraint as a whole, in time that the test moves: what leads down, how far, and back."""

from __future__ import annotations

import logging

import pytest

from agenteval_otel.restraint.ladder import CODE_ONLY, FULL, OFF, REDUCED
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.semconv import DROPPED_STEPDOWN
from tests.restraint.simulated import SAMPLED, Simulated


@pytest.mark.parametrize(("capacity", "served_per_s"), [(16, 50), (64, 200), (2_048, 100), (256, 1_000)])
def test_twice_what_the_pool_manages_costs_sampling_and_not_calls(capacity: int, served_per_s: int) -> None:
    """After ten seconds of twice the load hardly a call is lost, and most of what can be evaluated is."""
    load = Simulated(capacity=capacity, served_per_s=served_per_s)
    load.run(10.0, 2 * served_per_s)
    lost, taken, offered = load.lost, load.taken, load.offered
    load.run(50.0, 2 * served_per_s)
    assert (load.lost - lost) / (load.offered - offered) <= 0.01
    assert (load.taken - taken) / 50.0 >= 0.7 * served_per_s
    assert load.passed_over > 0


@pytest.mark.parametrize("times", [2, 5, 20])
def test_it_recovers_when_the_load_is_gone(times: int) -> None:
    """A tenth of the load, and sampling is full again within half a minute."""
    load = Simulated(served_per_s=200)
    load.run(20.0, times * 200)
    assert load.restraint.level == REDUCED
    load.run(30.0, 20)
    assert (load.restraint.level, load.restraint.keep, load.restraint.code_only) == (FULL, None, False)


def test_load_below_what_the_pool_manages_changes_nothing() -> None:
    """Nine tenths of the capacity for a minute: full all the time."""
    load = Simulated(served_per_s=200)
    load.run(60.0, 180)
    assert load.passed_over == load.lost == 0


def test_a_burst_that_is_worked_off_changes_nothing() -> None:
    """A queue that is nearly full and falls is no trouble."""
    load = Simulated(capacity=2_048, served_per_s=1_000)
    load.queue["size"] = 2_000
    load.run(5.0, 100)
    assert load.restraint.level == FULL
    assert load.passed_over == 0


def test_a_queue_that_fills_by_bytes_counts_as_well() -> None:
    """Few calls that hold nearly all of the bytes are trouble, too."""
    load = Simulated(capacity=2_048)
    load.look()
    load.queue["bytes"] = 900_000
    load.look()
    assert load.restraint.level == REDUCED


def test_a_stuck_queue_leads_to_code_only_and_not_to_off() -> None:
    """Where judges hang and calls are lost, evaluators that call a model sit out; the rest goes on."""
    load = Simulated(served_per_s=0)
    load.run(20.0, 10_000)
    assert load.restraint.level == CODE_ONLY
    assert load.restraint.code_only
    assert load.restraint.keep == 1 / 64


def test_cpu_of_the_pool_is_held_below_its_limit() -> None:
    """A pool that would take a whole core settles between half of one and nothing, and does not swing to off."""
    load = Simulated(capacity=2_048, served_per_s=1_000, cost_s=0.001)
    load.run(30.0, 1_000)
    levels = set()
    before = load.cpu_s
    for _ in range(30):
        load.run(1.0, 1_000)
        levels.add(load.restraint.level)
    assert levels == {REDUCED}
    assert 0.1 <= (load.cpu_s - before) / 30.0 <= 0.55


def test_cpu_of_lanes_counts_in_the_sum() -> None:
    """Child processes that take two cores are past the limit on all of our CPU."""
    load = Simulated()
    for _ in range(30):
        load.lanes_cpu_s += 0.5
        load.look()
    assert load.restraint.level == REDUCED
    assert load.restraint.gauges()["cpu_share"] == pytest.approx(2.0)


def test_a_short_effort_is_no_trouble() -> None:
    """Three seconds of a whole core are not five."""
    load = Simulated()
    for _ in range(12):
        load.cpu_s += 0.25
        load.look()
    load.look(20)
    assert load.restraint.level == FULL


def test_added_latency_steps_down_and_ages() -> None:
    """Calls that cost their callers two milliseconds lead down; when none are measured any more it recovers."""
    load = Simulated()
    for _ in range(10):
        load.restraint.note_added(2_000_000)
    load.look()
    assert load.restraint.level == REDUCED
    assert load.restraint.gauges()["added_latency"] == pytest.approx(0.002)
    load.look(20)
    assert load.restraint.level == FULL


class Late:
    """A host's loop that is late, with evaluation at work."""

    def __init__(self, *, of_ours: bool) -> None:
        self.load, self._of_ours = Simulated(), of_ours

    def go_on(self, seconds: float, *, late_s: float = 0.1) -> set[int]:
        """The levels met; the lateness is in proportion to our work where it is ours."""
        levels = set()
        for _ in range(round(seconds / 0.25)):
            restraint = self.load.restraint
            share = 1.0 if restraint.keep is None else restraint.keep
            self.load.cpu_s += 0.25 * 0.4 * share
            measured_s = late_s * share if self._of_ours else late_s
            restraint._loops.late.append((self.load.clock(), measured_s))
            self.load.look()
            levels.add(restraint.level)
        return levels


def test_lag_of_ours_is_brought_below_its_limit() -> None:
    """A loop that is late in proportion to our work is late no more, and sampling stays reduced."""
    late = Late(of_ours=True)
    late.go_on(20.0)
    assert late.go_on(30.0) == {REDUCED}
    assert late.load.restraint._loops.since(late.load.clock() - 5.0)[-1] < 0.055


def test_lag_that_is_not_ours_does_not_hold_us_back() -> None:
    """A loop that stays as late when we do next to nothing is left alone, and sampling is full again."""
    late = Late(of_ours=False)
    assert REDUCED in late.go_on(10.0)
    late.go_on(15.0)
    assert late.load.restraint.level == FULL
    assert late.go_on(35.0) == {FULL}
    assert OFF not in late.go_on(300.0)


def test_lag_without_work_of_ours_is_not_ours() -> None:
    """A late loop while evaluation takes no CPU changes nothing."""
    load = Simulated()
    for _ in range(100):
        load.restraint._loops.late.append((load.clock(), 1.0))
        load.look()
    assert load.restraint.level == FULL


def test_switched_off_it_measures_and_does_nothing() -> None:
    """With `enabled` false the queue loses calls, and what is measured is still told."""
    load = Simulated(enabled=False, cost_s=0.001)
    load.run(20.0, 1_000)
    assert load.restraint.level == FULL
    assert load.lost > 0
    assert load.restraint.gauges()["cpu_share"] == pytest.approx(0.2, abs=0.02)


def test_a_limit_of_null_is_none() -> None:
    """Each limit can be taken away by itself."""
    load = Simulated(queue_share=None, pool_cpu_share=None, cpu_share=None, loop_lag_s=None, added_latency_s=None,
                     cost_s=0.01)  # fmt: skip
    load.restraint.note_added(10**9)
    load.run(20.0, 1_000)
    assert load.restraint.level == FULL


def test_at_off_nothing_goes_on() -> None:
    """Whatever the draw, and with the outcome that says why."""
    load = Simulated()
    load.look()
    load.restraint.keep = 0.0
    found = load.restraint.thin(SAMPLED, 0)
    assert (found.sampled, found.outcome, found.probability) == (False, DROPPED_STEPDOWN, 0.0)


def test_at_full_a_decision_is_left_as_it_is() -> None:
    """A door that saw another level a moment ago gets its decision back."""
    decision = SamplingDecision(True, None, "function")
    assert Simulated().restraint.thin(decision, 3) is decision


def test_when_nobody_looks_one_call_a_second_goes_by() -> None:
    """The timer ended with its thread while sampling was off: a call goes by, so that the pool looks again."""
    load = Simulated()
    load.look()
    load.restraint.keep = 0.0
    load.clock.advance(10.0)
    first, second = (load.restraint.thin(SAMPLED, 0) for _ in range(2))
    assert (first.sampled, first.probability) == (True, None)
    assert not second.sampled
    load.clock.advance(1.0)
    assert load.restraint.thin(SAMPLED, 0).sampled


def test_changes_of_level_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line down with the measure, its value and its limit; one line back."""
    log.forget()
    load = Simulated(served_per_s=200)
    with caplog.at_level(logging.WARNING, "agenteval_otel"):
        load.run(10.0, 400)
        load.run(20.0)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    for words in ("sampling_stepped_down", "part='reduced'", "level=1", "measure='queue'", "limit=0.5", "value="):
        assert words in lines[0]
    assert "sampling_recovered" in lines[1]
    assert "level=0" in lines[1]


def test_what_is_not_known_is_not_told() -> None:
    """Without a loop and without a timed call there are two gauges."""
    assert Simulated().restraint.gauges() == {"level": 0.0, "cpu_share": 0.0}
