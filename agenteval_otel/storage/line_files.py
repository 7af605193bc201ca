"""Reads files of JSON lines, one evaluated answer a line, as one place of stored results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from pydantic_core import to_json

from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.rows import (
    AnswerRow,
    UnreadableRows,
    parse_result,
    record_of,
    row_of_record,
)

_FILE_DIGITS: Final = 12
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


class LineFiles:
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
        return f"<LineFiles {self.place}>"

    @property
    def place(self) -> str:
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

    def rows(self, unreadable: UnreadableRows, *, after: str = "") -> Iterator[AnswerRow]:
        """Yield the answers as light rows, in order, from behind the evaluation `after`."""

        def row_of_line(line: _Line) -> AnswerRow:
            return row_of_record(record_of(line.text), line.id, line.place)

        return self._parsed(row_of_line, unreadable, after=after)

    def results(
        self, unreadable: UnreadableRows, *, holding: Callable[[bytes], bool] | None = None
    ) -> Iterator[tuple[str, AggregatedEvaluationResult]]:
        """Yield the evaluations by their ids, in order, of the lines that `holding` accepts."""

        def result_of_line(line: _Line) -> tuple[str, AggregatedEvaluationResult]:
            return line.id, parse_result(line.text)

        return self._parsed(result_of_line, unreadable, holding=holding)

    def mentioning(
        self, texts: Collection[str], unreadable: UnreadableRows
    ) -> Iterator[tuple[str, AggregatedEvaluationResult]]:
        """Yield the evaluations whose line has one of these texts as a whole value."""
        needles = _forms_of(texts)
        return self.results(unreadable, holding=lambda line: any(map(line.__contains__, needles)))

    def referring(
        self, ids: Collection[str], unreadable: UnreadableRows
    ) -> Iterator[tuple[str, AggregatedEvaluationResult]]:
        """Yield the evaluations with one of these ids of a trace or a response. There may be many."""
        forms = _forms_of(ids)
        return self.results(
            unreadable, holding=lambda line: not forms.isdisjoint(_REFERENCE.findall(line))
        )

    def find(self, id: str) -> AggregatedEvaluationResult | None:
        """Return the evaluation with this id. None if there is none that can be read."""
        number = self.number_of(id) - self._first if _ID.fullmatch(id) else len(self.paths)
        if not 0 <= number < len(self.paths):
            return None
        at = int(id[_FILE_DIGITS:], 16)
        try:
            with self.paths[number].open("rb") as file:
                file.seek(max(0, at - 1))
                begins = at == 0 or file.read(1) == b"\n"
                line = file.readline() if begins else b""
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
                    if after and number == begin:
                        at = file.seek(int(after[_FILE_DIGITS:], 16))
                        at += len(file.readline())
                    for position, text in enumerate(file, 1):
                        if (holding is None or holding(text)) and text.strip():
                            known = text.removeprefix(_BYTE_ORDER_MARK) if at == 0 else text
                            yield _Line(f"{prefix}{at:020x}", f"{name}:{position}", known)
                        at += len(text)
            except OSError as error:
                raise StorageError(f"{path} cannot be read: {error.strerror}") from None


def _forms_of(texts: Collection[str]) -> set[bytes]:
    """Return how texts are written as JSON: with other characters as they are, or escaped."""
    return {form for text in texts for form in (to_json(text), json.dumps(text).encode())}
