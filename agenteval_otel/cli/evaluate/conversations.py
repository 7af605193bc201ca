"""The rows of a dataset that are turns, put together by their conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agenteval_otel.cli.evaluate.dataset import Dataset, DatasetRow
from agenteval_otel.models import EvaluationInput


class DatasetConversations:
    """Yields the conversations of a dataset, each after its last turn.

    Turns are rows with the same conversation id and agent, in the order of their timestamps where
    all have one, else of the dataset. A row that holds a conversation already, or has no
    conversation id, is taken as it is.

    Args:
        with_answers: Single turns are yielded too, and evaluated each by itself.
    """

    def __init__(self, dataset: Dataset, *, with_answers: bool) -> None:
        self._dataset = dataset
        self._with_answers = with_answers
        self._turns: Counter[tuple[str, str | None]] = Counter()
        self._others = 0
        dataset.on_input = self._count

    def check(self) -> int:
        """Check as `Dataset.check` does, and return the number of inputs that are evaluated."""
        self._dataset.check()
        return len(self)

    def __len__(self) -> int:
        turns = self._turns.total() if self._with_answers else 0
        return len(self._turns) + self._others + turns

    def __iter__(self) -> Iterator[DatasetRow]:
        open_ones: dict[tuple[str, str | None], list[EvaluationInput]] = {}
        missing = self._turns.copy()
        for row in self._dataset:
            turn = row.evaluation_input
            key = _key_of(turn)
            if key is None or self._with_answers:
                yield row
            if key is None:
                continue
            open_ones.setdefault(key, []).append(turn)
            missing[key] -= 1
            if not missing[key]:
                yield row._replace(evaluation_input=_conversation_of(open_ones.pop(key)))

    def _count(self, turn: EvaluationInput) -> None:
        key = _key_of(turn)
        if key is None:
            self._others += 1
        else:
            self._turns[key] += 1


def _key_of(turn: EvaluationInput) -> tuple[str, str | None] | None:
    id = turn.conversation_id or turn.session_id
    if id is None or turn.conversation is not None:
        return None
    return id, turn.agent


def _conversation_of(turns: list[EvaluationInput]) -> EvaluationInput:
    if all(turn.timestamp is not None for turn in turns):
        turns = sorted(turns, key=lambda turn: turn.timestamp or 0.0)
    return EvaluationInput(conversation=turns, criteria=turns[-1].criteria)
