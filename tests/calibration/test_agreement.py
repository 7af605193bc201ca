"""Agreement: figures against their textbook formulas, both corrections against simulated truth."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.models.intervals import Estimate, estimate_of, wilson_interval
from agenteval_otel.offline.calibration.agreement import Agreement, LabelledRow, agreement_of
from benchmarks.calibration import Judge, coverage, rows_of


def rows(both: int, judge_only: int, person_only: int, neither: int) -> list[LabelledRow]:
    return [
        *[LabelledRow(True, True)] * both,
        *[LabelledRow(True, False)] * judge_only,
        *[LabelledRow(False, True)] * person_only,
        *[LabelledRow(False, False)] * neither,
    ]


def judged(rate: float, count: int = 1_000_000) -> Estimate:
    passed = round(rate * count)
    return Estimate(passed / count, *wilson_interval(passed / count, count), count, float(count))


def test_the_figures_are_those_of_the_confusion_table() -> None:
    """Shares, rates and Cohen's kappa of a table from a textbook; the intervals of rates are
    Wilson's.
    """
    agreement = agreement_of(rows(40, 10, 5, 45))
    assert agreement.agreement.mean == pytest.approx(0.85)
    assert agreement.specificity.mean == pytest.approx(45 / 55)
    assert agreement.kappa.mean == pytest.approx((0.85 - 0.5) / 0.5)
    # The standard error of Fleiss, Cohen and Everitt (1969) for this table, 0.0713: half a row a
    # cell makes it wider.
    assert (agreement.kappa.high - agreement.kappa.low) / 3.92 == pytest.approx(0.0713, rel=0.1)
    sensitivity = agreement.sensitivity
    assert sensitivity.mean == pytest.approx(40 / 45)
    interval = wilson_interval(40 / 45, 45)
    assert (sensitivity.low, sensitivity.high) == pytest.approx(interval, abs=0.01)
    assert (agreement.rows, agreement.clusters) == (100, 100)
    assert agreement.effective_rows == pytest.approx(100)


def test_the_corrected_rate_is_rogan_and_gladens() -> None:
    """(p + specificity - 1) / (sensitivity + specificity - 1); without errors it is what the judge
    says.
    """
    agreement = agreement_of(rows(400, 100, 50, 450))
    sensitivity, specificity = 400 / 450, 450 / 550
    corrected = agreement.corrected(judged(0.5))
    assert corrected is not None
    assert corrected.mean == pytest.approx(
        (0.5 + specificity - 1) / (sensitivity + specificity - 1)
    )
    assert corrected.low < corrected.mean < corrected.high
    perfect = agreement_of(rows(500, 0, 0, 500)).corrected(judged(0.3))
    assert perfect is not None
    assert perfect.mean == pytest.approx(0.3)


def test_the_prediction_powered_rate_leans_on_a_judge_as_far_as_it_is_worth_it() -> None:
    """A judge that agrees narrows the interval; one that tosses a coin changes nothing."""
    good, coin = agreement_of(rows(48, 2, 2, 48)), agreement_of(rows(25, 25, 25, 25))
    powered = good.prediction_powered(judged(0.6))
    assert powered.mean == pytest.approx(0.5 + 0.1 * 0.92, abs=0.005)
    assert width(powered) < 0.6 * width(good.pass_rate)
    unmoved = coin.prediction_powered(judged(0.9))
    assert unmoved.mean == pytest.approx(0.5, abs=1e-9)
    assert width(unmoved) == pytest.approx(width(coin.pass_rate), rel=0.05)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ((25, 25, 25, 25), "a coin"),
        ((60, 40, 0, 0), "passes everything"),
        ((96, 0, 1, 3), "three that fail"),
        ((1, 40, 40, 19), "the wrong way round"),
    ],
)
def test_what_cannot_be_corrected_is_not(table: tuple[int, int, int, int], reason: str) -> None:
    agreement = agreement_of(rows(*table))
    assert not agreement.can_correct, reason
    assert agreement.corrected(judged(0.5)) is None


def test_rows_of_a_cluster_are_no_independent_evidence() -> None:
    """Each row four times over in one cluster leaves the intervals as wide as they were."""
    plain = agreement_of(rows(40, 10, 5, 45))
    naive = agreement_of(rows(160, 40, 20, 180))
    fourfold = agreement_of(
        row._replace(cluster=str(number // 4)) for number, row in enumerate(rows(160, 40, 20, 180))
    )
    assert (fourfold.rows, fourfold.clusters) == (400, 100)
    assert fourfold.effective_rows == pytest.approx(100, rel=0.02)
    assert width(fourfold.kappa) == pytest.approx(width(plain.kappa), rel=0.05)
    assert width(fourfold.kappa) > 1.8 * width(naive.kappa)


def width(estimate: Estimate) -> float:
    return estimate.high - estimate.low


def test_weights_undo_uneven_sampling() -> None:
    """Rows that were kept with a probability of 1/4 count four times; equal weights of any size
    change nothing.
    """
    kept = LabelledRow(True, True, 4.0)
    uneven = agreement_of([*[kept] * 20, *[LabelledRow(False, False)] * 20])
    assert uneven.pass_rate.mean == pytest.approx(0.8)
    assert uneven.effective_rows < 40
    table = rows(9, 1, 2, 8)
    weighted = agreement_of(row._replace(weight=7.0) for row in table)
    assert weighted.shares == pytest.approx(agreement_of(table).shares)


@given(st.tuples(*[st.integers(0, 40)] * 4).filter(any), st.floats(0, 1), st.integers(1, 10_000))
def test_every_estimate_is_within_its_interval_and_its_range(
    table: tuple[int, int, int, int], rate: float, count: int
) -> None:
    """Whatever the table: one class only, no agreement, a single row."""
    agreement = agreement_of(rows(*table))
    seen = Estimate(rate, *wilson_interval(rate, count), count, float(count))
    for estimate in (
        agreement.pass_rate,
        agreement.sensitivity,
        agreement.specificity,
        agreement.agreement,
        agreement.prediction_powered(seen),
        agreement.corrected(seen),
    ):
        if estimate is not None:
            assert 0 <= estimate.low <= estimate.mean <= estimate.high <= 1
            assert math.isfinite(estimate.effective)
    assert -1 <= agreement.kappa.low <= agreement.kappa.mean <= agreement.kappa.high <= 1
    assert Agreement.model_validate_json(agreement.model_dump_json()) == agreement


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["independent", "uneven sampling", "conversations of 4"])
def test_the_intervals_hold_the_truth_as_often_as_they_say(shape: str) -> None:
    """300 labels beside 2,000 answers: the raw rate never, the others 19 times of 20 (three
    standard errors off).
    """
    shares = coverage(Judge("strict", 0.7, 0.8, 0.9), 300, shape, 300)
    assert shares["judge alone"][0] < 0.05
    for name in ("labels alone", "corrected", "prediction-powered", "kappa"):
        assert 0.91 <= shares[name][0] <= 0.99, (name, shares[name])


def test_a_shift_of_the_pass_rate_is_for_the_corrected_rate() -> None:
    """Labels of a month in which 90 % passed, answers of one in which 50 % do: sensitivity and
    specificity hold.
    """
    draw = random.Random(1)
    judge = Judge("", 0.9, 0.9, 0.9)
    agreement = agreement_of(
        LabelledRow(bool(row.passed), bool(row.person)) for row in rows_of(judge, 600, "", draw)
    )
    later = estimate_of(
        (float(bool(row.passed)), 1.0)
        for row in rows_of(judge._replace(truth=0.5), 4_000, "", draw)
    )
    assert later is not None
    corrected = agreement.corrected(later)
    assert corrected is not None
    assert corrected.low <= 0.5 <= corrected.high
