"""The vectors recorded from the original framework for LexicalSimilarity and Sentiment."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel.evaluators import LexicalSimilarity, Sentiment
from tests.golden import vectors
from tests.test_golden_agentdock import check


@pytest.mark.parametrize("vector", vectors("LexicalSimilarity"))
def test_lexical_similarity(vector: dict[str, Any]) -> None:
    """Every recorded pair of texts has the recorded similarity; Jaro-Winkler, which never ran there, has its own."""
    check(LexicalSimilarity, vector)


@pytest.mark.parametrize("vector", vectors("Sentiment"))
def test_sentiment(vector: dict[str, Any]) -> None:
    """Every recorded text has the recorded score, words and category, with the original's ways of reading."""
    check(Sentiment, vector)
