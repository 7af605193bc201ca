"""Wrong uses that newcomers try are refused with the way out, or understood."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from agenteval_otel import (
    EvaluationInput,
    EvaluationRunConfig,
    Settings,
    configure,
    flush,
    monitor,
    run_evaluation_sync,
    shutdown,
)
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import (
    Contains,
    KeywordCoverage,
    Length,
    LLMJudge,
    ResponseHealth,
    TrajectoryMatch,
)
from tests.testing.threads import no_thread_left

__all__ = ["no_thread_left"]

ANSWER = EvaluationInput(prompt="q", response="Found it, and refunded.")
CONFIG = EvaluationRunConfig(evaluators=[ResponseHealth()])
LENGTH = Length(criterion="short", max=9)

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a judge is missing": (lambda: LLMJudge("polite?"), 'such as judge="anthropic:<model>"'),
    "a model for a judge": (
        lambda: LLMJudge("polite?", judge="x:y", model="gpt"),  # type: ignore[call-arg]
        "did you mean 'judge'?",
    ),
    "a name for an agent": (
        lambda: monitor(name="support"),  # type: ignore[call-overload]
        "did you mean 'agent'?",
    ),
    "a rule for an evaluator": (
        lambda: configure(evaluators=[LENGTH]),
        "Length is a rule: RuleBased(rules=[Length(...)])",
    ),
    "a question for a rubric": (
        lambda: LLMJudge(question="Polite?", judge="x:y"),  # type: ignore[call-arg]
        "did you mean 'rubric'?",
    ),
    "an evaluator of another product": (
        lambda: configure(evaluators=["Faithfulness"]),
        "did you mean 'Groundedness'?",
    ),
    "a rule by its name": (
        lambda: configure(evaluators=["length"]),
        "did you mean 'RuleBased'?",
    ),
    "evals": (
        lambda: monitor(evals=[ResponseHealth()]),  # type: ignore[call-overload]
        "did you mean 'evaluators'?",
    ),
    "keywords": (
        lambda: KeywordCoverage(criterion_name="k", keywords=["a"]),  # type: ignore[call-arg]
        "did you mean 'expected_keywords'?",
    ),
    "an input": (
        lambda: EvaluationInput(input="q", output="a"),  # type: ignore[call-arg]
        "unknown fields 'input' (did you mean 'prompt'?), 'output' (did you mean 'response'?)",
    ),
    "an output": (
        lambda: EvaluationInput(prompt="q", output="a"),  # type: ignore[call-arg]
        "did you mean 'response'?",
    ),
    "a database": (lambda: configure(storage="postgres"), "did you mean 'sql'?"),
    "a hook": (
        lambda: configure(evaluators=[ResponseHealth()], on_breach="http://hook"),
        "expected a function or 'module:function', found an address",
    ),
    "a share as sampling": (
        lambda: configure(sampling=0.1),
        "sampling: expected a mapping. To evaluate a share of the answers, set sample_rate, found 0.1",
    ),
    "a file by a name": (
        lambda: configure(settings="agenteval.yaml"),
        "A settings file is the first argument: configure('agenteval.yaml')",
    ),
    "a time in words": (lambda: flush("soon"), "expected a number of seconds, found 'soon'"),  # type: ignore[arg-type]
    "a time in words at the end": (
        lambda: shutdown("soon"),  # type: ignore[arg-type]
        "expected a number of seconds, found 'soon'",
    ),
    "the Collector for the sidecar": (
        lambda: configure(endpoint="http://127.0.0.1:4317"),
        "telemetry={'endpoint': 'http://127.0.0.1:4317'}",
    ),
    "a configuration and fields": (
        lambda: run_evaluation_sync(ANSWER, CONFIG, storage=[]),
        "give an EvaluationRunConfig or its fields, not both",
    ),
    "a section that is no mapping": (
        lambda: configure({"Evaluation": True}),
        "Evaluation: expected a mapping with 'Enabled'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_use_is_refused_with_the_way_out(name: str) -> None:
    use, says = REFUSED[name]
    with pytest.raises((ConfigurationError, ValueError)) as raised:
        use()
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("module", "name", "here"),
    [
        ("agenteval_otel", "evaluate", "run_evaluation"),
        ("agenteval_otel", "observe", "monitor"),
        ("agenteval_otel", "LLMJudge", "agenteval_otel.evaluators.LLMJudge"),
        ("agenteval_otel.evaluators", "Faithfulness", "Groundedness"),
        ("agenteval_otel.evaluators", "GEval", "LLMJudge"),
    ],
)
def test_names_of_other_products_lead_to_ours(module: str, name: str, here: str) -> None:
    """Every name that is offered in their place is there."""
    with pytest.raises(ImportError, match=f"cannot import name '{name}' .*: here it is {here}"):
        exec(f"from {module} import {name}")
    place, _, meant = here.rpartition(".")
    assert hasattr(importlib.import_module(place or module), meant)
    assert not hasattr(importlib.import_module(module), "no_such_name")


def test_short_forms_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields instead of a configuration, an address as telemetry, and a mapping of settings."""
    result = run_evaluation_sync(ANSWER, evaluators=[ResponseHealth()])
    assert result.overall_score == 1.0
    settings = Settings(telemetry="http://127.0.0.1:4317")  # type: ignore[arg-type]
    assert settings.telemetry.endpoint == "http://127.0.0.1:4317"
    assert configure({"sample_rate": 0.25}).sample_rate == 0.25
    assert not configure({"Evaluation": {"Enabled": False, "LogToConsole": True}}).enabled
    monkeypatch.setenv("AGENTEVAL_EVALUATION__ENABLED", "false")
    assert not configure().enabled
    assert Settings().endpoint == "http://127.0.0.1:4327"


def test_bare_names_are_expected_calls() -> None:
    """With any arguments."""
    calls: Any = [{"name": "find", "arguments": {"id": 7}}, {"name": "refund"}]
    made = EvaluationInput(prompt="q", response="a", tool_calls=calls)
    bare: Any = ["find", "refund"]
    match = TrajectoryMatch(expected=bare)
    assert run_evaluation_sync(made, evaluators=[match]).overall_score == 1.0


@pytest.mark.parametrize(
    ("substrings", "score"), [(["refunded", "lost"], 1.0), (["lost", "gone"], 0.0)]
)
def test_one_of_several_texts_may_be_enough(substrings: list[str], score: float) -> None:
    contains = Contains(substrings=substrings, mode="any")
    (result,) = run_evaluation_sync(ANSWER, evaluators=[contains]).results
    assert (result.score, result.passed) == (score, score == 1.0)
