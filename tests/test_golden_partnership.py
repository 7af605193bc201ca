"""The vectors of the Partnership Agent's ground truth, with the module filter that its document promises.

Each holds for `matching: original`. The default way of matching asks for whole words, three of them, and takes the
nearest row: where it is meant to find something else, that stands in `BETTER`.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.ground_truth import CsvGroundTruthStore
from agenteval_otel.models import EvaluationInput
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
    rows = next(vector for vector in recorded if vector["evaluator"] == "GroundTruth.load")["input"]["rows"]
    written = tmp_path / "table.csv"
    with written.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return written


def found_by(store: CsvGroundTruthStore, vector: dict[str, Any]) -> Any:
    module = vector["input"]["module"]
    metadata = None if module is None else {"module": module}
    found = store.find(EvaluationInput(prompt=vector["input"]["user_prompt"], metadata=metadata))
    return None if found is None else found.answer


@pytest.mark.parametrize("vector", vectors("GroundTruth.load"))
def test_the_rows_of_a_file(vector: dict[str, Any], path: Path) -> None:
    """All rows are there, in their order, and those of a module by its name in any case."""
    store = CsvGroundTruthStore(path=path)
    assert len(store.rows()) == vector["expected"]["count"]
    assert [row.answer for row in store.rows()] == [row["ExpectedOutput"] for row in vector["input"]["rows"]]
    by_module = {module: len(store.rows(module)) for module in vector["expected"]["by_module"]}
    assert by_module == vector["expected"]["by_module"]


@pytest.mark.parametrize("vector", vectors("GroundTruth.match"))
def test_matches_as_the_original(vector: dict[str, Any], path: Path) -> None:
    """With `matching: original` every recorded prompt finds the recorded answer, within its module."""
    expected = vector["expected_with_module_filter"]
    found = found_by(CsvGroundTruthStore(path=path, matching="original"), vector)
    assert found == expected["output"]
    assert (found is not None) == expected["has_ground_truth"]


@pytest.mark.parametrize("vector", vectors("GroundTruth.match"))
def test_matches_by_words(vector: dict[str, Any], path: Path) -> None:
    """By default the same is found, but for what is written down as better."""
    expected = BETTER.get(vector["id"], vector["expected_with_module_filter"]["output"])
    assert found_by(CsvGroundTruthStore(path=path), vector) == expected
