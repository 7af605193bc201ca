"""The name that was probably meant: by its letters, or by what other products call the same thing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "answer": ("response",),
    "answerrelevancy": ("relevance",),
    "checks": ("evaluators",),
    "completion": ("response",),
    "contexts": ("context",),
    "correctness": ("equivalence",),
    "criteria": ("rubric",),
    "evals": ("evaluators",),
    "expected": ("ground_truth", "expected_keywords"),
    "expected_output": ("ground_truth",),
    "faithfulness": ("groundedness",),
    "geval": ("llmjudge",),
    "hallucination": ("groundedness",),
    "input": ("prompt",),
    "keywords": ("expected_keywords", "substrings"),
    "instructions": ("rubric",),
    "length": ("rulebased",),
    "llm": ("judge",),
    "metrics": ("evaluators",),
    "model": ("judge",),
    "mysql": ("sql",),
    "name": ("agent", "criterion_name"),
    "output": ("response",),
    "postgres": ("sql",),
    "postgresql": ("sql",),
    "query": ("prompt",),
    "prompt": ("rubric",),
    "question": ("prompt", "rubric"),
    "rate": ("sample_rate",),
    "reference": ("ground_truth",),
    "regex": ("rulebased",),
    "retrieved_contexts": ("context",),
    "scorers": ("evaluators",),
    "user_input": ("prompt",),
    "values": ("substrings",),
    "words": ("substrings", "expected_keywords"),
}
"""What a name that users try may stand for here. The first that is known counts."""
_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "dashboard": ("ui",),
    "lint": ("check",),
    "run": ("evaluate",),
    "score": ("evaluate",),
    "sidecar": ("serve",),
    "test": ("evaluate",),
    "validate": ("check",),
    "view": ("ui",),
    "web": ("ui",),
    "__config": ("__settings",),
    "__evaluators": ("__settings",),
    "__format": ("__report",),
    "__judge": ("__settings",),
    "__metrics": ("__settings",),
    "__model": ("__settings",),
    "__out": ("__output",),
    "__storage": ("__results",),
    "__threshold": ("__fail_under",),
}
"""The same for commands and their options, as `nearest` spells them."""


def nearest(name: object, known: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """Return the known name that was probably meant. None where none is near."""
    from difflib import get_close_matches  # only where something is wrong

    by_form = {choice.lower().replace("-", "_"): choice for choice in known}
    spelled = str(name)[:64].lower().replace("-", "_")
    for meant in (*_FIELDS.get(spelled, ()), *_COMMANDS.get(spelled, ())):
        if meant in by_form:
            return by_form[meant]
    matches = get_close_matches(spelled, by_form, n=1, cutoff=cutoff)
    return by_form[matches[0]] if matches else None
