"""Columns: figures equal those of the package, conversations count together, and what is new is
read.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.components.database.target import Target
from agenteval_otel.models import EvaluationResult
from agenteval_otel.models.intervals import UnitMean, UnitSums, estimate_of
from agenteval_otel.storage.sql_database import add_missing_indices
from agenteval_otel.storage.summaries import ScoreColumns, summarise
from agenteval_otel.ui import columns as module
from agenteval_otel.ui.columns import ResultColumns
from agenteval_otel.ui.views import Window, groups_of, overview, rows_in, worst
from tests.ui.stored import answer, score, store


def _mean(values: Any, weights: Any, units: Any) -> UnitMean:
    is_baseline, groups = np.ones(len(values), np.bool_), np.zeros(len(values), np.int64)
    (mean,) = summarise(ScoreColumns(values, weights, units, is_baseline, groups), 1)
    assert mean is not None
    return mean


scored = st.lists(st.tuples(st.floats(0, 1), st.floats(1, 100)), min_size=1, max_size=40)


@given(scored)
def test_figures_of_independent_answers_are_those_of_the_package(
    pairs: list[tuple[float, float]],
) -> None:
    """Mean and interval by columns are those of `estimate_of`."""
    values, weights = (np.array(part) for part in zip(*pairs, strict=True))
    mean = _mean(values, weights, np.arange(len(pairs)))
    expected = estimate_of(pairs)
    assert expected is not None
    assert mean.units == len(pairs)
    assert mean.estimate()[:6] == pytest.approx(expected[:6], abs=1e-6)


@given(scored, st.integers(1, 5))
def test_figures_of_conversations_are_those_of_the_package(
    pairs: list[tuple[float, float]], size: int
) -> None:
    """Mean and interval by columns are those of `UnitSums`, which `calibrate` shows."""
    units = np.arange(len(pairs)) // size
    values, weights = (np.array(part) for part in zip(*pairs, strict=True))
    sums = UnitSums()
    for (value, weight), unit in zip(pairs, units.tolist(), strict=True):
        sums.add(value, weight, unit)
    expected = sums.mean()
    assert expected is not None
    assert _mean(values, weights, units)[:-1] == pytest.approx(expected[:-1], abs=1e-6)


def test_answers_of_one_conversation_are_less_certain() -> None:
    """Ten conversations of ten equal verdicts are as certain as ten answers, not as a hundred."""
    values = np.repeat([1.0, 0.0] * 5, 10)
    alone = _mean(values, np.ones(100), np.arange(100)).estimate()
    by_unit = _mean(values, np.ones(100), np.repeat(np.arange(10), 10))
    together = by_unit.estimate()
    assert by_unit.units == 10
    assert together.mean == alone.mean
    # Ten, and one less for the bias of the variance of so few.
    assert together.effective == pytest.approx(9)
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_a_trend_has_the_interval_of_its_figure(tmp_path: Path) -> None:
    """Of one step of time, with turns of conversations: rate and band are those of the criterion."""
    target = store(
        tmp_path / "a.db",
        [
            answer(
                score(passed=number % 20 < 12, probability=(0.5, 1.0)[number % 3 == 0]),
                number=number,
                conversation_id=f"c{number // 10}",
            )
            for number in range(100)
        ],
    )
    columns = ResultColumns(target)
    columns.refresh()
    (view,) = overview(columns, Window(), {})
    assert view.passes is not None
    assert view.passes.mean.units == 10
    [count] = filter(None, view.series.counts)
    at = view.series.counts.index(count)
    band = (view.series.mean[at], view.series.low[at], view.series.high[at])
    assert band == pytest.approx(view.passes.estimate[:3], abs=1e-4)


@pytest.mark.parametrize(("conversations", "is_clear"), [(18, False), (30, True)])
def test_few_conversations_are_no_clear_change(
    tmp_path: Path, conversations: int, is_clear: bool
) -> None:
    """From all turns that pass to none: below 20 conversations in each half nothing is claimed."""
    now, turns = time.time_ns(), 2 * conversations * 5
    answers = [
        answer(
            score(passed=number < turns / 2),
            number=number,
            conversation_id=f"c{number // 5}",
            ended_ns=now - (turns - number) * 60 * 10**9,
        )
        for number in range(turns)
    ]
    columns = ResultColumns(store(tmp_path / "a.db", answers))
    columns.refresh()
    (view,) = overview(columns, Window(), {})
    assert view.change is not None
    assert view.change.is_clear is is_clear


def test_weights_undo_uneven_sampling(tmp_path: Path) -> None:
    """Nine failures that were all sampled and a pass that stands for ninety make a pass rate of 90
    / 99.
    """
    low = [answer(score(value=0.1, passed=False), number=number) for number in range(9)]
    target = store(tmp_path / "a.db", [*low, answer(score(probability=1 / 90), number=9)])
    columns = ResultColumns(target)
    columns.refresh()
    (view,) = overview(columns, Window(), {"helpfulness": 0.95})
    assert view.passes is not None
    assert view.passes.estimate.mean == pytest.approx(90 / 99, rel=1e-5)
    assert view.passes.represents == pytest.approx(99, rel=1e-5)
    assert view.objective_met is False


def test_failures_skips_and_shadows_are_no_scores(tmp_path: Path) -> None:
    """They are counted apart; a shadow's results are nowhere, a person's in a row of their own."""
    results = (
        score(),
        score(shadow=True, value=0.0, passed=False),
        EvaluationResult(
            criterion_name="helpfulness",
            evaluator_type="J",
            error="timed out",
            error_type="timeout",
        ),
        EvaluationResult(criterion_name="helpfulness", evaluator_type="J", skip_reason="no answer"),
        score(value=0.0, passed=False).model_copy(update={"evaluator_kind": "human"}),
    )
    columns = ResultColumns(store(tmp_path / "a.db", [answer(*results)]))
    columns.refresh()
    views = overview(columns, Window(), {})
    assert [(view.is_human, view.scored, view.skipped, view.failed) for view in views] == [
        (False, 1, 1, 1),
        (True, 1, 0, 0),
    ]
    assert views[0].passes is not None
    assert views[0].passes.estimate.mean == 1.0


def test_what_is_stored_later_is_read_once(tmp_path: Path) -> None:
    """New results change the version; without any it stays; settled ones are not read again."""
    path = tmp_path / "a.db"
    columns = ResultColumns(store(path, [answer(score(), number=number) for number in range(3)]))
    columns.refresh()
    assert (columns.count, columns.version) == (3, 1)
    columns.refresh(at_once=True)
    assert (columns.count, columns.version) == (3, 1)
    # beyond the room that was made
    store(path, [answer(score("tone"), number=number) for number in range(3, 2_500)])
    columns.refresh(at_once=True)
    assert (columns.count, columns.version) == (2_500, 2)
    assert {view.name: view.scored for view in overview(columns, Window(), {})} == {
        "helpfulness": 3,
        "tone": 2_497,
    }


def test_names_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names beyond the most that are kept count together, and a page lists a dozen groups."""
    monkeypatch.setattr(module, "_MAX_NAMES", 40)
    named = [answer(score(), number=number, agent=f"agent {number}") for number in range(60)]
    database = tmp_path / "a.db"
    columns = ResultColumns(store(database, named[:45]))
    columns.refresh()
    store(database, named[45:])  # when there are too many already
    columns.refresh(at_once=True)
    assert len(columns.names("agent")) <= 41
    assert columns.code("agent", "(others)") == 40
    groups = groups_of(columns, rows_in(columns, Window()), "agent", rate=True)
    assert len(groups) == 13
    assert sum(group.results for group in groups) == 60


