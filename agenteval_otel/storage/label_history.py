"""What people say of an answer, label by label, and which labels count.

Labels are stored one after the other. None is changed. A withdrawn label and its withdrawal both
stay stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from agenteval_otel.models import EvaluationResult
from agenteval_otel.storage.rows import Label

WITHDRAWN: Final = "withdrawn"
"""The skip reason of a person's result that takes back the person's last label of the answer."""
LABELLER: Final = "labeller"
"""The key in a label's metadata of the name that the person typed."""
T = TypeVar("T")


class LabelHistory(Generic[T]):
    """Holds the labels of one answer for one criterion, oldest first, without those taken back.

    A person is known by what identifies them. Labels without it count as those of one person.
    """

    def __init__(self) -> None:
        self._labels: list[tuple[str | None, T]] = []

    def __repr__(self) -> str:
        return f"<LabelHistory {len(self._labels)}>"

    def add(self, person: str | None, label: T) -> None:
        self._labels.append((person, label))

    def withdraw(self, person: str | None) -> None:
        """Take back the last label of this person, so that the one before counts again."""
        for position in reversed(range(len(self._labels))):
            if self._labels[position][0] == person:
                del self._labels[position]
                return

    @property
    def last(self) -> T | None:
        """Return the label that counts where an answer has one. None without a label."""
        return self._labels[-1][1] if self._labels else None

    def of_people(self) -> list[T]:
        """Return the last label of each person. The newest one is last."""
        by_person: dict[str | None, T] = {}
        for person, label in self._labels:
            by_person.pop(person, None)
            by_person[person] = label
        return list(by_person.values())


def is_withdrawal(result: EvaluationResult) -> bool:
    """Tell whether a person's result takes back the person's label before it."""
    return result.skip_reason == WITHDRAWN


def labeller_of(result: EvaluationResult) -> str | None:
    """Return the name that the person typed. None if it is not stored."""
    name = (result.metadata or {}).get(LABELLER)
    return name if isinstance(name, str) else None


def labels_in_force(labels: Iterable[Label]) -> list[Label]:
    """Return the last verdict of each person on each answer by each criterion, the newest last.

    Those that were taken back are left out, and so are scores and comments without a verdict.
    """
    histories: dict[tuple[str, str], LabelHistory[tuple[int, Label]]] = {}
    for position, label in enumerate(labels):
        # Labels of answers that are not stored here have nothing in common.
        answer = label.evaluation_id or label.label_id
        history = histories.setdefault((answer, label.criterion), LabelHistory())
        if label.is_withdrawal:
            history.withdraw(label.person)
        elif label.passed is not None:
            history.add(label.person, (position, label))
    in_force: list[tuple[int, Label]] = []
    for history in histories.values():
        in_force += history.of_people()
    in_force.sort(key=_position)
    return [label for _, label in in_force]


def labels_replaced(labels: Sequence[Label]) -> list[Label]:
    """Return the verdicts that do not count, and the withdrawals."""
    in_force = {(label.label_id, label.criterion) for label in labels_in_force(labels)}
    replaced: list[Label] = []
    for label in labels:
        is_label = label.passed is not None or label.is_withdrawal
        if is_label and (label.label_id, label.criterion) not in in_force:
            replaced.append(label)
    return replaced


def _position(item: tuple[int, Label]) -> int:
    return item[0]
