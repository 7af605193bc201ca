"""Scales, normalization, labels and aggregation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from agenteval_otel.scoring import label_of, normalize, overall_score, passed_of

SCALES = st.sampled_from(["binary", "pass/fail", "likert5", "numeric", "string", "low|high"])
SCORES = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def criterion(scale: str = "numeric", **fields: float) -> EvaluationCriteria:
    return EvaluationCriteria(name="C", scale=scale, **fields)


def scored(score: bool | float | str, name: str = "C") -> EvaluationResult:
    return EvaluationResult(criterion_name=name, score=score, evaluator_type="Stub")


@given(score=SCORES, scale=SCALES)
def test_normalized_scores_lie_between_zero_and_one(score: bool | float | str, scale: str) -> None:
    """Whatever the score and the scale, a normalized score is in [0, 1] or there is none."""
    found = normalize(score, criterion(scale))
    assert found is None or 0.0 <= found <= 1.0


@given(score=SCORES, low=FINITE, high=FINITE)
def test_declared_ranges_keep_scores_between_zero_and_one(score: bool | float | str, low: float, high: float) -> None:
    """A declared range, even one as wide as all floats, gives scores in [0, 1] or none."""
    found = normalize(score, criterion(minimum=low, maximum=high))
    assert found is None or 0.0 <= found <= 1.0


@pytest.mark.parametrize(
    ("scale", "low", "high"), [("numeric", 0.0, 1.0), ("numeric", 1.0000001, 100.0), ("likert5", 1.0, 5.0)]
)
@given(data=st.data())
def test_normalization_keeps_the_order(data: st.DataObject, scale: str, low: float, high: float) -> None:
    """Within a scale (on ``numeric`` within the fractions and within the percentages) a better score is no worse."""
    first, second = sorted(data.draw(st.tuples(st.floats(low, high), st.floats(low, high))))
    worse, better = normalize(first, criterion(scale)), normalize(second, criterion(scale))
    assert worse is not None
    assert better is not None
    assert worse <= better


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 10**400, "1e999", None])
def test_what_is_no_finite_number_is_left_out(score: float | str | None) -> None:
    """NaN, infinities and whole numbers beyond the largest float have no normalized form."""
    assert normalize(score, criterion()) is None
    assert normalize(score, criterion(minimum=0.0, maximum=10.0)) is None


def test_a_declared_range_maps_linearly() -> None:
    """Ends of the range become 0 and 1, what is outside is left out, and an empty range takes nothing."""
    ten = criterion("stars", minimum=0.0, maximum=10.0)
    assert [normalize(score, ten) for score in (0, 2.5, 10, 10.5, True)] == [0.0, 0.25, 1.0, None, 1.0]
    assert normalize(3, criterion(minimum=3.0, maximum=3.0)) is None


def test_the_verdict_comes_from_the_threshold_then_from_the_scale() -> None:
    """A threshold is inclusive; without one only boolean forms have a verdict."""
    assert passed_of(0.7, criterion(threshold=0.7)) is True
    assert passed_of(0.69, criterion(threshold=0.7)) is False
    assert passed_of(True, criterion(threshold=0.7)) is True
    assert passed_of(1, criterion("binary")) is True
    assert passed_of("fail", criterion("pass/fail")) is False
    assert passed_of(0.5, criterion("binary")) is None
    assert passed_of(0.5, criterion()) is None
    assert passed_of(None, criterion("binary")) is None


def test_the_label_is_the_verdict_or_the_category() -> None:
    """A verdict is labelled pass or fail; a category stands for itself, shortened; a number has no label."""
    assert label_of(0.2, False) == "fail"
    assert label_of("positive", None) == "positive"
    assert label_of("x" * 100, None) == "x" * 64
    assert label_of(0.2, None) is None
    assert label_of("", None) is None


def test_failures_and_skips_stay_out_of_the_average() -> None:
    """A result with an error or a skip reason carries nothing into the overall score, even if it has a score."""
    failed = scored(0.0).model_copy(update={"error": "broke"})
    skipped = EvaluationResult(criterion_name="C", evaluator_type="Stub", skip_reason="no ground truth")
    assert overall_score([scored(0.5), failed, skipped], [criterion()]) == 0.5
    assert overall_score([failed, skipped], [criterion()]) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 1000)), min_size=1, max_size=8))
def test_the_overall_score_lies_between_the_scores(pairs: list[tuple[float, float]]) -> None:
    """With positive weights the weighted mean is neither below the worst nor above the best score."""
    criteria = [
        EvaluationCriteria(name=str(at), scale="numeric", weight=weight) for at, (_, weight) in enumerate(pairs)
    ]
    found = overall_score([scored(score, str(at)) for at, (score, _) in enumerate(pairs)], criteria)
    assert found is not None
    scores = [score for score, _ in pairs]
    assert min(scores) - 1e-9 <= found <= max(scores) + 1e-9


def test_the_first_criterion_of_a_name_counts() -> None:
    """Of two criteria with one name the first says the scale and the weight."""
    criteria = [criterion("likert5"), criterion("numeric")]
    assert overall_score([scored(5)], criteria) == 1.0
