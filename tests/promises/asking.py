"""An evaluator that asks a monitored client, importable by the worker process that it runs in."""

from __future__ import annotations

import json
import urllib.request

from agenteval_otel import EvaluationInput, Score, flush, monitor
from agenteval_otel.evaluators import CriterionEvaluator


class Asking(CriterionEvaluator, type="Asking"):
    """Asks the model whose address is the prompt, and waits for what its own process may make of that."""

    criterion_name: str = "asked"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        ask(prompt=evaluation_input.prompt or "")
        flush(2.0)
        return Score(value=1.0)


@monitor(agent="model client", evaluators=[Asking()], sample_rate=1.0)
def ask(prompt: str) -> str:
    body = json.dumps({"model": "judge", "messages": []}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{prompt}/messages", body), timeout=10) as answer:
        return str(answer.status)
