"""Drift of the scores of a judge, and their correlation with length: against scipy's definitions,
and in simulation.
"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.engine.capabilities.judge_health.scores import (
    ScoreWindow,
    counts_of,
    drift_of,
    ranks,
)

SIZE = 500
SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)


def window(*, seed: int, passes: float, count: int = SIZE, weight: float = 1.0) -> ScoreWindow:
    draw, made = random.Random(seed), ScoreWindow(SIZE)
    for _ in range(count):
        made.add(float(draw.random() < passes), weight, 10)
    return made


def test_the_index_is_that_of_the_literature() -> None:
    """``sum (p - q) ln(p / q)``, with half a score added to each bin that is in use."""
    before, after = (
        counts_of([(0.0, 1.0)] * (100 - ones) + [(1.0, 1.0)] * ones) for ones in (90, 60)
    )
    p, q = ([10.5 / 101, 90.5 / 101], [40.5 / 101, 60.5 / 101])
    expected = sum((a - b) * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert drift_of(before, after).psi == pytest.approx(expected)
    assert drift_of(before, before).psi == 0.0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 50)), min_size=1), st.floats(0.5, 20))
def test_the_scale_of_weights_does_not_matter(
    scores: list[tuple[float, float]], factor: float
) -> None:
    """Weights ten times as large are the same distribution, of as many effective scores."""
    one, other = (
        counts_of(scores),
        counts_of([(score, weight * factor) for score, weight in scores]),
    )
    assert one.effective == pytest.approx(other.effective)
    assert drift_of(one, other).psi == pytest.approx(0.0, abs=1e-9)
    assert one.effective <= len(scores) * (1 + 1e-9)


def test_chance_rarely_looks_like_a_drift() -> None:
    """Of thirty judges that do not change none is taken for drifted, in 3,000 scores, at a look
    every 50. The threshold by chance is exceeded by one look in 30,000.
    """
    alarms = 0
    for seed in range(30):
        draw, scores = random.Random(seed), ScoreWindow(SIZE)
        drifted = False
        for number in range(3_000):
            scores.add(draw.choice(SCORES), draw.choice((1.0, 10.0)), 10)
            if number % 50 == 0 and (drift := scores.drift()) is not None:
                drifted |= drift.psi >= 0.05 and drift.psi > drift.by_chance
        alarms += drifted
    assert alarms == 0


def test_conversations_of_one_mood_are_no_drift() -> None:
    """Turns whose scores are alike are fewer scores than they look: of 100 pairs of windows at most
    1 % drift.
    """
    shares, drifted = (0.02, 0.05, 0.13, 0.3, 0.5), 0
    for seed in range(100):
        draw, scores = random.Random(seed), ScoreWindow(200)
        for conversation in range(40):
            mood = draw.choices(SCORES, shares)[0]
            for _ in range(10):
                own = mood if draw.random() < 0.6 else draw.choices(SCORES, shares)[0]
                scores.add(own, 1.0, 10, conversation)
        drift = scores.drift()
        assert drift is not None
        drifted += drift.psi > max(0.2, drift.by_chance)
    assert drifted <= 1


def test_a_judge_that_grows_strict_has_drifted() -> None:
    """From 90 % to 65 % that pass; a small sample of heavy weights does not suffice."""
    reference = window(seed=1, passes=0.9).counts()
    drift = drift_of(reference, window(seed=2, passes=0.65).counts())
    assert drift.psi > max(0.2, drift.by_chance)
    few = drift_of(reference, window(seed=3, passes=0.65, count=15, weight=30.0).counts())
    assert few.psi < few.by_chance


def test_the_reference_is_the_first_window() -> None:
    """The drift is known from the second window on."""
    scores = ScoreWindow(100)
    completes = [scores.add(1.0, 1.0, 5) for _ in range(100)]
    assert (sum(completes), completes[-1], scores.drift()) == (1, True, None)
    for _ in range(99):
        scores.add(0.0, 1.0, 5)
    assert scores.drift() is None
    scores.add(0.0, 1.0, 5)
    assert scores.drift() is not None


def test_a_judge_that_likes_length_is_seen() -> None:
    """Spearman's correlation, as scipy computes it; none of few scores, none of equal ones."""
    draw, scores, pairs = random.Random(7), ScoreWindow(SIZE), []
    for _ in range(300):
        length = draw.randrange(10, 2_000)
        score = min(1.0, max(0.0, round(length / 2_000 + draw.uniform(-0.4, 0.4), 1)))
        pairs.append((score, length))
        scores.add(score, 1.0, length)
    x, y = (ranks([pair[at] for pair in pairs]) for at in (0, 1))
    mean = (len(pairs) - 1) / 2
    covariance = sum((a - mean) * (b - mean) for a, b in zip(x, y, strict=True))
    expected = covariance / math.sqrt(
        sum((a - mean) ** 2 for a in x) * sum((b - mean) ** 2 for b in y)
    )
    assert scores.length_correlation() == pytest.approx(expected)
    assert expected > 0.5
    assert window(seed=1, passes=0.5, count=99).length_correlation() is None
    assert window(seed=1, passes=0.5).length_correlation() is None  # all are equally long


def test_equal_values_share_their_rank() -> None:
    assert ranks([3.0, 1.0, 3.0, 2.0]) == [2.5, 0.0, 2.5, 1.0]
