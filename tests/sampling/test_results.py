"""The rule on results: what of the first stage it matches, and where it may stand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.sampling import (
    ConversationSampler,
    FirstOfSampler,
    ResultSampler,
    Sampler,
    SamplingContext,
)

INPUT = EvaluationInput(response="text")


def scored(
    name: str = "a", normalized: float | None = None, passed: bool | None = None
) -> EvaluationResult:
    label = None if passed is None else "pass" if passed else "fail"
    return EvaluationResult(
        criterion_name=name,
        evaluator_type="T",
        score="x",
        normalized=normalized,
        passed=passed,
        label=label,
    )


FAILED = EvaluationResult(
    criterion_name="a", evaluator_type="T", error="broke", error_type="timeout"
)
SKIPPED = EvaluationResult(criterion_name="a", evaluator_type="T", skip_reason="no ground truth")


@pytest.mark.parametrize(
    ("fields", "matching", "others"),
    [
        (
            {"below": 0.5},
            [[scored(normalized=0.3)], [scored("b", 1.0), scored(normalized=0.1)]],
            [
                [scored(normalized=0.5)],
                [scored(normalized=0.9)],
                [scored()],
                [scored(normalized=math.nan)],
            ],
        ),
        (
            {"above": 0.5},
            [[scored(normalized=0.6)], [scored(normalized=1.0)]],
            [[scored(normalized=0.5)], [scored()]],
        ),
        (
            {"above": 0.4, "below": 0.6},
            [[scored(normalized=0.5)]],
            [[scored(normalized=0.4)], [scored(normalized=0.6)], [scored(normalized=1.0)]],
        ),
        (
            {"below": 0.5, "criteria": ["b"]},
            [[scored("b", 0.1)]],
            [[scored("b", 1.0), scored("a", 0.1)]],
        ),
        ({"labels": ["fail"]}, [[scored(passed=False)]], [[scored(passed=True), scored(), FAILED]]),
        ({"labels": ["pass"]}, [[scored(passed=True)]], [[scored(passed=False)]]),
        (
            {"failed": True},
            [[FAILED], [scored(), FAILED]],
            [[scored(normalized=0.0, passed=False)]],
        ),
        (
            {"disagreement": True},
            [[scored("a", 0.5, True), scored("b", 0.5, False)]],
            [
                [scored("a", 0.1, True), scored("b", 0.9, True)],
                [scored(passed=False), FAILED],
                [scored(passed=False)],
            ],
        ),
        (
            {"disagreement": True, "criteria": ["a", "c"]},
            [[scored("a", 1, True), scored("c", 0, False)]],
            [[scored("a", 1, True), scored("b", 0, False)]],
        ),
        (
            {"failed": True, "below": 0.5},
            [[FAILED], [scored(normalized=0.1)]],
            [[scored(normalized=0.9)]],
        ),
    ],
)
def test_an_answer_matches_by_any_condition(
    fields: dict[str, Any], matching: list[Any], others: list[Any]
) -> None:
    """Once there are results; none, and skips alone, match no condition."""
    rule = ResultSampler(**fields)
    assert not rule.decide(SamplingContext("a", 0, evaluation_input=INPUT)).settled
    for results in (*matching, *others, [], [SKIPPED]):
        decision = rule.decide(SamplingContext("a", 0, evaluation_input=INPUT, results=results))
        assert (decision.settled, decision.reason) == (True, "result")
        assert decision.applies is (results in matching), results


@pytest.mark.parametrize(
    ("built", "message"),
    [
        ({"type": "result"}, "expected labels, below, above, failed or disagreement"),
        ({"type": "result", "below": 2}, "expected at most 1"),
        ({"type": "result", "below": math.nan}, "expected a finite number"),
        ({"type": "result", "label": ["x"]}, "did you mean 'labels'"),
    ],
)
def test_what_is_wrong_is_refused(built: dict[str, Any], message: str) -> None:
    """At load, with the field."""
    with pytest.raises(ConfigurationError, match=message):
        resolve(Sampler, built)


def test_answers_are_not_sampled_by_what_evaluators_gave() -> None:
    """Before an answer is evaluated there is no result, so the rule is refused wherever answers are
    sampled.
    """
    rule = ResultSampler(failed=True)
    for build in (
        lambda: monitor(sampler={"type": "result", "failed": True}),
        lambda: FirstOfSampler(samplers=(rule,)),
        lambda: ConversationSampler(sampler=rule),
    ):
        with pytest.raises(ConfigurationError, match=r"put it below escalation\.rules"):
            build()
