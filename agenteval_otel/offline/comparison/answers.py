"""Evaluated answers as a comparison needs them.

They come from files of results, from a database, or from a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import parse_qsl, urlencode

from agenteval_otel.components.database.target import database_at
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.models import AggregatedEvaluationResult, Message
from agenteval_otel.runtime.masking import mask_text
from agenteval_otel.storage.places import Place, Query
from agenteval_otel.storage.read import database_of, place_of
from agenteval_otel.storage.rows import (
    LABELS,
    AnswerRow,
    ScoreOf,
    UnreadableRows,
    in_snake_case,
    row_of,
    scores_of,
)

_TIMES: Final = ("since", "until")
_SQL: Final = "sql:"
T = TypeVar("T")
_SHARED: Final = 4_096
_ASKED: Final = ("prompt", "message_history", "ground_truth")


class Answer(NamedTuple):
    """Holds an evaluated answer.

    Attributes:
        place: Where it stands: ``results.jsonl:12``, or the id of its evaluation.
        key: What its input is recognised by in another run. None where nothing of the input is
            stored.
        cluster: Its conversation, else its trace. None where it stands alone.
        is_live: It answered real traffic: equal inputs of two users are no pair.
        at: When it was evaluated, Unix time.
        labels: Of `LABELS`, and tags as ``tag.<key>``.
        failed: The criteria whose evaluator broke, or gave no usable number.
        response_hash: Tells answers to one input apart. None where the answer is not stored.
        source: Where its texts are read again, by its `id`. None where it is stored nowhere.
        texts: Its question and the answer, if it has no source.
    """

    place: str
    key: str | None
    cluster: str | None
    is_live: bool
    at: float
    labels: Mapping[str, str]
    scores: Mapping[str, ScoreOf]
    failed: tuple[str, ...] = ()
    response_hash: int | None = None
    source: Place | None = None
    id: str = ""
    texts: tuple[str, str] | None = None
    trace_id: str | None = None

    @property
    def content(self) -> tuple[str, str] | None:
        """Return its question and the answer, or None where they are not stored. May block.

        A comparison keeps a million answers, and shows the texts of a few. They are None, too, where
        the place cannot be read any more, or has another answer there.
        """
        if self.source is None or self.response_hash is None:
            return self.texts
        stored = None
        with contextlib.suppress(StorageError):
            stored = self.source.find_evaluations([self.id]).get(self.id)
        content = None if stored is None else _content_of(row_of(stored, self.place).input)
        is_the_same = content is not None and hash(content[1]) == self.response_hash
        return content if is_the_same else None


@lru_cache(maxsize=_SHARED)
def _shared_mapping(items: tuple[tuple[str, T], ...]) -> Mapping[str, T]:
    """Return one mapping for all answers that have the same: most of a comparison's million have."""
    return dict(items)


def answer_of(row: AnswerRow, source: Place | None = None) -> Answer:
    """Return the answer of a stored row. It keeps the row's texts only without a `source`."""
    scores, failed = scores_of(row.results)
    content = _content_of(row.input)
    return Answer(
        row.place,
        _key_of(row),
        None if row.unit is None else sys.intern(row.unit),
        row.trace_id is not None,
        row.at,
        _shared_mapping(tuple(row.labels.items())),
        _shared_mapping(tuple(scores.items())),
        failed,
        None if content is None else hash(content[1]),
        source,
        row.id,
        content if source is None else None,
        row.trace_id,
    )


def answer_of_result(aggregated: AggregatedEvaluationResult, place: str) -> Answer:
    """Return the answer of a result of this process."""
    return answer_of(row_of(aggregated, place))


