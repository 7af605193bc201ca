"""The queue for labelling: which answer is next, in which order, and by which criteria."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.places import AnswerSpan, Place
from agenteval_otel.storage.rows import Label
from agenteval_otel.ui.columns import SCORED, By, ResultColumns, Rows
from agenteval_otel.ui.views import worst

ORDERS: Final[Mapping[str, str]] = {
    "random": "Answers by chance. Only labels of this order say how evaluators agree on all answers.",
    "lowest": "The lowest scores first: what fails, and whether it should.",
    "newest": "The newest answers first.",
    "borderline": "Scores next to where a pass begins: a label tells most of the threshold there.",
    "disagreement": "Answers on which evaluators, shadows, replays or people contradict each other.",
    "second opinion": "Answers that others have labelled and you have not, by chance.",
}
"""Each order with what it is for."""
_OF_ALL: Final = ("disagreement", "second opinion")
"""In these orders the labels of others do not take an answer out of the queue."""
_AT_ONCE: Final = 32
_MOST_LOOKED_AT: Final = 2_000
_MOST_SEEN: Final = 4_000
_MOST_COMPARED: Final = 1_000  # groups of verdicts that may be of one answer
_MOST_OF_GROUP: Final = 100  # one conversation may have any number of answers in a second
_AMONG_PEOPLE: Final = 3
_WITH_PEOPLE: Final = 2
_AMONG_EVALUATORS: Final = 1


class Choice(NamedTuple):
    """A criterion by which an answer is labelled, with the person's own verdict so far."""

    criterion: str
    verdict: bool | None


class QueuedAnswer(NamedTuple):
    """Holds an answer to label, with its evaluation."""

    evaluation_id: str
    evaluation: AggregatedEvaluationResult
    choices: tuple[Choice, ...]


