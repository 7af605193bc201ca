"""Labels as files of CSV and of JSON lines: written, and read with every line checked."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.scoring.scales import BOOLEAN_WORDS
from agenteval_otel.runtime.text import sanitise
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.rows import Label
from agenteval_otel.ui.exports import without_quotes
from agenteval_otel.ui.label_page import name_in
from agenteval_otel.ui.labels import label_of_person, person_of, record
from agenteval_otel.ui.text import brief
from agenteval_otel.ui.views import moment_text

MAX_BYTES: Final = 4 * 2**20
MOST_LINES: Final = 10_000
_AT_ONCE: Final = 200
_SHOWN_WRONG: Final = 5
_SHOWN_VALUE: Final = 40
_MAX_TEXT: Final = 4_096
_DIGITS: Final = {"evaluation_id": 32, "trace_id": 32, "span_id": 16}
_HEXADECIMAL: Final = re.compile("[0-9a-f]*")
_STORED_PERSON: Final = re.compile("[0-9a-f]{32}")
_MAX_ID: Final = 200


class ExportedLabel(NamedTuple):
    """A label as a row of a file.

    Attributes:
        evaluation_id: Of the answer, as are the ids that follow.
        labeller: What the person typed.
        person: What identifies a person without a name.
    """

    evaluation_id: str
    trace_id: str | None
    span_id: str | None
    response_id: str | None
    agent: str | None
    criterion: str
    verdict: str
    labeller: str | None
    person: str | None
    comment: str | None
    labelled_at: str


class LabelLine(NamedTuple):
    """A label of a file.

    Attributes:
        ids: What leads to its answer: `evaluation_id`, or `trace_id` and `span_id`, or
            `response_id`.
        person: What identifies who gave it. None if that is not known.
        name: What the person typed. Empty if it is not in the file.
    """

    ids: Mapping[str, str]
    criterion: str
    passed: bool
    person: str | None
    name: str
    comment: str


FIELDS: Final = ExportedLabel._fields
"""The columns of a file of labels."""


class ImportedLabels:
    """Counts what became of the lines of a file.

    Attributes:
        added: Labels that were stored.
        present: Labels that were there already.
        repeated: Lines that a later line of the file replaces.
        unknown: Lines about answers that are not stored here.
        lost: Labels that could not be stored.
        wrong: Lines that are no label.
        reasons: The first of these, each with its line.
    """

    def __init__(self) -> None:
        self.added = 0
        self.present = 0
        self.repeated = 0
        self.unknown = 0
        self.lost = 0
        self.wrong = 0
        self.reasons: list[str] = []

    def __repr__(self) -> str:
        return f"<ImportedLabels {self.sentence}>"

    @property
    def sentence(self) -> str:
        """Say in words what was taken and what was not."""
        parts = [f"{self.added:,} added", f"{self.present:,} there already"]
        others = (
            (self.repeated, "replaced by a later line"),
            (self.unknown, "of answers that are not stored here"),
            (self.wrong, "not understood"),
            (self.lost, "not stored: see the terminal"),
        )
        parts += [f"{count:,} {words}" for count, words in others if count]
        return ", ".join(parts)

    def refuse(self, line: int, reason: str) -> None:
        self.wrong += 1
        if len(self.reasons) < _SHOWN_WRONG:
            self.reasons.append(f"line {line:,}: {reason}")


def exported_labels(labels: Sequence[Label], place: Place) -> Iterator[ExportedLabel]:
    """Yield the labels as rows of a file, as they are stored."""
    for first in range(0, len(labels), _AT_ONCE):
        part = labels[first : first + _AT_ONCE]
        stored = place.find_evaluations([label.label_id for label in part])
        for label in part:
            evaluation = stored.get(label.label_id)
            if evaluation is not None and label.evaluation_id is not None:
                yield _exported(label, label.evaluation_id, evaluation)


def _exported(
    label: Label, evaluation_id: str, evaluation: AggregatedEvaluationResult
) -> ExportedLabel:
    result = next(
        result
        for result in evaluation.results
        if result.evaluator_kind == "human" and result.criterion_name == label.criterion
    )
    span = evaluation.span
    trace_id = span.trace_id if span else None
    span_id = span.span_id if span else None
    labelled_ns = result.ended_ns or evaluation.ended_ns or 0
    labelled_at = moment_text(labelled_ns / 1e9, has_seconds=True)
    verdict = "pass" if label.passed else "fail"
    return ExportedLabel(
        evaluation_id,
        trace_id,
        span_id,
        evaluation.response_id,
        evaluation.agent,
        label.criterion,
        verdict,
        label.name,
        label.person,
        result.reasoning,
        labelled_at,
    )


def import_labels(
    content: bytes, labels: Sequence[Label], place: Place, criteria: Sequence[str]
) -> ImportedLabels:
    """Store the labels of a file of CSV or JSON lines that are not there yet.

    Blocks until they are stored. A line that is no label costs itself. The same file taken twice
    adds nothing.

    Args:
        labels: Those that count.
        criteria: What may be labelled.

    Raises:
        ConfigurationError: It is too long, not UTF-8, or has no such columns.
    """
    imported = ImportedLabels()
    lines: dict[tuple[Any, ...], LabelLine] = {}
    for number, fields in _lines_of(content, imported):
        try:
            line = _line_of(fields, criteria)
        except ConfigurationError as error:
            imported.refuse(number, str(error))
            continue
        key = (*sorted(line.ids.items()), line.criterion, line.person)
        imported.repeated += key in lines
        lines.pop(key, None)
        lines[key] = line
    in_force: dict[tuple[Any, ...], bool | None] = {}
    for label in labels:
        in_force[label.evaluation_id, label.criterion, label.person] = label.passed
    waiting = list(lines.values())
    for first in range(0, len(waiting), _AT_ONCE):
        _import_some(waiting[first : first + _AT_ONCE], place, in_force, imported)
    return imported


def _import_some(
    lines: Sequence[LabelLine],
    place: Place,
    in_force: dict[tuple[Any, ...], bool | None],
    imported: ImportedLabels,
) -> None:
    answers = _answers_of(lines, place)
    queued: list[Any] = []
    labelled: set[tuple[str, str]] = set()
    for line, answer in zip(lines, answers, strict=True):
        if answer is None:
            imported.unknown += 1
            continue
        key, evaluation = answer
        if in_force.get((key, line.criterion, line.person)) == line.passed:
            imported.present += 1
            continue
        if (key, line.criterion) in labelled:
            # The last label of an answer has to be that of the file.
            _store(queued, imported)
            labelled.clear()
        in_force[key, line.criterion, line.person] = line.passed
        labelled.add((key, line.criterion))
        label = label_of_person(
            key,
            evaluation,
            line.criterion,
            passed=line.passed,
            comment=line.comment,
            name=line.name,
        )
        queued.append(label._replace(user_id=line.person))
    _store(queued, imported)


def _store(queued: list[Any], imported: ImportedLabels) -> None:
    if queued and record(*queued):
        imported.added += len(queued)
    else:
        imported.lost += len(queued)
    queued.clear()


def _answers_of(
    lines: Sequence[LabelLine], place: Place
) -> list[tuple[str, AggregatedEvaluationResult] | None]:
    """Return the answer of each line. None if it is not stored."""
    ids = [line.ids["evaluation_id"] for line in lines if "evaluation_id" in line.ids]
    by_id = place.find_evaluations(sorted(set(ids)))
    others = [line for line in lines if line.ids.get("evaluation_id") not in by_id]
    by_name: dict[str, tuple[str, AggregatedEvaluationResult]] = {}
    wanted = {
        name: sorted({line.ids[name] for line in others if name in line.ids})
        for name in ("trace_id", "response_id")
    }
    candidates = [key for key, _ in place.answers(wanted)] if any(wanted.values()) else []
    for first in range(0, len(candidates), _AT_ONCE):
        part = place.find_evaluations(candidates[first : first + _AT_ONCE])
        for key, evaluation in part.items():
            if any(result.evaluator_kind != "human" for result in evaluation.results):
                by_name |= {name: (key, evaluation) for name in _leading_to(evaluation)}
    answers: list[tuple[str, AggregatedEvaluationResult] | None] = []
    for line in lines:
        key = line.ids.get("evaluation_id", "")
        answer = (key, by_id[key]) if key in by_id else None
        span = f"{line.ids.get('trace_id')} {line.ids.get('span_id')}"
        response = line.ids.get("response_id", "")
        answers.append(answer or by_name.get(span) or by_name.get(response))
    return answers


def _leading_to(evaluation: AggregatedEvaluationResult) -> list[str]:
    span = evaluation.span
    names = [f"{span.trace_id} {span.span_id}"] if span is not None else []
    return [*names, evaluation.response_id] if evaluation.response_id else names


# --- lines
def _lines_of(
    content: bytes, imported: ImportedLabels
) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Yield the fields of each line with its number. Lines that have none are counted."""
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"expected at most {MAX_BYTES:,} bytes, found {len(content):,}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"byte {error.start:,} is not UTF-8. Save the file as CSV in UTF-8"
        ) from None
    lines = _lines_of_json if text.lstrip().startswith("{") else _lines_of_csv
    for count, line in enumerate(lines(text, imported)):
        if count >= MOST_LINES:
            raise ConfigurationError(f"expected at most {MOST_LINES:,} lines: split the file")
        yield line


