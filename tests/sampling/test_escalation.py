"""Escalation: which answers go on, with what probability, and the same ones everywhere."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.sampling import (
    Escalation,
    FunctionSampler,
    RatioSampler,
    ResultSampler,
    RuleSampler,
    SamplingContext,
    SamplingDecision,
    SlowSampler,
)
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from agenteval_otel.sampling.escalation import (
    EscalationDecider,
    randomness_of_input,
    second_randomness,
)
from agenteval_otel.sampling.key import SamplingKey
from tests.sampling.test_results import scored

MADE = EvaluationInput(response="text", agent="support", duration_s=1.0)


def decided(
    escalation: Escalation,
    randomness: int | None,
    results: Sequence[EvaluationResult] = (),
    built: EvaluationInput = MADE,
) -> SamplingDecision:
    """The decision in the end, asked the way a run asks; what was promised before the results is
    kept.
    """
    decider = EscalationDecider(escalation, built, randomness)
    early = decider.decide()
    result = early if early.settled else decider.decide(results)
    assert result.settled
    assert result.sampled or not early.sampled
    assert not decider.broken
    return result


def draws(count: int, seed: int = 7) -> list[int]:
    numbers = random.Random(seed)
    return [numbers.getrandbits(64) for _ in range(count)]


@pytest.mark.parametrize(
    ("score", "duration_s", "probability", "reason"),
    [
        (0.9, 1.0, 0.1, "baseline"),
        (0.1, 1.0, 1.0, "result"),
        (0.9, 9.0, 0.4, "slow"),
        (0.1, 9.0, 1.0, "result"),
    ],
)
def test_the_largest_ratio_that_matches_is_the_probability(
    score: float, duration_s: float, probability: float, reason: str
) -> None:
    """The baseline for what no rule matches, a rule's ratio where it is larger, its type as the
    reason.
    """
    escalation = Escalation(
        baseline_rate=0.1, rules=[ResultSampler(below=0.5), SlowSampler(above_s=5, ratio=0.4)]
    )
    answer = MADE.model_copy(update={"duration_s": duration_s})
    decisions = [
        decided(escalation, value, [scored(normalized=score)], answer) for value in draws(200)
    ]
    taken = [decision for decision in decisions if decision.sampled]
    assert {decision.probability for decision in decisions} == {probability}
    assert {reason} <= {decision.reason for decision in taken} <= {reason, "baseline"}


def test_it_is_independent_of_the_randomness_that_sampled_the_answer() -> None:
    """Among the answers that a small rate sampled, the baseline takes its own share: the
    probabilities multiply.
    """
    escalation, head = Escalation(baseline_rate=0.3), RatioSampler(ratio=0.05)
    sampled = [value for value in draws(40_000) if head.decide(SamplingContext("a", value)).sampled]
    share = sum(decided(escalation, randomness).sampled for randomness in sampled) / len(sampled)
    assert abs(share - 0.3) <= 3 * math.sqrt(0.3 * 0.7 / len(sampled))


def test_every_process_decides_alike() -> None:
    """The number is made from the response's own with the key: offline the same everywhere, live by
    the secret.
    """
    assert second_randomness(0) == 0x64978D71D1AAEE70
    mine, theirs = SamplingKey(b"mine"), SamplingKey(b"theirs")
    assert second_randomness(0, mine) == second_randomness(0, SamplingKey(b"mine"))
    assert second_randomness(0, mine) != second_randomness(0, theirs)
    assert randomness_of_input(MADE, mine) != randomness_of_input(MADE, theirs)
    assert second_randomness(RANDOMNESS_RANGE - 1) != second_randomness(0)
    assert randomness_of_input(MADE) == randomness_of_input(EvaluationInput(response="text"))
    first, second = (EvaluationInput(response="text", response_id=name) for name in ("r1", "r2"))
    assert randomness_of_input(first) != randomness_of_input(second)
    assert randomness_of_input(EvaluationInput(response="\ud800")) >= 0


def test_without_a_baseline_the_probability_is_unknown() -> None:
    """No weight could speak for the answers that no rule matches."""
    escalation, value = Escalation(baseline_rate=0, rules=[ResultSampler(below=0.5)]), 7
    assert not decided(escalation, value, [scored(normalized=0.9)]).sampled
    result = decided(escalation, value, [scored(normalized=0.1)])
    assert (result.sampled, result.probability, result.reason) == (True, None, "result")


def test_what_is_sure_does_not_wait_for_results() -> None:
    """Where the baseline takes an answer, or a rule that needs no results does, it is known before
    the first stage.
    """
    rules = [ResultSampler(below=0.5)]
    assert EscalationDecider(Escalation(baseline_rate=1.0, rules=rules), MADE, 3).decide() == (
        True,
        1.0,
        "baseline",
        "not_sampled",
        True,
        False,
        None,
    )
    by_time = EscalationDecider(
        Escalation(baseline_rate=0.01, rules=[*rules, SlowSampler(above_s=0.5)]), MADE, 3
    ).decide()
    assert (by_time.sampled, by_time.settled) == (True, False)
    assert EscalationDecider(Escalation(baseline_rate=0.5), MADE, 3).decide().settled


class Careless(RuleSampler):
    """Says whatever it was told to."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return SamplingDecision(True, self.ratio, "careless")


