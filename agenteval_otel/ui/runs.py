"""Runs of `evaluate`, each a file of results: read into one database, and compared as
`agenteval-otel compare` does.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from agenteval_otel.comparison import Answer, Comparison, Options, Source, compare
from agenteval_otel.components.explained import known_choices
from agenteval_otel.database.target import Target
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.sql_database import Database
from agenteval_otel.storage.sql_rows import Rows, rows_of

_AT_ONCE: Final = 500
_RUN_DIGITS: Final = 12


class Runs:
    """The runs in a database that nothing else is stored in, by the files' names and in their
    order. Blocks.

    An evaluation's id consists of its run's and its line's number: answers keep the order of their
    file, and comparisons have the figures of the command line.
    """

    def __init__(self, target: Target, names: Sequence[str]) -> None:
        self.target, self.names = target, tuple(names)
        self._compared: dict[tuple[str, str, bool], Comparison] = {}

    def __repr__(self) -> str:
        return f"<Runs {', '.join(self.names)}>"

    def name_of(self, evaluation_id: str) -> str:
        return self.names[int(evaluation_id[:_RUN_DIGITS], 16)]

    def check(self, name: str, path: str) -> str:
        """The name, if it is a run's. Raises `ConfigurationError` with the choices."""
        if name not in self.names:
            raise ConfigurationError(f"no run {name!r}{known_choices(name, self.names)}", path=path)
        return name

    def compare(self, left: str, right: str, *, pass_rate: bool) -> Comparison:
        """The right run beside the left one, kept for the next look. Raises `EvaluationError`:
        nothing in common.
        """
        key = (left, right, pass_rate)
        if key not in self._compared:
            sides: dict[str, list[Answer]] = {left: [], right: []}
            for answer in Source(str(self.target.path)).answers():
                if (name := self.name_of(answer.place)) in sides:
                    sides[name].append(answer)
            self._compared[key] = compare(
                sides[left], sides[right], Options(pass_rate=pass_rate), (left, right)
            )
        return self._compared[key]


@contextmanager
def opened_runs(places: Sequence[str]) -> Iterator[Runs]:
    """Read files of JSON lines into a database that is gone with the block. Raises
    `ConfigurationError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder, "results.db"), "")
        with closing(Database(target)) as database:
            for number, place in enumerate(places):
                rows = _rows_of_run(place, number)
                while part := list(islice(rows, _AT_ONCE)):
                    for error in filter(None, database.write(part, may_wait=True)):
                        raise error
        yield Runs(target, _names_of(places))


def _names_of(places: Sequence[str]) -> list[str]:
    """The files' names; their places where two have the same one."""
    names = Counter(Path(place).name for place in places)
    if twice := [place for place, count in Counter(places).items() if count > 1]:
        raise ConfigurationError(f"{twice[0]} is named twice", path="PLACE")
    return [place if names[Path(place).name] > 1 else Path(place).name for place in places]


def _rows_of_run(place: str, number: int) -> Iterator[Rows]:
    """What can be read of a file; lines that were cut off are passed over, as in a single file."""
    is_run = False
    try:
        with open(place, encoding="utf-8", errors="replace") as lines:
            for position, line in enumerate(filter(str.strip, lines)):
                try:
                    result = AggregatedEvaluationResult.model_validate_json(line)
                except ValidationError:
                    continue
                is_run = True
                yield rows_of(result, f"{number:0{_RUN_DIGITS}x}{position:020x}")
    except OSError as error:
        raise ConfigurationError(
            f"{place} cannot be read: {error.strerror}", path="PLACE"
        ) from None
    if not is_run:
        wrong = f"{place} is no file of results as evaluate --results writes them"
        raise ConfigurationError(
            f"{wrong}, nor an SQLite database that is shown alone", path="PLACE"
        )
