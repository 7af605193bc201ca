"""Evidence: how rare false alarms are, how soon a drop is detected; tracks: what they report, and
when.
"""

from __future__ import annotations

import math
from random import Random
from statistics import mean, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.engine.objectives import BreachSettings, Objective
from agenteval_otel.engine.objectives.simulation import ParallelEvidence
from agenteval_otel.engine.objectives.track import (
    Evidence,
    LeastProbability,
    ObjectiveVerdict,
    Track,
    Tracks,
)
from agenteval_otel.telemetry.names import NameTable
from tests.objectives.support import FAIL, PASS, QUICK, Stream, adaptive, answers, plain, until

PROBABILITIES = st.floats(min_value=1e-300, max_value=1.0)
OBJECTIVES = st.floats(min_value=1e-300, max_value=1.0)


@pytest.mark.parametrize(
    ("stream", "every", "objective"),
    [(plain, 300, 0.8), (plain, 300, 0.99), (adaptive, 1_000, 0.95)],
)
def test_false_alarms_are_as_rare_as_promised(stream: Stream, every: int, objective: float) -> None:
    """Exactly at the objective, checked after every verdict, however bad answers are preferred."""
    settings = BreachSettings(false_alarm_every=every, minimum=1)
    assert (
        mean(
            until(Track(settings, objective), stream, Random(seed), objective) for seed in range(30)
        )
        >= every
    )


@pytest.mark.parametrize(
    ("stream", "every", "rate", "bounds"),
    [
        (plain, 20_000_000, 0.85, (150, 230)),
        (plain, 10_000, 0.85, (50, 95)),
        (plain, 10_000, 0.5, (1, 20)),
        (plain, 20_000_000, 0.9, (430, 650)),
        (adaptive, 10_000, 0.85, (50, 140)),
    ],
)
def test_drops_are_detected_soon(
    stream: Stream, every: int, rate: float, bounds: tuple[int, int]
) -> None:
    """Within the number of verdicts that docs/thresholds-proof.md has; a small drop later, a
    large one sooner.
    """
    delays = []
    for seed in range(30):
        random, track = Random(seed), Track(BreachSettings(false_alarm_every=every), 0.95)
        if until(track, stream, random, 0.96, most=500) == 500:
            delays.append(until(track, stream, random, rate))
    assert len(delays) > 27
    assert bounds[0] <= median(delays) <= bounds[1]


@given(st.lists(st.tuples(st.booleans(), PROBABILITIES), max_size=80), OBJECTIVES)
def test_no_stream_breaks_it(stream: list[tuple[bool, float]], objective: float) -> None:
    """Evidence is a finite number, never below 0, whatever the probabilities and the objective; so
    are the rates.
    """
    track = Track(BreachSettings(minimum=1, window=10), objective)
    for passed, probability in stream:
        change = track.add(
            ObjectiveVerdict(passed=passed, probability=probability, least=probability), 0.0
        )
        assert 0 <= track.evidence.value < math.inf
        if change is not None:
            assert 0 <= change.low <= change.rate <= change.high <= 1
            assert (change.rate < objective) is (change.kind == "breached")


@given(st.floats(min_value=0.01, max_value=0.99), st.floats(min_value=0.01, max_value=2))
def test_a_bet_is_fair_at_the_objective(objective: float, share: float) -> None:
    """At the objective what is held grows by 1 a verdict on average, so that false alarms cannot
    come sooner.
    """
    wealth = []
    for passed in (True, False):
        evidence = Evidence(worst=1 - objective, enough=100)
        evidence.add(objective - passed, share)
        wealth.append(evidence.value)
    assert objective * wealth[0] + (1 - objective) * wealth[1] == pytest.approx(1.0)


def test_a_smaller_probability_begins_the_count_again() -> None:
    """What was bet before was too much for it; one that is a little smaller is not."""
    least = LeastProbability()
    assert not least.add(0.9)
    assert least.add(0.1)
    assert not least.add(0.06)
    assert least.value == 0.1
    for _ in range(2_000):  # later a crowded hour does not make the bets small any more
        least.add(1.0)
    assert least.value == 1.0
    track = Track(BreachSettings(minimum=5), 0.95)
    for _ in range(4):
        assert track.add(FAIL, 0.0) is None
    before = track.evidence.value
    assert track.add(ObjectiveVerdict(passed=True, probability=0.01, least=0.01), 0.0) is None
    assert track.evidence.value < 1 < before


