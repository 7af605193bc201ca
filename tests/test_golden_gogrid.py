"""The vectors recorded from GoGrid's eval package: what each evaluator gives, and what a suite
makes of it.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, Score, Suite, run_evaluation_sync
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Func
from tests.golden import same, vectors
from tests.test_golden_runner import StubModel

gogrid = partial(vectors, files=("gogrid_golden.json",))


def input_of(result: dict[str, Any]) -> EvaluationInput:
    """GoGrid's agent result as an input: its history's calls are read as they stand."""
    observed_ms = result.get("observed_ms")
    return EvaluationInput.model_validate(
        {
            "response": result.get("output", ""),
            "cost": result.get("cost"),
            "messageHistory": result.get("history"),
            "durationS": None if observed_ms is None else observed_ms / 1000,
        }
    )


@pytest.mark.parametrize(
    "vector", gogrid("ExactMatch", "Contains", "CostWithin", "CompletedWithin", "ToolUse")
)
def test_evaluators(vector: dict[str, Any]) -> None:
    """Verdict and value are the recorded ones, by the same names of configuration."""
    entry = {"type": vector["evaluator"], "config": vector["config"]}
    config = EvaluationRunConfig.model_validate({"evaluatorConfigs": [entry]})
    aggregated = run_evaluation_sync(input_of(vector["input"]), config)
    (result,) = aggregated.results
    expected = vector["expected"]
    assert result.error is None
    assert result.passed is expected["pass"]
    assert same(result.score, expected["value"])
    assert same(result.normalized, expected["value"])
    assert aggregated.overall_score == result.score


def stub(item: dict[str, Any], called: list[str]) -> Func:
    def answer(_: EvaluationInput) -> Score:
        called.append(item["name"])
        if "raises" in item:
            raise RuntimeError(item["raises"])
        return Score(value=item["value"], passed=item["pass"])

    return Func(name=item["name"], function=answer)


@pytest.mark.parametrize("vector", gogrid("Suite"))
def test_suites(vector: dict[str, Any]) -> None:
    """A suite goes on where one fails and stops where one breaks, as the document says; with the
    option as the code.
    """
    called: list[str] = []
    evaluators = [stub(item, called) for item in vector["config"]["evaluators"]]
    names = [evaluator.name for evaluator in evaluators]
    if len(set(names)) < len(names):
        with pytest.raises(ConfigurationError, match="'a' already"):
            Suite(evaluators=evaluators)
        return
    for continues in (False, True):
        called.clear()
        result = Suite(evaluators=evaluators, continue_on_error=continues).run_sync(
            input_of(vector["input"])
        )
        expected = (
            vector["expected"]
            if continues
            else vector["expected"] | vector.get("expected_by_adr", {})
        )
        shape = json.loads(result.model_dump_json(by_alias=True))
        assert called == expected["called"]
        assert shape["pass"] is expected["pass"]
        assert sorted(shape["errors"]) == sorted(expected["errors"])
        scores = {name: score for name, score in expected["scores"].items() if name in called}
        assert {
            name: {"pass": item["pass"], "value": item["value"]}
            for name, item in shape["scores"].items()
        } == scores


@pytest.mark.parametrize("vector", gogrid("LLMJudge"))
def test_judges(vector: dict[str, Any]) -> None:
    """Verdict, value and reason are the recorded ones, and what the original calls an error is a
    failure here.
    """
    stub, expected = StubModel(vector["llm"]), vector["expected"]
    run = {"evaluatorConfigs": [{"type": "LLMJudge", "config": {**vector["config"], "llm": stub}}]}
    value = EvaluationInput(response=vector["input"]["output"])
    (result,) = run_evaluation_sync(value, EvaluationRunConfig.model_validate(run)).results
    assert bool(result.error) is bool(expected.get("error"))
    if result.error:
        assert (result.score, result.passed) == (None, None)
        return
    assert result.passed is expected["pass"]
    assert same(result.score, expected["value"])
    assert same(result.normalized, expected["value"])
    assert result.reasoning == expected["reason"]
    if vector["class"] == "exact" and "prompt_sent" in vector:
        assert (stub.prompts, stub.systems) == ([vector["prompt_sent"]], [""])
    if "{output}" in vector["config"]["rubric"]:  # the original expands it too
        assert stub.prompts == ["R=look at {output} O=hello"]
