"""Evaluators that the child process can import: rules that say in which process they ran, and work of a known size."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from agenteval_otel.evaluators import CriterionEvaluator, RuleBased
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score


class PlacedRules(RuleBased, type="PlacedRules"):
    """`RuleBased`, with the process as the id in each result."""

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        results = await super().evaluate(evaluation_input, criteria)
        return [result.model_copy(update={"evaluator_id": str(os.getpid())}) for result in results]


class Burning(CriterionEvaluator, type="Burning"):
    """Computes for a tenth of a second of its process's time: what that takes is how much of the machine is left."""

    criterion_name: str = "burning"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        last = time.process_time() + 0.1
        while time.process_time() < last:
            pass
        return Score(value=1.0)
