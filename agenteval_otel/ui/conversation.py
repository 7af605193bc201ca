"""The turns of a conversation: those around an answer, and all in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.places import Place
from agenteval_otel.ui.answer_list import ListedAnswer, listed, whole_number

_BESIDE: Final = 7  # turns before an answer, and as many behind it
PER_PAGE: Final = 50


class ListedTurn(NamedTuple):
    """A turn beside an answer.

    Attributes:
        number: From 1 on, of the evaluated turns.
        is_present: It is the answer that the page is of.
    """

    number: int
    answer: ListedAnswer
    is_present: bool


class TurnsAround(NamedTuple):
    """The turns around an answer.

    Attributes:
        number: Of the answer, from 1 on.
        total: How many turns the conversation has.
    """

    turns: Sequence[ListedTurn]
    number: int
    total: int

    @property
    def page(self) -> int:
        """Return the page of the conversation that has the answer."""
        return (self.number - 1) // PER_PAGE + 1


class StoredTurn(NamedTuple):
    """A turn of a page of a conversation, with its evaluation."""

    number: int
    evaluation_id: str
    evaluation: AggregatedEvaluationResult


class ConversationPage(NamedTuple):
    """A page of a conversation.

    Attributes:
        number: From 1 on, of `pages`.
        total: How many turns all pages have.
    """

    turns: Sequence[StoredTurn]
    number: int
    pages: int
    total: int


def turns_around(
    place: Place, evaluation_id: str, evaluation: AggregatedEvaluationResult
) -> TurnsAround | None:
    """Return the answer with at most seven turns before it and seven behind it.

    None for an answer that is its conversation's only one, or belongs to none. Blocks.
    """
    if not evaluation.conversation_id:
        return None
    ids = place.find_turns(evaluation.conversation_id)
    if len(ids) < 2 or evaluation_id not in ids:
        return None
    at = ids.index(evaluation_id)
    first = max(0, at - _BESIDE)
    numbers = {id: first + offset for offset, id in enumerate(ids[first : at + _BESIDE + 1], 1)}
    turns = []
    for answer in listed(place, numbers):
        turns.append(ListedTurn(numbers[answer.key], answer, answer.key == evaluation_id))
    return TurnsAround(turns, at + 1, len(ids))


def conversation_page(
    place: Place, conversation_id: str, page: str | None
) -> ConversationPage | None:
    """Return a page of a conversation, the first one for a number that there is not. Blocks.

    None for a conversation that is not stored.
    """
    ids = place.find_turns(conversation_id)
    if not ids:
        return None
    pages = -(-len(ids) // PER_PAGE)
    number = max(1, whole_number(page, most=pages) or 1)
    first = (number - 1) * PER_PAGE
    chosen = ids[first : first + PER_PAGE]
    stored = place.find_evaluations(chosen)
    turns = []
    for offset, id in enumerate(chosen, 1):
        if id in stored:  # else it was erased a moment ago
            turns.append(StoredTurn(first + offset, id, stored[id]))
    return ConversationPage(turns, number, pages, len(ids))
