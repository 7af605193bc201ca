"""`of_last`: the plain share of failures among the last verdicts, what it reports, and what chance
does to it.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.engine.objectives import BreachSettings, Objective
from agenteval_otel.engine.objectives.simulation import (
    ParallelLast,
    allowed_failures,
    by_chance,
    verdicts_to_alarm,
)
from agenteval_otel.engine.objectives.track import LastVerdicts, ObjectiveVerdict, Track
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.models.intervals import estimate_of
from agenteval_otel.testing import RecordedTelemetry
from tests.objectives.support import FAIL, PASS, Kept, adaptive, answers, pipeline_of, watched_by

QUIET = BreachSettings(remind_s=None)


def kinds(
    objective: float, of_last: int, verdicts: list[ObjectiveVerdict]
) -> list[tuple[int, str]]:
    """Which verdicts change what."""
    track = Track(QUIET, objective, of_last=of_last)
    changes = ((number, track.add(verdict, 0.0)) for number, verdict in enumerate(verdicts, 1))
    return [(number, change.kind) for number, change in changes if change is not None]


@pytest.mark.parametrize(
    ("objective", "of_last", "verdicts", "expected"),
    [
        (0.95, 100, [FAIL] * 5 + [PASS] * 200, []),
        (0.95, 100, [PASS] * 50 + [FAIL] * 49 + [PASS], [(100, "breached")]),
        (
            0.95,
            100,
            [PASS] * 100 + [FAIL] * 6 + [PASS] * 100,
            [(106, "breached"), (201, "recovered")],
        ),
        (
            0.9,
            10,
            [PASS, FAIL] * 5 + [PASS] * 8 + [FAIL] * 2,
            [(10, "breached"), (18, "recovered"), (19, "breached")],
        ),
        (
            1.0,
            5,
            [PASS, FAIL] + [PASS] * 5 + [FAIL] * 3,
            [(2, "breached"), (7, "recovered"), (8, "breached")],
        ),
        (1e-9, 3, [FAIL] * 4 + [PASS], [(3, "breached"), (5, "recovered")]),
        (0.5, 1, [PASS, FAIL, PASS], [(2, "breached"), (3, "recovered")]),
    ],
)
def test_more_failures_than_allowed_are_a_breach_until_they_are_not(
    objective: float,
    of_last: int,
    verdicts: list[ObjectiveVerdict],
    expected: list[tuple[int, str]],
) -> None:
    """From as many verdicts on as count; where none may fail, at the first failure."""
    assert kinds(objective, of_last, verdicts) == expected


@given(st.integers(1, 60), st.integers(0, 60), st.floats(1e-9, 1.0))
def test_as_many_failures_as_allowed_are_no_breach(
    size: int, passing: int, probability: float
) -> None:
    """Exactly, whatever rounding does to the objective and to equal weights; one more failure is
    one.
    """
    objective = Objective(min(passing, size) / size or 1e-9, size)
    failures = allowed_failures(objective)
    passed = ObjectiveVerdict(passed=True, probability=probability)
    failed = ObjectiveVerdict(passed=False, probability=probability)
    assert (
        kinds(
            objective.share, objective.of_last, [failed] * failures + [passed] * (size - failures)
        )
        == []
    )
    if failures < size:
        assert (
            kinds(
                objective.share,
                objective.of_last,
                [failed] * (failures + 1) + [passed] * (size - failures - 1),
            )[0][1]
            == "breached"
        )


@given(st.integers(1, 20), st.lists(st.tuples(st.booleans(), st.floats(1e-9, 1.0)), max_size=60))
def test_the_share_is_that_of_the_last_verdicts(
    size: int, stream: list[tuple[bool, float]]
) -> None:
    """Each weighted by 1 / its probability, with its interval, however large the weights were that
    are gone.
    """
    last = LastVerdicts(size)
    for passed, probability in stream:
        last.add(passed, probability)
    wanted, actual = (
        estimate_of((float(passed), 1 / probability) for passed, probability in stream[-size:]),
        last.estimate(),
    )
    assert (wanted is None) == (actual is None)
    if wanted is not None and actual is not None:
        assert actual[:6] == pytest.approx(wanted[:6], rel=1e-3, abs=1e-4)
        assert last.share == actual.mean


def test_a_short_breach_is_shown_for_two_exports() -> None:
    """A failure that is over after a second is in the metrics of the next minutes; one that lasts,
    until its end.
    """
    track = Track(QUIET, 1.0, of_last=2)
    changes = [
        track.add(verdict, now_s) for now_s, verdict in ((10.0, FAIL), (10.5, PASS), (11.0, PASS))
    ]
    assert [change and change.kind for change in changes] == ["breached", None, "recovered"]
    assert (track.breached, track.is_shown(129.0), track.is_shown(131.0)) == (False, True, False)
    track.add(FAIL, 200.0)
    assert track.is_shown(1e9)


def test_what_is_sampled_more_counts_less() -> None:
    """Of an agent of which 3 % fail more than half of the seen verdicts fail: that is no breach of
    90 %.
    """
    random, track = Random(5), Track(QUIET, 0.9, of_last=400)
    verdicts = [adaptive(random, 0.97) for _ in range(4_000)]
    assert sum(not verdict.passed for verdict in verdicts) > 500
    assert list(answers(track, verdicts)) == []


@pytest.mark.parametrize("objective", [0.8, 0.95, 1.0])
def test_what_chance_does_is_computed(objective: float) -> None:
    """The simulation counts as the detector does, and the formulas give what it counts."""
    random, failing, size = (
        np.random.default_rng(2),
        0.02 if objective == 1.0 else 1.0 - objective,
        40,
    )
    verdicts = random.random((4_000, 300)) >= failing
    together = ParallelLast(300, Objective(objective, size))
    breached = np.array([together.add(passed) for passed in verdicts])[2 * size :]
    exact = by_chance(Objective(objective, size), failing)
    assert breached.mean() == pytest.approx(exact.in_breach, rel=0.05)
    assert breached[1:].size / (breached[1:] & ~breached[:-1]).sum() == pytest.approx(
        exact.verdicts, rel=0.05
    )
    track = Track(QUIET, objective, of_last=size)
    for number, passed in enumerate(verdicts[:, 0]):
        track.add(PASS if passed else FAIL, 0.0)
        if number >= 2 * size:
            assert track.breached == breached[number - 2 * size, 0]


def test_the_table_of_costs_is_what_the_formulas_give() -> None:
    """Of docs/thresholds.md; the drop's median within a tenth."""
    text = (Path(__file__).resolve().parents[2] / "docs/thresholds.md").read_text()
    rows = re.findall(
        r"^\| (\d+) \| (\d+) % \| ([\d.,]+) \| ([\d.,]+) \| (\d+) \|$", text, re.MULTILINE
    )
    assert len(rows) == 4
    for size, *cells in rows:
        objective = Objective(0.95, int(size))
        exact, half = by_chance(objective, 0.05), by_chance(objective, 0.025)
        drop = verdicts_to_alarm(BreachSettings(), 0.95, 0.85, of_last=objective.of_last)[200]
        in_breach, begins, halved, detected = (float(cell.replace(",", "")) for cell in cells)
        assert in_breach == round(100 * exact.in_breach)
        assert [begins, halved] == pytest.approx([exact.verdicts, half.verdicts], rel=0.005)
        assert detected == pytest.approx(drop, rel=0.1)


def test_events_callbacks_and_gauges(telemetry: RecordedTelemetry) -> None:
    """They are those of any objective; there is no evidence to show."""
    breaches, recoveries = Kept(), Kept()
    criteria = (EvaluationCriteria(name="good", objective=0.9, of_last=20),)
    pipeline, ask = pipeline_of(
        telemetry, criteria=criteria, on_breach=breaches, on_recovery=recoveries
    )
    ask("good", times=20)
    assert watched_by(pipeline).states() == {("good", "shop"): (False, None)}
    ask("bad", times=3)
    assert watched_by(pipeline).states() == {("good", "shop"): (True, None)}
    gauges = {name for name in telemetry.metrics() if name.startswith("agenteval.objective.")}
    assert gauges == {"agenteval.objective.breach"}
    ask("good", times=20)
    assert pipeline.flush(5.0)
    names = [
        event.event_name
        for event in telemetry.events()
        if event.event_name.startswith("agenteval.objective")
    ]
    assert names == ["agenteval.objective.breached", "agenteval.objective.recovered"]
    assert [(item.rate, item.count) for item in (*breaches, *recoveries)] == [(0.85, 20), (0.9, 20)]
