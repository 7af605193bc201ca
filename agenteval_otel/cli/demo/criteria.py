"""What the demo scores: evaluators of the package, and three functions as anybody would write them."""

from __future__ import annotations

import re
from typing import Any

from agenteval_otel import EvaluationInput, Score
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import Evaluator, Func, ResponseHealth, RuleBased

__all__ = ["demo_evaluators", "names_the_topic", "next_step", "tools_worked"]

_WORD = re.compile(r"[^\W\d_]{5,}")
_NEXT_STEP = re.compile(
    r"\?\s*$|\b(?:repl(?:y|ies)|ticket|let me know|please (?:confirm|provide|reply|share|send)|would you like)\b",
    re.IGNORECASE,
)
_COURTESY = {"type": "includes", "keywords": ["thank", "please", "happy"], "expected_outcome": "any"}
# Words of five letters and more that questions are full of whatever they are about.
_COMMON = frozenset({
    "about", "again", "anything", "because", "could", "doing", "going", "great", "hello", "maybe", "myself", "never",
    "order", "other", "please", "right", "should", "since", "something", "still", "sounds", "thank", "thanks", "their",
    "there", "these", "thing", "think", "those", "today", "where", "which", "while", "would", "wrong",
})  # fmt: skip


def demo_evaluators(*, max_characters: int) -> tuple[Evaluator, ...]:
    """The evaluators of a run; answers longer than `max_characters` fail `short_enough`."""
    return (
        ResponseHealth(),
        RuleBased.load(
            {
                "rules": [
                    {"criterion": "short_enough", "type": "length", "max": max_characters},
                    {"criterion": "courtesy", **_COURTESY},
                ]
            }
        ),
        Func.of(names_the_topic),
        Func.of(next_step),
        Func.of(tools_worked, threshold=1.0),
    )


def names_the_topic(evaluation_input: EvaluationInput) -> Score:
    """Whether the answer takes up a telling word of the question; nothing to say about questions without one."""
    asked = {word for word in _WORD.findall((evaluation_input.prompt or "").lower()) if word not in _COMMON}
    if not asked:
        raise EvaluationSkipped("the question has no telling word")
    found = not asked.isdisjoint(_WORD.findall(evaluation_input.response_text.lower()))
    return Score(value=found, passed=found, reason_code=None if found else "topic_missing")


def next_step(evaluation_input: EvaluationInput) -> Score:
    """Whether the answer says or asks what happens next; nothing to say about turns without text."""
    if not evaluation_input.response_text.strip():
        raise EvaluationSkipped("no text")
    found = _NEXT_STEP.search(evaluation_input.response_text) is not None
    return Score(value=found, passed=found, reason_code=None if found else "no_next_step")


def tools_worked(evaluation_input: EvaluationInput) -> Score:
    """Share of the turn's tool calls that gave a result and no error; nothing to say about turns without tools."""
    calls = evaluation_input.tool_calls or []
    if not calls:
        raise EvaluationSkipped("no tool was called")
    failed = sum(1 for call in calls if _is_error(call.result))
    return Score(value=1 - failed / len(calls), reason_code="tool_failed" if failed else None)


def _is_error(result: Any) -> bool:
    if isinstance(result, dict):
        return bool(result.get("error"))
    return isinstance(result, str) and result.lstrip().lower().startswith(("error", '{"error'))
