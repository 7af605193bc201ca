"""Turns of a conversation, and failures of one cause: evidence that chance does not bring sooner than
is promised, and bounded memory.
"""

from __future__ import annotations

import itertools
import pickle
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.engine.objectives import BreachSettings
from agenteval_otel.engine.objectives.evidence import RUN_S, Evidence, UnitSize
from agenteval_otel.engine.objectives.track import ObjectiveVerdict, Track

OBJECTIVE = 0.95


class Turns:
    """Verdicts of conversations of `size` turns, `beside` of them at a time, whose share that passes
    varies so that two turns of one correlate by `alike`.
    """

    def __init__(self, *, size: int, alike: float, beside: int = 1, seed: int = 0) -> None:
        self._random = Random(seed)
        self._size, self._alike = size, alike
        self._running: list[list[float]] = [[] for _ in range(beside)]
        self._begun = 0

    def next(self, rate: float) -> tuple[bool, int]:
        """Return whether the next turn passes, and its conversation."""
        at = self._random.randrange(len(self._running))
        if not self._running[at]:
            self._begun += 1
            self._running[at] = [self._begun, self._rate_of_one(rate), self._size]
        conversation = self._running[at]
        conversation[2] -= 1
        passed = self._random.random() < conversation[1]
        if not conversation[2]:
            self._running[at] = []
        return passed, int(conversation[0])

    def _rate_of_one(self, rate: float) -> float:
        if self._alike == 1:
            return float(self._random.random() < rate)
        scale = (1 - self._alike) / self._alike
        return self._random.betavariate(rate * scale, (1 - rate) * scale)


def evidence_of(*, enough: float = 1e9, size: UnitSize | None = None) -> Evidence:
    return Evidence(worst=1 - OBJECTIVE, enough=enough, size=size)


def sized(mean: int) -> UnitSize:
    """The size of units that have so many verdicts."""
    size = UnitSize()
    for number in range(80 * mean):
        size.add(is_new=number % mean == 0)
    return size


@pytest.mark.parametrize(
    ("size", "alike", "beside"),
    [(5, 0.3, 1), (10, 0.3, 1), (10, 1.0, 1), (10, 0.3, 20), (10, 1.0, 20), (30, 1.0, 3)],
)
def test_false_alarms_are_no_more_than_promised(size: int, alike: float, beside: int) -> None:
    """At exactly the objective, with a limit that is low enough for alarms to come: at least 100
    verdicts to one, on average.
    """
    turns, sizes = Turns(size=size, alike=alike, beside=beside), UnitSize()
    evidence, alarms, count = evidence_of(enough=100, size=sizes), 0, 10_000
    for _ in range(count):
        passed, conversation = turns.next(OBJECTIVE)
        if evidence.add(OBJECTIVE - passed, unit=conversation):
            alarms += 1
            evidence = evidence_of(enough=100, size=sizes)
    assert 20 < alarms <= count / 100


@pytest.mark.parametrize(
    ("size", "alike", "rate", "most"),
    [
        (5, 0.3, 0.85, 430),
        (5, 0.3, 0.5, 65),
        (10, 0.3, 0.85, 650),
        (10, 0.3, 0.5, 110),
        (10, 1.0, 0.85, 1_800),
        (10, 1.0, 0.5, 200),
    ],
)
def test_a_drop_is_seen_within_so_many_verdicts(
    size: int, alike: float, rate: float, most: int
) -> None:
    """The medians of docs/thresholds-proof.md, by the defaults, from a rate of 0.97 before;
    none of these agents alarms before its drop.
    """
    delays = []
    for seed in range(15):
        track, turns = (
            Track(BreachSettings(), OBJECTIVE),
            Turns(size=size, alike=alike, seed=seed),
        )
        before, count = 600, 0
        while True:
            passed, conversation = turns.next(0.97 if count < before else rate)
            count += 1
            if track.add(ObjectiveVerdict(passed, unit=str(conversation)), 0.0) is not None:
                break
        delays.append(count - before)
    assert min(delays) > 0
    assert median(delays) <= most


