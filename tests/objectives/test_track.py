"""Track: when a change is reported, with which rate, and its reminders."""

from __future__ import annotations

from random import Random
from statistics import median

import pytest

from agenteval_otel.models import SpanReference
from agenteval_otel.objectives import BreachSettings
from agenteval_otel.objectives.track import Track, Tracks, Verdict
from tests.objectives.support import FAIL, PASS, QUICK, adaptive, answers, plain, until


def test_there_and_back() -> None:
    """A breach is reported once, with the rate and the last failing span; the recovery with the rate since then."""
    track = Track(QUICK, 0.9)
    assert list(answers(track, [PASS] * 200)) == []
    span = SpanReference(trace_id="0a" * 16, span_id="0b" * 8)
    (breached,) = answers(track, [Verdict(passed=False, span=span, at_ns=7)] * 30)
    assert (breached.kind, breached.span, breached.since_ns, breached.reminder) == ("breached", span, 7, False)
    assert breached.estimate.mean < 0.9
    assert breached.estimate.scores == QUICK.window
    assert track.breached
    (recovered,) = answers(track, [Verdict(passed=True, at_ns=9)] * 400)
    assert (recovered.kind, recovered.since_ns) == ("recovered", 7)
    assert recovered.estimate.mean >= 0.9
    assert not track.breached
    assert list(answers(track, [PASS] * 400)) == []


def test_nothing_is_reported_before_the_minimum() -> None:
    """Not even if everything fails."""
    track = Track(BreachSettings(minimum=40), 0.95)
    assert list(answers(track, [FAIL] * 39)) == []
    assert [change.kind for change in answers(track, [FAIL])] == ["breached"]


def test_a_lasting_breach_is_reported_again() -> None:
    """While it lasts, after so many seconds, with the rate of now and the moment at which it was found."""
    track = Track(BreachSettings(minimum=5, remind_s=60), 0.9)
    (found,) = answers(track, [Verdict(passed=False, at_ns=3)] * 20)
    assert list(answers(track, [FAIL], now_s=59)) == []
    (again,) = answers(track, [Verdict(passed=False, at_ns=5)] * 5, now_s=60)
    assert (again.kind, again.reminder, again.since_ns) == ("breached", True, found.since_ns)
    assert list(answers(track, [FAIL], now_s=119)) == []
    assert len(list(answers(track, [FAIL], now_s=120))) == 1
    quiet = Track(BreachSettings(minimum=5, remind_s=None), 0.9)
    assert len(list(answers(quiet, [FAIL] * 20))) == 1
    assert list(answers(quiet, [FAIL], now_s=1e9)) == []


@pytest.mark.parametrize("stream", [plain, adaptive])
def test_recovery_is_reported_soon_and_not_too_soon(stream: object) -> None:
    """An agent well above its objective recovers within a few hundred verdicts; one still below seldom does."""
    took: dict[float, list[int]] = {0.85: [], 0.99: []}
    for rate, found in took.items():
        for seed in range(15):
            random, track = Random(seed), Track(BreachSettings(remind_s=None), 0.95)
            until(track, stream, random, 0.7)  # type: ignore[arg-type]
            assert track.breached
            found.append(until(track, stream, random, rate, most=3_000))  # type: ignore[arg-type]
    assert median(took[0.99]) <= 300
    assert median(took[0.85]) >= 1_000


def test_tracks_are_bounded() -> None:
    """Agents beyond the limit share one name, and no more criteria of agents are watched than a thousand."""
    tracks = Tracks(QUICK)
    agents = {tracks.agent(f"agent-{number}") for number in range(10_000)}
    assert len(agents) == 65
    assert "_other" in agents
    assert tracks.agent("agent-3") == "agent-3"
    assert tracks.agent(None) is None
    made = [tracks.of("shop", f"criterion-{number}", 0.9) for number in range(2_000)]
    assert sum(one is not None for one in made) == len(tracks) == 1_024
    assert tracks.of("shop", "criterion-5", 0.9) is made[5]
