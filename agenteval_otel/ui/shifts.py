"""Whether the labels of a criterion are of answers like those that a page shows, by the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from agenteval_otel.models.intervals import UnitMean
from agenteval_otel.offline.calibration.shift import (
    MOST_VALUES,
    NO_SHIFTS,
    QUARTERS,
    RELEASES,
    AgeShift,
    ReleaseShift,
    Shares,
    Shifts,
    age_shift,
    rate_shift,
    release_shift,
)
from agenteval_otel.storage.summaries import summarise
from agenteval_otel.ui.columns import NONE, SCORED, ResultColumns, Rows

_MOST_LABELS: Final = 5_000
_MOST_OTHERS: Final = 20_000
"""If there are more answers, about so many are compared, spread evenly over the time."""


def shifts_of(
    columns: ResultColumns,
    criterion: str,
    labelled_ids: Sequence[str],
    rows: Rows,
    judged: UnitMean | None,
) -> Shifts:
    """Return how the labelled answers differ from the others.

    Args:
        labelled_ids: The ids of the evaluations of the labelled answers, the newest label last.
        rows: The results of the criterion that the page shows.
        judged: The judge's pass rate of these.
    """
    by_label = [columns.rows_of(id) for id in labelled_ids[-_MOST_LABELS:]]
    # One row stands for each labelled answer, whatever it was scored for.
    answers = np.array([part[0] for part in by_label if len(part)], np.int32)
    if not len(answers):
        return NO_SHIFTS
    results = np.concatenate(by_label).astype(np.int32)
    is_of_criterion = columns["criterion"][results] == columns.code("criterion", criterion)
    labelled_results = _scored_rows(columns, results[is_of_criterion])
    others = np.setdiff1d(_scored_rows(columns, rows), labelled_results)
    if not len(others):
        return NO_SHIFTS
    others = others[:: max(1, len(others) // _MOST_OTHERS)]
    releases: list[ReleaseShift] = []
    for name in RELEASES:
        # another evaluator of the labelled answer says nothing of this one's version
        labelled = labelled_results if name == "evaluator_version" else answers
        shift = _release_by_columns(columns, name, labelled, others)
        if shift is not None:
            releases.append(shift)
    has_passed = columns["passed"][labelled_results] == 1
    passing = _share_of_rows(columns, labelled_results, has_passed)
    age = _age_by_columns(columns, answers, others)
    return Shifts(rate_shift(passing, judged), age, tuple(releases))


def _scored_rows(columns: ResultColumns, rows: Rows) -> Rows:
    is_kept = columns["status"][rows] == SCORED
    is_kept &= ~columns["is_human"][rows] & ~columns["is_shadow"][rows]
    kept: Rows = rows[is_kept]
    return kept


def _age_by_columns(columns: ResultColumns, labelled: Rows, others: Rows) -> AgeShift | None:
    labelled_s = columns.seconds(labelled, "answered")
    others_s = columns.seconds(others, "answered")
    cuts = np.quantile(np.concatenate((labelled_s, others_s)), QUARTERS).tolist()

    def shares_before(moment: float) -> Shares:
        return (
            _share_of_rows(columns, labelled, labelled_s < moment),
            _share_of_rows(columns, others, others_s < moment),
        )

    medians = float(np.median(labelled_s)), float(np.median(others_s))
    return age_shift(medians, cuts, shares_before)


def _release_by_columns(
    columns: ResultColumns, name: str, labelled: Rows, others: Rows
) -> ReleaseShift | None:
    labelled_codes = columns[name][labelled]
    other_codes = columns[name][others]
    counts = np.bincount(np.concatenate((labelled_codes, other_codes)))
    names = columns.names(name)
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    values = [names[code] for code in order if names[code] != NONE][:MOST_VALUES]

    def shares_of(value: str) -> Shares:
        code = columns.code(name, value)
        return (
            _share_of_rows(columns, labelled, labelled_codes == code),
            _share_of_rows(columns, others, other_codes == code),
        )

    return release_shift(name, values, shares_of)


def _share_of_rows(columns: ResultColumns, rows: Rows, has_it: NDArray[Any]) -> UnitMean | None:
    scores = columns.scores(rows, has_it.astype(np.float64), np.zeros(len(rows), np.int8))
    # a share of what is stored, whatever it stands for
    scores = scores._replace(is_baseline=np.ones(len(rows), np.bool_))
    (mean,) = summarise(scores, 1)
    return mean
