"""The vectors recorded from the original framework, each through the runner, as a user of the original would run it."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest

from agenteval_otel import (
    AggregatedEvaluationResult,
    EvaluationInput,
    EvaluationResult,
    EvaluationRunConfig,
    run_evaluation_sync,
)
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, KeywordCoverage
from agenteval_otel.models import Score
from agenteval_otel.scoring import AgentDockCriteria, overall_score
from tests.golden import same, vectors
from tests.test_golden_llm_judge import Stub as StubModel
from tests.test_golden_tools import with_functions
from tests.testing.doubles import Keeping, Raw

TYPES = ("RuleBased", "LexicalSimilarity", "KeywordCoverage", "Sentiment", "Toxicity", "ToolUsage", "NLPAccuracy",
         "LLMJudge")  # fmt: skip


class Stub:
    """The vectors that were recorded with a stub model."""

    def __init__(self, embeddings: dict[str, list[float]]) -> None:
        self.embeddings = embeddings

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [self.embeddings[text] for text in texts]


def registered(actual: list[Any]) -> list[Any]:
    """Those vectors whose evaluator there is."""
    return [item for item in actual if item.values[0] is None or item.values[0]["evaluator"] in Evaluator.registry]


def entry_of(vector: dict[str, Any]) -> dict[str, Any]:
    kind, config = vector["evaluator"], with_functions(copy.deepcopy(vector["config"]))
    if kind == "RuleBased":
        return {"type": kind, **config}
    if "embeddings" in vector and not config.pop("no_model", False):
        config["embeddingModel"] = Stub(vector["embeddings"])
    if "llm" in vector and not config.pop("no_llm", False):
        config["llm"] = StubModel(vector["llm"])
    return {"type": kind, "config": config}


def run(configs: list[Any], value: dict[str, Any], **fields: Any) -> AggregatedEvaluationResult:
    config = EvaluationRunConfig.model_validate({"evaluatorConfigs": configs, **fields})
    return run_evaluation_sync(EvaluationInput.model_validate(value), config)


def check_results(shapes: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [shape["criterionName"] for shape in shapes] == [item["criterionName"] for item in expected]
    for shape, item in zip(shapes, expected, strict=True):
        assert bool(shape.get("error")) == item["error"], shape
        assert same(shape["score"], item["score"]), shape
        assert shape["evaluatorType"] == item["evaluatorType"]
        assert "metadata" not in item or same(shape.get("metadata"), item["metadata"]), shape


def alone(vector: dict[str, Any]) -> list[dict[str, Any]]:
    """What the evaluator gives without the runner."""
    evaluator = EvaluationRunConfig.model_validate({"evaluatorConfigs": [entry_of(vector)]}).evaluators[0]
    value = EvaluationInput.model_validate(vector["input"])
    return [
        result.original_json()
        for result in asyncio.run(evaluator.evaluate(value, AgentDockCriteria.reading(value.criteria)))
    ]


@pytest.mark.parametrize("vector", registered(vectors(*TYPES)))
def test_every_evaluator_through_the_runner(vector: dict[str, Any]) -> None:
    """A recorded case run from ``evaluatorConfigs`` has the recorded scores, errors and metadata in the result's JSON.

    Where the original has a quirk and the record suggests nothing better, the runner gives what the evaluator gives.
    """
    expected = vector["expected"]
    try:
        outcome = run([entry_of(vector)], vector["input"])
    except ConfigurationError:
        assert expected == {"throws": True}
        assert "suggested_score" not in vector
        return
    shape = json.loads(json.dumps(outcome.original_json()))
    if "suggested_score" in vector:
        (result,) = shape["results"]
        assert "error" not in result
        assert same(result["score"], vector["suggested_score"])
    elif isinstance(expected, dict):
        assert shape["runErrors"]
    elif vector["class"] == "quirk":
        assert same(shape["results"], json.loads(json.dumps(alone(vector))))
    else:
        check_results(shape["results"], expected)


class Broken(KeywordCoverage):
    """Stands for the original's, which its unescaped keywords broke."""

    def score(self, evaluation_input: EvaluationInput) -> Score:
        raise ValueError("unescaped")


class Failing:
    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        raise OSError("disk full")


@pytest.mark.parametrize("vector", vectors("runner.run"))
def test_runs(vector: dict[str, Any]) -> None:
    """A recorded run has the recorded results, snapshot, errors and metadata, and is saved as recorded."""
    expected, config = vector["expected"], copy.deepcopy(vector["config"])
    storage: Any = {"ok": Keeping(), "fails": Failing(), None: None}[vector.get("storage")]
    entries = [
        Broken(criterion_name="Kw", expected_keywords=["c++"]) if "c++" in str(entry) else with_functions(entry)
        for entry in config.pop("evaluatorConfigs", [])
    ]
    if expected == {"throws": True}:
        with pytest.raises(ConfigurationError):
            run(entries, vector["input"], **config)
        return
    missing = {entry["type"] for entry in entries if isinstance(entry, dict)} - Evaluator.registry.keys()
    if missing:
        pytest.skip(f"{missing} is not there")
    outcome = run(entries, vector["input"], **config, **({} if storage is None else {"storageProvider": storage}))
    shape = outcome.original_json()
    check_results(shape["results"], expected["results"])
    assert same(shape.get("overallScore"), expected["overallScore"])
    assert same(shape["evaluationConfigSnapshot"], expected["evaluationConfigSnapshot"])
    assert set(shape["metadata"]) == set(expected["metadataKeysOut"]) | {"errors"}
    assert isinstance(shape["metadata"]["durationMs"], int)
    assert [error["evaluatorType"] for error in shape["metadata"]["errors"]] == expected["errors"]
    assert [error["evaluatorType"] for error in shape.get("runErrors", ())] == (expected["runErrors"] or [])
    assert (shape.get("agentId"), shape.get("sessionId")) == (expected.get("agentId"), expected.get("sessionId"))
    assert shape["inputSnapshot"] == vector["input"]
    if "savedCount" in expected:
        assert len(storage.saved) == expected["savedCount"]


@pytest.mark.parametrize("vector", vectors("runner.aggregate"))
def test_aggregates(vector: dict[str, Any]) -> None:
    """Recorded results of stub evaluators have the recorded overall score, also when they pass through the runner."""
    expected = vector.get("suggested_overall", vector["expected"]["overallScore"])
    results = [EvaluationResult.model_validate(item) for item in vector["input"]["results"]]
    criteria = [AgentDockCriteria.model_validate(item) for item in vector["input"]["criteria"]]
    assert same(overall_score(results, criteria), expected)
    stubs = [Raw(name=result.criterion_name, results=(result,)) for result in results]
    outcome = run(stubs, {"response": "r", "criteria": vector["input"]["criteria"]})
    assert same(outcome.overall_score, expected)


@pytest.mark.parametrize("vector", vectors("runner.normalize"))
def test_normalized_through_the_runner(vector: dict[str, Any]) -> None:
    """Each recorded score, given bare by an evaluator from outside, has its normalized form in the result."""
    values = {"response": "r", "criteria": [{"name": "C", "description": "", "scale": vector["config"]["scale"]}]}
    actual = []
    for score in vector["input"]["scores"]:
        result = EvaluationResult(criterion_name="C", score=score, evaluator_type="Stub")
        actual.append(run([Raw(name="C", results=(result,))], values).results[0].normalized)
    assert same(actual, vector["expected"]["normalized"])
