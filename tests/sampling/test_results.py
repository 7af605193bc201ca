"""Rules on results: what of the first stage they match, and where they may stand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.sampling import (
    AnyOfSampler,
    ConversationSampler,
    DisagreementSampler,
    FailureSampler,
    LabelSampler,
    RatioSampler,
    Sampler,
    SamplingContext,
    ScoreSampler,
)
from agenteval_otel.sampling.escalation import ResultSampler
from agenteval_otel.testing import check_component, check_sampler

RULES: dict[str, ResultSampler] = {
    "score": ScoreSampler(criteria=("a",), below=0.5, ratio=0.5),
    "label": LabelSampler(),
    "failure": FailureSampler(error_types=("timeout",)),
    "disagreement": DisagreementSampler(above=0.3),
}
MADE = EvaluationInput(response="text")


def scored(name: str = "a", normalized: float | None = None, passed: bool | None = None) -> EvaluationResult:
    label = None if passed is None else "pass" if passed else "fail"
    return EvaluationResult(
        criterion_name=name, evaluator_type="T", score="x", normalized=normalized, passed=passed, label=label
    )


def failed(name: str = "a", word: str = "timeout") -> EvaluationResult:
    return EvaluationResult(criterion_name=name, evaluator_type="T", error="broke", error_type=word)


def skipped(name: str = "a") -> EvaluationResult:
    return EvaluationResult(criterion_name=name, evaluator_type="T", skip_reason="no ground truth")


def matches(rule: ResultSampler, *results: EvaluationResult) -> bool:
    decision = rule.decide(SamplingContext("a", 0, evaluation_input=MADE, results=results))
    assert decision.settled
    assert decision.reason == rule.type
    return decision.applies


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_each_keeps_the_contract(rule: ResultSampler) -> None:
    """With results each decides for every randomness, and comes back from its own dump."""
    check_sampler(rule)
    check_component(rule, Sampler)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_before_there_are_results_nothing_is_settled(rule: ResultSampler) -> None:
    """However much else is known, a rule on results waits for them, and no results at all match nothing."""
    assert not rule.decide(SamplingContext("a", 0, evaluation_input=MADE)).settled
    assert not matches(rule)


def test_scores_below_above_and_between() -> None:
    """The range is open at both ends; skips, failures and scores that have no place from 0 to 1 lie in none."""
    low, high = ScoreSampler(below=0.5), ScoreSampler(above=0.5)
    between = ScoreSampler(above=0.4, below=0.6)
    for score, expected in ((0.3, (1, 0, 0)), (0.5, (0, 0, 1)), (0.4, (1, 0, 0)), (0.6, (0, 1, 0)), (1.0, (0, 1, 0))):
        assert tuple(int(matches(rule, scored(normalized=score))) for rule in (low, high, between)) == expected
    for nothing in (scored(), skipped(), failed(), scored(normalized=math.nan)):
        assert not any(matches(rule, nothing) for rule in (low, high, between))
    assert matches(low, scored("b", 1.0), scored("a", 0.1)), "one in the range is enough"
    assert not matches(ScoreSampler(criteria=("b",), below=0.5), scored("b", 1.0), scored("a", 0.1))


def test_labels() -> None:
    """What did not pass, or whatever labels are named; failures have none."""
    assert matches(LabelSampler(), scored(passed=False))
    assert not matches(LabelSampler(), scored(passed=True), failed(), skipped(), scored())
    assert matches(LabelSampler(labels=("pass",)), scored(passed=True))


def test_failures() -> None:
    """An evaluator that broke, in any way or in one that is named; a skip is none."""
    assert matches(FailureSampler(), failed(word="KeyError"))
    assert not matches(FailureSampler(error_types=("timeout",)), failed(word="KeyError"))
    assert not matches(FailureSampler(), skipped(), scored(normalized=0.0, passed=False))


def test_disagreement() -> None:
    """One passes and one fails, or the scores lie too far apart; one alone agrees with itself."""
    verdicts, spread = DisagreementSampler(), DisagreementSampler(above=0.3)
    assert matches(verdicts, scored("a", 0.5, True), scored("b", 0.5, False))
    assert not matches(verdicts, scored("a", 0.1, True), scored("b", 0.9, True))
    assert matches(spread, scored("a", 0.1, True), scored("b", 0.9, True))
    assert not matches(spread, scored("a", 0.5), scored("b", 0.7))
    for lonely in ((scored("a", 0.1, False),), (scored("a", 0.1, False), failed("b"), skipped("c"))):
        assert not matches(spread, *lonely)
    assert not matches(spread, scored("a", math.nan), scored("b", 0.5))
    assert matches(DisagreementSampler(criteria=("a", "c")), scored("a", 1, True), scored("c", 0, False))
    assert not matches(DisagreementSampler(criteria=("a", "c")), scored("a", 1, True), scored("b", 0, False))


@pytest.mark.parametrize(
    ("built", "message"),
    [({"type": "score"}, "expected below, above, or both"), ({"type": "score", "below": 2}, "expected at most 1"),
     ({"type": "score", "below": 0.2, "above": 0.5}, "nothing lies above 0.5 and below 0.2"),
     ({"type": "score", "below": math.nan}, "expected a finite number"),
     ({"type": "disagreement", "criteria": ["a"]}, "criteria: expected at least 2, or none for all"),
     ({"type": "disagreement", "criteria": ["a", "a"]}, "criteria: expected at least 2"),
     ({"type": "label", "labels": []}, "at least 1"),
     ({"type": "failure", "error_type": "x"}, "did you mean 'error_types'")],
)  # fmt: skip
def test_what_could_never_match_is_refused(built: dict[str, Any], message: str) -> None:
    """Said at load, with the field."""
    with pytest.raises(ConfigurationError, match=message):
        resolve(Sampler, built)


def test_answers_are_not_sampled_by_what_evaluators_gave() -> None:
    """Before an answer is evaluated there is no result, so the rules are refused wherever answers are sampled."""
    for build in (
        lambda: monitor(sampler={"type": "label"}),
        lambda: monitor(sampler=LabelSampler()),
        lambda: AnyOfSampler(samplers=(LabelSampler(), RatioSampler())),
        lambda: ConversationSampler(sampler=LabelSampler()),
    ):
        with pytest.raises(ConfigurationError, match=r"put it below escalation\.rules"):
            build()
