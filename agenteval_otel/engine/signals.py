"""Signals: what is said of answers that may be evaluated already. Sources pass them to capabilities.

Changes: what a capability has seen get worse, or well again. It passes them to the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from agenteval_otel.engine.objectives.crossings import ObjectiveCrossing

USED: Final = "used"
"""What has become of a signal that found its answer."""


class LateTruth(NamedTuple):
    """Holds a ground truth that came after its answer.

    Attributes:
        answer: What a right response says.
        prompt: The question that it answers, where that is known.
        digest: A hash of `answer`. Equal digests mean that the same truth came again.
    """

    answer: Any
    prompt: str | None
    digest: bytes


class TruthSignal(NamedTuple):
    """Holds a ground truth, with what leads to its answer.

    Attributes:
        ids: Ids of the answer, the most exact first.
    """

    ids: Sequence[Hashable]
    truth: LateTruth


Signal = TruthSignal
"""What capabilities hear of. A further kind becomes a further type."""


class StateChange(NamedTuple):
    """Reports that something which is watched is bad from this moment on, or well again.

    Attributes:
        kind: What it is: an objective, a judge that is not trusted with a criterion, the circuit
            breaker of a judge's endpoint, or an evaluator that is not run any more.
        part: The criterion, the judge or the evaluator.
        at_ns: Time of the report, in nanoseconds since the epoch.
        facts: Numbers and words of closed lists. No text of an answer, a prompt or a judge.
        crossing: Of an objective.
    """

    kind: Literal["objective", "judge", "breaker", "evaluator"]
    part: str
    agent: str | None
    is_bad: bool
    at_ns: int
    facts: Mapping[str, str | float] = {}
    crossing: ObjectiveCrossing | None = None
