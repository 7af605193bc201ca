"""Evaluated answers as a comparison needs them: from files of results, from a database, or from a
run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, urlencode

from agenteval_otel.components.explained import known_choices
from agenteval_otel.database.target import database_at, is_sqlite
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.models import AggregatedEvaluationResult, Message
from agenteval_otel.runtime.masking import mask_text
from agenteval_otel.scoring.probability import known, weight
from agenteval_otel.storage.base import without_objects

LABELS: Final = (
    "agent", "model", "service", "service_version", "prompt_name", "prompt_version", "environment", "experiment", "arm",
)  # fmt: skip
"""What answers can be chosen and split by, besides tags (``tag.<key>``) and time."""
_TIMES: Final = ("since", "until")
_SQL: Final = "sql:"
_ASKED: Final = ("prompt", "message_history", "ground_truth")


class ScoreOf(NamedTuple):
    """A criterion's score of an answer: from 0 to 1, higher is better; None where it has no such
    form.
    """

    value: float | None
    passed: bool | None
    weight: float
    version: str


class Answer(NamedTuple):
    """An evaluated answer.

    Attributes:
        place: Where it stands: ``results.jsonl:12``, or the id of its evaluation.
        key: What its input is recognised by in another run; None where nothing of the input is
            stored.
        cluster: Its conversation, else its trace; None where it stands alone.
        is_live: It answered real traffic: equal inputs of two users are no pair.
        at: When it was evaluated, Unix time.
        labels: Of `LABELS`, and tags as ``tag.<key>``.
        failed: The criteria whose evaluator broke, or gave no usable number.
        content: Its question and the answer, where they are stored.
    """

    place: str
    key: str | None
    cluster: str | None
    is_live: bool
    at: float
    labels: Mapping[str, str]
    scores: Mapping[str, ScoreOf]
    failed: tuple[str, ...] = ()
    content: tuple[str, str] | None = None
    trace_id: str | None = None


def answer_of(record: Mapping[str, Any], place: str) -> Answer:
    """The answer of a stored result: its JSON form, by the fields' names or their aliases.

    Raises:
        ConfigurationError: It is no result.
    """
    get = _Fields(record)
    results = get("results")
    if not isinstance(results, list | tuple) or not all(
        isinstance(item, Mapping) for item in results
    ):
        raise ConfigurationError(
            "expected an evaluated answer with its results, as evaluate --results writes them",
            path=place,
        )
    scores, failed = _scores_of(results)
    question, span = _Fields(get("input_snapshot") or {}), _Fields(get("span") or {})
    labels = {
        name: str(value) for name in LABELS if (value := get(name) or question(name)) is not None
    }
    labels |= {
        f"tag.{name}": str(value) for name, value in (get("tags") or question("tags") or {}).items()
    }
    trace_id = span("trace_id")
    conversation = (
        get("conversation_id")
        or get("session_id")
        or question("conversation_id")
        or question("session_id")
    )
    return Answer(
        place,
        _key_of(get, question),
        conversation or trace_id,
        trace_id is not None,
        _time_of(get),
        labels,
        scores,
        failed,
        _content_of(question),
        trace_id,
    )


def answer_of_result(aggregated: AggregatedEvaluationResult, place: str) -> Answer:
    """The answer of a result of this process."""
    try:
        text = aggregated.model_dump_json(by_alias=True, exclude_none=True)
    except ValueError:  # an evaluator's metadata may contain objects that JSON cannot represent
        text = without_objects(aggregated).model_dump_json(by_alias=True, exclude_none=True)
    return answer_of(json.loads(text), place)


class _Aliases(dict[str, str]):
    """The names of fields in camelCase by those in snake_case."""

    def __missing__(self, name: str) -> str:
        first, *others = name.split("_")
        self[name] = first + "".join(map(str.title, others))
        return self[name]


_ALIASES = _Aliases()


class _Fields:
    """Reads a mapping by names in snake_case, also where it has them in camelCase, as files do."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._get = values.get

    def __call__(self, name: str) -> Any:
        value = self._get(_ALIASES[name])
        return self._get(name) if value is None else value


