"""Labels: what people say of answers, recorded as feedback, and how far evaluators agree with it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from agenteval_otel.capture.text import clean
from agenteval_otel.config.process import default_pipeline, flush
from agenteval_otel.instrumentation.feedback.answers import RecentAnswer
from agenteval_otel.instrumentation.feedback.payload import OfPerson
from agenteval_otel.instrumentation.feedback.recorder import RECORDER, Feedback
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.value import copy_with
from agenteval_otel.offline.calibration.agreement import Agreement, LabelledRow, agreement_of
from agenteval_otel.offline.calibration.people import PeopleAgreement, people_agreement
from agenteval_otel.offline.calibration.shift import Shifts
from agenteval_otel.storage.label_history import (
    LABELLER,
    WITHDRAWN,
    labels_in_force,
    labels_replaced,
)
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.rows import Label
from agenteval_otel.ui.columns import Figure, ResultColumns, Rows
from agenteval_otel.ui.shifts import shifts_of

USER_FEEDBACK: Final = "user_feedback"
"""What people say of an answer by no criterion."""
MAX_NAME: Final = 80
_MAX_PERSON: Final = 200
_FLUSH_S: Final = 5.0
_PERSON_SHOWN: Final = 8
_NEXT_ID_S: Final = 0.002  # ids of evaluations sort by the millisecond in which they are stored
_UNSETTLED_MS: Final = 600_000
_READ_ALL_S: Final = 900.0


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


class Labeller(NamedTuple):
    """A person who has labelled.

    Attributes:
        name: What the person typed, else the beginning of what identifies the person. Empty for
            labels without a name.
        labels: How many labels of the person count.
        passed: How many of them are pass.
    """

    name: str
    labels: int
    passed: int


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
        self._stored: dict[str, list[Label]] = {}  # by the evaluations that hold them
        self._all_read_s = -math.inf

    def all(self) -> list[Label]:
        """Return the labels that count, those of each person, the newest last."""
        version = self._columns.version
        # Erasure changes labels, and no new result tells of it.
        is_old = time.monotonic() - self._all_read_s > _READ_ALL_S
        if self._version != version or is_old:
            rows = np.flatnonzero(self._columns["is_human"])
            stored = self._read(sorted({self._columns.id_of(row) for row in rows}), again=is_old)
            self._labels = labels_in_force(stored)
            self._columns.leave_out(label.label_id for label in labels_replaced(stored))
            self._version = version
            self._human_rows = len(rows)
        return self._labels

    def _read(self, ids: Sequence[str], *, again: bool) -> list[Label]:
        """Return the labels that these evaluations hold, in the order of the ids.

        Those of the last ten minutes are read each time, because the answer of a label or its
        verdicts may come after it. All are read `again` every quarter of an hour.
        """
        now_s = time.monotonic()
        known = {} if again else self._stored
        settled = f"{time.time_ns() // 1_000_000 - _UNSETTLED_MS:012x}"
        missing = [id for id in ids if id > settled or id not in known]
        fresh: dict[str, list[Label]] = {id: [] for id in missing}
        for label in self._place.find_labels(missing):
            fresh[label.label_id].append(label)
        known |= fresh
        self._stored = known
        if again:
            self._all_read_s = now_s
        return list(chain.from_iterable(map(known.__getitem__, ids)))

    def refresh(self) -> list[Label]:
        """Return the labels that count, as they were when the last label came.

        Results come all the time, and labels rarely: only a new label is looked up for this.
        """
        count = int(np.count_nonzero(self._columns["is_human"]))
        return self._labels if count == self._human_rows else self.all()

    def shifts(self, criterion: str, rows: Rows, judged: Figure | None) -> Shifts:
        """Return how the labelled answers differ from those of `rows`, the results of a criterion."""
        ids: dict[str, None] = {}
        for label in self.refresh():
            if label.criterion == criterion and label.evaluation_id is not None:
                ids[label.evaluation_id] = None
        mean = None if judged is None else judged.mean
        return shifts_of(self._columns, criterion, list(ids), rows, mean)

    def agreement(self, criterion: str) -> LabelAgreement:
        """Return the agreement of the last label of each answer that is about this criterion."""
        labels = {
            label.evaluation_id: label
            for label in self.all()
            if label.criterion == criterion and label.evaluation_id is not None
        }
        rows: list[LabelledRow] = []
        for label in labels.values():
            if label.passed is not None and criterion in label.others:
                rows.append(LabelledRow(judge=label.others[criterion], person=label.passed))
        missed = sum(row.judge and not row.person for row in rows)
        strict = sum(row.person and not row.judge for row in rows)
        measured = agreement_of(rows) if rows else None
        return LabelAgreement(len(labels), measured, missed, strict)

    def between_people(self, criterion: str) -> PeopleAgreement | None:
        """Return how people agree on the answers that two or more of them have labelled."""
        by_answer: dict[str, dict[str | None, bool]] = {}
        for label in self.all():
            if label.criterion == criterion and label.evaluation_id and label.passed is not None:
                by_answer.setdefault(label.evaluation_id, {})[label.person] = label.passed
        return people_agreement(by_answer.values())

    def people(self, criterion: str) -> list[Labeller]:
        """Return who has labelled stored answers by this criterion, those of most labels first."""
        labels = Counter[str | None]()
        passed = Counter[str | None]()
        names: dict[str | None, str] = {None: ""}
        for label in self.all():
            if label.criterion == criterion and label.evaluation_id is not None:
                labels[label.person] += 1
                passed[label.person] += bool(label.passed)
                names[label.person] = name_of_person(label)
        return [
            Labeller(names[person], count, passed[person]) for person, count in labels.most_common()
        ]


def name_of_person(label: Label) -> str:
    """Return the name of who gave a label, else the beginning of what identifies the person."""
    return label.name or (label.person or "")[:_PERSON_SHOWN]


def person_of(name: str) -> str | None:
    """Return what identifies a person in stored feedback, by the name that the person typed.

    That is its hash, unless the settings say otherwise. None without a name.
    """
    if not name:
        return None
    return clean(default_pipeline().engine.user_id(name), _MAX_PERSON)


def label_of_person(
    evaluation_id: str,
    evaluation: AggregatedEvaluationResult,
    criterion: str,
    *,
    passed: bool,
    comment: str = "",
    name: str = "",
) -> Feedback:
    """Return a label as `record_feedback` makes it, with the name that the person typed.

    Raises `ConfigurationError` for a criterion whose name cannot be one of feedback.
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
        user_id=name or None,
        agent=agent,
        response_id=response_id,
        conversation_id=evaluation.conversation_id,
        trace_id=span.trace_id if span else None,
        span_id=span.span_id if span else None,
    ).feedback()
    if name and label.result is not None:
        # Beside other texts, so that it is stored with content capture alone.
        label = label._replace(result=copy_with(label.result, {"metadata": {LABELLER: name}}))
    # A person may change a verdict and change it back: unlike a click that is sent twice, that
    # counts each time.
    return label._replace(key=(label.key, time.time_ns()))


def withdrawal_of(label: Feedback) -> Feedback:
    """Return feedback that takes back the last label of the same person on the same answer."""
    if label.result is None:
        return label
    nothing = {"score": None, "passed": None, "label": None, "normalized": None}
    result = copy_with(label.result, {**nothing, "skip_reason": WITHDRAWN})
    return label._replace(result=result)


def record(*labels: Feedback) -> bool:
    """Record labels, and wait until they are stored. Return False if one was not.

    Labels of a later call are behind these. Within a call their order is not known.
    """
    taken = [RECORDER.take(label) for label in labels]
    is_stored = flush(_FLUSH_S)
    time.sleep(_NEXT_ID_S)
    return is_stored and all(taken)
