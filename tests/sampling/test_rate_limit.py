"""RateLimitSampler: so many responses a second, with a probability that stays known."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from agenteval_otel.sampling import RateLimitSampler, Sampler, SamplingContext, SamplingDecision
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from agenteval_otel.testing import ManualClock

_numbers = random.Random(3)


def second_of(sampler: Sampler, calls: int) -> list[SamplingDecision]:
    """The decisions on so many calls within the present second."""
    return [
        sampler.decide(SamplingContext("agent", _numbers.getrandbits(64))) for _ in range(calls)
    ]


@pytest.mark.parametrize("max_per_s", [1, 10, 100])
def test_never_more_than_the_limit_in_a_second(max_per_s: int) -> None:
    """However the traffic swings, no second of the clock sees more than the limit."""
    clock = ManualClock(100.0)
    sampler = RateLimitSampler(max_per_s=max_per_s, clock=clock)
    for calls in (1, 1000, 3, 0, 500, 5000, 20, 700):
        assert sum(decision.sampled for decision in second_of(sampler, calls)) <= max_per_s
        clock.advance(1.0)


def test_what_the_ceiling_stops_is_a_loss() -> None:
    """The first burst is stopped by the ceiling: counted as ``rate_limited``, of unknown
    probability.
    """
    sampler = RateLimitSampler(clock=ManualClock())
    decisions = second_of(sampler, 50)
    assert [decision.sampled for decision in decisions] == [True] * 10 + [False] * 40
    assert {(d.outcome, d.probability) for d in decisions[10:]} == {("rate_limited", None)}


def test_steady_traffic_is_sampled_with_a_known_probability() -> None:
    """From the second second on the limit is a ratio: known, in force, and almost without losses."""
    clock = ManualClock()
    sampler = RateLimitSampler(clock=clock)
    taken = lost = 0
    weight = 0.0
    second_of(sampler, 200)
    for _ in range(100):
        clock.advance(1.0)
        decisions = second_of(sampler, 200)
        assert {decision.probability for decision in decisions} <= {0.04, None}
        taken += sum(decision.sampled for decision in decisions)
        lost += sum(decision.outcome == "rate_limited" for decision in decisions)
        weight += sum(1 / 0.04 for decision in decisions if decision.sampled)
    assert lost < taken / 5
    assert 0.75 < weight / (100 * 200) < 1.1


def test_the_ratio_follows_the_traffic() -> None:
    """Each second's ratio is made from the traffic of the second before; after a pause everything
    is taken again.
    """
    clock = ManualClock()
    sampler = RateLimitSampler(clock=clock)
    seen = []
    for calls, pause_s in ((40, 1.0), (400, 1.0), (4000, 1.0), (5, 1.0), (10_000, 2.0)):
        second_of(sampler, calls)
        clock.advance(pause_s)
        seen.append(sampler.decide(SamplingContext("agent", RANDOMNESS_RANGE - 1)).probability)
    assert seen == [
        pytest.approx(8 / 40),
        pytest.approx(8 / 401),
        pytest.approx(8 / 4001),
        1.0,
        1.0,
    ]


def test_the_limit_only_lowers_the_own_ratio() -> None:
    """Below the limit the ratio holds."""
    clock = ManualClock()
    sampler = RateLimitSampler(ratio=0.1, clock=clock)
    for calls in (50, 50, 1_000):
        assert {decision.probability for decision in second_of(sampler, calls)} <= {0.1, None}
        clock.advance(1.0)
    assert sampler.decide(SamplingContext("agent", 0)).probability == pytest.approx(0.008)


def test_threads_share_the_limit() -> None:
    """Threads that decide at once never get more than the limit out of one second, least of all
    when it turns.
    """
    clock = ManualClock()
    sampler = RateLimitSampler(clock=clock)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(500):
                decisions = threads.map(lambda _: second_of(sampler, 20), range(4))
                assert sum(decision.sampled for decided in decisions for decision in decided) <= 10
                clock.advance(1.0)
    finally:
        sys.setswitchinterval(usual)
