"""Files of canaries and references: what is right, and what each mistake is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agenteval_otel.config.process import build
from agenteval_otel.config.settings import Settings
from agenteval_otel.engine.capabilities.judge_health import JudgeHealthSettings
from agenteval_otel.engine.capabilities.judge_health.canaries import read_canaries
from agenteval_otel.engine.capabilities.judge_health.references import (
    read_references,
    write_references,
)
from agenteval_otel.engine.capabilities.judge_health.scores import counts_of
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.testing import ScriptedJudge

GOOD = {"prompt": "When?", "response": "At nine.", "labels": {"polite": True}}


def test_a_row_has_an_input_and_known_scores(tmp_path: Path) -> None:
    """Blank lines are left out, camelCase is read too."""
    file = tmp_path / "canaries.jsonl"
    file.write_text(
        json.dumps(GOOD)
        + "\n\n"
        + json.dumps({"response": "x", "groundTruth": "y", "labels": {"a": 4}})
    )
    first, second = read_canaries(file)
    assert (first.evaluation_input.prompt, first.labels) == ("When?", {"polite": True})
    assert second.evaluation_input.ground_truth == "y"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "expected 1 to 200 lines, found 0"),
        ("{", "canaries.jsonl:1: not JSON"),
        (json.dumps(GOOD) + "\n[]", 'canaries.jsonl:2: expected "labels"'),
        ('{"response": "x"}', 'expected "labels"'),
        ('{"response": "x", "labels": {}}', 'expected "labels"'),
        ('{"response": "x", "labels": {"a": null}}', 'expected "labels"'),
        ('{"response": "x", "labels": {"a": NaN}}', 'expected "labels"'),
        ('{"respnse": "x", "labels": {"a": 1}}', "unknown field 'respnse'"),
        ("\n".join([json.dumps(GOOD)] * 201), "found 201"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "canaries.jsonl"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match=r"judge_health\.canaries") as failure:
        read_canaries(file)
    assert problem in str(failure.value)


def test_a_label_off_the_scale_is_refused_at_start(tmp_path: Path) -> None:
    """The settings are wrong: nothing starts; so with a file that is not there."""
    file = tmp_path / "canaries.jsonl"
    file.write_text(json.dumps({"response": "x", "labels": {"polite": 7}}))
    judge = LLMJudge(
        "Is it polite?", criterion_name="polite", scale="likert5", judge=ScriptedJudge(fallback={})
    )
    for path, problem in (
        (file, "canary 1: the label of polite"),
        (tmp_path / "other", "cannot be read"),
    ):
        settings = Settings(evaluators=(judge,), judge_health=JudgeHealthSettings(canaries=path))
        with pytest.raises(ConfigurationError, match=problem):
            build(settings)


def test_references_are_kept_between_runs(tmp_path: Path) -> None:
    """Of two processes each adds its own; another file is not overwritten."""
    file = tmp_path / "references.json"
    one, two = counts_of([(1.0, 1.0), (0.2, 3.0)]), counts_of([(0.0, 2.0)])
    write_references(file, {("a", "m", "v"): one})
    write_references(file, {("b", "m", None): two})
    assert read_references(file) == {("a", "m", "v"): one, ("b", "m", None): two}
    file.write_text('{"criteria": [{"criterion": "a"}]}')
    with pytest.raises(ConfigurationError, match="no file of references"):
        read_references(file)