def test_an_objective_of_one_breaks_with_one_failure() -> None:
    """No agent that holds it ever fails; it is told once the minimum of verdicts is there."""
    track = Track(BreachSettings(minimum=5), 1.0)
    assert track.add(FAIL, 0.0) is None
    result = [track.add(PASS, 0.0) for _ in range(4)]
    assert [change.kind for change in result if change] == ["breached"]
    recovered = until(track, plain, Random(1), 1.0)
    assert recovered == BreachSettings().recover_after


def test_the_simulation_is_the_detector() -> None:
    """Of the same verdicts `ParallelEvidence` alarms at the same one as `Evidence`, with weights
    and without.
    """
    random = np.random.default_rng(3)
    passed, share = random.random((400, 20)) < 0.8, 0.5 + random.random((400, 20)) / 2
    together = ParallelEvidence(20, objective=0.95, enough=1e6)
    alarms = np.array([together.add(passed[at], share[at]) for at in range(400)])
    for stream in range(20):
        alone = Evidence(worst=0.05, enough=1e6)
        expected = [alone.add(0.95 - passed[at, stream], share[at, stream]) for at in range(400)]
        assert alarms[:, stream].tolist() == expected
    assert alarms.any()


# --- tracks ---


def test_nothing_is_reported_before_the_minimum() -> None:
    """Not even if everything fails."""
    track = Track(BreachSettings(minimum=40), 0.95)
    assert list(answers(track, [FAIL] * 39)) == []
    assert [change.kind for change in answers(track, [FAIL])] == ["breached"]


def test_a_lasting_breach_is_reported_again() -> None:
    """While it lasts, after so many seconds, with the rate of now and the moment at which it was
    found.
    """
    track = Track(BreachSettings(minimum=5, remind_s=60), 0.9)
    (result,) = answers(track, [ObjectiveVerdict(passed=False, at_ns=3)] * 20)
    assert list(answers(track, [FAIL], now_s=59)) == []
    (again,) = answers(track, [ObjectiveVerdict(passed=False, at_ns=5)] * 5, now_s=60)
    assert (again.kind, again.reminder, again.since_ns) == ("breached", True, result.since_ns)
    assert list(answers(track, [FAIL], now_s=119)) == []
    assert len(list(answers(track, [FAIL], now_s=120))) == 1
    quiet = Track(BreachSettings(minimum=5, remind_s=None), 0.9)
    assert len(list(answers(quiet, [FAIL] * 20))) == 1
    assert list(answers(quiet, [FAIL], now_s=1e9)) == []


@pytest.mark.parametrize("stream", [plain, adaptive])
def test_recovery_is_reported_soon_and_not_too_soon(stream: Stream) -> None:
    """An agent well above its objective recovers within some hundred verdicts; one still below
    seldom does.
    """
    delays_taken: dict[float, list[int]] = {0.85: [], 0.99: []}
    for rate, result in delays_taken.items():
        for seed in range(15):
            random, track = Random(seed), Track(BreachSettings(remind_s=None), 0.95)
            until(track, stream, random, 0.7)
            assert track.breached
            result.append(until(track, stream, random, rate, most=3_000))
    assert median(delays_taken[0.99]) <= 600
    assert median(delays_taken[0.85]) >= 1_000


def test_tracks_are_bounded() -> None:
    """Agents from outside share one name beyond a limit, and no more criteria of theirs are watched
    than a thousand.
    """
    tracks = Tracks(QUICK, NameTable("agent"))
    shown = {tracks.agent(f"agent-{number}") for number in range(10_000)}
    assert 10 < len(shown) < 100
    assert "_other" in shown
    assert tracks.agent("agent-3") == "agent-3"
    assert tracks.agent(None) is None
    built = [tracks.of("agent-3", f"criterion-{number}", Objective(0.9)) for number in range(2_000)]
    assert sum(item is not None for item in built) == len(tracks) == 1_024
    assert tracks.of("agent-3", "criterion-5", Objective(0.9)) is built[5]
