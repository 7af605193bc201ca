"""What every place of stored results can be asked: a database, or files of JSON lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.notes import Notes
from agenteval_otel.storage.rows import AnswerRow, Label, StoredEvaluation, UnreadableRows, row_of
from agenteval_otel.storage.words import WantedWord

Tag: TypeAlias = tuple[str, str]
"""Its name and its value."""
Stored: TypeAlias = Iterator[tuple[str, AggregatedEvaluationResult]]
"""Evaluations by their ids."""
COLUMNS: Final = (
    "evaluation_id",
    "evaluated",
    "answered",
    "criterion",
    "agent",
    "model",
    "prompt_version",
    "service_version",
    "evaluator_version",
    "environment",
    "arm",
    "reason",
    "evaluator_kind",
    "status",
    "passed",
    "weight",
    "probability",
    "normalized",
    "cluster",
    "shadow",
    "preferred",
    "objective",
    "cost",
    "duration",
)
"""Name the columns of a row of `Place.columns`, in their order. Moments are in seconds since the epoch. When the answer
was given may be None. `preferred` is whether the result has a `least_probability`. `cost` is what the
judge's calls cost in USD, perhaps as text (`cost_of`), or None if no model was called. `duration` is how long the
evaluator ran, in nanoseconds, or None.
"""


ID_BYTES: Final = 16
"""An evaluation's id, which is shown in hexadecimal digits."""


class FoundAnswers(NamedTuple):
    """Holds the answers that a search has.

    Attributes:
        ids: Of their evaluations, 16 bytes each.
        unsearched: How many older answers were not looked at.
        is_cut: More answers than these match.
    """

    ids: bytes = b""
    unsearched: int = 0
    is_cut: bool = False


class Query(NamedTuple):
    """Which stored results are read.

    Attributes:
        labels: The values that are wanted, by names of `LABELS` and ``tag.<key>``.
        since: Evaluated at this moment or later.
        until: Evaluated before this moment.
    """

    labels: Mapping[str, Collection[str]] = {}
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_of_all(self) -> bool:
        return not self.labels and self.since is None and self.until is None

    @property
    def has_tags(self) -> bool:
        return any(name.startswith("tag.") for name in self.labels)

    def keeps(self, row: AnswerRow) -> bool:
        """Tell whether the answer is wanted."""
        if any(row.labels.get(name) not in values for name, values in self.labels.items()):
            return False
        if self.until is not None and row.at >= self.until.timestamp():
            return False
        return self.since is None or row.at >= self.since.timestamp()


ALL: Final = Query()
OF_OTHERS: Final = ("human", "application")
"""The evaluator kinds of what people and the application say of an answer."""
MOST_TURNS: Final = 100_000
"""Of a conversation that is read."""


class AnswerSpan(NamedTuple):
    """Names an answer by its span, and by its own id where several answers share the span."""

    trace_id: str
    span_id: str
    call_id: str