class LabelQueue:
    """The queue of a person for some criteria.

    Args:
        labels: The labels that count.
        rows: The results of each criterion.
        person: What identifies the person. None for labels without a name.
    """

    def __init__(
        self,
        columns: ResultColumns,
        place: Place,
        labels: Sequence[Label],
        rows: Mapping[str, Rows],
        person: str | None,
        order: str,
    ) -> None:
        self._columns = columns
        self._place = place
        self._rows = {name: part[columns["status"][part] == SCORED] for name, part in rows.items()}
        self._person = person
        self._order = order
        self._labels = [label for label in labels if label.criterion in rows]
        self._own: dict[tuple[str, str], bool | None] = {}
        self._of_others: set[tuple[str, str]] = set()
        for label in self._labels:
            key = (label.evaluation_id or "", label.criterion)
            if label.person == person:
                self._own[key] = label.passed
            else:
                self._of_others.add(key)

    def __repr__(self) -> str:
        return f"<LabelQueue {self._order} {list(self._rows)}>"

    @property
    def left(self) -> int:
        """Return how many answers of the order wait for a label. Some may have no stored content."""
        columns = self._columns
        rows = self._of_order()
        is_left = np.zeros(columns.count, np.bool_)
        is_left[rows] = True
        for key, criterion in self._taken if len(rows) else ():
            labelled = columns.rows_of(key) if key else rows[:0]
            code = columns.code("criterion", criterion)
            is_left[labelled[columns["criterion"][labelled] == code]] = False
        begins = columns.begins(np.flatnonzero(is_left).astype(np.int32))
        return int(np.count_nonzero(begins))

    @property
    def _taken(self) -> set[tuple[str, str]]:
        """Return the answers and criteria that need no label in this order."""
        return {*self._own} if self._order in _OF_ALL else {*self._own, *self._of_others}

    def _of_order(self) -> Rows:
        """Return the rows that the order is about, whether they have a label or not."""
        if self._order == "second opinion":
            return self._rows_of_answers({key for key, _ in self._of_others})
        if self._order == "disagreement":
            return self._rows_of_answers(self._ranks)
        return np.concatenate([*self._rows.values(), np.empty(0, np.int32)])

    def next(self, *, after: str, by: By) -> QueuedAnswer | None:
        """Return the next answer to label, behind the answer `after` if that is in the queue.

        Only answers with stored content are returned. The result is None if there is none.
        """
        rows = self._ordered(by)
        earlier: set[str] = set()
        if after:
            places = np.flatnonzero(np.isin(rows, self._columns.rows_of(after)))
            if len(places):
                # With several criteria an answer may come once more behind its first place.
                earlier = {self._columns.id_of(row) for row in rows[: places[0] + 1]}
                rows = rows[places[0] + 1 :]
        waiting = islice(self._waiting(rows, earlier), _MOST_LOOKED_AT)
        # The first one alone, as it nearly always has content: answers take megabytes each.
        at_once = 1
        while part := list(islice(waiting, at_once)):
            stored = self._place.find_evaluations(part)
            for key in part:
                evaluation = stored.get(key)
                if evaluation is not None and evaluation.input_snapshot is not None:
                    item = self._queued(key, evaluation)
                    if item.choices:
                        return item
            at_once = min(2 * at_once, _AT_ONCE)
        return None

    def answer(self, key: str, *, is_chosen: bool = False) -> QueuedAnswer | None:
        """Return an answer with what to label, by all criteria if it is chosen by the person.

        Of the next one in the queue these are the criteria that it was scored by and that need a
        label. None if it is not stored.
        """
        evaluation = self._place.find_evaluations([key]).get(key)
        return None if evaluation is None else self._queued(key, evaluation, is_chosen=is_chosen)

    def _queued(
        self, key: str, evaluation: AggregatedEvaluationResult, *, is_chosen: bool = False
    ) -> QueuedAnswer:
        scored = {
            result.criterion_name for result in evaluation.results if result.status == "scored"
        }
        choices: list[Choice] = []
        for name in self._rows:
            is_taken = (key, name) in self._of_others and self._order not in _OF_ALL
            if (name in scored and not is_taken) or is_chosen or (key, name) in self._own:
                choices.append(Choice(name, self._own.get((key, name))))
        return QueuedAnswer(key, evaluation, tuple(choices))

    def _waiting(self, rows: Rows, earlier: Collection[str]) -> Iterator[str]:
        """Yield the ids of the answers that need a label, each once, without the `earlier` ones."""
        columns = self._columns
        taken = self._taken
        names = columns.names("criterion")
        seen = set(earlier)
        for row in rows:
            key = columns.id_of(row)
            if key not in seen and (key, names[columns["criterion"][row]]) not in taken:
                seen.add(key)
                yield key

    def _ordered(self, by: By) -> Rows:
        columns = self._columns
        parts = [part for part in self._rows.values() if len(part)]
        if not parts:
            return np.empty(0, np.int32)
        rows = np.concatenate(parts)
        if self._order == "lowest":
            return worst(columns, rows, _MOST_SEEN + len(self._labels), by)
        if self._order == "random":
            return rows[np.argsort(_digits(columns, rows), kind="stable")]
        if self._order == "newest":
            return rows[np.argsort(-columns.seconds(rows, by), kind="stable")]
        ranks: NDArray[Any] = np.zeros(len(rows))
        if self._order == "second opinion":
            rows = self._rows_of_answers({key for key, _ in self._of_others})
            ranks = np.zeros(len(rows))
        elif self._order == "disagreement":
            rows = self._rows_of_answers(self._ranks)
            ranks = -np.array([self._ranks[columns.id_of(row)] for row in rows], np.float64)
        elif self._order == "borderline":
            ranks = np.concatenate([_distances(columns, part) for part in parts])
        return rows[np.lexsort((_digits(columns, rows), ranks))]

    def _rows_of_answers(self, keys: Iterable[str]) -> Rows:
        """Return the rows of these answers that are in the queue."""
        of_answers = [self._columns.rows_of(key) for key in keys if key]
        if not of_answers:
            return np.empty(0, np.int32)
        together = np.concatenate(of_answers)
        kept: Rows = together[np.isin(together, np.concatenate(list(self._rows.values())))]
        return kept

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """Return the answers with contradicting verdicts, and how much each tells."""
        ranks: dict[str, int] = {}
        for name, wanted in self._rows.items():
            of_evaluators = _verdict_rows(self._columns, name)
            at_once = _contradicting(self._columns, of_evaluators, wanted)
            at_other_times = _evaluated_otherwise(self._columns, self._place, of_evaluators, wanted)
            for key in (*at_once, *at_other_times):
                ranks[key] = _AMONG_EVALUATORS
        verdicts: dict[tuple[str, str], set[bool | None]] = {}
        for label in self._labels:
            key = label.evaluation_id or ""
            seen = verdicts.setdefault((key, label.criterion), set())
            seen.add(label.passed)
            judged = label.others.get(label.criterion)
            if len(seen) > 1:
                ranks[key] = _AMONG_PEOPLE
            elif judged is not None and judged != label.passed:
                ranks[key] = max(ranks.get(key, 0), _WITH_PEOPLE)
        return ranks


