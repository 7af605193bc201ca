"""Evaluators that a worker process can import: rules that name their process, known work, a
client's caller.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Sequence

from agenteval_otel import flush, monitor
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
    """Computes for a tenth of a second of its process's time: what that takes is how much of the
    machine is left.
    """

    criterion_name: str = "burning"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        last = time.process_time() + 0.1
        while time.process_time() < last:
            pass
        return Score(value=1.0)


class Asking(CriterionEvaluator, type="Asking"):
    """Asks the model whose address is the prompt, and waits for what its own process may make of
    that.
    """

    criterion_name: str = "asked"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        ask(prompt=evaluation_input.prompt or "")
        flush(2.0)
        return Score(value=1.0)


@monitor(agent="model client", evaluators=[Asking()], sample_rate=1.0)
def ask(prompt: str) -> str:
    body = json.dumps({"model": "judge", "messages": []}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"{prompt}/messages", body), timeout=10
    ) as answer:
        return str(answer.status)