@pytest.mark.parametrize("claimed", [math.nan, math.inf, 2.5, -1.0, 0.0, True, "0.5"])
def test_what_is_no_probability_is_unknown(claimed: Any) -> None:
    """A rule of the user's own may say what it likes; a weight made of it would spoil every sum for
    good.
    """
    rule = Careless.model_construct(ratio=claimed)
    result = decided(Escalation(baseline_rate=0.1, rules=[rule]), RANDOMNESS_RANGE - 1)
    assert (result.sampled, result.probability, result.reason) == (True, None, "careless")


def test_a_function_is_asked_once() -> None:
    """What is settled before the results is not asked again."""
    requested: list[str] = []

    def note(built: EvaluationInput) -> float:
        requested.append(built.response_text)
        return 0.5

    decided(
        Escalation(rules=[FunctionSampler(function=note), ResultSampler(below=0.5)]),
        3,
        [scored(normalized=0.9)],
    )
    assert requested == ["text"]


@given(
    baseline_rate=st.floats(0.01, 1),
    ratios=st.lists(st.floats(0, 1), max_size=4),
    scores=st.lists(st.floats(0, 1), max_size=3),
    randomness=st.integers(0, RANDOMNESS_RANGE - 1),
)
def test_any_rules_give_one_threshold(
    baseline_rate: float, ratios: list[float], scores: list[float], randomness: int
) -> None:
    """Whatever matches, an answer goes on if and only if its number lies below the probability that
    is said of it.
    """
    escalation = Escalation(
        baseline_rate=baseline_rate,
        rules=[ResultSampler(below=0.5, ratio=ratio) for ratio in ratios],
    )
    result = decided(escalation, randomness, [scored(normalized=score) for score in scores])
    matched = ratios if any(score < 0.5 for score in scores) else []
    assert result.probability == max(baseline_rate, *matched, 0.0)
    assert result.sampled == (
        second_randomness(randomness) < round(result.probability * RANDOMNESS_RANGE)
    )


@pytest.mark.parametrize(
    ("built", "message"),
    [
        ({"baseline_rate": 1.5}, "baseline_rate: expected at most 1"),
        ({"baseline_rate": -0.1}, "baseline_rate: expected at least 0"),
        ({"baseline_rate": math.nan}, "baseline_rate: expected a finite number"),
        ({"baseline_rate": 0}, "no answer goes on: expected a baseline_rate above 0, or rules"),
        ({"rules": {"type": "error"}}, "rules: expected a list of rules"),
        (
            {"rules": [{"type": "resutl"}]},
            r"rules\[0\]: unknown sampler type 'resutl' \(did you mean 'result'",
        ),
        ({"rules": [{"type": "error"}, {"type": "result"}]}, r"rules\[1\]: expected labels, below"),
        (
            {"rules": [{"type": "result", "bellow": 1}]},
            r"rules\[0\].bellow: unknown field \(did you mean 'below'",
        ),
        (
            {"rules": [{"type": "ratio"}]},
            r"rules\[0\]: 'ratio' is no rule\. Known: agent, annotation, error",
        ),
        ({"baseline_rat": 0.1}, "baseline_rat: unknown field .did you mean .baseline_rate"),
        ({"criteria": "good"}, "criteria: expected a list"),
        ({"rules": [{"type": "error"}] * 33}, "rules: "),
    ],
)
def test_what_is_wrong_is_said_by_its_place(built: dict[str, Any], message: str) -> None:
    """With the field, what was found and what there is to choose from."""
    with pytest.raises(ConfigurationError, match=message):
        Escalation(**built)
