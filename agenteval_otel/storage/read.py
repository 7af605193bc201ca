"""The reader of stored results: opens a place, which gives them whole or as light rows, and takes
rows together as sums.

Every part that needs what was stored asks here, whichever the place is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from agenteval_otel.database.target import Target, database_at, is_sqlite
from agenteval_otel.errors import StorageError
from agenteval_otel.models.intervals import UnitSums
from agenteval_otel.storage.line_files import LineFiles
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.rows import AnswerRow, scores_of

CRITERION: Final = "criterion"
"""The group of `summarise` beside the labels."""


def place_of(text: str) -> Place:
    """Return the place: an SQLite file, the address of a database, or a file of JSON lines.

    Raises:
        StorageError: A file that cannot be read, a wrong address, or an extra that is missing.
    """
    try:
        if "://" in text or is_sqlite(text):
            return database_of(database_at(text))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(f"{text}: cannot be read: {reason}") from None
    except ValueError as error:
        raise StorageError(str(error)) from None
    return LineFiles([text])


def database_of(target: Target) -> Place:
    """Return the results' tables in a database, which need not be there yet."""
    from agenteval_otel.storage.sql_read import StoredDatabase  # loads SQLAlchemy

    return StoredDatabase(target)


class Sums:
    """The results of a group as sums, from which estimates come.

    Attributes:
        scores: Of the normalized scores, weighted by 1 / probability, by conversation or trace.
        passes: Of the verdicts, 1 for a pass.
        failed: How many answers have a result of the group that failed.
        newest: When the newest was evaluated, Unix time.
    """

    __slots__ = ("failed", "newest", "passes", "scores")

    def __init__(self) -> None:
        self.scores = UnitSums()
        self.passes = UnitSums()
        self.failed = 0
        self.newest = 0.0

    def __repr__(self) -> str:
        return f"<Sums {self.scores.count:,} scores, {self.failed:,} failed>"


def summarise(
    rows: Iterable[AnswerRow], by: Sequence[str] = (CRITERION,)
) -> dict[tuple[str, ...], Sums]:
    """Return the sums of each group of results, in the order in which groups appear.

    Args:
        rows: Of `Place.rows`.
        by: ``criterion``, and names of `LABELS` or ``tag.<key>``. A missing label is the empty text.
    """
    groups: dict[tuple[str, ...], Sums] = {}
    for row in rows:
        scores, failed = scores_of(row.results)
        for criterion in dict.fromkeys((*scores, *failed)):
            key = tuple(criterion if name == CRITERION else row.labels.get(name, "") for name in by)
            sums = groups.setdefault(key, Sums())
            sums.newest = max(sums.newest, row.at)
            sums.failed += criterion in failed
            score = scores.get(criterion)
            if score is None:
                continue
            if score.value is not None:
                sums.scores.add(score.value, score.weight, row.unit, is_baseline=score.is_baseline)
            if score.passed is not None:
                sums.passes.add(
                    float(score.passed), score.weight, row.unit, is_baseline=score.is_baseline
                )
    return groups
