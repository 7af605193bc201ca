"""ExactMatch, Contains, CostWithin, CompletedWithin and ToolUse: a value from 0 to 1, and a verdict
beside it.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import (
    CompletedWithin,
    Contains,
    CostWithin,
    CriterionEvaluator,
    ExactMatch,
    ToolUse,
)
from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from tests.evaluators.support import result_of


def run(
    evaluator: CriterionEvaluator, criterion: EvaluationCriteria | None = None, **fields: Any
) -> EvaluationResult:
    return result_of(
        evaluator, fields.pop("response", ""), criteria=criterion and (criterion,), **fields
    )


def test_exact_match_shows_where_texts_part() -> None:
    """The reason shows the first difference, whether in the middle or at an end, and not the whole
    texts.
    """
    assert "from character 3 on: expected 'cd', found 'xd'" in str(
        run(ExactMatch(expected="abcd"), response="abxd")
    )
    assert "from character 3 on: expected 'cd', found ''" in str(
        run(ExactMatch(expected="abcd"), response="ab")
    )
    other_case = run(ExactMatch(expected="a"), response="A")
    assert (other_case.passed, other_case.reason_code) == (False, "different_text")
    long = run(ExactMatch(expected="x"), response="y" * 100_000)
    assert len(long.reasoning or "") < 300


def test_one_of_several_ground_truths_has_to_match() -> None:
    """Where none does, the reason shows the nearest one; a message counts by its content."""
    several = ["Paris", "Paris, France"]
    answer = {"role": "assistant", "content": "Paris, France"}
    assert run(ExactMatch(), response=answer, ground_truth=several).passed
    wrong = run(ExactMatch(), response="Paris, Texas", ground_truth=several)
    assert not wrong.passed
    assert "expected 'France', found 'Texas'" in (wrong.reasoning or "")
    assert "no other reference matches either" in (wrong.reasoning or "")


def test_nothing_to_compare_is_no_zero() -> None:
    """Without a ground truth, a cost or a duration it is a skip."""
    for evaluator in (ExactMatch(), CostWithin(max_cost_usd=1), CompletedWithin(limit_s=1)):
        with pytest.raises(EvaluationSkipped, match=r"no ground truth|not known"):
            run(evaluator)
    with pytest.raises(EvaluationSkipped, match="the ground truth is no text"):
        run(ExactMatch(), ground_truth=5)


def test_contains_counts_what_is_found() -> None:
    """The value is the fraction found, each as often as it is listed; the reason names what is
    missing.
    """
    result = run(Contains(substrings=["a", "a", "B", ""]), response="a b")
    assert (result.score, result.passed, result.reason_code) == (0.75, False, "missing_substring")
    assert "missing: 'B'" in (result.reasoning or "")
    assert run(Contains(substrings=[]), response="").score == 1.0
    many = run(Contains(substrings=[f"w{index}" for index in range(500)]), response="")
    assert len(many.reasoning or "") < 200


LIMITS = [
    (1.0, 0.5, 1.0),
    (1.0, 4.0, 0.25),
    (0.0, 3.0, 0.0),
    (1.0, math.inf, 0.0),
    (5e-324, 1e308, 0.0),
]


@pytest.mark.parametrize(("limit", "observed", "value"), LIMITS)
def test_limits(limit: float, observed: float, value: float) -> None:
    """Within the limit 1, beyond it limit / observed; at the limit is within it."""
    for result in (
        run(CostWithin(max_cost_usd=limit), cost=observed),
        run(CompletedWithin(limit_s=limit), duration_s=observed),
    ):
        assert result.score == pytest.approx(value)
        assert result.passed is (observed <= limit)
        assert (result.reason_code is None) is result.passed


@pytest.mark.parametrize("value", [-1.0, -math.inf, math.nan])
def test_an_impossible_cost_or_duration_is_a_failure(value: float) -> None:
    """What is below 0 or no number was not observed: it neither passes nor becomes a score."""
    for result in (
        run(CostWithin(max_cost_usd=1), cost=value),
        run(CompletedWithin(limit_s=1), duration_s=value),
    ):
        assert (result.status, result.error_type, result.normalized) == (
            "failed",
            "invalid_value",
            None,
        )


def test_a_threshold_replaces_the_verdict() -> None:
    """By itself only the whole passes; with a threshold what reaches it; on a binary scale the
    score is the verdict.
    """
    half: dict[str, Any] = {"response": "a"}
    assert run(Contains(substrings=["a", "b"]), **half).passed is False
    assert run(Contains(substrings=["a", "b"], threshold=0.5), **half).passed is True
    binary = run(Contains(substrings=["a", "b"]), EvaluationCriteria(name="contains"), **half)
    assert (binary.score, binary.normalized, binary.passed) == (False, 0.0, False)


CALLS = [
    {"role": "user", "content": "q"},
    {
        "role": "assistant",
        "tool_calls": [{"function": "search", "arguments": {"q": "Zürich", "n": 1}}],
    },
    {
        "role": "tool",
        "tool_calls": [{"id": "2", "function": {"name": "search", "arguments": '{"q": "x"}'}}],
    },
    {
        "role": "assistant",
        "contentParts": [{"type": "tool_call", "toolName": "calc", "args": None}],
    },
]


EXPECTATIONS: list[tuple[dict[str, Any], bool]] = [
    ({"name": "Search"}, False),
    ({"name": "calc"}, True),
    ({"name": "own"}, True),
    ({"name": "search", "min_calls": 3}, False),
    ({"name": "search", "arguments_contain": 'Zürich","n":1'}, True),
    ({"name": "search", "raw_args_contain": '"q": "x"'}, True),
    ({"name": "search", "rawArgsContain": "no"}, False),
    ({"name": "search", "min_calls": 2, "arguments_contain": "x"}, False),
    ({"name": "search", "argument_checks": {"n": {"min": 1}}}, True),
    ({"name": "search", "argument_checks": {"n": {"min": 2}}}, False),
    ({"name": "search", "argument_checks": lambda arguments: arguments["q"] == "x"}, True),
    ({"name": "search", "arguments_schema": {"required": ["n"]}}, True),
    ({"name": "search", "arguments_schema": {"required": ["n"]}, "minCalls": 2}, False),
    ({"name": "calc", "arguments_contain": ""}, True),
    ({"name": "calc", "arguments_contain": "{"}, False),
]


@pytest.mark.parametrize(("expectation", "met"), EXPECTATIONS)
def test_expectations(expectation: dict[str, Any], met: bool) -> None:
    """A tool's name, its calls, and what their arguments have to be; messages of every role, and
    the answer's own.
    """
    result = run(
        ToolUse(expectations=[expectation]), messageHistory=CALLS, tool_calls=[{"name": "own"}]
    )
    assert (result.score, result.passed, result.reason_code) == (
        float(met),
        met,
        None if met else "tool_not_called",
    )


def test_the_value_is_the_share_of_expectations() -> None:
    """Half of the expectations met is half; none asked for is all; the reason says what is lacking."""
    result = run(
        ToolUse(expectations=[{"name": "calc"}, {"name": "search", "arguments_contain": "?"}]),
        messageHistory=CALLS,
    )
    assert result.score == 0.5
    assert "search: 0 of 1 calls, 2 with other arguments" in (result.reasoning or "")
    assert run(ToolUse(expectations=[])).score == 1.0