class Place(ABC):
    """Where evaluated answers are stored. Every method blocks.

    A stored answer that cannot be read costs itself: it is counted, and logged once a reading. A
    place that cannot be read raises `StorageError`.
    """

    filters_labels: ClassVar[bool] = False
    """Whether `_results` leaves out what a query does not want, tags apart."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name that messages show, without a password."""

    def rows(
        self, query: Query = ALL, unreadable: UnreadableRows | None = None
    ) -> Iterator[AnswerRow]:
        """Yield the answers that are wanted as light rows, in the order in which they were stored."""
        unreadable = UnreadableRows() if unreadable is None else unreadable
        yield from filter(query.keeps, self._rows(query, unreadable))
        unreadable.log(self.name)

    def results(
        self,
        query: Query = ALL,
        unreadable: UnreadableRows | None = None,
        *,
        with_results: bool = True,
    ) -> Stored:
        """Yield the whole evaluations that are wanted, in the order in which they were stored.

        Without `with_results` those of a database have none of their results, and are read faster.
        """
        unreadable = UnreadableRows() if unreadable is None else unreadable
        is_filtered = query.is_of_all or (self.filters_labels and not query.has_tags)
        for id, evaluation in self._results(query, unreadable, with_results=with_results):
            if is_filtered or query.keeps(row_of(evaluation, id)):
                yield id, evaluation
        unreadable.log(self.name)

    def feedback(self, key: str) -> Stored:
        """Yield the evaluations with results of people that have this key in their metadata."""
        unreadable = UnreadableRows()
        yield from self._feedback(key, unreadable)
        unreadable.log(self.name)

    def answers(self, ids: Mapping[str, Collection[str]]) -> Stored:
        """Yield the evaluations that have one of these ids.

        The ids are values of ``trace_id``, ``response_id`` or ``conversation_id``. The results of
        the evaluations may be missing. Files give all that have an input.
        """
        unreadable = UnreadableRows()
        yield from self._answers(ids, unreadable)
        unreadable.log(self.name)

    @property
    def notes(self) -> Notes | None:
        """Return the notes of people on the answers. None for files, which take no notes."""
        return None

    @abstractmethod
    def count_results(self) -> int:
        """Return how many results there are: of files at least as many as can be read."""

    @abstractmethod
    def columns(self, *, after: str, skip: int = 0) -> Iterator[Sequence[Any]]:
        """Yield the results as rows of `COLUMNS`, in parts.

        They are those of the evaluations behind the id `after`. `skip` leaves out so many of the
        oldest results.
        """

    @abstractmethod
    def find_answer(
        self, evaluation_id: str
    ) -> tuple[AggregatedEvaluationResult, list[StoredEvaluation]] | None:
        """Return an evaluation, and what people and the application said of its answer.

        None for an id that is not stored.
        """

    @abstractmethod
    def find_turns(self, conversation_id: str) -> list[str]:
        """Return the ids of the evaluated answers of a conversation, oldest first.

        What people and the application said of them is not among them. There are at most 100,000.
        """

    @abstractmethod
    def find_evaluations(
        self, evaluation_ids: Sequence[str]
    ) -> dict[str, AggregatedEvaluationResult]:
        """Return evaluations by their ids, at most a few hundred."""

    def find_spans(self, evaluation_ids: Sequence[str]) -> dict[str, AnswerSpan]:
        """Return the spans of the answers of these evaluations, of those that have one.

        Evaluations of one answer have equal ones, whenever they were made.
        """
        spans: dict[str, AnswerSpan] = {}
        for id in evaluation_ids:  # there may be thousands: their contents are not kept together
            evaluation = self.find_evaluations([id]).get(id)
            span = None if evaluation is None else evaluation.span
            if evaluation is not None and span is not None:
                call_id = evaluation.call_id or span.span_id
                spans[id] = AnswerSpan(span.trace_id, span.span_id, call_id)
        return spans

    @abstractmethod
    def find_texts(self, wanted: Sequence[WantedWord], tag: Tag | None = None) -> FoundAnswers:
        """Return the answers whose texts have all these words, and which have the tag."""

    @abstractmethod
    def find_annotated(
        self, column: Literal["conversation_id", "user_id"], value: str
    ) -> FoundAnswers:
        """Return the answers of a conversation or a user."""

    @abstractmethod
    def find_others(
        self, evaluations: Mapping[str, tuple[str, str]]
    ) -> list[AggregatedEvaluationResult]:
        """Return the other evaluations of the same spans.

        `evaluations` maps ids to their trace and span ids.
        """

    @abstractmethod
    def find_labels(self, evaluation_ids: Sequence[str]) -> list[Label]:
        """Return the labels that these evaluations hold.

        Each is joined with the answer that it is about.
        """

    @abstractmethod
    def _rows(self, query: Query, unreadable: UnreadableRows) -> Iterator[AnswerRow]:
        """Yield the answers. Those that are not wanted may be among them."""

    @abstractmethod
    def _results(self, query: Query, unreadable: UnreadableRows, *, with_results: bool) -> Stored:
        """Yield the evaluations. Those that are not wanted may be among them."""

    @abstractmethod
    def _feedback(self, key: str, unreadable: UnreadableRows) -> Stored: ...

    @abstractmethod
    def _answers(
        self, ids: Mapping[str, Collection[str]], unreadable: UnreadableRows
    ) -> Stored: ...
