"""The definition of an AgentDock agent: its block `evaluation` is read as settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import accounting, configure, flush, monitor
from agenteval_otel.cli import main
from agenteval_otel.config.load import SettingsError, load_settings
from agenteval_otel.evaluators import KeywordCoverage, RuleBased, Toxicity
from agenteval_otel.testing import RecordedTelemetry

BLOCK: dict[str, Any] = {
    "enabled": True,
    "evaluatorConfigs": [
        {
            "type": "RuleBased",
            "rules": [
                {"criterionName": "IsConcise", "config": {"type": "length", "max": 120}},
                {
                    "criterionName": "SaysNoPrice",
                    "config": {"type": "regex", "pattern": "\\$\\d", "expectedOutcome": "no_match"},
                },
            ],
        },
        {
            "type": "KeywordCoverage",
            "config": {"criterionName": "NamesTheDay", "expectedKeywords": ["Tuesday"]},
        },
        {"type": "Toxicity", "config": {"criterionName": "IsPolite", "toxicTerms": ["idiot"]}},
    ],
    "criteria": [
        {"name": "IsConcise", "description": "Short enough", "scale": "binary", "weight": 2},
        {"name": "NamesTheDay", "description": "Says when", "scale": "numeric", "weight": 1},
    ],
    "metadata": {"suite": "opening-hours"},
}
AGENT: dict[str, Any] = {
    "version": "1.0",
    "agentId": "opening-hours",
    "name": "Opening hours",
    "description": "Answers when a shop is open.",
    "tags": ["Featured"],
    "priority": 2,
    "personality": ["You answer questions about opening hours.", "You never quote a price."],
    "nodes": ["llm.openai", "search"],
    "nodeConfigurations": {"llm.openai": {"model": "gpt-4.1", "temperature": 0.2}},
    "chatSettings": {"historyPolicy": "lastN", "initialMessages": ["Which shop?"]},
    "evaluation": BLOCK,
}


def written(folder: Path, **changes: Any) -> Path:
    """The definition as a file, with other fields."""
    file = folder / "agent.json"
    file.write_text(json.dumps({**AGENT, **changes}, indent=2))
    return file


def test_the_block_is_read_as_settings(tmp_path: Path) -> None:
    """Evaluators, criteria and the switch are those of the block; nothing of the rest is read."""
    loaded = load_settings(written(tmp_path), environment={})
    rules, keywords, toxicity = loaded.settings.evaluators
    assert isinstance(rules, RuleBased)
    assert [rule.criterion_name for rule in rules.rules] == ["IsConcise", "SaysNoPrice"]
    assert isinstance(keywords, KeywordCoverage)
    assert isinstance(toxicity, Toxicity)
    assert {item.name: item.weight for item in loaded.settings.criteria_of()} == {
        "IsConcise": 2,
        "NamesTheDay": 1,
    }
    assert loaded.settings.enabled is True
    # Read as the same block in a file of its own.
    alone = tmp_path / "run.json"
    alone.write_text(json.dumps(BLOCK))
    assert load_settings(alone, environment={}).settings == loaded.settings


def test_a_monitored_agent_is_evaluated_by_its_block(
    tmp_path: Path, telemetry: RecordedTelemetry
) -> None:
    """With `configure("agent.json")` a call has the scores that the block asks for."""
    configure(written(tmp_path), storage=[telemetry.storage()])

    @monitor(agent="opening-hours")
    def answer(question: str) -> str:
        return "On Tuesday from nine."

    answer("When?")
    assert flush()
    assert accounting()["evaluated"] == 1
    labels = {
        event.attributes["gen_ai.evaluation.name"]: event.attributes.get(
            "gen_ai.evaluation.score.label"
        )
        for event in telemetry.events()
    }
    assert labels["IsConcise"] == labels["SaysNoPrice"] == labels["IsPolite"] == "pass"
    assert "NamesTheDay" in labels


def test_the_switch_of_the_block_is_the_kill_switch(tmp_path: Path) -> None:
    """`enabled: false` in the block switches evaluation off."""
    file = written(tmp_path, evaluation={**BLOCK, "enabled": False})
    assert load_settings(file, environment={}).settings.enabled is False


def test_the_command_line_takes_a_definition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` names its criteria, and `evaluate` scores recorded answers by it."""
    file = written(tmp_path)
    assert main(["check", str(file)]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("IsConcise", "NamesTheDay", "IsPolite"))
    answers = tmp_path / "answers.jsonl"
    answers.write_text(json.dumps({"response": "On Tuesday from nine."}) + "\n")
    assert main(["evaluate", str(answers), "--settings", str(file), "--quiet"]) == 0
    assert "SaysNoPrice" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        (None, r"agent\.json: .*without a block 'evaluation'"),
        ([], r"agent\.json: evaluation: expected a mapping, found list"),
        ({"criteria": []}, r"agent\.json: evaluation\.evaluatorConfigs: required field is missing"),
        ({"evaluatorConfigs": []}, r"agent\.json: evaluation\.evaluators: expected at least one"),
        (
            {"evaluatorConfigs": [{"type": "Toxicty", "config": {}}]},
            r"agent\.json: evaluation\.evaluators\[0\]: unknown evaluator type 'Toxicty'.*did you mean 'Toxicity'",
        ),
        ({**BLOCK, "sampleRate": 0.1}, r"agent\.json: evaluation\.sampleRate: unknown field"),
        (
            {"evaluators": ["Toxicity"], "sample_rate": 7},
            r"agent\.json: evaluation\.sample_rate: ",
        ),
        (
            {**BLOCK, "evaluators": ["Toxicity"]},
            r"agent\.json: evaluation\.evaluators: give evaluators or evaluatorConfigs, not both",
        ),
        (
            {**BLOCK, "storageProvider": "memory", "storage": "memory"},
            r"agent\.json: evaluation\.storage: give storage or storageProvider, not both",
        ),
    ],
)
def test_a_wrong_block_is_refused_with_its_place(
    tmp_path: Path, evaluation: Any, message: str
) -> None:
    """The error names the file, the field and the fix."""
    with pytest.raises(SettingsError, match=message):
        load_settings(written(tmp_path, evaluation=evaluation), environment={})


@pytest.mark.parametrize("value", [["Toxicity"], []])
def test_a_settings_file_gives_its_evaluators_once(tmp_path: Path, value: list[str]) -> None:
    """The same sentence as that of `EvaluationRunConfig`, since one list would replace the other."""
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**BLOCK, "evaluators": value}))
    message = r"run\.json: evaluators: give evaluators or evaluatorConfigs, not both"
    with pytest.raises(SettingsError, match=message):
        load_settings(file, environment={})


@pytest.mark.parametrize("field", ["evaluators", "evaluatorConfigs"])
def test_settings_with_an_agents_id_are_no_definition(tmp_path: Path, field: str) -> None:
    """Evaluators on top make it a settings file, in which `agentId` is an unknown field."""
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"agentId": "a", field: BLOCK["evaluatorConfigs"]}))
    with pytest.raises(SettingsError, match=r"settings\.json: agentId: unknown field"):
        load_settings(file, environment={})


def test_a_variable_over_the_block_is_named_alone(tmp_path: Path) -> None:
    """What the environment sets is not in the block, and is not said to be."""
    environment = {"AGENTEVAL_SAMPLE_RATE": "7"}
    with pytest.raises(SettingsError, match=r"^variable AGENTEVAL_SAMPLE_RATE: sample_rate: "):
        load_settings(written(tmp_path), environment=environment)
