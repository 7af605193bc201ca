"""The vectors recorded from the original Toxicity evaluator."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel.evaluators import Toxicity
from tests.golden import vectors
from tests.test_golden_agentdock import check


@pytest.mark.parametrize("vector", vectors("Toxicity"))
def test_toxicity(vector: dict[str, Any]) -> None:
    """Toxicity finds the recorded terms, and whole words in any script."""
    check(Toxicity, vector)
