"""The definition of an AgentDock agent: its block `evaluation` is read as settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import accounting, configure, flush, monitor
from agenteval_otel.cli import main
from agenteval_otel.config.load import SettingsError, load_settings
from agenteval_otel.testing import RecordedTelemetry
from tests.compat.test_documents import DOCUMENT

BLOCK: dict[str, Any] = {"enabled": True, **DOCUMENT}
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
    """The block is read as a file of its own, its kill switch too; nothing of the rest is read."""
    alone = tmp_path / "run.json"
    for enabled in (True, False):
        block = {**BLOCK, "enabled": enabled}
        alone.write_text(json.dumps(block))
        loaded = load_settings(written(tmp_path, evaluation=block), environment={})
        assert loaded.settings == load_settings(alone, environment={}).settings
        assert loaded.settings.enabled is enabled


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
    assert labels["short"] == labels["clean"] == "pass"
    assert "alike" in labels


def test_the_command_line_takes_a_definition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` names its criteria, and `evaluate` scores recorded answers by it."""
    file = written(tmp_path)
    assert main(["check", str(file)]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("Toxicity", "clean", "alike", "short", "metadata"))
    answers = tmp_path / "answers.jsonl"
    answers.write_text(json.dumps({"response": "On Tuesday from nine."}) + "\n")
    assert main(["evaluate", str(answers), "--settings", str(file), "--quiet"]) == 0
    assert "short" in capsys.readouterr().out


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


def test_a_variable_over_the_block_is_named_alone(tmp_path: Path) -> None:
    """What the environment sets is not in the block, and is not said to be."""
    environment = {"AGENTEVAL_SAMPLE_RATE": "7"}
    with pytest.raises(SettingsError, match=r"^variable AGENTEVAL_SAMPLE_RATE: sample_rate: "):
        load_settings(written(tmp_path), environment=environment)