@given(st.lists(st.booleans(), min_size=1, max_size=10), st.integers(1, 10))
def test_a_look_in_the_middle_is_no_better_than_one_at_the_end(
    verdicts: list[bool], mean: int
) -> None:
    """What a conversation is worth never falls while it goes on: turns that have not come count as
    passed.
    """
    evidence = evidence_of(size=sized(mean))
    values = []
    for number, passed in enumerate(verdicts, 1):
        evidence.add(OBJECTIVE - passed, unit="c")
        values.append(evidence.value - number)  # a gambler joins before each verdict
    assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(values))


def test_a_conversation_of_one_turn_is_as_an_answer_alone() -> None:
    """With ids that are never the same, evidence and delays are those without ids."""
    alone, with_ids, random = evidence_of(), evidence_of(), Random(3)
    for number in range(2_000):
        passed = random.random() < 0.9
        alone.add(OBJECTIVE - passed)
        with_ids.add(OBJECTIVE - passed, unit=number)
        assert with_ids.value == pytest.approx(alone.value)


def test_one_id_for_everything_raises_nothing() -> None:
    """All verdicts are one piece of evidence. Declared independent, they are many."""
    failures = [ObjectiveVerdict(False, unit="same")] * 200
    for independent in (False, True):
        track = Track(BreachSettings(), OBJECTIVE, independent=independent)
        crossings = [track.add(verdict, 0.0) for verdict in failures]
        assert any(crossings) is independent


@pytest.mark.parametrize("per_minute", [1, 60, 600])
def test_a_run_of_failures_for_one_cause_is_one_piece_of_evidence(per_minute: int) -> None:
    """A minute of them does not suffice, whatever their number; a total outage alarms within ten
    minutes, or ten verdicts.
    """
    track = Track(BreachSettings(), OBJECTIVE)
    number = 0
    while True:
        verdict = ObjectiveVerdict(
            False, unit=f"c{number}", cause="empty", at_ns=int(number * 60 / per_minute * 1e9)
        )
        if track.add(verdict, 0.0) is not None:
            break
        number += 1
    assert 1 < (number + 1) / per_minute <= 10


def test_failures_of_several_causes_are_several_pieces_of_evidence() -> None:
    """A pass, another cause, an unknown one or a minute ends a run."""

    def worth(*causes: str | None, every_s: float = 1.0) -> float:
        evidence = evidence_of()
        for number, cause in enumerate(causes):
            is_pass = cause == "pass"
            evidence.add(
                OBJECTIVE - is_pass,
                unit=number,
                cause=None if is_pass else cause,
                at_s=number * every_s,
            )
        return evidence.value

    one = worth("empty")
    assert worth("empty", "empty", "empty") == pytest.approx(one)
    assert worth("empty", "refusal", "empty") > 10 * one
    assert worth(None, None, None) > 10 * one
    assert worth("empty", "pass", "empty") > 5 * one
    assert worth("empty", "empty", "empty", every_s=RUN_S) > 10 * one


def test_memory_is_bounded() -> None:
    """Whatever number of conversations run beside each other, and however long they are."""
    evidence, random = evidence_of(), Random(1)
    sizes = []
    for number in range(6_000):
        unit = number if random.random() < 0.3 else random.randrange(2_000)
        evidence.add(OBJECTIVE - (random.random() < 0.97), unit=unit)
        assert 0 <= evidence.value < float("inf")
        if number % 2_000 == 1_999:
            sizes.append(len(pickle.dumps(evidence)))
    assert max(sizes) < 1.2 * sizes[0]


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from([None, "a", "b"])), max_size=60
    ),
    st.sampled_from([0.2, 0.95, 1.0]),
)
def test_no_order_of_turns_breaks_it(
    verdicts: list[tuple[bool, int, str | None]], objective: float
) -> None:
    """Evidence is a number of at least 0, up to the greatest where a single failure proves a breach."""
    evidence = Evidence(worst=1 - objective, enough=1e9, size=sized(3))
    for number, (passed, unit, cause) in enumerate(verdicts):
        evidence.add(objective - passed, unit=unit, cause=cause, at_s=number * 20.0)
        assert evidence.value >= 0