def _digits(columns: ResultColumns, rows: Rows) -> NDArray[np.uint64]:
    """Return random numbers, the same each time: the digits at the end of the evaluations' ids."""
    ids = np.frombuffer(columns["evaluation_id"][rows].tobytes(), np.uint8).reshape(len(rows), 16)
    digits: NDArray[np.uint64] = ids[:, -8:].copy().view(np.uint64).ravel()
    return digits


def _distances(columns: ResultColumns, rows: Rows) -> NDArray[Any]:
    """Return how far the scores of a criterion are from where a pass begins.

    That is in the middle of the highest score that fails and the lowest one that passes, and one
    half where scores of one kind are missing. A score that is no number is far.
    """
    values = columns["normalized"][rows].astype(np.float64)
    passed = columns["passed"][rows]
    failing = values[(passed == 0) & ~np.isnan(values)]
    passing = values[(passed == 1) & ~np.isnan(values)]
    threshold = 0.5
    if len(failing) and len(passing):
        threshold = (failing.max() + passing.min()) / 2
    return np.nan_to_num(np.abs(values - threshold), nan=2.0)


def _verdict_rows(columns: ResultColumns, criterion: str) -> Rows:
    """Return the verdicts of evaluators on a criterion, shadows and replays among them."""
    is_of_criterion = columns["criterion"] == columns.code("criterion", criterion)
    is_verdict = (columns["status"] == SCORED) & (columns["passed"] >= 0)
    return np.flatnonzero(is_of_criterion & is_verdict & ~columns["is_human"]).astype(np.int32)


def _contradicting(columns: ResultColumns, verdicts: Rows, wanted: Rows) -> list[str]:
    """Return the newest answers of `wanted` that one evaluation passes and fails."""
    if not len(verdicts):
        return []
    begins = np.flatnonzero(columns.begins(verdicts))
    passed = columns["passed"][verdicts]
    lowest = np.minimum.reduceat(passed, begins)
    highest = np.maximum.reduceat(passed, begins)
    differs = lowest != highest
    is_wanted = np.zeros(columns.count, np.bool_)
    is_wanted[wanted] = True
    differs &= np.logical_or.reduceat(is_wanted[verdicts], begins)
    newest = verdicts[begins[differs]][-_MOST_SEEN:]
    return [columns.id_of(row) for row in newest]


def _evaluated_otherwise(
    columns: ResultColumns, place: Place, verdicts: Rows, wanted: Rows
) -> list[str]:
    """Return the newest answers of `wanted` that evaluations at other times judge otherwise.

    Such as replays. Each is the earliest evaluation in `wanted` of its answer.
    """
    keys: dict[int, str] = {}
    for group in _perhaps_same_answers(columns, verdicts):
        keys |= {row: columns.id_of(row) for row in group}
    spans = place.find_spans(sorted(set(keys.values())))
    is_wanted = np.zeros(columns.count, np.bool_)
    is_wanted[wanted] = True
    by_answer: dict[AnswerSpan, list[int]] = {}
    for row, key in keys.items():
        span = spans.get(key)
        if span is not None:
            by_answer.setdefault(span, []).append(row)
    contradicted: list[str] = []
    for rows in by_answer.values():
        if len(set(columns["passed"][rows].tolist())) > 1:
            contradicted += [keys[row] for row in rows if is_wanted[row]][:1]
    return contradicted


def _perhaps_same_answers(columns: ResultColumns, verdicts: Rows) -> list[list[int]]:
    """Return groups of verdicts on answers of one moment in one conversation or trace.

    They are the newest groups with several evaluations that contradict each other, each with its
    newest hundred verdicts.
    """
    if not len(verdicts):
        return []
    units = columns["cluster"][verdicts].astype(np.uint64) << np.uint64(32)
    moments = units | columns["answered"][verdicts]
    order = np.argsort(moments, kind="stable")
    rows = verdicts[order]
    moments = moments[order]
    starts = np.flatnonzero(np.append(True, moments[1:] != moments[:-1]))
    ends = np.append(starts[1:], len(rows))
    passed = columns["passed"][rows]
    differs = np.minimum.reduceat(passed, starts) != np.maximum.reduceat(passed, starts)
    evaluations = np.add.reduceat(columns.begins(rows).astype(np.int32), starts)
    several = np.flatnonzero(differs & (evaluations > 1))
    newest = several[np.argsort(rows[ends[several] - 1])][-_MOST_COMPARED:]
    firsts = np.maximum(starts, ends - _MOST_OF_GROUP)
    return [rows[firsts[group] : ends[group]].tolist() for group in newest]
