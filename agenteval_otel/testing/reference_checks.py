"""Contract checks of what answers are compared with: ground-truth stores, and embedders.

Each check raises AssertionError with what the contract asks for.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Sequence
from typing import Any

from agenteval_otel.embedders import Embedder
from agenteval_otel.ground_truth import GroundTruth, GroundTruthStore
from agenteval_otel.models import EvaluationInput
from agenteval_otel.testing.checks import AWKWARD_INPUTS

__all__ = ["check_embedder", "check_ground_truth"]

_TEXTS = (
    "",
    "a",
    "The parcel arrives on Tuesday.",
    "\ufffd\u202e\u200b e\u0301 東京 \U0001f9d1",
    "word " * 50_000,
    "a",
)
_PROMPTS = (None, "", " \n", "?", "\ufffd\u202e e\u0301", "how do i " * 50_000)


def check_embedder(embedder: Embedder, texts: Sequence[str] = _TEXTS) -> None:
    """An embedder gives a row of length 1 a text, zeros for the empty one, and the same whatever stands beside it."""
    rows = _rows(embedder, texts)
    assert len(rows) == len(texts), "one row a text"
    assert len({len(row) for row in rows}) == 1, "all rows are of one length"
    for text, row in zip(texts, rows, strict=True):
        assert all(map(math.isfinite, row)), "a vector is finite"
        length = math.hypot(*row)
        assert abs(length - 1.0) < 1e-3 or length == 0.0, f"a row has the length 1, found {length:g}"
        assert text or length == 0.0, "the empty text has zeros"
        (alone,) = _rows(embedder, [text])
        assert all(abs(value - other) < 1e-3 for value, other in zip(row, alone, strict=True)), (
            "the same text has the same row, whatever stands beside it"
        )


def check_ground_truth(store: GroundTruthStore, inputs: Sequence[EvaluationInput] = AWKWARD_INPUTS) -> None:
    """A store gives a `GroundTruth` or None for every input, the same again, and None for one that asks nothing."""
    for evaluation_input in (*inputs, *(EvaluationInput(prompt=prompt) for prompt in _PROMPTS)):
        ground_truth = _settled(store.find(evaluation_input))
        assert ground_truth is None or isinstance(ground_truth, GroundTruth), (
            f"expected a GroundTruth or None, found {ground_truth!r:.80}"
        )
        assert ground_truth == _settled(store.find(evaluation_input)), "the same input has the same ground truth"
        if ground_truth is not None:
            assert evaluation_input.prompt, "without a prompt there is nothing to answer"
            assert 0.0 <= ground_truth.share <= 1.0, "a share lies in [0, 1]"
    assert all(isinstance(problem, Exception) for problem in store.problems()), "problems are exceptions"


def _rows(embedder: Embedder, texts: Sequence[str]) -> list[list[float]]:
    return [[float(number) for number in row] for row in _settled(embedder.embed(texts))]


def _settled(result: Any) -> Any:
    async def awaited() -> Any:
        return await result

    return asyncio.run(awaited()) if inspect.isawaitable(result) else result