def _key_of(row: AnswerRow) -> str | None:
    """Return the input's own id (``metadata.id``), else a digest of what was asked.

    The answer is not part of it. None without both.
    """
    if row.input_id is not None:
        return f"id {row.input_id}"
    values = [row.input.get(name) for name in _ASKED]
    turns = row.input.get("conversation")
    if isinstance(turns, list | tuple):
        for turn in turns:
            fields = in_snake_case(turn) if isinstance(turn, Mapping) else {}
            values.append([fields.get(name) for name in _ASKED])
    if not any(values):
        return None
    in_one_form = [_same_form(value) for value in values]
    text = json.dumps(in_one_form, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _same_form(value: object) -> Any:
    """Return a value in one form, whichever names its fields have and whether it names None fields.

    Files and databases differ there.
    """
    if isinstance(value, Mapping):
        fields = in_snake_case(value)
        return {name: _same_form(item) for name, item in fields.items()}
    if isinstance(value, list | tuple):
        return [_same_form(item) for item in value]
    return value


def _content_of(question: Mapping[str, Any]) -> tuple[str, str] | None:
    prompt = question.get("prompt")
    response = question.get("response")
    if isinstance(response, Mapping) and isinstance(response.get("role"), str):
        with contextlib.suppress(ValueError):  # then it is shown as it is stored
            response = Message.model_validate(response).content
    if prompt is None and response is None:
        return None
    if response is None:
        shown = ""
    elif isinstance(response, str):
        shown = response
    else:
        shown = json.dumps(response, default=str)
    return str(prompt or ""), shown


# --- sources
# ----------------------------------------------------------------------------------------------------------
class Filters(NamedTuple):
    """Selects the answers of a source that are compared.

    They have equal labels, and were evaluated from `since` on and before `until`.
    """

    labels: Mapping[str, str] = {}
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def parse(cls, pairs: Iterable[tuple[str, str]], path: str) -> Self:
        """Build the filters from names and values.

        Raises:
            ConfigurationError: An unknown name, or no moment.
        """
        labels: dict[str, str] = {}
        times: dict[str, datetime] = {}
        for name, text in pairs:
            if name in _TIMES:
                times[name] = moment_of(text, path)
            else:
                labels[label_of(name, path)] = text
        return cls(labels, **times)

    def query(self) -> Query:
        """Return the query for the answers that are compared."""
        labels = {name: (value,) for name, value in self.labels.items()}
        return Query(labels, self.since, self.until)

    def __and__(self, other: Filters) -> Filters:
        since = max(filter(None, (self.since, other.since)), default=None)
        until = min(filter(None, (self.until, other.until)), default=None)
        return Filters({**self.labels, **other.labels}, since, until)


def label_of(name: str, path: str) -> str:
    """Return the name of a label, if it is one. Raises `ConfigurationError` otherwise."""
    is_tag = name.startswith("tag.") and name != "tag."
    if name not in LABELS and not is_tag:
        known_names = [*LABELS, *_TIMES, "tag.<key>"]
        raise ConfigurationError(
            f"answers are not chosen by {name!r}{known_choices(name, known_names)}", path=path
        )
    return name


def moment_of(text: str, path: str) -> datetime:
    """Read a moment in ISO 8601. Without a zone it is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        wrong = f"expected a moment such as 2026-11-01 or 2026-11-01T12:00+01:00, found {text!r}"
        raise ConfigurationError(wrong, path=path) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class ComparedSource:
    """Reads answers from ``LOCATION[?NAME=VALUE&...]``.

    The location is a file of results, an SQLite file of the storage, or ``sql:`` with the address
    of a database, which keeps parameters that are no filters.
    """

    def __init__(self, text: str) -> None:
        self.name = mask_text(text)
        location, question, query = text.partition("?")
        if Path(text).exists() or not question:
            location = text
            query = ""
        is_url = "://" in location
        own: list[tuple[str, str]] = []
        others: list[tuple[str, str]] = []
        for name, value in parse_qsl(query, keep_blank_values=True):
            is_filter = not is_url or name in (*LABELS, *_TIMES) or name.startswith("tag.")
            parameters = own if is_filter else others
            parameters.append((name, value))
        self.filters = Filters.parse(own, text)
        rest = urlencode(others)
        self.location = f"{location}?{rest}" if rest else location

    def rows(self, filters: Filters | None = None) -> Iterator[AnswerRow]:
        """Yield the answers that match, as they are stored.

        A row that cannot be read is left out, counted and logged.

        Raises:
            ConfigurationError: The source is not there, or nothing in it is an evaluated answer.
        """
        chosen = self.filters & filters if filters else self.filters
        unreadable = UnreadableRows()
        try:
            yield from self._place.rows(chosen.query(), unreadable)
        except StorageError as error:
            raise ConfigurationError(str(error)) from None
        if unreadable.count and not unreadable.has_others:
            raise ConfigurationError(unreadable.first)

    def answers(self, filters: Filters | None = None) -> Iterator[Answer]:
        """Yield the answers that match. Raises `ConfigurationError` as `rows` does."""
        for row in self.rows(filters):
            yield answer_of(row, self._place)

    @cached_property
    def _place(self) -> Place:
        if self.location.startswith(_SQL):
            try:
                return database_of(database_at(self.location.removeprefix(_SQL)))
            except ValueError as error:
                raise ConfigurationError(str(error), path=_SQL) from None
        try:
            return place_of(self.location)
        except StorageError as error:
            wrong = f"{error}. `agenteval-otel evaluate --results FILE` writes such a file"
            raise ConfigurationError(wrong) from None


def arms_of(
    answers: Iterable[Answer], label: str, wanted: tuple[str, ...] = ()
) -> dict[str, list[Answer]]:
    """Group the answers by the value of a label.

    The groups are the `wanted` values, else the only two, the earlier one first.

    Raises:
        ConfigurationError: There are not two, or one of the wanted is not there.
    """
    arms: dict[str, list[Answer]] = {}
    for answer in answers:
        value_of_answer = answer.labels.get(label)
        if value_of_answer is not None:
            arms.setdefault(value_of_answer, []).append(answer)
    counts = [f"{value} ({len(arms[value]):,})" for value in sorted(arms)]
    known_values = ", ".join(counts) or "no answer has it"
    for value in wanted:
        if value not in arms:
            raise ConfigurationError(
                f"no answer has {label}={value}. There are: {known_values}", path="--by"
            )
    if not wanted and len(arms) != 2:
        raise ConfigurationError(
            f"expected two values of {label}, found {len(arms)}: {known_values}. --by {label}=A,B names two",
            path="--by",
        )

    def first_time_of(value: str) -> tuple[float, str]:
        return min(answer.at for answer in arms[value]), value

    order = wanted or sorted(arms, key=first_time_of)
    return {value: arms[value] for value in order}
