"""Columns: figures equal those of the package, conversations count together, and what is new is
read.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from agenteval_otel.components.database.target import Target
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.storage.sql_database import add_missing_indices
from agenteval_otel.ui import columns as module
from agenteval_otel.ui.views import CriterionView, Window, groups_of, overview, rows_in, worst
from tests.storage.samples import change
from tests.ui.stored import answer, columns_of, score, store


def views_of(
    folder: Path, *answers: AggregatedEvaluationResult, **objectives: float
) -> list[CriterionView]:
    """The rows of the overview of these answers."""
    return overview(columns_of(store(folder / "a.db", answers)), Window(), objectives)


def test_a_trend_has_the_interval_of_its_figure(tmp_path: Path) -> None:
    """Of one step of time, with turns of conversations: rate and band are those of the criterion."""
    answers = [
        answer(
            score(passed=number % 20 < 12, probability=(0.5, 1.0)[number % 3 == 0]),
            number=number,
            conversation_id=f"c{number // 10}",
            ended_ns=1_700_000_000 * 10**9,
        )
        for number in range(100)
    ]
    (view,) = views_of(tmp_path, *answers)
    assert view.passes is not None
    assert view.passes.mean.units == 10
    [count] = filter(None, view.series.counts)
    at = view.series.counts.index(count)
    band = (view.series.mean[at], view.series.low[at], view.series.high[at])
    assert band == pytest.approx(view.passes.estimate[:3], abs=1e-4)


def test_weights_undo_uneven_sampling(tmp_path: Path) -> None:
    """Nine failures that were all sampled and a pass that stands for ninety make a pass rate of 90
    / 99.
    """
    low = [answer(score(value=0.1, passed=False), number=number) for number in range(9)]
    high = answer(score(probability=1 / 90), number=9)
    (view,) = views_of(tmp_path, *low, high, helpfulness=0.95)
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
    views = views_of(tmp_path, answer(*results))
    assert [(view.is_human, view.scored, view.skipped, view.failed) for view in views] == [
        (False, 1, 1, 1),
        (True, 1, 0, 0),
    ]
    assert views[0].passes is not None
    assert views[0].passes.estimate.mean == 1.0


def test_what_is_stored_later_is_read_once(tmp_path: Path) -> None:
    """New results change the version; without any it stays; settled ones are not read again."""
    path = tmp_path / "a.db"
    columns = columns_of(store(path, [answer(score(), number=number) for number in range(3)]))
    assert (columns.count, columns.version) == (3, 1)
    columns.refresh(at_once=True)
    assert (columns.count, columns.version) == (3, 1)
    # beyond the room that was made
    store(path, [answer(score("tone"), number=number) for number in range(3, 1_200)])
    columns.refresh(at_once=True)
    assert (columns.count, columns.version) == (1_200, 2)
    counts = {view.name: view.scored for view in overview(columns, Window(), {})}
    assert counts == {"helpfulness": 3, "tone": 1_197}


def test_names_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names beyond the most that are kept count together, and a page lists a dozen groups."""
    monkeypatch.setattr(module, "_MAX_NAMES", 40)
    named = [answer(score(), number=number, agent=f"agent {number}") for number in range(60)]
    database = tmp_path / "a.db"
    columns = columns_of(store(database, named[:45]))
    store(database, named[45:])  # when there are too many already
    columns.refresh(at_once=True)
    assert len(columns.names("agent")) <= 41
    assert columns.code("agent", "(others)") == 40
    groups = groups_of(columns, rows_in(columns, Window()), "agent", rate=True)
    assert len(groups) == 13
    assert sum(group.results for group in groups) == 60


def test_more_names_than_a_byte_can_tell_apart_keep_theirs(tmp_path: Path) -> None:
    """They come with a later look: what was read before keeps its names too."""
    named = [answer(score(), number=number, agent=f"agent {number}") for number in range(300)]
    columns = columns_of(store(tmp_path / "a.db", named[:100]))
    store(tmp_path / "a.db", named[100:])
    columns.refresh(at_once=True)
    names = columns.names("agent")
    assert sorted(names[code] for code in columns["agent"]) == sorted(
        f"agent {n}" for n in range(300)
    )
    (row,) = rows_in(columns, Window(), {"agent": "agent 299"})
    assert names[columns["agent"][row]] == "agent 299"


def test_units_are_numbered_by_conversation_whatever_lies_between(tmp_path: Path) -> None:
    """Results of an answer lie together, those of a conversation do not."""
    answers = [
        answer(*(score(f"c{place}") for place in range(3)), conversation_id=f"u{number % 4}")
        for number in range(20)
    ]
    columns = columns_of(store(tmp_path / "a.db", answers))
    units = columns.units()
    assert sorted(set(units.tolist())) == [0, 1, 2, 3]
    pairs = set(zip(columns["cluster"].tolist(), units.tolist(), strict=True))
    assert len(pairs) == 4, "one number for each conversation"
    assert len(columns_of(store(tmp_path / "empty.db", [])).units()) == 0


def test_an_evaluation_begins_once_however_many_rows_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are compared in parts: the first row of a part belongs to the last of the one before."""
    answers = [answer(*(score(f"c{place}") for place in range(3))) for _ in range(7)]
    columns = columns_of(store(tmp_path / "a.db", answers))
    rows = rows_in(columns, Window())
    whole = columns.begins(rows)
    assert np.flatnonzero(whole).tolist() == list(range(0, 21, 3))
    for size in (1, 2, 4, 20):
        monkeypatch.setattr(module, "_COMPARED_AT_ONCE", size)
        assert (columns.begins(rows) == whole).all()
    assert not len(columns.begins(rows[:0]))


def test_the_newest_results_are_kept_where_there_are_too_many(tmp_path: Path) -> None:
    """The page says how many are left out."""
    target = store(tmp_path / "a.db", [answer(score(), number=number) for number in range(30)])
    columns = columns_of(target, max_results=10)
    assert columns.left_out == 20
    assert columns.count <= 10


def test_the_lowest_scores_come_first(tmp_path: Path) -> None:
    """Those that did not pass before those that did, whatever their scores are."""
    values = [(0.2, True), (0.9, False), (0.5, False), (0.1, True)]
    answers = [answer(score(value=value, passed=passed)) for value, passed in values]
    columns = columns_of(store(tmp_path / "a.db", answers))
    rows = worst(columns, rows_in(columns, Window()), 4)
    assert columns["normalized"][rows] == pytest.approx([0.5, 0.9, 0.1, 0.2])


def test_times_far_apart_make_few_steps(tmp_path: Path) -> None:
    """A clock that is decades off makes a long chart, and no endless one."""
    early, late = (answer(score(), ended_ns=moment) for moment in (1, 4 * 10**18))
    (view,) = views_of(tmp_path, early, late)
    assert len(view.series.times) <= 2_000
    assert sum(view.series.counts) == 2
    assert all(not math.isnan(value) for value in view.series.mean if value is not None)


def test_tables_of_an_older_package_get_their_indices(tmp_path: Path) -> None:
    """They are made once, by name."""
    store(tmp_path / "a.db", [answer(score())])
    target = Target(tmp_path / "a.db", "")
    change(tmp_path / "a.db", "DROP INDEX agenteval_evaluations_conversation")
    assert add_missing_indices(target) == ["agenteval_evaluations_conversation"]
    assert add_missing_indices(target) == []
