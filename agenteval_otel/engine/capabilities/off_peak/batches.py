"""Questions of judges that go to a provider as a batch.

They are stored in the off-peak file, sent once, then polled.

A question is new, sending, sent or done. It is marked before it is sent, and the batch's id is
written as soon as it is known: what may have been sent is never sent again. Where a crash came
between, its answer is that this is unknown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agenteval_otel.errors import JudgeError
from agenteval_otel.evaluators.judges.answers import JudgeRequest, Verdict
from agenteval_otel.evaluators.judges.batches import (
    BATCHED,
    BatchQuestion,
    answer_of_json,
    answer_to_json,
    reservation_of_json,
    reservation_to_json,
)
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.worker import new_loop

if TYPE_CHECKING:
    import sqlite3

SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS questions (key TEXT PRIMARY KEY, judge TEXT, made REAL, state TEXT DEFAULT 'new', "
    "sent REAL, batch TEXT, size INTEGER, request TEXT, reservation TEXT, answer TEXT)",
    "CREATE TABLE IF NOT EXISTS needs (id INTEGER, key TEXT, PRIMARY KEY (id, key))",
    "CREATE INDEX IF NOT EXISTS needs_by_key ON needs (key)",
    "CREATE TRIGGER IF NOT EXISTS asked AFTER INSERT ON questions BEGIN UPDATE total SET size = size + new.size; END",
    "CREATE TRIGGER IF NOT EXISTS over AFTER DELETE ON questions BEGIN UPDATE total SET size = size - old.size; END",
    "CREATE TRIGGER IF NOT EXISTS needless AFTER DELETE ON waiting BEGIN DELETE FROM needs WHERE id = old.id; END",
)
READY: Final = (
    "NOT EXISTS (SELECT 1 FROM needs JOIN questions USING (key) "
    "WHERE needs.id = waiting.id AND state != 'done')"
)
"""Condition on a waiting answer: all its questions are answered, or it has none yet."""
FORGET: Final = "DELETE FROM questions WHERE key NOT IN (SELECT key FROM needs)"
_MOST: Final = 1_000  # questions of one batch
_POLL_S: Final = 60.0
_STALE_S: Final = 900.0  # a process that sends takes no longer
_UNKNOWN: Final = "it is not known whether the provider took the batch, and so it is not sent again"

Answers = dict[str, Verdict | JudgeError]
Do = Callable[[Callable[["sqlite3.Connection"], Any]], Any]


class Batches:
    """Sends batches and polls them, on the thread that calls `look`.

    `do` runs work in a transaction, and waits.

    Args:
        every_s: How long a question waits for others of its batch.
        count: Counts what was lost.
    """

    def __init__(self, every_s: float, do: Do, count: Callable[..., object]) -> None:
        self._every_s = every_s
        self._do = do
        self._count = count
        self._judges: dict[str, Any] = {}
        self._asked_s: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Batches {', '.join(self._judges)}>"

    def know(self, judges: Iterable[Any]) -> None:
        """Send and ask for the questions of these judges, with their guards."""
        self._judges |= {judge.name: judge for judge in judges}

    def look(self, now_s: float) -> None:
        """Send what is due, and fetch what has ended. Blocks for the provider."""
        self._do(partial(self._end_stale, now_s=now_s))
        for name, judge in self._judges.items():
            rows = self._do(partial(self._take_due, name=name, now_s=now_s))
            if rows:
                requests = {key: JudgeRequest.model_validate_json(text) for key, text in rows}
                self._send(judge, requests, now_s)
            for batch in self._do(partial(_batches_of, name=name)):
                if now_s - self._asked_s.get(batch, float("-inf")) >= _POLL_S:
                    self._asked_s[batch] = now_s
                    self._fetch(judge, batch)

    def _end_stale(self, connection: sqlite3.Connection, *, now_s: float) -> None:
        stale = "SELECT key FROM questions WHERE state = 'sending' AND sent < ?"
        rows = connection.execute(stale, (now_s - _STALE_S,))
        keys = [key for (key,) in rows]
        self._end_unknown(connection, keys=keys)
        connection.execute(FORGET)

    def _end_unknown(self, connection: sqlite3.Connection, *, keys: Iterable[str]) -> None:
        answer = json.dumps(answer_to_json(JudgeError(_UNKNOWN, error_type="timeout")))
        for key in keys:
            connection.execute(
                "UPDATE questions SET state = 'done', answer = ? WHERE key = ?", (answer, key)
            )
            self._count("unknown")

    def _take_due(
        self, connection: sqlite3.Connection, *, name: str, now_s: float
    ) -> list[tuple[str, str]]:
        of_judge = "FROM questions WHERE judge = ? AND state = 'new'"
        count, oldest = connection.execute(
            f"SELECT count(*), min(made) {of_judge}", (name,)
        ).fetchone()
        if not count or (count < _MOST and now_s - oldest < self._every_s):
            return []
        rows = connection.execute(
            f"SELECT key, request {of_judge} LIMIT ?", (name, _MOST)
        ).fetchall()
        marks = [(now_s, key) for key, _ in rows]
        connection.executemany(
            "UPDATE questions SET state = 'sending', sent = ? WHERE key = ?", marks
        )
        return rows

    def _send(self, judge: Any, requests: dict[str, JudgeRequest], now_s: float) -> None:
        try:
            batch = _run(judge.inner.submit_batch(requests))
        except JudgeError as error:
            log.warning("batch_not_sent", part=judge.label, error_type=error.error_type)
            if error.may_be_charged:
                self._do(partial(self._end_unknown, keys=list(requests)))
            else:  # again, as late as the next batch
                back = [(now_s, key) for key in requests]
                change = "UPDATE questions SET state = 'new', made = ? WHERE key = ?"
                self._do(lambda connection: connection.executemany(change, back))
            return
        sent = [(batch, key) for key in requests]
        change = "UPDATE questions SET state = 'sent', batch = ? WHERE key = ?"
        self._do(lambda connection: connection.executemany(change, sent))

    def _fetch(self, judge: Any, batch: str) -> None:
        query = "SELECT key, request, reservation FROM questions WHERE batch = ? AND state = 'sent'"
        rows = self._do(lambda connection: connection.execute(query, (batch,)).fetchall())
        requests = {key: JudgeRequest.model_validate_json(text) for key, text, _ in rows}
        answers: Answers | None
        try:
            answers = _run(judge.inner.batch_answers(batch, requests))
        except JudgeError as error:
            log.warning("batch_not_fetched", part=judge.label, error_type=error.error_type)
            if error.error_type != "not_found":
                return
            answers = dict.fromkeys(requests, error)
        if answers is None:
            return
        reservations = {key: reservation_of_json(json.loads(text)) for key, _, text in rows}
        settled = partial(
            self._settle, judge=judge, batch=batch, answers=answers, reservations=reservations
        )
        for answer in self._do(settled):
            if isinstance(answer, JudgeError) and answer.error_type == "timeout":
                self._count("batch_expired")
        self._asked_s.pop(batch, None)

    def _settle(
        self,
        connection: sqlite3.Connection,
        *,
        judge: Any,
        batch: str,
        answers: Answers,
        reservations: dict[str, Any],
    ) -> list[Verdict | JudgeError]:
        """Store the answers with their costs, and return them.

        Answers that another process has stored meanwhile are left out.
        """
        query = "SELECT key FROM questions WHERE batch = ? AND state = 'sent'"
        keys = [key for (key,) in connection.execute(query, (batch,)) if key in answers]
        for key in keys:
            priced = json.dumps(answer_to_json(judge.batch_answer(reservations[key], answers[key])))
            connection.execute(
                "UPDATE questions SET state = 'done', answer = ? WHERE key = ?", (priced, key)
            )
        return [answers[key] for key in keys]


def _batches_of(connection: sqlite3.Connection, *, name: str) -> list[str]:
    query = "SELECT DISTINCT batch FROM questions WHERE judge = ? AND state = 'sent'"
    return [batch for (batch,) in connection.execute(query, (name,))]


def note_questions(
    connection: sqlite3.Connection, id: int, missing: dict[str, BatchQuestion], now_s: float
) -> None:
    """Make a waiting answer depend on these questions.

    A question that is stored already is charged once.
    """
    for key, question in missing.items():
        request = question.request.model_dump_json()
        row = (
            key,
            question.judge.name,
            now_s,
            len(request),
            request,
            json.dumps(reservation_to_json(question.reservation)),
        )
        added = connection.execute(
            "INSERT OR IGNORE INTO questions (key, judge, made, size, request, reservation) VALUES (?, ?, ?, ?, ?, ?)",
            row,
        ).rowcount
        if not added:
            question.judge.batch_answer(
                question.reservation, JudgeError("asked already", error_type=BATCHED)
            )
        connection.execute("INSERT OR IGNORE INTO needs VALUES (?, ?)", (id, key))
    connection.execute("UPDATE waiting SET leased = 0, attempts = 0 WHERE id = ?", (id,))


def answers_of(connection: sqlite3.Connection, id: int) -> dict[str, Verdict | JudgeError]:
    """Return the answers to the questions of a waiting answer."""
    query = "SELECT key, answer FROM needs JOIN questions USING (key) WHERE id = ?"
    return {
        key: answer_of_json(json.loads(text))
        for key, text in connection.execute(query, (id,)).fetchall()
    }


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of the work, on an event loop of its own.

    Whatever it raises becomes a `JudgeError`.
    """
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(work)
    except JudgeError:
        raise
    except Exception as error:
        failure = JudgeError(
            f"the batch failed: {type(error).__name__}", error_type=type(error).__name__
        )
        failure.may_be_charged = True
        raise failure from None
