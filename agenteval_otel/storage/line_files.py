"""Reads files of JSON lines, one evaluated answer a line, as one place of stored results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

from pydantic_core import to_json

from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.label_history import is_withdrawal, labeller_of
from agenteval_otel.storage.places import (
    MOST_TURNS,
    OF_OTHERS,
    FoundAnswers,
    Place,
    Query,
    Stored,
    Tag,
)
from agenteval_otel.storage.rows import (
    AnswerRow,
    Label,
    StoredEvaluation,
    StoredVerdict,
    UnreadableRows,
    in_snake_case,
    joined_labels,
    parse_result,
    record_of,
    row_of_record,
)
from agenteval_otel.storage.sql_rows import name_of
from agenteval_otel.storage.words import WantedWord, tag_word, words_of_input, words_of_tags

_AT_ONCE: Final = 10_000
_FILE_DIGITS: Final = 12
_MOST_SEARCHED: Final = 20_000
_ID: Final = re.compile(r"[0-9a-f]{32}")
_RESULT: Final = re.compile(rb'"criterion(?:Name|_name)"\s*:')
_REFERENCE: Final = re.compile(rb'"(?:trace|response)_?[iI]d"\s*:\s*("(?:[^"\\]|\\.)*")')
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
T = TypeVar("T")


class _Line(NamedTuple):
    """A line, the id of its evaluation, and where it stands: ``results.jsonl:12``."""

    id: str
    place: str
    text: bytes


class LineFiles(Place):
    """Files of JSON lines as one place. Blocks.

    The id of an evaluation consists of its file's number and the byte at which its line begins, so
    ids sort as the lines stand. A last line without an end was cut off when a process was killed:
    it is left out. All other lines that cannot be read are counted.

    Args:
        first: The number of the first file.
    """

    def __init__(self, paths: Sequence[str | Path], *, first: int = 0) -> None:
        self.paths = tuple(map(Path, paths))
        self._first = first

    def __repr__(self) -> str:
        return f"<LineFiles {self.name}>"

    @property
    def name(self) -> str:
        return ", ".join(map(str, self.paths))

    def number_of(self, id: str) -> int:
        """Return the number of the file that an evaluation stands in."""
        return int(id[:_FILE_DIGITS], 16)

    def only(self, number: int) -> LineFiles:
        """Return the place of one of the files. Ids stay."""
        return LineFiles([self.paths[number - self._first]], first=number)

    def count_results(self) -> int:
        """Return how many results there are, without reading them: at least as many as can be read."""
        return sum(len(_RESULT.findall(line.text)) for line in self._lines(after=""))

    def columns(self, *, after: str, skip: int = 0) -> Iterator[Sequence[Any]]:
        unreadable = UnreadableRows()
        part: list[tuple[Any, ...]] = []
        for row in self._light_rows(unreadable, after=after):
            if skip > 0:
                skip -= len(row.results)
                continue
            label = row.labels.get
            for result in row.results:
                # in the order of `COLUMNS`
                columns = (
                    row.id,
                    int(row.at),
                    None if row.answered_at is None else int(row.answered_at),
                    _name(result.criterion),
                    _name(label("agent")),
                    _name(label("model")),
                    _name(label("prompt_version")),
                    _name(label("service_version")),
                    _name(result.evaluator_version),
                    _name(label("environment")),
                    _name(label("arm")),
                    _name(result.reason),
                    result.evaluator_kind,
                    result.status,
                    result.passed,
                    result.weight,
                    result.probability,
                    result.normalized,
                    row.unit or row.id,
                    result.is_shadow,
                    not result.is_baseline,
                    result.objective,
                    result.cost,
                    result.duration_ns,
                )
                part.append(columns)
            if len(part) >= _AT_ONCE:
                yield part
                part = []
        if part:
            yield part
        unreadable.log(self.name)

    def find_answer(
        self, evaluation_id: str
    ) -> tuple[AggregatedEvaluationResult, list[StoredEvaluation]] | None:
        evaluation = self._find(evaluation_id)
        if evaluation is None:
            return None
        span = _span_of(evaluation)
        ids = {evaluation_id}
        if evaluation.response_id:
            ids.add(evaluation.response_id)
        texts = set(ids)
        if span is not None:
            trace_id, _ = span
            texts.add(trace_id)
        others: list[StoredEvaluation] = []
        for id, other in self._mentioning(texts):
            if id == evaluation_id:
                continue
            is_of_span = span is not None and _span_of(other) == span
            if is_of_span or other.response_id in ids:
                others.append(StoredEvaluation(id, other))
        return evaluation, others

    def find_turns(self, conversation_id: str) -> list[str]:
        moments: dict[str, int] = {}
        for id, evaluation in self._mentioning([conversation_id]):
            kinds = {result.evaluator_kind for result in evaluation.results}
            is_evaluated = not kinds.issubset(OF_OTHERS)
            if evaluation.conversation_id == conversation_id and is_evaluated:
                moments[id] = evaluation.response_ended_ns or evaluation.ended_ns or 0
        return sorted(moments, key=lambda id: moments[id])[:MOST_TURNS]

    def find_evaluations(
        self, evaluation_ids: Sequence[str]
    ) -> dict[str, AggregatedEvaluationResult]:
        evaluations = ((id, self._find(id)) for id in evaluation_ids)
        return {id: evaluation for id, evaluation in evaluations if evaluation is not None}

    def find_texts(self, wanted: Sequence[WantedWord], tag: Tag | None = None) -> FoundAnswers:
        """Return the answers, of the last 20,000 lines, that have the words and the tag."""
        words = list(wanted)
        if tag is not None:
            words.append(tag_word(*tag))
        ids = bytearray()
        total = sum(1 for _ in self._lines(after=""))
        unsearched = max(0, total - _MOST_SEARCHED)
        for line in islice(self._lines(after=""), unsearched, None):
            has_words = _words_of_line(line)
            if all(word.is_in(has_words) for word in words):
                ids += bytes.fromhex(line.id)
        return FoundAnswers(bytes(ids), unsearched)

    def find_annotated(
        self, column: Literal["conversation_id", "user_id"], value: str
    ) -> FoundAnswers:
        needles = _forms_of([value])
        ids = bytearray()
        for line in self._lines(
            after="", holding=lambda text: any(map(text.__contains__, needles))
        ):
            fields = _fields_of_line(line)
            if value in (fields.get(column), _mapping_of(fields, "input_snapshot").get(column)):
                ids += bytes.fromhex(line.id)
        return FoundAnswers(bytes(ids))

    def find_others(
        self, evaluations: Mapping[str, tuple[str, str]]
    ) -> list[AggregatedEvaluationResult]:
        spans = set(evaluations.values())
        trace_ids = {trace_id for trace_id, _ in spans}
        return [
            other
            for id, other in self._mentioning(trace_ids)
            if id not in evaluations and _span_of(other) in spans
        ]

    def find_labels(self, evaluation_ids: Sequence[str]) -> list[Label]:
        of_people: list[StoredVerdict] = []
        for id, evaluation in self.find_evaluations(evaluation_ids).items():
            of_people += _verdicts_of(id, evaluation, is_human=True)
        if not of_people:
            return []
        ids: set[str] = set()
        for verdict in of_people:
            ids.update(filter(None, (verdict.trace_id, verdict.response_id)))
        answers = [*self._referring(ids), *self.find_evaluations(sorted(ids)).items()]
        of_others: list[StoredVerdict] = []
        for id, evaluation in answers:
            of_others += _verdicts_of(id, evaluation, is_human=False)
        return joined_labels(of_people, of_others)

    def _rows(self, query: Query, unreadable: UnreadableRows) -> Iterator[AnswerRow]:
        return self._light_rows(unreadable)

    def _results(self, query: Query, unreadable: UnreadableRows, *, with_results: bool) -> Stored:
        return self._evaluations(unreadable)

    def _feedback(self, key: str, unreadable: UnreadableRows) -> Stored:
        needle = f'"{key}"'.encode()
        return self._evaluations(unreadable, holding=lambda line: needle in line)

    def _answers(self, ids: Mapping[str, Collection[str]], unreadable: UnreadableRows) -> Stored:
        return self._evaluations(unreadable, holding=_has_input)

    def _light_rows(self, unreadable: UnreadableRows, *, after: str = "") -> Iterator[AnswerRow]:
        """Yield the answers, in order, from behind the evaluation `after`."""

        def row_of_line(line: _Line) -> AnswerRow:
            return row_of_record(record_of(line.text), line.id, line.place)

        return self._parsed(row_of_line, unreadable, after=after)

    def _evaluations(
        self, unreadable: UnreadableRows, *, holding: Callable[[bytes], bool] | None = None
    ) -> Stored:
        """Yield the evaluations, in order, of the lines that `holding` accepts."""

        def result_of_line(line: _Line) -> tuple[str, AggregatedEvaluationResult]:
            return line.id, parse_result(line.text)

        return self._parsed(result_of_line, unreadable, holding=holding)

    def _mentioning(self, texts: Collection[str]) -> Stored:
        """Yield the evaluations whose line has one of these texts as a whole value."""
        needles = _forms_of(texts)
        return self._evaluations(
            UnreadableRows(), holding=lambda line: any(map(line.__contains__, needles))
        )

    def _referring(self, ids: Collection[str]) -> Stored:
        """Yield the evaluations with one of these ids of a trace or a response. There may be many."""
        forms = _forms_of(ids)
        return self._evaluations(
            UnreadableRows(), holding=lambda line: not forms.isdisjoint(_REFERENCE.findall(line))
        )

    def _find(self, id: str) -> AggregatedEvaluationResult | None:
        """Return the evaluation with this id. None if there is none that can be read."""
        if not _ID.fullmatch(id):
            return None
        number = self.number_of(id) - self._first
        if not 0 <= number < len(self.paths):
            return None
        at = int(id[_FILE_DIGITS:], 16)
        try:
            with self.paths[number].open("rb") as file:
                file.seek(max(0, at - 1))
                is_beginning = at == 0 or file.read(1) == b"\n"
                line = file.readline() if is_beginning else b""
            return parse_result(line.removeprefix(_BYTE_ORDER_MARK))
        except (OSError, ValueError, OverflowError):
            return None

    def _parsed(
        self,
        parse: Callable[[_Line], T],
        unreadable: UnreadableRows,
        *,
        after: str = "",
        holding: Callable[[bytes], bool] | None = None,
    ) -> Iterator[T]:
        for line in self._lines(after=after, holding=holding):
            try:
                parsed = parse(line)
            except (ValueError, RecursionError) as error:
                if line.text.endswith(b"\n"):
                    unreadable.add(line.place, error)
                continue
            unreadable.has_others = True
            yield parsed

    def _lines(
        self, *, after: str, holding: Callable[[bytes], bool] | None = None
    ) -> Iterator[_Line]:
        """Yield the lines that are not empty and that `holding` accepts, behind the id `after`."""
        begin = self.number_of(after) - self._first if after else 0
        for number in range(begin, len(self.paths)):
            path = self.paths[number]
            name = path.name
            prefix = f"{number + self._first:0{_FILE_DIGITS}x}"
            try:
                with path.open("rb") as file:
                    at = 0
                    is_begun_within = bool(after) and number == begin
                    if is_begun_within:
                        at = file.seek(int(after[_FILE_DIGITS:], 16))
                        at += len(file.readline())
                    for position, text in enumerate(file, 1):
                        if (holding is None or holding(text)) and text.strip():
                            content = text.removeprefix(_BYTE_ORDER_MARK) if at == 0 else text
                            # Lines before the id were not read, and so not counted.
                            place = (
                                f"{name}, byte {at}" if is_begun_within else f"{name}:{position}"
                            )
                            yield _Line(f"{prefix}{at:020x}", place, content)
                        at += len(text)
            except OSError as error:
                raise StorageError(f"{path} cannot be read: {error.strerror}") from None


def _fields_of_line(line: _Line) -> dict[str, Any]:
    """Return the fields of the answer on a line. A line that cannot be read has none."""
    try:
        return in_snake_case(record_of(line.text))
    except (ValueError, RecursionError):
        return {}


def _words_of_line(line: _Line) -> set[str]:
    """Return the words of the texts and tags on a line. One that is nested too deep has none."""
    fields = _fields_of_line(line)
    try:
        words = words_of_input(_mapping_of(fields, "input_snapshot"))
        return words | words_of_tags(_tags_of(fields))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return set()


def _mapping_of(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    return in_snake_case(value) if isinstance(value, Mapping) else {}


def _tags_of(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    for tags in (fields.get("tags"), _mapping_of(fields, "input_snapshot").get("tags")):
        if tags and isinstance(tags, Mapping):
            return tags
    return {}


def _forms_of(texts: Collection[str]) -> set[bytes]:
    """Return how texts are written as JSON: with other characters as they are, or escaped."""
    forms = {to_json(text) for text in texts}
    forms.update(json.dumps(text).encode() for text in texts)
    return forms


def _has_input(line: bytes) -> bool:
    return b'"inputSnapshot"' in line or b'"input_snapshot"' in line


def _span_of(evaluation: AggregatedEvaluationResult) -> tuple[str, str] | None:
    """Return the ids of the trace and of the span, in this order."""
    span = evaluation.span
    return None if span is None else (span.trace_id, span.span_id)


@lru_cache(maxsize=4096)
def _name_of_text(text: str) -> str | None:
    return name_of(text)


def _name(value: object) -> str | None:
    return _name_of_text(value) if isinstance(value, str) else None


def _verdicts_of(
    id: str, evaluation: AggregatedEvaluationResult, *, is_human: bool
) -> Iterator[StoredVerdict]:
    trace_id, span_id = _span_of(evaluation) or (None, None)
    for result in evaluation.results:
        if (result.evaluator_kind == "human") == is_human:
            yield StoredVerdict(
                id,
                evaluation.response_id,
                trace_id,
                span_id,
                result.criterion_name,
                result.passed,
                evaluation.user_id,
                labeller_of(result),
                is_withdrawal(result),
            )
