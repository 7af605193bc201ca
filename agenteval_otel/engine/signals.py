"""Signals: what is said of answers that may be evaluated already. Sources pass them to capabilities."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

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