def _scores_of(results: Iterable[Mapping[str, Any]]) -> tuple[dict[str, ScoreOf], tuple[str, ...]]:
    by_name: dict[str, list[ScoreOf]] = {}
    failed: list[str] = []
    for result in results:
        get = _Fields(result)
        name = str(get("criterion_name"))
        if get("error"):
            failed.append(name)
        elif get("skip_reason") is None:
            value, passed = get("normalized"), get("passed")
            # NaN included
            if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1):
                failed.append(name)
                continue
            version = f"{get('evaluator_id') or get('evaluator_type')} {get('evaluator_version') or ''}".strip()
            by_name.setdefault(name, []).append(
                ScoreOf(
                    value,
                    passed if isinstance(passed, bool) else None,
                    weight(known(get("probability"))),
                    version,
                )
            )
    return {
        name: scores[0] if len(scores) == 1 else _mean(scores) for name, scores in by_name.items()
    }, tuple(failed)


def _mean(scores: list[ScoreOf]) -> ScoreOf:
    """Several evaluators score one criterion: the mean of their scores; it passes where all do."""
    values = [score.value for score in scores if score.value is not None]
    verdicts = [score.passed for score in scores if score.passed is not None]
    return ScoreOf(
        math.fsum(values) / len(values) if values else None,
        all(verdicts) if verdicts else None,
        max(score.weight for score in scores),
        ", ".join(sorted({score.version for score in scores})),
    )


def _key_of(get: _Fields, question: _Fields) -> str | None:
    """The input's own id (``metadata.id``), else what was asked; the answer has no part in it."""
    for metadata in (get("metadata"), question("metadata")):
        if isinstance(metadata, Mapping) and metadata.get("id") is not None:
            return f"id {metadata['id']}"
    turns = [[_Fields(turn)(name) for name in _ASKED] for turn in question("conversation") or ()]
    values = [question(name) for name in _ASKED] + turns
    if not any(values):
        return None
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:24]


def _time_of(get: _Fields) -> float:
    for name, unit in (("ended_ns", 1e9), ("timestamp", 1e3)):
        if isinstance(value := get(name), int | float) and value > 0:
            return float(value) / unit
    return 0.0


def _content_of(question: _Fields) -> tuple[str, str] | None:
    prompt, response = question("prompt"), question("response")
    if isinstance(response, Mapping) and isinstance(response.get("role"), str):
        response = Message.model_validate(response).content
    if prompt is None and response is None:
        return None
    shown = (
        (response if isinstance(response, str) else json.dumps(response, default=str))
        if response is not None
        else ""
    )
    return str(prompt or ""), shown


