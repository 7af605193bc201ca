"""The vectors of the Partnership Agent: its ground truth, and how its judges' replies are read and
rated.

Those of the ground truth, with the module filter that its document promises, hold for
`matching: original`. The default way of matching asks for whole words, three of them, and takes the
nearest row: where it is meant to find something else, that stands in `BETTER`.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.evaluators import Coherence, LLMJudge
from agenteval_otel.ground_truth import FileGroundTruthStore
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.scoring import passed_of
from agenteval_otel.models.scoring.scales import rating_of
from agenteval_otel.testing import ScriptedJudge
from tests.golden import GOLDEN, vectors

BETTER = {
    "pa-010": "E2",  # both rows stand in the prompt: the longer one is the nearer
    "pa-012": None,  # one letter is no question
    "pa-024": "E1",  # two spaces are one
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The synthetic table that every vector uses, as a file."""
    recorded = json.loads((GOLDEN / "partnership_golden.json").read_text("utf-8"))
    rows = next(vector for vector in recorded if vector["evaluator"] == "GroundTruth.load")[
        "input"
    ]["rows"]
    written = tmp_path / "table.csv"
    with written.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return written


def answer_of(store: FileGroundTruthStore, vector: dict[str, Any]) -> Any:
    module = vector["input"]["module"]
    metadata = None if module is None else {"module": module}
    result = store.find(EvaluationInput(prompt=vector["input"]["user_prompt"], metadata=metadata))
    return None if result is None else result.answer


@pytest.mark.parametrize("vector", vectors("GroundTruth.load"))
def test_the_rows_of_a_file(vector: dict[str, Any], path: Path) -> None:
    """All rows are there, in their order, and those of a module by its name in any case."""
    store = FileGroundTruthStore(path=path)
    assert len(store.rows()) == vector["expected"]["count"]
    assert [row.answer for row in store.rows()] == [
        row["ExpectedOutput"] for row in vector["input"]["rows"]
    ]
    by_module = {module: len(store.rows(module)) for module in vector["expected"]["by_module"]}
    assert by_module == vector["expected"]["by_module"]


@pytest.mark.parametrize("vector", vectors("GroundTruth.match"))
def test_matches_as_the_original(vector: dict[str, Any], path: Path) -> None:
    """With `matching: original` every recorded prompt finds the recorded answer, within its module."""
    expected = vector["expected_with_module_filter"]
    result = answer_of(FileGroundTruthStore(path=path, matching="original"), vector)
    assert result == expected["output"]
    assert (result is not None) == expected["has_ground_truth"]


@pytest.mark.parametrize("vector", vectors("GroundTruth.match"))
def test_matches_by_words(vector: dict[str, Any], path: Path) -> None:
    """By default the same is found, but for what is written down as better."""
    expected = BETTER.get(vector["id"], vector["expected_with_module_filter"]["output"])
    assert answer_of(FileGroundTruthStore(path=path), vector) == expected


PASSES_FROM = Coherence(judge=ScriptedJudge()).criteria()[0]


@pytest.mark.parametrize("vector", vectors("MEAI.interpret"))
def test_the_rating_of_a_score(vector: dict[str, Any]) -> None:
    """A score from 1 to 5 has the recorded word, and fails where it failed: below 4, and never
    without a score.
    """
    score, expected = vector["input"]["score"], vector["expected"]
    assert rating_of(score) == expected["rating"]
    assert (passed_of(score, PASSES_FROM) is False) == expected["failed"]


REFUSED = {"pa-parse-6": "out_of_range"}
"""Kept by the original and no score here: what is beyond the scale would stand in averages."""


@pytest.mark.parametrize("vector", vectors("MEAI.parse_score"))
def test_the_score_in_a_reply(vector: dict[str, Any]) -> None:
    """A model that answers with a bare number is read as recorded; what is none is a failure
    without a score.
    """
    judge = LLMJudge(
        judge=lambda prompt: vector["input"]["reply"], rubrics=["Coherence"], reply_form="number"
    )
    config = EvaluationRunConfig(evaluators=[judge])
    (result,) = run_evaluation_sync(EvaluationInput(response="An answer."), config).results
    refused = REFUSED.get(vector["id"])
    assert result.score == (None if refused else vector["expected"]["score"])
    assert result.error_type == (refused or (None if result.score else "malformed_answer"))
