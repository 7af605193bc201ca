"""The contract checks of embedders and ground-truth stores catch what breaks the contract."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.embedders import Embedder, HashingEmbedder
from agenteval_otel.ground_truth import CsvGroundTruthStore, GroundTruth, GroundTruthStore
from agenteval_otel.models import EvaluationInput
from agenteval_otel.testing import check_embedder, check_ground_truth
from tests.ground_truth.support import written


class Rows(Embedder):
    """Gives what a function makes of each text."""

    row: Any = None

    async def embed(self, texts: Any) -> Any:
        return [self.row(text, texts) for text in texts][: 3 if self.row is short else None]


def short(text: str, texts: Any) -> list[float]:
    return [float(bool(text)), 0.0]


WRONG = {
    "one row a text": short,
    "one length": lambda text, texts: [1.0] * (1 + len(text) % 2),
    "finite": lambda text, texts: [math.nan],
    "length 1": lambda text, texts: [float(bool(text)) * 2],
    "empty": lambda text, texts: [1.0],
    "same row": lambda text, texts: [1.0, 0.0] if text and len(texts) > 1 else [0.0, float(bool(text))],
}


@pytest.mark.parametrize(("said", "row"), WRONG.items(), ids=list(WRONG))
def test_an_embedder_is_held_to_its_contract(said: str, row: Any) -> None:
    """Rows that are missing, ragged, not finite, too long, or not the text's own are told."""
    with pytest.raises(AssertionError, match=said):
        check_embedder(Rows(row=row))


def test_ours_hold() -> None:
    """The embedded embedder, and an async one that does as it should."""
    check_embedder(HashingEmbedder())
    check_embedder(Rows(row=lambda text, texts: [float(bool(text)), 0.0]))


COUNT = itertools.count()


class Store(GroundTruthStore):
    """Gives what a function makes of the prompt."""

    answer: Any = None

    def find(self, evaluation_input: EvaluationInput) -> Any:
        return self.answer(evaluation_input.prompt)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("expected a GroundTruth or None, found 'a'", lambda prompt: "a"),
        ("nothing to answer", lambda prompt: GroundTruth(answer="a")),
        ("a share lies", lambda prompt: GroundTruth(answer="a", share=2.0) if prompt else None),
        ("the same input", lambda prompt: GroundTruth(answer=next(COUNT)) if prompt else None),
    ],
)
def test_a_store_is_held_to_its_contract(said: str, answer: Any) -> None:
    """Other values, answers to nothing, shares beyond 1 and answers that change are told."""
    with pytest.raises(AssertionError, match=said):
        check_ground_truth(Store(answer=answer))


def test_our_store_holds(tmp_path: Path) -> None:
    """The store of a file."""
    check_ground_truth(CsvGroundTruthStore(path=written(tmp_path / "rows.csv", [("how do i how do i", "a")])))
