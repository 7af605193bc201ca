"""An AgentDock document loads wherever settings load, and means the same everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, monitor, run_evaluation_sync
from agenteval_otel.config.load import SettingsError, load_settings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import LexicalSimilarity, RuleBased, Toxicity

TOXICITY = {"type": "Toxicity", "config": {"criterionName": "clean", "toxicTerms": ["idiot"]}}
SIMILAR = {
    "type": "LexicalSimilarity",
    "config": {"criterionName": "alike", "algorithm": "unheard-of"},
}
SHORT = {
    "type": "RuleBased",
    "rules": [{"criterionName": "short", "config": {"type": "length", "max": 80}}],
}
DOCUMENT: dict[str, Any] = {
    "evaluatorConfigs": [TOXICITY, SIMILAR, SHORT],
    "criteria": [{"name": "clean", "weight": 2}],
    "metadata": {"suite": "nightly"},
}


@pytest.fixture
def run_json(tmp_path: Path) -> Path:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(DOCUMENT, indent=2))
    return file


def test_settings_take_the_document(run_json: Path) -> None:
    """Evaluators have AgentDock's defaults, its criteria are the default set, and metadata gives a
    warning.
    """
    loaded = load_settings(run_json, environment={})
    toxicity, similar, rules = loaded.settings.evaluators
    assert isinstance(toxicity, Toxicity)
    assert toxicity.toxic_terms == ("idiot",)
    assert isinstance(similar, LexicalSimilarity)
    assert (similar.algorithm, similar.ngram_size, similar.without_reference) == (
        "sorensen-dice",
        1,
        "fail",
    )
    assert isinstance(rules, RuleBased)
    assert [(item.name, item.weight) for item in loaded.settings.criteria_of()] == [("clean", 2)]
    assert any("metadata" in warning for warning in loaded.warnings)
    assert loaded.settings.evaluators == EvaluationRunConfig.model_validate(DOCUMENT).evaluators


@pytest.mark.parametrize(("enabled", "kept"), [(True, True), (False, False), ("false", False)])
def test_the_partnership_agents_switch_is_a_setting(
    tmp_path: Path, enabled: Any, kept: bool
) -> None:
    """``Evaluation: Enabled`` is ``enabled``; a wrong value has its place in the file, and another
    key is unknown.
    """
    file = tmp_path / "appsettings.json"
    file.write_text(json.dumps({"Evaluation": {"Enabled": enabled, "LogToConsole": True}}))
    assert load_settings(file, environment={}).settings.enabled is kept
    for wrong, message in (
        ({"Enabled": "off-ish"}, r"appsettings.json.*: enabled: "),
        ({"Enable": 1}, "unknown field"),
    ):
        file.write_text(json.dumps({"Evaluation": wrong}))
        with pytest.raises(SettingsError, match=message):
            load_settings(file, environment={})


def test_monitor_takes_an_entry() -> None:
    """An entry of a document is an evaluator of `@monitor`, of a run configuration and of a suite."""

    @monitor(evaluators=[TOXICITY])
    def answer(question: str) -> str:
        return question

    assert answer("hello") == "hello"
    config = EvaluationRunConfig(evaluators=[TOXICITY])  # type: ignore[list-item]
    assert (
        run_evaluation_sync(EvaluationInput(response="You idiot"), config).results[0].score is False
    )
    with pytest.raises(ConfigurationError, match=r"evaluators\[0\].*toxic_term"):
        monitor(evaluators=[{"type": "Toxicity", "config": {"criterionName": "clean"}}])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"evaluatorConfigs": [{"type": "Toxicty", "config": {}}]},
            "evaluators\\[0\\]: unknown evaluator type.*'Toxicity'",
        ),
        # One list would replace the other.
        ({**DOCUMENT, "evaluators": ["Toxicity"]}, "evaluators: give evaluators or .*, not both"),
        ({**DOCUMENT, "evaluators": []}, "evaluators: give evaluators or .*, not both"),
        # Evaluators on top make it a settings file and no definition of an agent.
        ({**DOCUMENT, "agentId": "a"}, "agentId: unknown field"),
        ({"evaluators": [TOXICITY], "agentId": "a"}, "agentId: unknown field"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(
    run_json: Path, document: dict[str, Any], message: str
) -> None:
    """What is wrong is named with its file and place."""
    run_json.write_text(json.dumps(document, indent=2))
    with pytest.raises(SettingsError, match=f"run\\.json: {message}"):
        load_settings(run_json, environment={})
