"""The vectors recorded from the original framework, for the parts that need no runner."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenteval_otel.compat.agentdock import load_evaluator
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, KeywordCoverage, RuleBased
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.scoring import AgentDockCriteria, normalize, overall_score
from tests.golden import same, vectors


def evaluate(kind: type[Evaluator], vector: dict[str, Any]) -> list[EvaluationResult]:
    evaluator = load_evaluator({"type": kind.__name__, "config": vector["config"]})
    evaluation_input = EvaluationInput.model_validate(vector["input"])
    return asyncio.run(evaluator.evaluate(evaluation_input, AgentDockCriteria.reading(evaluation_input.criteria)))


def check(kind: type[Evaluator], vector: dict[str, Any]) -> None:
    expected = vector["expected"]
    if "suggested_score" in vector:
        (result,) = evaluate(kind, vector)
        assert result.error is None
        assert same(result.score, vector["suggested_score"])
        return
    if isinstance(expected, dict):
        assert expected == {"throws": True}
        with pytest.raises(ConfigurationError):
            evaluate(kind, vector)
        return
    results = evaluate(kind, vector)
    assert [result.criterion_name for result in results] == [item["criterionName"] for item in expected]
    for result, item in zip(results, expected, strict=True):
        shape = result.original_json()
        assert bool(shape.get("error")) == item["error"], shape
        assert same(shape["score"], item["score"]), shape
        assert shape["evaluatorType"] == item["evaluatorType"]
        assert result.score is None or not result.error
        assert "metadata" not in item or same(shape.get("metadata"), item["metadata"])


@pytest.mark.parametrize("vector", vectors("RuleBased"))
def test_rule_based(vector: dict[str, Any]) -> None:
    """RuleBased decides every recorded case as the original, or better where it had a bug."""
    check(RuleBased, vector)


@pytest.mark.parametrize("vector", vectors("KeywordCoverage"))
def test_keyword_coverage(vector: dict[str, Any]) -> None:
    """KeywordCoverage finds the recorded shares, and whole words in any script."""
    check(KeywordCoverage, vector)


@pytest.mark.parametrize("vector", vectors("getInputText"))
def test_text_at(vector: dict[str, Any]) -> None:
    """The text of a field is found by the original's path rules."""
    evaluation_input = EvaluationInput.model_validate(vector["input"])
    result = evaluation_input.text_at(vector["config"].get("sourceField", ""))
    assert result == vector.get("suggested_text", vector["expected"]["text"])


@pytest.mark.parametrize("vector", vectors("runner.normalize"))
def test_normalize(vector: dict[str, Any]) -> None:
    """Every recorded score is moved to [0, 1], or left out, by its scale."""
    criterion = AgentDockCriteria(name="C", scale=vector["config"]["scale"])
    actual = [normalize(score, criterion) for score in vector["input"]["scores"]]
    assert same(actual, vector["expected"]["normalized"])


@pytest.mark.parametrize("vector", vectors("runner.aggregate"))
def test_aggregate(vector: dict[str, Any]) -> None:
    """The overall score is the recorded weighted mean; an average of nothing is absent."""
    criteria = [AgentDockCriteria.model_validate(item) for item in vector["input"]["criteria"]]
    results = [EvaluationResult.model_validate(item) for item in vector["input"]["results"]]
    expected = vector.get("suggested_overall", vector["expected"]["overallScore"])
    assert same(overall_score(results, criteria), expected)
