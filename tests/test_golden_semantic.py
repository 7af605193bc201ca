"""The vectors that were recorded from the original framework's NLPAccuracy, with its stub embeddings."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.errors import ConfigurationError
from tests.golden import same, vectors

PLACEHOLDER = "[object Object]"


class Stub:
    """The original's stub: a table of vectors."""

    def __init__(self, table: dict[str, list[float]]) -> None:
        self.table = table
        self.asked: list[str] = []

    def embed(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        # What the original turns into its placeholder has another text here, and the placeholder's vector.
        return [self.table[PLACEHOLDER if text.startswith("{") else text] for text in texts]


@pytest.mark.parametrize("vector", vectors("NLPAccuracy"))
def test_nlp_accuracy(vector: dict[str, Any]) -> None:
    """Every recorded cosine, verdict and failure comes out as in the original."""
    stub = Stub(vector["embeddings"])
    config = dict(vector["config"])
    if not config.pop("no_model", False):
        config["embeddingModel"] = stub
    run = {"evaluatorConfigs": [{"type": "NLPAccuracy", "config": config}]}
    if vector["expected"] == {"throws": True}:
        with pytest.raises(ConfigurationError, match="embedder"):
            EvaluationRunConfig.model_validate(run)
        return
    evaluation_input = EvaluationInput.model_validate(vector["input"])
    aggregated = run_evaluation_sync(evaluation_input, EvaluationRunConfig.model_validate(run))
    (expected,) = vector["expected"]
    (result,) = aggregated.results
    actual = result.original_json()
    assert bool(actual.get("error")) == expected["error"], actual
    assert same(actual["score"], expected["score"]), actual
    assert (actual["criterionName"], actual["evaluatorType"]) == (expected["criterionName"], expected["evaluatorType"])
    assert result.score is None or not result.error
    assert PLACEHOLDER not in stub.asked