def _lines_of_json(
    text: str, imported: ImportedLabels
) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            imported.refuse(number, "is not JSON")
            continue
        if isinstance(fields, dict):
            yield number, fields
        else:
            imported.refuse(number, "expected a JSON object")


def _lines_of_csv(
    text: str, imported: ImportedLabels
) -> Iterator[tuple[int, Mapping[str, object]]]:
    head = text.partition("\n")[0]
    # Spreadsheets of some languages separate by semicolons.
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        names = [name.strip().lower() for name in next(reader, [])]
    except csv.Error:
        names = []
    for name in ("criterion", "verdict"):
        if name not in names:
            raise ConfigurationError(
                f"expected a column {name!r}, found {brief(head, 120) or 'nothing'}. Columns are {', '.join(FIELDS)}"
            )
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            imported.refuse(number, f"is not CSV: {error}")
            continue
        if any(cell.strip() for cell in cells):
            values = map(without_quotes, cells)
            yield number, dict(zip(names, values, strict=False))


def _line_of(fields: Mapping[str, object], criteria: Sequence[str]) -> LabelLine:
    """Return the label of a line. Raises `ConfigurationError` with the field and what is expected."""
    criterion = _text_in(fields, "criterion")
    if criterion not in criteria:
        wrong = f"{_shown(criterion)} is not scored here{known_choices(criterion, criteria[:20])}"
        raise ConfigurationError(wrong, path="criterion")
    ids = {name: _id_in(fields, name) for name in (*_DIGITS, "response_id")}
    person = _person_in(fields)
    known = {name: text for name, text in ids.items() if text}
    is_led_to = "evaluation_id" in known or "response_id" in known
    if not is_led_to and not (ids["trace_id"] and ids["span_id"]):
        raise ConfigurationError(
            "expected an evaluation_id, a trace_id with its span_id, or a response_id"
        )
    name = name_in(_text_in(fields, "labeller"))
    comment = _text_in(fields, "comment")
    if len(comment) > _MAX_TEXT:
        raise ConfigurationError(
            f"expected at most {_MAX_TEXT:,} characters, found {len(comment):,}", path="comment"
        )
    verdict = BOOLEAN_WORDS.get(_text_in(fields, "verdict").lower())
    if verdict is None:
        wrong = f"expected pass or fail, found {_shown(_text_in(fields, 'verdict'))}"
        raise ConfigurationError(wrong, path="verdict")
    return LabelLine(known, criterion, bool(verdict), person_of(name) or person, name, comment)


