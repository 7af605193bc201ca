"""The label page: what its address asks for, and what it shows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from agenteval_otel.capture.text import clean
from agenteval_otel.models.intervals import wilson_interval
from agenteval_otel.offline.calibration.people import PeopleAgreement
from agenteval_otel.storage.rows import Label
from agenteval_otel.ui.columns import ResultColumns, Rows
from agenteval_otel.ui.label_queue import ORDERS, LabelQueue
from agenteval_otel.ui.labels import (
    MAX_NAME,
    LabelAgreement,
    Labeller,
    Labels,
    person_of,
)
from agenteval_otel.ui.views import Window

MOST_CRITERIA: Final = 9
"""Each has a digit as its key."""
GOAL: Final = 100
_GOAL: Final = re.compile("[1-9][0-9]{0,5}")
_KEY: Final = re.compile(r"[0-9a-f]{32}")
_FIRST_ORDER: Final = "random"


class LabelQuery(NamedTuple):
    """Which answers are labelled, by which criteria.

    Attributes:
        criteria: At most nine.
        order: One of `ORDERS`.
        goal: How many answers are to be labelled.
        after: The answer behind which the queue goes on: it was skipped. Empty: from the beginning.
        at: The answer that is shown in place of the next one. Empty: the next one.
    """

    window: Window
    criteria: tuple[str, ...]
    order: str = _FIRST_ORDER
    goal: int = GOAL
    after: str = ""
    at: str = ""

    @classmethod
    def read(
        cls, query: Mapping[str, Sequence[str]], window: Window, names: Sequence[str]
    ) -> LabelQuery:
        """Return what an address asks for. What it says wrongly is as if it were not there.

        `query` has all values of each name, and `names` are the criteria to choose from.
        """
        chosen = tuple(dict.fromkeys(filter(None, query.get("criterion", ()))))[:MOST_CRITERIA]
        order = _last(query, "order")
        goal = _last(query, "goal")
        is_goal = _GOAL.fullmatch(goal) is not None
        return cls(
            window,
            chosen or tuple(names[:1]),
            order if order in ORDERS else _FIRST_ORDER,
            int(goal) if is_goal else GOAL,
            _key_in(query, "after"),
            _key_in(query, "at"),
        )

    def address(self, **changes: Any) -> str:
        """Return the address of this page with these changes. It shows the next answer."""
        query = self._replace(at="")._replace(**changes)
        window = query.window
        chosen = {
            "order": query.order,
            "goal": query.goal,
            "window": window.length,
            "time": None if window.by == Window().by else window.by,
            "since": window.since,
            "until": window.until,
            "after": query.after,
            "at": query.at,
        }
        fields: list[tuple[str, Any]] = [("criterion", name) for name in query.criteria]
        fields += [(name, value) for name, value in chosen.items() if value not in (None, "")]
        return f"/label?{urlencode(fields)}"


class LabelProgress(NamedTuple):
    """How far the labels of a criterion are.

    Attributes:
        labelled: Answers with a label.
        half_width: Half of the interval of the agreement once the goal is reached, 0 to 1.
    """

    criterion: str
    labelled: int
    half_width: float
    agreement: LabelAgreement
    people: list[Labeller]
    between: PeopleAgreement | None


class LastLabel(NamedTuple):
    """The label that can be taken back."""

    label_id: str
    key: str
    criterion: str
    passed: bool


class LabelPage:
    """The label page of one person."""

    def __init__(
        self, columns: ResultColumns, labels: Labels, wanted: LabelQuery, labeller: str
    ) -> None:
        self._columns = columns
        self._labels = labels
        self._wanted = wanted
        self.labeller = labeller
        self._person = person_of(labeller)

    def __repr__(self) -> str:
        return f"<LabelPage {self._wanted.criteria}>"

    def values(self, rows: Mapping[str, Rows]) -> dict[str, Any]:
        """Return what the template shows. `rows` are the results of each criterion in the window."""
        wanted = self._wanted
        queue = LabelQueue(
            self._columns,
            self._columns.place,
            self._labels.all(),
            rows,
            self._person,
            wanted.order,
        )
        if wanted.at:
            item = queue.answer(wanted.at, is_chosen=True)
        else:
            item = queue.next(after=wanted.after, by=wanted.window.by)
        own = self._own_labels()
        last = _last_label(own, wanted.at)
        previous = _previous(own, wanted.at)
        progress = [self._progress(name) for name in wanted.criteria]
        values: dict[str, Any] = {"wanted": wanted, "labeller": self.labeller}
        of_queue = {"item": item, "left": queue.left, "progress": progress}
        return {**values, **of_queue, "last": last, "previous": previous}

    def _own_labels(self) -> list[Label]:
        """Return the person's labels by the criteria of the page, the newest last."""
        own: list[Label] = []
        for label in self._labels.all():
            is_own = label.person == self._person and label.evaluation_id is not None
            if is_own and label.criterion in self._wanted.criteria:
                own.append(label)
        return own

    def _progress(self, criterion: str) -> LabelProgress:
        agreement = self._labels.agreement(criterion)
        share = 0.5  # without labels: the widest interval that there may be
        if agreement.measured is not None:
            share = agreement.measured.agreement.mean
        low, high = wilson_interval(share, self._wanted.goal)
        return LabelProgress(
            criterion,
            agreement.labels,
            (high - low) / 2,
            agreement,
            self._labels.people(criterion),
            self._labels.between_people(criterion),
        )


def name_in(text: str) -> str:
    """Return the name of a labeller as it is kept: one line of at most 80 characters."""
    return clean(" ".join(text.split())[:MAX_NAME], MAX_NAME)


def _last_label(own: Sequence[Label], at: str) -> LastLabel | None:
    """Return the newest label, of the answer that is shown if that has one."""
    of_shown = [label for label in own if at and label.evaluation_id == at]
    for label in reversed(of_shown or own):
        if label.evaluation_id is not None and label.passed is not None:
            return LastLabel(label.label_id, label.evaluation_id, label.criterion, label.passed)
    return None


def _previous(own: Sequence[Label], at: str) -> str | None:
    """Return the answer that the person labelled before the one that is shown."""
    keys: dict[str, None] = {}
    for label in own:
        key = label.evaluation_id or ""
        keys.pop(key, None)
        keys[key] = None
    labelled = list(keys)
    if at in keys:
        labelled = labelled[: labelled.index(at)]
    return labelled[-1] if labelled else None


def _key_in(query: Mapping[str, Sequence[str]], name: str) -> str:
    """Return the id of an answer in an address. Empty if there is none."""
    text = _last(query, name)
    return text if _KEY.fullmatch(text) else ""


def _last(query: Mapping[str, Sequence[str]], name: str) -> str:
    values = query.get(name) or [""]
    return values[-1]
