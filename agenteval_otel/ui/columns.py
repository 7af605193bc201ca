"""All stored results as columns in memory, so that every figure of every page is a sum over arrays.

One result takes about 60 bytes. Later results are appended in the order of their evaluations' ids,
which sort by time. The newest minute is read again each time, because processes commit in any
order.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agenteval_otel.errors import StorageError
from agenteval_otel.models.intervals import Estimate, UnitMean
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.rows import cost_of, objective_of
from agenteval_otel.storage.summaries import ScoreColumns, summarise
from agenteval_otel.ui.runs import Runs

Rows = NDArray[np.int32]
_MAX_NAMES: Final = 10_000
OTHERS: Final = "(others)"
NONE: Final = ""
NAMED: Final = (
    "criterion", "agent", "model", "prompt_version", "service_version", "evaluator_version", "environment", "arm",
    "reason", "run",
)  # fmt: skip
"""Columns of names. A name beyond 10,000 of a column counts as ``(others)``, a missing one as the
empty text.

Without runs there is no column of them.
"""
SCORED: Final = 0
SKIPPED: Final = 1
FAILED: Final = 2
_STATUS: Final = {"scored": SCORED, "skipped": SKIPPED, "failed": FAILED}
By = Literal["answered", "evaluated"]
"""Which moment of a result counts, a column each: when the answer was given, or when it was
evaluated.
"""
_UNSETTLED_MS: Final = 60_000
_READ_ALL_S: Final = 900.0
_REFRESH_S: Final = 0.5
_COMPARED_AT_ONCE: Final = 65_536
_MOST_SHORT_CODES: Final = 128
_SPARE_ROWS: Final = 1_000  # for results that come while all are read
_HASH: Final = 0xFFFF_FFFF  # of 200,000 conversations five have the hash of another one
_LONGEST_S: Final = 18 * 3_600  # float16 has no number much higher
_LAST_MOMENT: Final = 2**32 - 1  # the year 2106
_TYPES: Final[dict[str, Any]] = {
    "evaluation_id": "V16",
    "evaluated": np.uint32,
    "answered": np.uint32,
    **dict.fromkeys(NAMED, np.int8),  # until a column has more names
    "is_human": np.bool_,
    "status": np.int8,
    "passed": np.int8,
    "weight": np.float32,
    "is_known": np.bool_,
    "normalized": np.float32,
    "cluster": np.uint32,
    "is_shadow": np.bool_,
    "is_baseline": np.bool_,
    "cost": np.float32,
    "duration": np.float16,  # of seconds: within 0.05 %, and of microseconds within 0.06 of one
}


class Figure(NamedTuple):
    """A mean, and what it is made of.

    Attributes:
        mean: By conversations or traces.
        represents: For how many answers the scores stand: the sum of the weights.
        unknown: How many of them have an unknown probability, and so count once.
        evaluators: The codes of the evaluators' versions that gave the scores.
    """

    mean: UnitMean
    represents: float
    unknown: int
    evaluators: frozenset[int]

    @property
    def estimate(self) -> Estimate:
        """Return the mean with its interval."""
        return self.mean.estimate()


class ResultColumns:
    """Holds the results of a place, the newest `max_results` of them.

    Reading blocks. `runs` are the runs that the place holds.

    Usable from any thread, but by one at a time: new results go into the same arrays.

    Attributes:
        count: How many results are held.
        left_out: How many older ones the place has besides.
        version: Grows with each `refresh` that found new results.
    """

    def __init__(
        self, place: Place, *, max_results: int = 2_000_000, runs: Runs | None = None
    ) -> None:
        self.place = place
        self._max_results = max_results
        self._runs = runs
        self._names: dict[str, dict[str | None, int]] = {name: {} for name in NAMED}
        self._columns: dict[str, NDArray[Any]] = {}
        self._objectives: dict[tuple[str, str | None], float] = {}  # by criterion and agent
        self._settled = 0  # how many rows, from the first on, are not read again
        self._settled_id = ""
        self._looked_s = -math.inf
        self._all_read_s = -math.inf
        self.count = 0
        self.left_out = 0
        self.version = 0
        self._replaced: frozenset[bytes] = frozenset()  # ids of labels that do not count
        # The version whose units are numbered, and the numbers.
        self._numbered: tuple[int, NDArray[Any]] = (-1, np.empty(0, np.int32))

    def __repr__(self) -> str:
        return f"<ResultColumns {self.count:,}>"

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name][: self.count]

    def names(self, column: str) -> list[str]:
        """Return the names of a column by their codes."""
        return [name or NONE for name in self._names[column]]

    def code(self, column: str, name: str) -> int:
        """Return the code of a name, -1 for a name that no result has."""
        return self._names[column].get(name or None, -1)

    @property
    def objectives(self) -> dict[str, float]:
        """Return the newest stored objectives of the criteria, the highest where agents differ."""
        objectives: dict[str, float] = {}
        for (criterion, _), objective in self._objectives.items():
            objectives[criterion] = max(objective, objectives.get(criterion, 0.0))
        return objectives

    def leave_out(self, evaluation_ids: Iterable[str]) -> None:
        """Take these for labels that do not count: later ones replaced them, or took them back."""
        self._replaced = frozenset(bytes.fromhex(id) for id in evaluation_ids)

    def replaced_rows(self) -> Rows:
        """Return the rows of labels that do not count."""
        if not self._replaced:
            return np.empty(0, np.int32)
        rows = np.flatnonzero(self["is_human"])
        ids = self["evaluation_id"][rows].tolist()
        is_replaced = np.fromiter((id in self._replaced for id in ids), np.bool_, len(rows))
        return rows[is_replaced].astype(np.int32)

    def rows_of(self, evaluation_id: str) -> Rows:
        """Return the rows of an evaluation, which lie together.

        There are none if it is not in memory.
        """
        ids = self["evaluation_id"]
        wanted = bytes.fromhex(evaluation_id)
        first = bisect_left(range(self.count), wanted, key=lambda row: ids[row].tobytes())
        last = first
        while last < self.count and ids[last].tobytes() == wanted:
            last += 1
        return np.arange(first, last, dtype=np.int32)

    def begins(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell of each row whether an evaluation begins there. Rows of an evaluation lie together."""
        begins = np.ones(len(rows), np.bool_)
        ids = self["evaluation_id"]
        # Ids of a million rows are 16 megabytes, so they are taken in parts.
        for start in range(1, len(rows), _COMPARED_AT_ONCE):
            part = ids[rows[start - 1 : start + _COMPARED_AT_ONCE]].view(np.uint64).reshape(-1, 2)
            is_another = (part[1:] != part[:-1]).any(axis=1)
            begins[start : start + _COMPARED_AT_ONCE] = is_another
        return begins

    def refresh(
        self, *, at_once: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Read what is new, at most twice a second unless `at_once`.

        Read all again every quarter of an hour.

        Raises `StorageError`. The next call tries again.
        """
        now = time.monotonic()
        if now - self._looked_s < _REFRESH_S and not at_once:
            return
        if now - self._all_read_s > _READ_ALL_S:
            self._reset(self.place.count_results())
            self._all_read_s = now
        before = self._count_and_last_id()
        self._read(progress)
        self._looked_s = time.monotonic()
        if before != self._count_and_last_id():
            self.version += 1

    def _count_and_last_id(self) -> tuple[int, bytes]:
        if not self.count:
            return 0, b""
        return self.count, bytes(self["evaluation_id"][-1])

    def _reset(self, total: int) -> None:
        self.left_out = max(0, total - self._max_results)
        types = dict(_TYPES)
        if self._runs is None:
            del types["run"]
        size = total + _SPARE_ROWS
        self._columns = {name: np.empty(size, kind) for name, kind in types.items()}
        self.count = 0
        self._objectives.clear()
        self._settled = 0
        self._settled_id = ""

    def _read(self, progress: Callable[[int, int], None] | None) -> None:
        total = len(self._columns["evaluated"]) - _SPARE_ROWS - self.left_out
        skip = self.left_out if not self._settled_id else 0
        position = self._settled
        for rows in self.place.columns(after=self._settled_id, skip=skip):
            position = self._add(position, rows)
            if progress is not None:
                progress(position, total)
        self.count = position
        self._settle()

    def _add(self, position: int, rows: Sequence[Any]) -> int:
        """Store rows of `COLUMNS` from this position on, and return the position behind them."""
        end = position + len(rows)
        if end > len(self._columns["evaluated"]):
            for name, column in self._columns.items():
                more = np.empty(len(column) // 4 + len(rows), column.dtype)
                self._columns[name] = np.concatenate([column, more])
        (
            ids,
            evaluated,
            answered,
            criterion,
            agent,
            model,
            prompt_version,
            service_version,
            evaluator_version,
            environment,
            arm,
            reason,
            kind,
            status,
            passed,
            weight,
            probability,
            normalized,
            cluster,
            is_shadow,
            is_preferred,
            objective,
            cost,
            duration,
        ) = zip(*rows, strict=True)
        # in the order of `NAMED`
        texts = [
            criterion,
            agent,
            model,
            prompt_version,
            service_version,
            evaluator_version,
            environment,
            arm,
            reason,
        ]
        if self._runs is not None:
            texts.append(tuple(map(self._runs.name_of, ids)))
        try:
            encoded = np.frombuffer(bytes.fromhex("".join(ids)), "V16")
        except ValueError:
            raise StorageError(
                f"{self.place.name}: an id of an evaluation was changed by hand"
            ) from None
        evaluated_s = _moments(evaluated)
        answered_s = np.minimum(_moments(answered), evaluated_s)
        values: dict[str, Any] = {"evaluation_id": encoded, "evaluated": evaluated_s}
        # An answer whose moment is unknown has that of its evaluation. So has one whose clock
        # is ahead: one such answer would move every window.
        values["answered"] = np.where(answered_s > 0, answered_s, evaluated_s)
        for name, column_texts in zip(NAMED, texts, strict=False):
            values[name] = self._encode(name, column_texts)
            self._make_room(name)
        values["is_human"] = [value == "human" for value in kind]
        values["status"] = [_STATUS.get(value, FAILED) for value in status]
        values["passed"] = [-1 if value is None else value for value in passed]
        values["weight"] = weight
        values["is_known"] = [value is not None for value in probability]
        values["normalized"] = np.array(normalized, np.float32)
        values["cluster"] = [hash(value) & _HASH for value in cluster]
        values["is_shadow"] = [bool(value) for value in is_shadow]
        values["is_baseline"] = [not value for value in is_preferred]
        values["cost"] = [math.nan if value is None else cost_of(value) for value in cost]
        values["duration"] = _durations(duration)
        self._learn_objectives(criterion, agent, objective)
        for name, value in values.items():
            self._columns[name][position:end] = value
        return end

    def _learn_objectives(
        self,
        criteria: Sequence[str],
        agents: Sequence[str | None],
        objectives: Sequence[object],
    ) -> None:
        """Keep the newest objective of each criterion and agent."""
        if not any(objectives):
            return
        for criterion, agent, stored in zip(criteria, agents, objectives, strict=True):
            objective = objective_of(stored)
            key = (criterion, agent)
            is_kept = key in self._objectives or len(self._objectives) < _MAX_NAMES
            if objective is not None and is_kept:
                self._objectives[key] = objective

    def _encode(self, column: str, values: Sequence[str | None]) -> list[int] | int:
        """Return the codes of a column's names, or the one code of all."""
        codes = self._names[column]
        different = set(values)
        for value in different - codes.keys():
            if len(codes) >= _MAX_NAMES:
                codes.setdefault(OTHERS, len(codes))
                break
            codes[value] = len(codes)
        others = codes.get(OTHERS, 0)
        if len(different) == 1:
            return codes.get(values[0], others)
        return [codes.get(value, others) for value in values]

    def _make_room(self, column: str) -> None:
        """Give the codes of a column two bytes once one is too few for its names."""
        codes = self._columns[column]
        if len(self._names[column]) > _MOST_SHORT_CODES and codes.dtype == np.int8:
            self._columns[column] = codes.astype(np.int16)

    def _settle(self) -> None:
        """Mark what was saved more than a minute ago: it is not read again."""
        before = f"{time.time_ns() // 1_000_000 - _UNSETTLED_MS:012x}"
        ids = self["evaluation_id"]
        low = self._settled
        high = self.count
        while low < high:  # the ids are sorted
            middle = (low + high) // 2
            if ids[middle].tobytes().hex() < before:
                low = middle + 1
            else:
                high = middle
        if low > self._settled:
            # An evaluation is committed whole, so that its id is the boundary.
            self._settled = low
            self._settled_id = ids[low - 1].tobytes().hex()

    def seconds(self, rows: Rows, by: By) -> NDArray[np.int64]:
        """Return the moments of these rows, in seconds since the epoch."""
        return self[by][rows].astype(np.int64)

    def id_of(self, row: int | np.integer[Any]) -> str:
        return str(self["evaluation_id"][row].tobytes().hex())

    def figure(self, rows: Rows, *, rate: bool) -> Figure | None:
        """Return the weighted pass rate, or the mean of the normalized scores.

        The result is None if no row has one.
        """
        rows, values = self.scored_values(rows, rate=rate)
        scores = self.scores(rows, values, np.zeros(len(rows), np.int8))
        (mean,) = summarise(scores, 1)
        if mean is None:
            return None
        unknown = int(np.count_nonzero(~self["is_known"][rows]))
        versions = np.flatnonzero(np.bincount(self["evaluator_version"][rows]))
        return Figure(mean, float(scores.weights.sum()), unknown, frozenset(versions.tolist()))

    def scored_values(self, rows: Rows, *, rate: bool) -> tuple[Rows, NDArray[np.float64]]:
        """Return those of the rows that are scored and have a value, and the values.

        With `rate` the values are 1 for a pass and 0 for a failure, else the normalized scores.
        """
        if rate:
            values = self["passed"][rows].astype(np.float64)
            has_value = values >= 0
        else:
            values = self["normalized"][rows].astype(np.float64)
            has_value = ~np.isnan(values)
        kept = has_value & (self["status"][rows] == SCORED)
        return rows[kept], values[kept]

    def scores(self, rows: Rows, values: NDArray[Any], groups: NDArray[Any]) -> ScoreColumns:
        """Return what `summarise` takes: these values of the rows, with the rows' weights and units."""
        weights = self["weight"][rows].astype(np.float64)
        return ScoreColumns(values, weights, self.units()[rows], self["is_baseline"][rows], groups)

    def units(self) -> NDArray[Any]:
        """Return the number of each row's conversation or trace, from 0.

        They are numbered again once there are new rows.
        """
        version, codes = self._numbered
        if version != self.version:
            # Results of an answer lie together and share a unit: one of each run is sorted, in a
            # fifth of the memory where an answer has five.
            clusters = self["cluster"]
            begins_run = np.ones(len(clusters), np.bool_)
            begins_run[1:] = clusters[1:] != clusters[:-1]
            starts = np.flatnonzero(begins_run)
            _, numbers = np.unique(clusters[starts], return_inverse=True)
            lengths = np.diff(starts, append=len(clusters))
            codes = np.repeat(numbers.astype(np.int32), lengths)
            self._numbered = (self.version, codes)
        return codes


def _durations(nanoseconds: Sequence[float | None]) -> NDArray[np.float64]:
    """Return durations in seconds, NaN for one that is unknown or cannot be."""
    seconds = np.array(nanoseconds, np.float64) / 1e9
    seconds[seconds > _LONGEST_S] = math.nan
    return seconds


def _moments(seconds: Sequence[int | None]) -> NDArray[np.float64]:
    """Return moments that the column can hold, 0 for one that is unknown."""
    try:
        moments = np.array(seconds, np.float64)
    except OverflowError:  # a file may hold any number
        limited = [max(0, min(value or 0, _LAST_MOMENT)) for value in seconds]
        moments = np.array(limited, np.float64)
    return np.clip(np.nan_to_num(moments), 0, _LAST_MOMENT)