# --- sources
# ----------------------------------------------------------------------------------------------------------
class Filters(NamedTuple):
    """Which answers of a source are compared: equal labels, evaluated from `since` on and before
    `until`.
    """

    labels: Mapping[str, str] = {}
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def parse(cls, pairs: Iterable[tuple[str, str]], path: str) -> Self:
        """From names and values.

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

    def keep(self, answer: Answer) -> bool:
        if any(answer.labels.get(name) != value for name, value in self.labels.items()):
            return False
        is_late = self.until is not None and answer.at >= self.until.timestamp()
        return not is_late and (self.since is None or answer.at >= self.since.timestamp())

    def __and__(self, other: Filters) -> Filters:
        since = max(filter(None, (self.since, other.since)), default=None)
        until = min(filter(None, (self.until, other.until)), default=None)
        return Filters({**self.labels, **other.labels}, since, until)


def label_of(name: str, path: str) -> str:
    """The name of a label, if it is one."""
    if name not in LABELS and not (name.startswith("tag.") and name != "tag."):
        known_names = [*LABELS, *_TIMES, "tag.<key>"]
        raise ConfigurationError(
            f"answers are not chosen by {name!r}{known_choices(name, known_names)}", path=path
        )
    return name


def moment_of(text: str, path: str) -> datetime:
    """A moment in ISO 8601; without a zone it is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        wrong = f"expected a moment such as 2026-11-01 or 2026-11-01T12:00+01:00, found {text!r}"
        raise ConfigurationError(wrong, path=path) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Source:
    """Where answers are read from: ``LOCATION[?NAME=VALUE&...]``.

    The location is a file of results, an SQLite file of the storage, or ``sql:`` with the address
    of a database, which keeps parameters that are no filters.
    """

    def __init__(self, text: str) -> None:
        self.name = mask_text(text)
        location, question, query = text.partition("?")
        if Path(text).exists() or not question:
            location, query = text, ""
        is_url = "://" in location
        own: list[tuple[str, str]] = []
        others: list[tuple[str, str]] = []
        for name, value in parse_qsl(query, keep_blank_values=True):
            is_filter = not is_url or name in (*LABELS, *_TIMES) or name.startswith("tag.")
            (own if is_filter else others).append((name, value))
        self.filters = Filters.parse(own, text)
        rest = urlencode(others)
        self.location = f"{location}?{rest}" if rest else location

    def answers(self, filters: Filters | None = None) -> Iterator[Answer]:
        """The answers that match.

        Raises:
            ConfigurationError: The source is not there, or not readable, with the line.
        """
        chosen = self.filters & filters if filters else self.filters
        records = self._stored(chosen) if self._is_database() else self._lines()
        return (answer for answer in records if chosen.keep(answer))

    def _is_database(self) -> bool:
        if self.location.startswith(_SQL):
            return True
        try:
            return is_sqlite(self.location)
        except OSError as error:
            wrong = f"cannot be read: {error.strerror}; `agenteval-otel evaluate --results FILE` writes such a file"
            raise ConfigurationError(wrong, path=self.location) from None

    def _lines(self) -> Iterator[Answer]:
        name = Path(self.location).name
        with open(self.location, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    record = _object(line, f"{name}:{number}")
                except ConfigurationError:
                    if number == 1 or line.endswith(b"\n"):
                        raise
                    return  # the last line, cut off where a process was killed
                yield answer_of(record, f"{name}:{number}")

    def _stored(self, filters: Filters) -> Iterator[Answer]:
        try:
            target = database_at(self.location.removeprefix(_SQL))
        except ValueError as error:
            raise ConfigurationError(str(error), path=_SQL) from None
        from agenteval_otel.storage.sql_database import read_records  # loads SQLAlchemy

        try:
            for id, record in read_records(
                target, filters.labels, since=filters.since, until=filters.until
            ):
                yield answer_of(record, id)
        except StorageError as error:
            raise ConfigurationError(str(error)) from None


def _object(line: bytes, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ConfigurationError(
            f"not JSON: {getattr(error, 'msg', 'not UTF-8')}", path=place
        ) from None
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"expected a JSON object on each line, found {type(value).__name__}", path=place
        )
    return value


def arms_of(
    answers: Iterable[Answer], label: str, wanted: tuple[str, ...] = ()
) -> dict[str, list[Answer]]:
    """The answers by the value of a label: of the `wanted` ones, else of the only two, the earlier
    one first.

    Raises:
        ConfigurationError: There are not two, or one of the wanted is not there.
    """
    arms: dict[str, list[Answer]] = {}
    for answer in answers:
        if (value := answer.labels.get(label)) is not None:
            arms.setdefault(value, []).append(answer)
    known_values = (
        ", ".join(f"{value} ({len(arms[value]):,})" for value in sorted(arms)) or "no answer has it"
    )
    for value in wanted:
        if value not in arms:
            raise ConfigurationError(
                f"no answer has {label}={value}; there are: {known_values}", path="--by"
            )
    if not wanted and len(arms) != 2:
        raise ConfigurationError(
            f"expected two values of {label}, found {len(arms)}: {known_values}; --by {label}=A,B names two",
            path="--by",
        )
    order = wanted or sorted(
        arms, key=lambda value: (min(answer.at for answer in arms[value]), value)
    )
    return {value: arms[value] for value in order}
