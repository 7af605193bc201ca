"""Recorded answers from the database of `storage: sql`, which were stored with their input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from agenteval_otel.database.target import Target, target_of
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.replay.recorded import RecordedAnswer, Selection


class StoredAnswers:
    """Answers of the storage, in the order in which they were stored.

    Args:
        place: An SQLite file, or the address of a database.
    """

    def __init__(self, place: str, selection: Selection) -> None:
        self.counts: Counter[str] = Counter()
        self._selection = selection
        self._at: datetime | None = None
        try:
            self._target: Target = target_of(None, place) if "://" in place else target_of(Path(place), None)
        except ValueError as error:
            raise ConfigurationError(str(error), path="--from sql") from None

    def close(self) -> None: ...

    def progress(self) -> str:
        return f"at {self._at:%Y-%m-%d %H:%M:%S}Z" if self._at else ""

    def answers(self) -> Iterator[RecordedAnswer]:
        from agenteval_otel.storage.sql_database import read_evaluations  # loads SQLAlchemy

        selection = self._selection
        # By the end of the evaluation, which comes after the answer.
        since = None if selection.since_ns is None else datetime.fromtimestamp(selection.since_ns / 1e9, UTC)
        stored_answers = read_evaluations(
            self._target, since=since, agents=selection.agents, services=selection.services
        )
        for key, stored in stored_answers:
            if stored.input_snapshot is None:
                self.counts["evaluations stored without their input"] += 1
            elif stored.replayed or stored.input_snapshot.conversation:
                self.counts["replayed answers and conversations"] += 1
            else:
                answer = _answer_of(key, stored)
                self._at = datetime.fromtimestamp(answer.ended_ns / 1e9, UTC)
                yield answer


def _answer_of(key: str, stored: AggregatedEvaluationResult) -> RecordedAnswer:
    snapshot, span = stored.input_snapshot, stored.span
    assert snapshot is not None
    ended_ns = stored.response_ended_ns or stored.ended_ns or stored.timestamp * 1_000_000
    return RecordedAnswer(
        f"{span.trace_id}-{span.span_id}" if span else key, snapshot, span,
        ended_ns - int(max(0.0, snapshot.duration_s or 0.0) * 1e9), ended_ns,
        {result.criterion_name: result for result in stored.results},
    )  # fmt: skip
