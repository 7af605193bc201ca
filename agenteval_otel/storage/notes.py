"""Notes of people on stored answers: a comment, and that the answer was looked at.

Notes are no feedback: no figure, alert, dataset or calibration has them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple


class Note(NamedTuple):
    """Holds what people noted on an answer.

    Attributes:
        comment: Empty without one.
    """

    comment: str = ""
    commented_at: datetime | None = None
    looked_at: datetime | None = None


class Notes(ABC):
    """Keeps the notes of a place. Every method blocks, and raises `StorageError`."""

    @abstractmethod
    def of(self, evaluation_id: str) -> Note:
        """Return the note of an answer. It is empty if there is none."""

    @abstractmethod
    def looked_at(self, among: Collection[str] | None = None) -> list[str]:
        """Return the ids of the answers that were looked at: of all, or among a few hundred."""

    @abstractmethod
    def comment(self, evaluation_id: str, text: str) -> None:
        """Replace the comment on an answer. An empty text removes it."""

    @abstractmethod
    def mark(self, evaluation_id: str, *, looked: bool) -> None:
        """Note that an answer was looked at, or take that back."""
