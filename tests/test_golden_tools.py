"""The vectors of ToolUsage that were recorded from the original framework: by themselves, and through the runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult
from tests.golden import same, vectors


def function_of(check: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """The function that stood in the original's configuration, as the vectors write it down."""

    def value_of(arguments: Any) -> Any:
        return arguments.get(check["arg"]) if isinstance(arguments, dict) else None

    def raises(arguments: Any) -> bool:
        raise RuntimeError(check.get("message"))

    decide: dict[str, Callable[[Any], bool]] = {
        "nonempty_string": lambda arguments: isinstance(value_of(arguments), str) and value_of(arguments) != "",
        "arg_contains": lambda arguments: (
            isinstance(value_of(arguments), str) and check["value"] in value_of(arguments)
        ),
        "arg_equals": lambda arguments: same(value_of(arguments), check["value"]),
        "always_valid": lambda arguments: True,
        "always_invalid": lambda arguments: False,
        "raises": raises,
    }

    def checked(arguments: Any) -> dict[str, Any]:
        valid = decide[check["check"]](arguments)
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


def run(configs: list[dict[str, Any]], value: dict[str, Any]) -> AggregatedEvaluationResult:
    config = EvaluationRunConfig.model_validate({"evaluatorConfigs": with_functions(configs)})
    return run_evaluation_sync(EvaluationInput.model_validate(value), config)


def runs() -> list[Any]:
    """The recorded runs that have tool rules; where the vectors are away, what stands for them."""
    result = vectors("runner.run")
    return [item for item in result if item.values[0] is None or "ToolUsage" in str(item.values[0]["config"])]


@pytest.mark.parametrize("vector", vectors("ToolUsage"))
def test_tool_usage(vector: dict[str, Any]) -> None:
    """Every recorded case is decided as in the original; a raising check loses its own rule instead of all of them."""
    entry = {"type": "ToolUsage", "config": vector["config"]}
    expected = vector["expected"]
    if expected == {"throws": True} and vector["class"] == "exact":
        with pytest.raises(ConfigurationError):
            run([entry], vector["input"])
        return
    outcome = run([entry], vector["input"])
    shape = outcome.original_json()
    if expected == {"throws": True}:
        assert [error["evaluatorType"] for error in shape["runErrors"]] == ["ToolUsage"]
        raising = {rule["criterionName"] for rule in vector["config"]["rules"]
                   if rule.get("argumentChecks", {}).get("check") == "raises"}  # fmt: skip
        assert {result.criterion_name for result in outcome.results if result.raised} == raising
        assert all(result.status == "scored" for result in outcome.results if result.criterion_name not in raising)
        return
    results = shape["results"]
    assert [result["criterionName"] for result in results] == [item["criterionName"] for item in expected]
    for result, item in zip(results, expected, strict=True):
        assert bool(result.get("error")) == item["error"], result
        assert same(result["score"], item["score"]), result
        assert result["evaluatorType"] == item["evaluatorType"]


@pytest.mark.parametrize("vector", runs())
def test_runs_with_tool_usage(vector: dict[str, Any]) -> None:
    """A recorded run with tool rules gives the recorded results, labels and errors."""
    configs, expected = vector["config"]["evaluatorConfigs"], vector["expected"]
    if expected == {"throws": True}:
        with pytest.raises(ConfigurationError):
            run(configs, vector["input"])
        return
    shape = run(configs, vector["input"]).original_json()
    results = [
        {"criterionName": result["criterionName"], "score": result["score"], "evaluatorType": result["evaluatorType"],
         "error": bool(result.get("error"))}
        for result in shape["results"]
    ]  # fmt: skip
    assert same(results, expected["results"])
    assert same(shape.get("overallScore"), expected["overallScore"])
    assert [error["evaluatorType"] for error in shape.get("runErrors", ())] == expected.get("runErrors", [])
    assert [error["evaluatorType"] for error in shape["metadata"]["errors"]] == expected.get("errors", [])
    assert shape["evaluationConfigSnapshot"] == expected["evaluationConfigSnapshot"]