def _id_in(fields: Mapping[str, object], name: str) -> str:
    text = _text_in(fields, name)
    digits = _DIGITS.get(name)
    if digits is None and len(text) > _MAX_ID:
        raise ConfigurationError(f"expected at most {_MAX_ID} characters", path=name)
    if text and digits is not None and (len(text) != digits or not _HEXADECIMAL.fullmatch(text)):
        wrong = f"expected {digits} hexadecimal digits, found {_shown(text)}"
        raise ConfigurationError(wrong, path=name)
    if sanitise(text) != text:
        raise ConfigurationError("has characters that no id has", path=name)
    return text


def _person_in(fields: Mapping[str, object]) -> str | None:
    """Return what identifies a person as feedback stores it, so that no plain id is stored as one."""
    text = _id_in(fields, "person")
    if text and not _STORED_PERSON.fullmatch(text) and person_of(text) != text:
        raise ConfigurationError("expected the hash that an export has", path="person")
    return text or None


def _text_in(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, bool | int):
        return str(value)
    if not isinstance(value, str):
        raise ConfigurationError(f"expected text, found {type(value).__name__}", path=name)
    return value.strip()


def _shown(text: str) -> str:
    return repr(brief(text, _SHOWN_VALUE)) if text else "nothing"


def rows_of_labels(exported: Iterable[ExportedLabel]) -> Iterator[Iterable[Any]]:
    """Yield the rows of a CSV file of labels, its header first."""
    yield FIELDS
    yield from exported


def lines_of_labels(exported: Iterable[ExportedLabel]) -> Iterator[bytes]:
    """Yield the lines of a JSON file of labels."""
    for label in exported:
        known = {name: value for name, value in label._asdict().items() if value is not None}
        yield f"{json.dumps(known, ensure_ascii=False)}\n".encode("utf-8", "replace")
