"""What the tests of the catalogue share: its types, an input that has all that any of them needs,
and good answers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from agenteval_otel import EvaluationInput, EvaluationResult
from agenteval_otel import evaluators as room
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.evaluators.llm_judge.rubric import entry_of, names
from agenteval_otel.testing import ScriptedJudge

NAMES = names()
CODE = "```python\nsubprocess.run(f'ping {host}', shell=True)\n```"
FULL = EvaluationInput.model_validate(
    {
        "prompt": "When is A-17 due?",
        "response": f"It is due on Tuesday. {CODE}",
        "ground_truth": "On Tuesday, by noon.",
        "context": {"documents": ["A-17 is due on Tuesday, by noon."]},
        "message_history": [{"role": "user", "content": "Hello"}],
        "tool_calls": [{"name": "orders", "arguments": {"id": "A-17"}, "result": "due on Tuesday"}],
        "agent_config": {"tools": [{"name": "orders", "parameters": {"id": "string"}}]},
    }
)


def built(name: str, judge: Any = None, **fields: Any) -> LLMJudge:
    """The evaluator of a type, by default with a judge that is never asked."""
    result = getattr(room, name)(judge=judge or ScriptedJudge(), **fields)
    assert isinstance(result, LLMJudge)
    return result


def reply_for(name: str, score: Any = None) -> dict[str, Any]:
    """An answer as a judge gives it for the criterion and `FULL`: by default the best that there
    is.
    """
    entry = entry_of(name)
    if "claims" not in entry:
        best = {"likert5": 5, "pass/fail": True}[entry["scale"]]
        return {
            "evidence": ["due on Tuesday"],
            "reason": "r",
            "score": best if score is None else score,
        }
    quote = {"response": "due on Tuesday", "ground_truth": "by noon", "tool_calls": "orders"}[
        entry["claims"].get("source", "response")
    ]
    return {
        "claims": [{"quote": quote, "evidence": "e", "holds": score is None or bool(score)}],
        "reason": "r",
    }


def results(evaluator: LLMJudge, value: EvaluationInput = FULL) -> list[EvaluationResult]:
    """What it finds, on a loop of its own."""
    outcome = asyncio.run(evaluator.evaluate(value, value.criteria or evaluator.criteria()))
    for result in outcome:
        assert (result.evaluator_kind, result.calls_model) == ("llm_judge", True)
        assert result.status == "scored" or (result.score, result.normalized, result.passed) == (
            None,
            None,
            None,
        )
    return outcome
