"""Func, and everything that may stand for an evaluator."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators import Func, KeywordCoverage, ResponseHealth
from agenteval_otel.evaluators.func import as_evaluator
from agenteval_otel.models import EvaluationInput, Score
from tests.evaluators.support import result_of


def is_short(evaluation_input: EvaluationInput) -> bool:
    return len(evaluation_input.response_text) < 5


async def politeness(evaluation_input: EvaluationInput) -> Score:
    return Score(value=0.25, reasoning="gruff")


class Judge:
    async def __call__(self, evaluation_input: EvaluationInput) -> int:
        return 1


def two(prompt: str, response: str) -> bool:
    return prompt == response


@pytest.mark.parametrize(
    "function", [two, lambda: True, functools.partial(two, prompt="a", response="b")]
)
def test_a_function_that_cannot_take_the_input_is_refused(function: Any) -> None:
    """When the handler is decorated, with the signature that is wanted."""
    with pytest.raises(
        ConfigurationError, match=r"one argument: def \S+\(evaluation_input: EvaluationInput\)"
    ):
        monitor(evaluators=[function])


def test_a_function_names_its_criterion() -> None:
    """The criterion has the function's name; a boolean counts on the numeric scale too."""
    evaluator = Func.of(is_short)
    assert (evaluator.label, evaluator.name, evaluator.resolved_execution) == (
        "Func:is_short",
        "is_short",
        "thread",
    )
    result = result_of(evaluator)
    assert (result.score, result.normalized, result.label) == (True, 1.0, "pass")
    assert Func.of(functools.partial(is_short)).criterion_name == "is_short"


def test_an_async_function_awaits_a_model() -> None:
    """Async functions, and objects with an async call, are ``async``."""
    evaluator = Func.of(politeness, threshold=0.5)
    assert evaluator.resolved_execution == "async"
    result = result_of(evaluator)
    assert (result.score, result.label, result.reasoning) == (0.25, "fail", "gruff")
    judge = Func(name="judge", function=Judge())
    assert (judge.resolved_execution, judge.criterion_name, result_of(judge).score) == (
        "async",
        "judge",
        1,
    )


@pytest.mark.parametrize("value", [True, 3, 0.5, "good"])
def test_values_stand_for_scores(value: Any) -> None:
    """A boolean, a number or a category is a score's value with its type."""
    actual = result_of(Func.of(lambda _: value, criterion_name="c", scale="any")).score
    assert actual == value
    assert type(actual) is type(value)


def test_what_is_no_score_is_refused() -> None:
    """A function that returns nothing has failed, it has not scored zero."""
    with pytest.raises(
        EvaluationError, match="expected a Score, a boolean, a number or text, found NoneType"
    ):
        result_of(Func.of(lambda _: None, criterion_name="c"))


def test_the_function_is_in_the_fingerprint_and_not_in_the_dump() -> None:
    """Two functions under one name differ in their fingerprint; a dump stays JSON."""
    first, second = Func(name="n", function=is_short), Func(name="n", function=politeness)
    assert first.fingerprint != second.fingerprint
    assert first.fingerprint == Func(name="n", function=is_short).fingerprint
    assert "function" not in first.model_dump(mode="json")


def test_all_forms_become_evaluators() -> None:
    """An instance, a mapping, a type's name, a class and a function all stand for an evaluator."""
    health = ResponseHealth()
    assert as_evaluator(health) is health
    assert as_evaluator("ResponseHealth") == as_evaluator(ResponseHealth) == health
    mapping = {"type": "KeywordCoverage", "criterionName": "Kw", "expectedKeywords": ["a"]}
    assert as_evaluator(mapping) == KeywordCoverage(criterion_name="Kw", expected_keywords=["a"])
    assert as_evaluator(is_short).label == "Func:is_short"


@pytest.mark.parametrize("value", [7, None, int, "Nope", {"type": "Nope"}])
def test_other_things_are_refused_with_the_choices(value: Any) -> None:
    """What is no evaluator is refused at start with its path and the known types."""
    with pytest.raises(ConfigurationError, match="ResponseHealth") as caught:
        as_evaluator(value, path="evaluators[1]")
    assert caught.value.path == "evaluators[1]"