def test_the_newest_results_are_kept_where_there_are_too_many(tmp_path: Path) -> None:
    """The page says how many are left out."""
    target = store(tmp_path / "a.db", [answer(score(), number=number) for number in range(30)])
    columns = ResultColumns(target, max_results=10)
    columns.refresh()
    assert columns.left_out == 20
    assert columns.count <= 10


def test_the_lowest_scores_come_first(tmp_path: Path) -> None:
    """Those that did not pass before those that did, whatever their scores are."""
    values = [(0.2, True), (0.9, False), (0.5, False), (0.1, True)]
    columns = ResultColumns(
        store(
            tmp_path / "a.db",
            [answer(score(value=v, passed=p), number=n) for n, (v, p) in enumerate(values)],
        )
    )
    columns.refresh()
    order = [
        round(float(columns["normalized"][row]), 1)
        for row in worst(columns, rows_in(columns, Window()), 4)
    ]
    assert order == [0.5, 0.9, 0.1, 0.2]


def test_times_far_apart_make_few_steps(tmp_path: Path) -> None:
    """A clock that is decades off makes a long chart, and no endless one."""
    moments = [0, 4 * 10**18]
    columns = ResultColumns(
        store(tmp_path / "a.db", [answer(score(), ended_ns=moment or 1) for moment in moments])
    )
    columns.refresh()
    (view,) = overview(columns, Window(), {})
    assert len(view.series.times) <= 2_000
    assert sum(view.series.counts) == 2
    assert all(not math.isnan(value) for value in view.series.mean if value is not None)


def test_tables_of_an_older_package_get_their_indices(tmp_path: Path) -> None:
    """They are made once, by name."""
    import sqlite3

    store(tmp_path / "a.db", [answer(score())])
    target = Target(tmp_path / "a.db", "")
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DROP INDEX agenteval_evaluations_conversation")
    connection.close()
    assert add_missing_indices(target) == ["agenteval_evaluations_conversation"]
    assert add_missing_indices(target) == []


def test_an_estimate_without_scores_is_none(tmp_path: Path) -> None:
    """A criterion whose results were all skipped has no figure."""
    result = EvaluationResult(criterion_name="a", evaluator_type="J", skip_reason="no")
    columns = ResultColumns(store(tmp_path / "a.db", [answer(result)]))
    columns.refresh()
    assert columns.figure(rows_in(columns, Window()), rate=True) is None
