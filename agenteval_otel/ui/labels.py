"""Labels: what people say of answers, recorded as feedback, and how far evaluators agree with it."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from agenteval_otel.config.process import flush
from agenteval_otel.instrumentation.feedback.answers import RecentAnswer
from agenteval_otel.instrumentation.feedback.payload import OfPerson
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.offline.calibration.agreement import Agreement, LabelledRow, agreement_of
from agenteval_otel.offline.calibration.shift import Shifts
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.rows import Label
from agenteval_otel.ui.columns import SCORED, By, Figure, ResultColumns, Rows
from agenteval_otel.ui.shifts import shifts_of
from agenteval_otel.ui.views import worst

ORDERS = ("random", "lowest", "newest", "borderline")
_FLUSH_S = 5.0
_AT_ONCE = 40
_MOST_SEEN = 4_000


class LabelAgreement(NamedTuple):
    """How evaluators' verdicts agree with people's on the same answers.

    Attributes:
        labels: Answers that have one.
        measured: None without answers that have both verdicts. Unweighted, because labelled answers
            are a random sample only if the queue was random.
        missed: People failed what the evaluator passed.
        strict: People passed what the evaluator failed.
    """

    labels: int
    measured: Agreement | None
    missed: int
    strict: int


class QueuedAnswer(NamedTuple):
    """Holds an answer to label, with its evaluation.

    Attributes:
        left: How many answers wait for a label, about: a label may be of an answer that is not
            among them.
    """

    evaluation_id: str
    evaluation: AggregatedEvaluationResult
    left: int


class Labels:
    """Reads the labels of a database, again when it has new results.

    Blocks. Usable from any thread.
    """

    def __init__(self, place: Place, columns: ResultColumns) -> None:
        self._place = place
        self._columns = columns
        self._version = -1
        self._human_rows = -1
        self._labels: list[Label] = []

    def all(self) -> list[Label]:
        version = self._columns.version
        if self._version != version:
            rows = np.flatnonzero(self._columns["is_human"])
            ids = sorted({self._columns.id_of(row) for row in rows})
            self._version = version
            self._human_rows = len(rows)
            self._labels = self._place.find_labels(ids)
        return self._labels

    def shifts(self, criterion: str, rows: Rows, judged: Figure | None) -> Shifts:
        """Return how the labelled answers differ from those of `rows`, the results of a criterion."""
        # Results come all the time, and labels rarely: only a new label is looked up for this.
        count = int(np.count_nonzero(self._columns["is_human"]))
        labels = self._labels if count == self._human_rows else self.all()
        ids: dict[str, None] = {}
        for label in labels:
            has_verdict = label.criterion == criterion and label.passed is not None
            if has_verdict and label.evaluation_id is not None:
                ids[label.evaluation_id] = None
        mean = None if judged is None else judged.mean
        return shifts_of(self._columns, criterion, list(ids), rows, mean)

    def agreement(self, criterion: str) -> LabelAgreement:
        """Return the agreement of the last label of each answer that is about this criterion."""
        labels = {
            label.evaluation_id: label for label in self.all() if label.criterion == criterion
        }
        rows: list[LabelledRow] = []
        for label in labels.values():
            if label.passed is not None and criterion in label.others:
                rows.append(LabelledRow(judge=label.others[criterion], person=label.passed))
        missed = sum(row.judge and not row.person for row in rows)
        strict = sum(row.person and not row.judge for row in rows)
        measured = agreement_of(rows) if rows else None
        return LabelAgreement(len(labels), measured, missed, strict)

    def queue(
        self, criterion: str, order: str, rows: Rows, *, skip: int, by: By
    ) -> QueuedAnswer | None:
        """Return the next answer without a label, after `skip` others.

        Only answers with stored content are returned. The result is None if there is none.
        """
        labelled = {label.evaluation_id for label in self.all() if label.criterion == criterion}
        columns = self._columns
        rows = rows[columns["status"][rows] == SCORED]
        chosen = _ordered(columns, rows, order, by)
        left = len(rows) - len(labelled)
        waiting: list[str] = []
        for row in chosen:
            key = columns.id_of(row)
            if key not in labelled:
                waiting.append(key)
            if len(waiting) >= skip + _AT_ONCE:
                break
        for key in waiting[skip:]:
            # One at a time, as the first nearly always has content: answers take megabytes each.
            stored = self._place.find_evaluations([key]).get(key)
            if stored is not None and stored.input_snapshot is not None:
                return QueuedAnswer(key, stored, max(1, left))
        return None


def _ordered(columns: ResultColumns, rows: Rows, order: str, by: By) -> Rows:
    if order == "lowest":
        return worst(columns, rows, _MOST_SEEN, by)
    if order == "borderline":
        values = np.abs(columns["normalized"][rows] - 0.5)
        return rows[np.argsort(np.nan_to_num(values, nan=2.0), kind="stable")][:_MOST_SEEN]
    if order == "newest":
        return rows[np.argsort(-columns.seconds(rows, by), kind="stable")][:_MOST_SEEN]
    # The same order each time: by random digits at the end of the evaluations' ids.
    ids = np.frombuffer(columns["evaluation_id"][rows].tobytes(), np.uint8).reshape(len(rows), 16)
    digits = ids[:, -8:].copy().view(np.uint64).ravel()
    return rows[np.argsort(digits, kind="stable")][:_MOST_SEEN]


def record(
    evaluation_id: str,
    evaluation: AggregatedEvaluationResult,
    criterion: str,
    *,
    passed: bool,
    comment: str = "",
) -> bool:
    """Record a label as `record_feedback` does, and wait until it is stored.

    Return False if it was not stored. Raises `ConfigurationError` for a criterion whose name cannot
    be one of feedback.
    """
    span = evaluation.span
    agent = evaluation.agent
    # An answer without a response id is identified by the id of its evaluation.
    response_id = evaluation.response_id or evaluation_id
    RECORDER.know(
        RecentAnswer(None, agent or "", response_id, evaluation.conversation_id, evaluation.call_id)
    )
    label = OfPerson(
        thumbs="up" if passed else "down",
        name=criterion,
        comment=comment or None,
        agent=agent,
        response_id=response_id,
        conversation_id=evaluation.conversation_id,
        trace_id=span.trace_id if span else None,
        span_id=span.span_id if span else None,
    ).feedback()
    # A person may change a verdict and change it back: unlike a click that is sent twice, that
    # counts each time.
    label = label._replace(key=(label.key, time.time_ns()))
    return RECORDER.take(label) and flush(_FLUSH_S)
