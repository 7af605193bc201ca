"""The vectors recorded from AgentDock, each through the runner, as a user of the original would run
it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from agenteval_otel import (
    AggregatedEvaluationResult,
    EvaluationInput,
    EvaluationResult,
    EvaluationRunConfig,
    run_evaluation_sync,
)
from agenteval_otel.engine.aggregation import overall_score
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import KeywordCoverage
from agenteval_otel.models import Score
from agenteval_otel.models.scoring import AgentDockCriteria
from tests.golden import same, vectors
from tests.testing.doubles import Keeping, Raw

TYPES = ("RuleBased", "LexicalSimilarity", "KeywordCoverage", "Sentiment", "Toxicity", "ToolUsage", "NLPAccuracy",
         "LLMJudge")  # fmt: skip
PLACEHOLDER = "[object Object]"


class StubModel:
    """The originals' stub: one reply, or one error, whatever it is asked."""

    def __init__(self, llm: dict[str, str]) -> None:
        self._llm = llm
        self.prompts: list[str] = []
        self.systems: list[str] = []

    def generate(self, prompt: str, system: str) -> str:
        self.prompts.append(prompt)
        self.systems.append(system)
        if "raises" in self._llm:
            raise RuntimeError(self._llm["raises"])
        return self._llm["text"]


class StubEmbedder:
    """The original's stub: a table of vectors."""

    def __init__(self, table: dict[str, list[float]]) -> None:
        self._table = table

    def embed(self, texts: list[str]) -> list[list[float]]:
        assert PLACEHOLDER not in texts
        # What the original turns into its placeholder has another text here, and the placeholder's
        # vector.
        return [self._table[PLACEHOLDER if text.startswith("{") else text] for text in texts]


