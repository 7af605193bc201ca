"""Func, and everything that may stand for an evaluator."""

from __future__ import annotations

import functools
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from agenteval_otel import EvaluationRunConfig, monitor, run_evaluation_sync
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Func, KeywordCoverage, ResponseHealth
from agenteval_otel.evaluators.func import as_evaluator
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score
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


class Ratio:
    """A number of a library that nobody has heard of."""

    def __float__(self) -> float:
        return 0.25


@pytest.mark.parametrize(
    ("returned", "score"),
    [
        (np.float32(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int64(1), 1),
        (np.bool_(True), True),
        (np.array(0.25), 0.25),
        (np.array(True), True),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 2), 0.5),
        (Ratio(), 0.25),
    ],
)
def test_a_number_of_any_library_is_a_score(returned: Any, score: Any) -> None:
    """It becomes Python's own number, alone and within a `Score` and a result."""
    found = result_of(Func.of(lambda evaluation_input: returned)).score
    within = result_of(Func.of(lambda evaluation_input: Score(value=returned))).score
    stored = EvaluationResult(criterion_name="c", evaluator_type="t", score=returned).score
    assert [found, within, stored] == [score, score, score]
    assert {type(found), type(within), type(stored)} == {type(score)}


def outcome_of(returned: Any, scale: str = "numeric") -> EvaluationResult:
    """Return the result of a function that returns this, run as an application runs it."""
    evaluator = Func(criterion_name="c", function=lambda evaluation_input: returned, scale=scale)
    evaluation_input = EvaluationInput(prompt="q", response="a")
    run = run_evaluation_sync(evaluation_input, EvaluationRunConfig(evaluators=[evaluator]))
    return run.results[0]


class Broken:
    def item(self) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "returned",
    [
        float("nan"),
        float("-inf"),
        np.float32("nan"),
        np.array([0.5, 1.0]),
        np.array([0.5]),
        np.complex64(1),
        np.datetime64("2026-01-01"),
        Decimal("sNaN"),
        Decimal("1e999"),
        Fraction(10**400),
        Broken(),
        timedelta(1),
        1j,
        b"1",
        None,
        {},
        [0.5],
    ],
)
def test_what_is_no_finite_real_number_is_no_score(returned: Any) -> None:
    """It is a failure of the type ``invalid_score``, whatever its own code raises."""
    result = outcome_of(returned)
    assert (result.status, result.score, result.error_type) == ("failed", None, "invalid_score")


@pytest.mark.parametrize(
    ("scale", "text", "normalized", "error_type"),
    [
        ("numeric", "0.7", 0.7, None),
        ("numeric", "7", None, "invalid_score"),
        ("numeric", "1e999", None, "invalid_score"),
        ("numeric", "8/10", None, None),
        ("likert5", "4 stars", 0.75, None),
        ("likert5", "6", None, "invalid_score"),
        ("0-10", " 7 ", 0.7, None),
        ("0-10", "7 of 10", None, None),
        ("binary", "0.7", None, "invalid_score"),
        ("binary", "yes", 1.0, None),
        ("warmth", "0.7", 0.7, None),
        ("warmth", "4", None, None),
        ("warmth", " PASS", 1.0, None),
        ("0-10", "true", 1.0, None),
        ("warmth", "tepid", None, None),
    ],
)
def test_text_is_a_number_or_a_category_by_the_scale(
    scale: str, text: str, normalized: float | None, error_type: str | None
) -> None:
    """Text that is a number outside of the scale fails like that number."""
    result = outcome_of(text, scale)
    assert (result.normalized, result.error_type) == (normalized, error_type)
