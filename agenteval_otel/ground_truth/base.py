"""Contract of ground-truth stores: an evaluation input in, the reference answer to its question out."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Literal

from pydantic import Field

from agenteval_otel.components import Component
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.value import Value

__all__ = ["GroundTruth", "GroundTruthStore", "module_of"]


class GroundTruth(Value):
    """A reference answer, and how it was found.

    Attributes:
        answer: What a right response says: text, or (from JSONL) any JSON value. Evaluators get it as `ground_truth`.
        prompt: The question that it answers, as the store has it.
        category: What kind of question that is, where the store says so.
        module: The part of the system that the question is put to, where the store says so.
        match: ``exact``: the same question; ``partial``: one of the two questions stands in the other.
        share: Words of the shorter question over those of the longer, 0 to 1; 1 for an exact match.
    """

    answer: Any
    prompt: str = ""
    category: str | None = None
    module: str | None = None
    match: Literal["exact", "partial"] = "exact"
    share: float = 1.0


class GroundTruthStore(Component, contract="ground_truth"):
    """Knows reference answers. Implement `find`.

    It runs on the background thread, for every evaluated response that brings no ground truth of its own, before the
    evaluators. A plain method must not block: the background thread waits for it. An ``async def`` may ask a service,
    and has `timeout_s` for it. What it raises is counted (``ground_truth``), and evaluation goes on without.

    Attributes:
        timeout_s: Time limit of one lookup by an async `find`, in seconds.
    """

    timeout_s: float = Field(default=1.0, gt=0, le=60)

    def find(self, evaluation_input: EvaluationInput) -> GroundTruth | Awaitable[GroundTruth | None] | None:
        """The reference answer for the input's prompt; None where there is none."""
        raise NotImplementedError

    def troubles(self) -> Sequence[Exception]:
        """What went wrong beside lookups since it was last asked, such as a new file that cannot be read."""
        return ()


def module_of(evaluation_input: EvaluationInput) -> str | None:
    """The part of the system that a question was put to: ``metadata["module"]`` where it is said, else the agent."""
    said = (evaluation_input.metadata or {}).get("module")
    for name in (said, evaluation_input.agent, evaluation_input.agent_id):
        if isinstance(name, str) and name.strip():
            return name
    return None
