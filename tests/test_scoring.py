"""Scales, normalization, labels and aggregation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.components.loading import resolve
from agenteval_otel.engine.aggregation import Aggregation, Scored, overall_score
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from agenteval_otel.models.scoring import (
    check_criteria,
    label_of,
    normalize,
    off_scale,
    passed_of,
)
from agenteval_otel.testing import check_component

SCALES = st.sampled_from(["binary", "pass/fail", "likert5", "numeric", "string", "low|high"])
SCORES = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def criterion(scale: str = "numeric", **fields: float) -> EvaluationCriteria:
    return EvaluationCriteria(name="C", scale=scale, **fields)


def scored(score: bool | float | str, name: str = "C") -> EvaluationResult:
    return EvaluationResult(criterion_name=name, score=score, evaluator_type="Stub")


@given(score=SCORES, scale=SCALES, low=FINITE, high=FINITE)
@settings(deadline=None)
def test_normalized_scores_lie_between_zero_and_one(
    score: bool | float | str, scale: str, low: float, high: float
) -> None:
    """Whatever the score and the scale, or a declared range as wide as all floats, it is in [0, 1]
    or there is none.
    """
    for result in (
        normalize(score, criterion(scale)),
        normalize(score, criterion(minimum=low, maximum=high)),
    ):
        assert result is None or 0.0 <= result <= 1.0


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 10**400, "1e999", None])
def test_what_is_no_finite_number_is_left_out(score: float | str | None) -> None:
    """NaN, infinities and whole numbers beyond the largest float have no normalized form."""
    assert normalize(score, criterion()) is None
    assert normalize(score, criterion(minimum=0.0, maximum=10.0)) is None


def test_a_declared_range_maps_linearly() -> None:
    """Ends of the range become 0 and 1, what is outside is left out, and an empty range takes
    nothing.
    """
    ten = criterion("stars", minimum=0.0, maximum=10.0)
    assert [normalize(score, ten) for score in (0, 2.5, 10, 10.5, True)] == [
        0.0,
        0.25,
        1.0,
        None,
        1.0,
    ]
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
    """A verdict is labelled pass or fail; a category stands for itself, shortened; a number has no
    label.
    """
    assert label_of(0.2, False) == "fail"
    assert label_of("positive", None) == "positive"
    assert label_of("x" * 100, None) == "x" * 64
    assert label_of(0.2, None) is None
    assert label_of("", None) is None


def test_failures_and_skips_stay_out_of_the_average() -> None:
    """A result with an error or a skip reason carries nothing into the overall score, even if it
    has a score.
    """
    failed = scored(0.0).model_copy(update={"error": "broke"})
    skipped = EvaluationResult(
        criterion_name="C", evaluator_type="Stub", skip_reason="no ground truth"
    )
    assert overall_score([scored(0.5), failed, skipped], [criterion()]) == 0.5
    assert overall_score([failed, skipped], [criterion()]) is None


STRATEGIES = ["weighted_mean", "once_per_criterion", "minimum", "all_must_pass"]
FOUR = [
    EvaluationCriteria(name="a", scale="numeric", weight=3, threshold=0.5),
    EvaluationCriteria(name="b", scale="binary"),
    EvaluationCriteria(name="c", scale="numeric", weight=0, threshold=0.5),
    EvaluationCriteria(name="d", scale="numeric"),
]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("weighted_mean", (0.5 * 3 + 0.9 * 3 + 1 + 0.2) / 8),
        ("once_per_criterion", (0.7 * 3 + 1 + 0.2) / 5),
        ("minimum", 0.2),
        ("all_must_pass", 1.0),
    ],
)
def test_each_strategy_has_its_own_mean(strategy: str, expected: float) -> None:
    """Per result, per criterion, the worst, or everything passed; a weight of 0 leaves a criterion
    out of each.
    """
    results = [
        scored(0.5, "a"),
        scored(0.9, "a"),
        scored(True, "b"),
        scored(0.0, "c"),
        scored(0.2, "d"),
    ]
    result = overall_score(results, FOUR, resolve(Aggregation, strategy))
    assert result == pytest.approx(expected)


def test_one_that_fails_is_enough_for_all_must_pass() -> None:
    """A verdict below its threshold makes the overall score 0; without any verdict there is none."""
    strategy = resolve(Aggregation, "all_must_pass")
    assert overall_score([scored(0.4, "a"), scored(True, "b")], FOUR, strategy) == 0.0
    assert overall_score([scored(0.9, "d")], FOUR, strategy) is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_are_components(strategy: str) -> None:
    """Each strategy holds its contract, comes back from its own dump and says its type."""
    check_component(resolve(Aggregation, strategy), Aggregation)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(
    pairs=st.lists(
        st.tuples(
            st.sampled_from("abc"), SCORES, st.none() | st.floats(-1e308, 1e308) | st.just(5e-324)
        ),
        max_size=6,
    )
)
@settings(deadline=None, max_examples=40)
def test_no_strategy_makes_up_a_score(
    strategy: str, pairs: list[tuple[str, bool | float | str, float | None]]
) -> None:
    """Whatever the scores and the weights, negative and huge ones too: an overall score is in [0,
    1] or is none.
    """
    criteria = [
        EvaluationCriteria(name=name, scale="numeric", weight=weight) for name, _, weight in pairs
    ]
    results = [scored(score, name) for name, score, _ in pairs]
    result = overall_score(results, criteria, resolve(Aggregation, strategy))
    assert result is None or 0.0 <= result <= 1.0
    if not any(normalize(score, criterion()) is not None for _, score, _ in pairs):
        assert result is None


@pytest.mark.parametrize("given_back", [math.nan, math.inf, -0.1, 1.1])
def test_what_a_strategy_makes_up_is_no_score(given_back: float) -> None:
    """A strategy of the user's own that gives no number from 0 to 1 gives no overall score."""

    class Strange(Aggregation):
        def combine(self, scored: object) -> float:
            return given_back

    assert overall_score([scored(0.5)], [criterion()], Strange()) is None


