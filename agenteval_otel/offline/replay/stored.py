"""Recorded answers from the database of `storage: sql`, which were stored with their input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from agenteval_otel.components.database.target import database_at
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.value import copy_with
from agenteval_otel.offline.replay.recorded import AnswerFilter, RecordedAnswer, Scores
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.storage.places import OF_OTHERS, Query
from agenteval_otel.storage.read import database_of

_PAGE: Final = 200
AnswerOfSpan = tuple[str, str, str | None]
"""Ids of the trace and the span, and the answer's own where that is known."""


class StoredAnswers:
    """Reads the answers of the storage, in the order in which they were stored.

    Args:
        place: An SQLite file, or the address of a database.
    """

    def __init__(self, place: str, selection: AnswerFilter) -> None:
        self.counts: Counter[str] = Counter()
        self._selection = selection
        self._with_own_criteria = 0
        self._at: datetime | None = None
        self._first: datetime | None = None
        self._began = datetime.now(UTC)
        try:
            self._database = database_of(database_at(place))
        except ValueError as error:
            raise ConfigurationError(str(error), path="--from sql") from None

    def close(self) -> None: ...

    def notes(self) -> Iterator[str]:
        """Yield what a reader of the report has to know."""
        if self._with_own_criteria:
            answers = count_of(self._with_own_criteria, "answer")
            yield f"not used: criteria that {answers} had for themselves. Those of this replay count"

    def progress(self) -> str:
        return f"at {self._at:%Y-%m-%d %H:%M:%S}Z" if self._at else ""

    def share(self) -> float | None:
        """Return how much of the time was read, from the first answer to the end or to now."""
        if self._first is None or self._at is None:
            return None
        until_ns = self._selection.until_ns
        until = self._began if until_ns is None else datetime.fromtimestamp(until_ns / 1e9, UTC)
        whole_s = (until - self._first).total_seconds()
        return (self._at - self._first).total_seconds() / whole_s if whole_s > 0 else None

    def answers(self) -> Iterator[RecordedAnswer]:
        selection = self._selection
        # By the end of the evaluation, which comes after the answer.
        since = None
        if selection.since_ns is not None:
            since = datetime.fromtimestamp(selection.since_ns / 1e9, UTC)
        wanted = {"agent": selection.agents, "service": selection.services}
        labels = {name: values for name, values in wanted.items() if values}
        rows = self._database.results(Query(labels, since))
        while page := list(islice(rows, _PAGE)):
            spans: dict[str, tuple[str, str]] = {}
            for key, stored in page:
                if stored.span is not None:
                    spans[key] = (stored.span.trace_id, stored.span.span_id)
            evaluations = [stored for _, stored in page]
            evaluations.extend(self._database.find_others(spans))
            recorded = _recorded(evaluations)
            del evaluations  # else they stay in memory while the next page is read
            for key, stored in page:
                answer = self._answer_of(key, stored, recorded)
                if answer is not None:
                    self._at = datetime.fromtimestamp(answer.ended_ns / 1e9, UTC)
                    self._first = self._first or self._at
                    yield answer

    def _answer_of(
        self, key: str, stored: AggregatedEvaluationResult, recorded: Mapping[AnswerOfSpan, Scores]
    ) -> RecordedAnswer | None:
        """Return the answer of an evaluation, or None if it is not scored again.

        Why is counted, but for feedback: that is among the recorded scores of its answer.
        """
        snapshot = stored.input_snapshot
        span = stored.span
        if stored.results and all(result.evaluator_kind in OF_OTHERS for result in stored.results):
            return None  # it is with the recorded scores of its answer
        if snapshot is None:
            self.counts["evaluations stored without their input"] += 1
            return None
        if stored.replayed or snapshot.conversation:
            self.counts["replayed answers and conversations"] += 1
            return None
        if snapshot.criteria:
            self._with_own_criteria += 1
        ended_ns = stored.response_ended_ns or _ended_ns(stored)
        scores = {result.criterion_name: result for result in stored.results}
        if span is not None:
            of_span = (span.trace_id, span.span_id)
            key = "-".join(of_span)
            if stored.call_id is not None and stored.call_id != span.span_id:
                key += f"-{stored.call_id}"  # one answer of several that share the span
            # Results without a call's id, such as feedback by the trace, count for every answer of the
            # span. The answer's own replace them.
            of_each = recorded.get((*of_span, None), {})
            of_this = recorded.get((*of_span, stored.call_id), scores)
            scores = of_each | of_this
        duration_s = max(0.0, snapshot.duration_s or 0.0)
        return RecordedAnswer(
            key=key,
            input=copy_with(snapshot, {"criteria": ()}),  # the replay has its own
            span=span,
            began_ns=ended_ns - int(duration_s * 1e9),
            ended_ns=ended_ns,
            scores=scores,
            call_id=stored.call_id,
        )


def _recorded(evaluations: Iterable[AggregatedEvaluationResult]) -> dict[AnswerOfSpan, Scores]:
    """Return the newest result of each criterion by answer.

    Feedback and off-peak results are stored separately.
    """
    recorded: dict[AnswerOfSpan, Scores] = {}
    for stored in sorted(evaluations, key=_ended_ns):
        if stored.span is not None and not stored.replayed:
            answer = (stored.span.trace_id, stored.span.span_id, stored.call_id)
            scores = recorded.setdefault(answer, {})
            scores |= {result.criterion_name: result for result in stored.results}
    return recorded


def _ended_ns(stored: AggregatedEvaluationResult) -> int:
    return stored.ended_ns or stored.timestamp * 1_000_000
