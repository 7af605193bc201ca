"""A plugin: an evaluator that asks a model by a client of its own, which other libraries may
instrument.
"""

from __future__ import annotations

from functools import cache

import anthropic

from agenteval_otel import EvaluationInput
from agenteval_otel.evaluators import CriterionEvaluator


@cache
def _client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="test", max_retries=0)


class Asking(CriterionEvaluator, type="AskingByItself"):
    """True where the model answers at all."""

    criterion_name: str = "clear"
    url: str

    def score(self, evaluation_input: EvaluationInput) -> bool:
        question = f"Is it clear? {evaluation_input.response_text}"
        message = _client(self.url).messages.create(
            model="judge-1", max_tokens=8, messages=[{"role": "user", "content": question}]
        )
        return bool(message.content)