def test_a_strategy_sees_what_counts() -> None:
    """It gets the scored results with their normalized form and their weight, and nothing else."""
    seen: list[Scored] = []

    class Seeing(Aggregation):
        def combine(self, scored: list[Scored]) -> None:  # type: ignore[override]
            seen.extend(scored)

    results = [scored(4, "C"), scored(9, "C"), scored(5, "other")]
    assert overall_score(results, [criterion("likert5", weight=2.0)], Seeing()) is None
    ((result, normalized, weight),) = seen
    assert (result.score, normalized, weight) == (4, 0.75, 2.0)


@pytest.mark.parametrize(
    ("criteria", "problems"),
    [
        (
            [{"name": " "}, {"name": "a", "objective": 2}, {"name": "a"}],
            [
                ("criteria[0].name", "must not be blank"),
                ("criteria[1].objective", "expected a number from 0 to 1, found 2"),
                ("criteria", "criterion 'a' appears twice"),
            ],
        ),
        (
            [{"name": "a"}, {"name": "b", "maximum": 1}],
            [("criteria[1].minimum", "a declared range needs both ends")],
        ),
        (
            [{"name": "a", "minimum": 1, "maximum": 1, "weight": -1}],
            [
                ("criteria[0].weight", "expected at least 0, found -1"),
                ("criteria[0].maximum", "expected more than the minimum 1, found 1"),
            ],
        ),
    ],
)
def test_criteria_that_cannot_be_scored_by_are_refused(
    criteria: list[dict[str, object]], problems: object
) -> None:
    """Everything that is wrong with criteria is told at once, with its place."""
    with pytest.raises(ConfigurationError) as caught:
        check_criteria(
            [EvaluationCriteria.model_validate(item) for item in criteria], path="criteria"
        )
    assert list(caught.value.problems) == problems


@pytest.mark.parametrize(
    ("score", "shown"),
    [(math.nan, "nan"), (math.inf, "inf"), (10**400, "beyond every float"), (7, "7")],
)
def test_a_score_off_the_scale_is_shown(score: float, shown: str) -> None:
    """With the scale, and what that takes."""
    wrong = off_scale(score, criterion())
    assert wrong is not None
    assert wrong.startswith(
        f"the score {shown} lies outside of the scale 'numeric', which takes 0 to 1"
    )
