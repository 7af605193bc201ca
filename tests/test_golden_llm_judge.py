"""The vectors that were recorded from the originals' LLMJudge, AgentDock's and GoGrid's, each with its stub model."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.errors import ConfigurationError
from tests.golden import same, vectors
from tests.test_golden_gogrid import gogrid


class Stub:
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


@pytest.mark.parametrize("vector", vectors("LLMJudge"))
def test_agentdock(vector: dict[str, Any]) -> None:
    """Score, error, metadata and the prompt are the recorded ones; text that was put in is not expanded."""
    stub, config = Stub(vector["llm"]), dict(vector["config"])
    if not config.pop("no_llm", False):
        config["llm"] = stub
    run = {"evaluatorConfigs": [{"type": "LLMJudge", "config": config}]}
    if vector["expected"] == {"throws": True}:
        with pytest.raises(ConfigurationError, match="judge"):
            EvaluationRunConfig.model_validate(run)
        return
    aggregated = run_evaluation_sync(
        EvaluationInput.model_validate(vector["input"]), EvaluationRunConfig.model_validate(run)
    )
    assert len(aggregated.results) == len(vector["expected"])
    assert bool(stub.prompts) == bool(vector["expected"])
    for result, expected in zip(aggregated.results, vector["expected"], strict=True):
        shape = result.original_json()
        assert bool(shape.get("error")) == expected["error"], shape
        assert same(shape["score"], expected["score"]), shape
        assert shape["criterionName"] == expected["criterionName"]
        assert shape["evaluatorType"] == expected["evaluatorType"]
        assert same(shape.get("metadata"), expected.get("metadata")), shape
        assert result.score is None or not result.error
    prompt = vector.get("suggested_prompt", vector.get("prompt_sent"))
    assert prompt is None or stub.prompts == [prompt]
    assert all("JSON" in system for system in stub.systems)


@pytest.mark.parametrize("vector", gogrid("LLMJudge"))
def test_gogrid(vector: dict[str, Any]) -> None:
    """Verdict, value and reason are the recorded ones, and what the original calls an error is a failure here."""
    stub, expected = Stub(vector["llm"]), vector["expected"]
    run = {"evaluatorConfigs": [{"type": "LLMJudge", "config": {**vector["config"], "llm": stub}}]}
    value = EvaluationInput(response=vector["input"]["output"])
    (result,) = run_evaluation_sync(value, EvaluationRunConfig.model_validate(run)).results
    assert bool(result.error) is bool(expected.get("error"))
    if result.error:
        assert result.score is None
        assert result.passed is None
        return
    assert result.passed is expected["pass"]
    assert same(result.score, expected["value"])
    assert same(result.normalized, expected["value"])
    assert result.reasoning == expected["reason"]
    if vector["class"] == "exact" and "prompt_sent" in vector:
        assert stub.prompts == [vector["prompt_sent"]]
        assert stub.systems == [""]
    if "{output}" in vector["config"]["rubric"]:  # the original expands it too
        assert stub.prompts == ["R=look at {output} O=hello"]