def function_of(check: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """The function that stood in the original's configuration, as the vectors write it down."""

    def raises(value: Any) -> bool:
        raise RuntimeError(check.get("message"))

    decide: dict[str, Callable[[Any], bool]] = {
        "nonempty_string": lambda value: isinstance(value, str) and value != "",
        "arg_contains": lambda value: isinstance(value, str) and check["value"] in value,
        "arg_equals": lambda value: same(value, check["value"]),
        "always_valid": lambda value: True,
        "always_invalid": lambda value: False,
        "raises": raises,
    }

    def checked(arguments: Any) -> dict[str, Any]:
        valid = decide[check["check"]](
            arguments.get(check.get("arg")) if isinstance(arguments, dict) else None
        )
        return {"isValid": valid} if valid else {"isValid": False, "reason": check.get("reason")}

    return checked


def with_functions(config: Any) -> Any:
    """The configuration with functions where the vectors describe them."""
    if isinstance(config, list):
        return [with_functions(item) for item in config]
    if not isinstance(config, dict):
        return config
    return {
        key: function_of(value) if key == "argumentChecks" and value else with_functions(value)
        for key, value in config.items()
    }


def entry_of(vector: dict[str, Any]) -> dict[str, Any]:
    kind, config = vector["evaluator"], with_functions(copy.deepcopy(vector["config"]))
    if kind == "RuleBased":
        return {"type": kind, **config}
    if "embeddings" in vector and not config.pop("no_model", False):
        config["embeddingModel"] = StubEmbedder(vector["embeddings"])
    if "llm" in vector and not config.pop("no_llm", False):
        config["llm"] = StubModel(vector["llm"])
    return {"type": kind, "config": config}


def run(configs: list[Any], value: dict[str, Any], **fields: Any) -> AggregatedEvaluationResult:
    config = EvaluationRunConfig.model_validate({"evaluatorConfigs": configs, **fields})
    return run_evaluation_sync(EvaluationInput.model_validate(value), config)


def check_results(shapes: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [shape["criterionName"] for shape in shapes] == [
        item["criterionName"] for item in expected
    ]
    for shape, item in zip(shapes, expected, strict=True):
        assert bool(shape.get("error")) == item["error"], shape
        assert same(shape["score"], item["score"]), shape
        assert shape["evaluatorType"] == item["evaluatorType"]
        assert "metadata" not in item or same(shape.get("metadata"), item["metadata"]), shape


@pytest.mark.parametrize("vector", vectors(*TYPES))
def test_every_evaluator_through_the_runner(vector: dict[str, Any]) -> None:
    """A case has the recorded scores, errors, metadata and prompt; the suggested score where the
    original is wrong.
    """
    expected, entry = vector["expected"], entry_of(vector)
    try:
        outcome = run([entry], vector["input"])
    except ConfigurationError:
        assert expected == {"throws": True}
        assert "suggested_score" not in vector
        return
    shape = json.loads(json.dumps(outcome.original_json()))
    assert all(result.score is None or not result.error for result in outcome.results)
    if "suggested_score" in vector:
        (result,) = shape["results"]
        assert "error" not in result
        assert same(result["score"], vector["suggested_score"])
    elif expected == {
        "throws": True
    }:  # a check that raises loses its own rule instead of all of them
        assert [error["evaluatorType"] for error in shape["runErrors"]] == ["ToolUsage"]
        raising = {
            rule["criterionName"]
            for rule in vector["config"]["rules"]
            if rule.get("argumentChecks", {}).get("check") == "raises"
        }
        assert {result.criterion_name for result in outcome.results if result.raised} == raising
        assert all(
            result.status == "scored"
            for result in outcome.results
            if result.criterion_name not in raising
        )
    else:
        check_results(shape["results"], expected)
    if (model := entry.get("config", {}).get("llm")) is not None:
        prompt = vector.get("suggested_prompt", vector.get("prompt_sent"))
        assert prompt is None or model.prompts == [prompt]
        assert bool(model.prompts) == bool(expected)
        assert all("JSON" in system for system in model.systems)


class Broken(KeywordCoverage):
    """Stands for the original's, which its unescaped keywords broke."""

    def score(self, evaluation_input: EvaluationInput) -> Score:
        raise ValueError("unescaped")


class Failing:
    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        raise OSError("disk full")


@pytest.mark.parametrize("vector", vectors("runner.run"))
def test_runs(vector: dict[str, Any]) -> None:
    """A recorded run has the recorded results, snapshot, errors and metadata, and is saved as
    recorded.
    """
    expected, config = vector["expected"], copy.deepcopy(vector["config"])
    storage: Any = {"ok": Keeping(), "fails": Failing(), None: None}[vector.get("storage")]
    entries = [
        Broken(criterion_name="Kw", expected_keywords=["c++"])
        if "c++" in str(entry)
        else with_functions(entry)
        for entry in config.pop("evaluatorConfigs", [])
    ]
    if expected == {"throws": True}:
        with pytest.raises(ConfigurationError):
            run(entries, vector["input"], **config)
        return
    outcome = run(
        entries,
        vector["input"],
        **config,
        **({} if storage is None else {"storageProvider": storage}),
    )
    shape = outcome.original_json()
    check_results(shape["results"], expected["results"])
    assert same(shape.get("overallScore"), expected["overallScore"])
    assert same(shape["evaluationConfigSnapshot"], expected["evaluationConfigSnapshot"])
    assert set(shape["metadata"]) == set(expected["metadataKeysOut"]) | {"errors"}
    assert isinstance(shape["metadata"]["durationMs"], int)
    assert [error["evaluatorType"] for error in shape["metadata"]["errors"]] == expected["errors"]
    assert [error["evaluatorType"] for error in shape.get("runErrors", ())] == (
        expected["runErrors"] or []
    )
    assert (shape.get("agentId"), shape.get("sessionId")) == (
        expected.get("agentId"),
        expected.get("sessionId"),
    )
    assert shape["inputSnapshot"] == vector["input"]
    if "savedCount" in expected:
        assert len(storage.saved) == expected["savedCount"]


@pytest.mark.parametrize("vector", vectors("runner.aggregate"))
def test_aggregates(vector: dict[str, Any]) -> None:
    """Recorded results of stub evaluators have the recorded overall score, also when they pass
    through the runner.
    """
    expected = vector.get("suggested_overall", vector["expected"]["overallScore"])
    results = [EvaluationResult.model_validate(item) for item in vector["input"]["results"]]
    criteria = [AgentDockCriteria.model_validate(item) for item in vector["input"]["criteria"]]
    assert same(overall_score(results, criteria), expected)
    stubs = [Raw(name=result.criterion_name, results=(result,)) for result in results]
    outcome = run(stubs, {"response": "r", "criteria": vector["input"]["criteria"]})
    assert same(outcome.overall_score, expected)


@pytest.mark.parametrize("vector", vectors("runner.normalize"))
def test_normalized_through_the_runner(vector: dict[str, Any]) -> None:
    """Each recorded score, given bare by an evaluator from outside, has its normalized form in the
    result.
    """
    values = {
        "response": "r",
        "criteria": [{"name": "C", "description": "", "scale": vector["config"]["scale"]}],
    }
    actual = []
    for score in vector["input"]["scores"]:
        result = EvaluationResult(criterion_name="C", score=score, evaluator_type="Stub")
        actual.append(run([Raw(name="C", results=(result,))], values).results[0].normalized)
    assert same(actual, vector["expected"]["normalized"])


@pytest.mark.parametrize("vector", vectors("getInputText"))
def test_text_at(vector: dict[str, Any]) -> None:
    """The text of a field is found by the original's path rules."""
    evaluation_input = EvaluationInput.model_validate(vector["input"])
    result = evaluation_input.text_at(vector["config"].get("sourceField", ""))
    assert result == vector.get("suggested_text", vector["expected"]["text"])
