"""Runs of `evaluate`, each a file of results, compared as `agenteval-otel compare` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.offline.comparison import Answer, Comparison, Options, compare
from agenteval_otel.offline.comparison.answers import answer_of
from agenteval_otel.storage.line_files import LineFiles


class Runs:
    """The runs in files of results, by the files' names and in their order. Blocks."""

    def __init__(self, place: LineFiles, names: Sequence[str]) -> None:
        self.place = place
        self.names = tuple(names)
        self._compared: dict[tuple[str, str, bool], Comparison] = {}

    def __repr__(self) -> str:
        return f"<Runs {', '.join(self.names)}>"

    def name_of(self, evaluation_id: str) -> str:
        return self.names[self.place.number_of(evaluation_id)]

    def check(self, name: str, path: str) -> str:
        """Return the name if it is a run's. Raises `ConfigurationError` with the choices."""
        if name not in self.names:
            raise ConfigurationError(f"no run {name!r}{known_choices(name, self.names)}", path=path)
        return name

    def compare(self, left: str, right: str, *, pass_rate: bool) -> Comparison:
        """Compare the right run with the left one. The comparison is kept for the next look.

        Raises `EvaluationError` if the runs have nothing in common.
        """
        key = (left, right, pass_rate)
        if key not in self._compared:
            sides = (self._answers(left), self._answers(right))
            self._compared[key] = compare(*sides, Options(pass_rate=pass_rate), (left, right))
        return self._compared[key]

    def _answers(self, name: str) -> list[Answer]:
        """Return the answers of a run, each with the id by which the pages show it."""
        rows = self.place.only(self.names.index(name)).rows()
        return [answer_of(row)._replace(place=row.id) for row in rows]


def opened_runs(places: Sequence[str]) -> Runs:
    """Return the runs in files of JSON lines.

    Raises:
        ConfigurationError: A file cannot be read, has no results, or is named twice.
    """
    files = LineFiles(places)
    for number, place in enumerate(places):
        try:
            first = next(files.only(number).rows(), None)
        except StorageError as error:
            raise ConfigurationError(str(error), path="PLACE") from None
        if first is None:
            wrong = f"{place} is no file of results as evaluate --results writes them"
            raise ConfigurationError(
                f"{wrong}, nor an SQLite database that is shown alone", path="PLACE"
            )
    return Runs(files, _names_of(places))


def _names_of(places: Sequence[str]) -> list[str]:
    """Return the files' names, or their places if two files have the same name."""
    names = Counter(Path(place).name for place in places)
    if twice := [place for place, count in Counter(places).items() if count > 1]:
        raise ConfigurationError(f"{twice[0]} is named twice", path="PLACE")
    return [place if names[Path(place).name] > 1 else Path(place).name for place in places]
