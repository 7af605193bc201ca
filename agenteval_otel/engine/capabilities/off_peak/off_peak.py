"""Answers whose evaluators wait for the off-peak window.

They are kept in an SQLite file, and submitted again while the window is open.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from agenteval_otel.components.database.sqlite_store import SqliteStore, erasing
from agenteval_otel.engine.capabilities.off_peak.batches import (
    FORGET,
    READY,
    Batches,
    answers_of,
    note_questions,
)
from agenteval_otel.engine.capabilities.off_peak.batches import SCHEMA as BATCH_SCHEMA
from agenteval_otel.engine.capabilities.off_peak.window import OffPeakSettings
from agenteval_otel.engine.capability import Capability, Evaluated, Host, MakeCapability
from agenteval_otel.engine.handler import HandlerSettings, judges_of
from agenteval_otel.engine.run import EvaluationRunner, RunOutcome
from agenteval_otel.engine.task import AnswerSampling, Origin, Selection, Task
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.evaluators.judges.batches import BatchAnswers
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.judge_calls import BATCH
from agenteval_otel.models.scoring.probability import Sampled, SamplingDecision
from agenteval_otel.runtime.memory import kept_bytes
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.semconv import DROPPED_QUEUE_FULL, DROPPED_SHUTDOWN, EVALUATED
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.telemetry.spans import reference_of

if TYPE_CHECKING:
    import sqlite3

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS waiting (id INTEGER PRIMARY KEY AUTOINCREMENT, kept REAL, leased REAL DEFAULT 0, "
    "attempts INTEGER DEFAULT 0, agent TEXT, size INTEGER, entry TEXT)",
    "CREATE TABLE IF NOT EXISTS total (id INTEGER PRIMARY KEY CHECK (id = 1), size INTEGER)",
    "INSERT OR IGNORE INTO total VALUES (1, 0)",
    "CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON waiting BEGIN UPDATE total SET size = size + new.size; END",
    "CREATE TRIGGER IF NOT EXISTS gone AFTER DELETE ON waiting BEGIN UPDATE total SET size = size - old.size; END",
)
_LOSSES: Final = frozenset({"changed", "no_evaluator", "unreadable"})
_TICK_S: Final = 1.0
_MOST_AT_ONCE: Final = 32  # answers that are submitted and not evaluated yet
_LEASE_S: Final = 900.0  # after a crash an answer is taken again so much later
_MOST_ATTEMPTS: Final = 3  # one that ends the process each time is given up
_ROW_BYTES: Final = 100
_TASK_BYTES: Final = 2_048
_PATIENCE_S: Final = 5.0
_CLOSE_S: Final = 0.1


class Waited(Origin):
    """Holds an answer or a conversation that waited.

    It knows its row, and what its judges are asked in a batch.

    Attributes:
        id: The id of its row.
        batch: Its judges' answers and open questions. None if judges are called at once.
    """

    def __init__(
        self, id: int, ended: Callable[[Waited, str], None], batch: BatchAnswers | None
    ) -> None:
        self.id = id
        self.batch = batch
        self._ended = ended
        # evaluated for its questions alone: there is nothing to emit
        self.is_first = batch is not None and not batch.answers
        self.opens_span = not self.is_first

    @property
    def asks(self) -> bool:
        """Tell whether its judges have questions without an answer."""
        return self.batch is not None and bool(self.batch.missing)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Have the judges of what is started meanwhile answered by the batch (`judges.batches`)."""
        token = BATCH.set(self.batch)
        try:
            yield
        finally:
            BATCH.reset(token)

    def completed(self, outcome: RunOutcome) -> RunOutcome | None:
        """Return the outcome, or None while questions are open."""
        return None if self.asks else outcome

    def settle(self, task: Task, outcome: str) -> None:
        """Delete the row, or have it wait again."""
        self._ended(self, outcome)


class OffPeak(Capability):
    """Keeps the answers of one pipeline that wait.

    Any thread may call. Only `look`, `flush`, `close` and `erase` block.

    Each answer is written when its other evaluators are done, and deleted when its late results are
    emitted and stored: after a crash it may be evaluated again. One whose agent this process does
    not have is left to others.

    Args:
        clock: Unix time.
    """

    name = "off_peak"
    schedule = "off_peak"

    @classmethod
    def made_by(cls, settings: OffPeakSettings) -> MakeCapability:
        """Return what makes it for a pipeline."""
        return lambda host: cls(settings, host)

    def __init__(
        self, settings: OffPeakSettings, host: Host, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._redaction = host.redaction
        self._broken = host.broken
        self._accounting = host.accounting
        self._submit = host.submit
        self._store = SqliteStore(
            settings.path,
            (*_SCHEMA, *BATCH_SCHEMA),
            event="off_peak_file_unusable",
            patience_s=_PATIENCE_S,
        )
        self._agents: dict[str, HandlerSettings] = {}
        self._batches = (
            Batches(settings.batch_every_s, self._do, self._count) if settings.batch else None
        )
        self._running: set[int] = set()
        self._is_closed = False
        self._lock = threading.Lock()
        self._worker = Worker(
            "agenteval-off-peak",
            max_waiting=4,
            idle_s=_TICK_S,
            on_idle=self._look_safely,
            stays=True,
        )

    def __repr__(self) -> str:
        return f"<OffPeak {self.settings.begins} to {self.settings.ends} {self.settings.timezone}>"

    def bind(self, settings: HandlerSettings) -> None:
        """Evaluate the waiting answers of this agent by these settings from now on.

        Raises:
            ConfigurationError: One of its off-peak evaluators could never run.
        """
        if self.schedule not in settings.runner.schedules:
            return
        _check(settings.runner, is_batch=self.settings.batch)
        self._agents[settings.agent] = settings
        if self._batches is not None:
            self._batches.know(judge.guarded() for judge in off_peak_judges(settings.runner))

    def start(self) -> None:
        """Start the thread that looks at the clock each second."""
        # answers that end after a reload are the next pipeline's to look at
        if self._agents and not self._is_closed:
            self._worker.start()

    def on_response(self, evaluated: Evaluated) -> None:
        """Keep a fresh answer for the evaluators that run later."""
        task = evaluated.task
        if task.is_fresh and task.subject in task.settings.runner.schedules.get(self.schedule, ()):
            self.keep(task, evaluated.input, evaluated.sampling)

    def keep(self, task: Task, value: EvaluationInput, sampling: AnswerSampling) -> None:
        """Have an answer, or a conversation, written down, redacted and sampled as it was.

        Raises nothing.
        """
        try:
            self._write(task, self._redaction.input(value), sampling.sent(task.randomness))
        except Exception as error:
            self._broken("off_peak", error)

    def _write(self, task: Task, redacted: EvaluationInput, sampled: Sampled) -> None:
        content = redacted.model_dump(mode="json", exclude={"criteria"}, exclude_none=True)
        fields = {
            "span": _ids(task.target),
            "call_id": task.call_id,
            "links": [_ids(link) for link in task.links],
            "sampled": sampled._asdict(),
            "started_ns": task.started_ns,
            "ended_ns": task.ended_ns,
            "answered_ns": task.answered_ns,
            "input": content,
        }
        entry = json.dumps(fields)
        size = len(entry.encode("utf-8", "replace")) + _ROW_BYTES
        now_s = self.clock()
        max_bytes = self.settings.max_bytes

        def insert(connection: sqlite3.Connection) -> bool:
            total = connection.execute("SELECT size FROM total").fetchone()[0]
            has_room = bool(total + size <= max_bytes)
            if has_room:
                # whose settings evaluate it; its own name stands in the input
                row = (now_s, task.settings.agent, size, entry)
                connection.execute(
                    "INSERT INTO waiting (kept, agent, size, entry) VALUES (?, ?, ?, ?)", row
                )
            return has_room

        def count(done: Any) -> None:
            if done.exception() is not None:
                self._count("not_kept")
            elif not done.result():
                self._count("no_room")

        self._store.submit(insert).add_done_callback(count)
        self.start()

    def look(self) -> int:
        """Give up what is too old and, while the window is open, submit what waits.

        Return how many were submitted.
        """
        now_s = self.clock()
        self._do(partial(self._give_up, now_s=now_s))
        if self._batches is not None:
            self._batches.look(now_s)
        submitted = 0
        while self.settings.is_open(self.clock()):
            room = _MOST_AT_ONCE - len(self._running)
            if room <= 0:
                break
            rows = self._do(partial(self._take, now_s=self.clock(), most=room))
            if not rows:
                break
            taken = sum([self._submitted(*row) for row in rows])
            submitted += taken
            if taken < len(rows):  # no room: at the next look
                break
        return submitted

    def finished(self, waited: Waited, outcome: str) -> None:
        """Note that a submitted answer has ended.

        Its row is deleted, or waits again, for room or for a batch.
        """
        with self._lock:
            self._running.discard(waited.id)
        if outcome == EVALUATED and waited.batch is not None and waited.asks:
            # it was answered, and asks something else: the evaluator has changed
            if not waited.is_first:
                self._ended(waited.id, "changed")
                return
            missing = waited.batch.missing
            now_s = self.clock()
            self._store.write(
                lambda connection: note_questions(connection, waited.id, missing, now_s)
            )
            return
        self._ended(waited.id, outcome)

    def _ended(self, id: int, outcome: str) -> None:
        if outcome in (DROPPED_QUEUE_FULL, DROPPED_SHUTDOWN):
            self._store.write(
                lambda connection: connection.execute(
                    "UPDATE waiting SET leased = 0, attempts = max(0, attempts - 1) WHERE id = ?",
                    (id,),
                )
            )
            return
        self._store.write(
            lambda connection: connection.execute("DELETE FROM waiting WHERE id = ?", (id,))
        )
        if outcome != EVALUATED:
            self._count(outcome if outcome in _LOSSES else "failed")

    def flush(self, timeout_s: float) -> bool:
        """Wait until what was kept or has ended is written. Return whether it is in time."""
        done = threading.Event()
        self._store.submit(lambda _: None).add_done_callback(lambda _: done.set())
        return done.wait(timeout_s)

    def retire(self) -> None:
        """Close at once: the next pipeline has the file."""
        self._close(0.0)

    def close(self, timeout_s: float) -> bool:
        """End the thread and close the file.

        Answers go on waiting. If there is something to write, it gets at least a tenth of a
        second.
        """
        return self._close(max(_CLOSE_S, timeout_s))

    def _close(self, timeout_s: float) -> bool:
        self._is_closed = True
        self._worker.close(timeout_s / 2)
        return self._store.close(timeout_s / 2)

    def erase(self, erasure: Erasure) -> dict[str, int]:
        """Delete the waiting answers that are concerned. Raises `StorageError`."""
        self.flush(_PATIENCE_S)
        try:
            return {"off-peak answers": erase_waiting_of(self.settings.path, erasure)}
        except Exception as error:
            raise StorageError(f"{self.settings.path}: {type(error).__name__}") from None

    def _look_safely(self) -> None:
        try:
            self.look()
        except Exception:  # the file cannot be used: the store has said so
            self._accounting.fail("off_peak:unusable")

    def _do(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        return self._store.submit(work).result(3 * _PATIENCE_S)

    def _give_up(self, connection: sqlite3.Connection, now_s: float) -> None:
        if not self.settings.path.exists():
            return
        oldest = now_s - self.settings.max_age_s
        expired = connection.execute(
            "DELETE FROM waiting WHERE kept < ? AND leased < ?", (oldest, now_s)
        ).rowcount
        broken = connection.execute(
            "DELETE FROM waiting WHERE attempts >= ? AND leased < ?", (_MOST_ATTEMPTS, now_s)
        ).rowcount
        for what, number in (("expired", expired), ("failed", broken)):
            if number:
                self._count(what, number)

    def _take(
        self, connection: sqlite3.Connection, now_s: float, most: int
    ) -> list[tuple[int, str, str, Any]]:
        agents = list(self._agents)
        marks = ",".join("?" * len(agents))
        rows = connection.execute(
            f"SELECT id, agent, entry FROM waiting WHERE leased < ? AND agent IN ({marks}) AND {READY} "
            "ORDER BY id LIMIT ?",
            (now_s, *agents, most),
        ).fetchall()
        connection.executemany(
            "UPDATE waiting SET leased = ?, attempts = attempts + 1 WHERE id = ?",
            [(now_s + _LEASE_S, id) for id, _, _ in rows],
        )
        taken: list[tuple[int, str, str, Any]] = []
        for id, agent, entry in rows:
            batch = None
            if self._batches is not None:
                batch = BatchAnswers(answers_of(connection, id))
            taken.append((id, agent, entry, batch))
        return taken

    def _submitted(self, id: int, agent: str, entry: str, batch: BatchAnswers | None) -> bool:
        settings = self._agents[agent]
        if self.schedule not in settings.runner.schedules:  # of another version of the settings
            self._ended(id, "no_evaluator")
            return False
        try:
            task = _task_of(settings, agent, json.loads(entry), Waited(id, self.finished, batch))
        except (ValueError, KeyError, TypeError):
            # of another version of this package, or changed by hand
            self._ended(id, "unreadable")
            return False
        with self._lock:
            self._running.add(id)
        return self._submit(task, _TASK_BYTES + kept_bytes(task.input))

    def _count(self, what: str, number: int = 1) -> None:
        self._accounting.fail(f"off_peak:{what}", number)


def off_peak_judges(runner: EvaluationRunner) -> list[Any]:
    """Return the judges of the evaluators that run later."""
    judges: list[Any] = []
    for evaluator in runner.evaluators:
        if evaluator.schedule == "off_peak":
            judges.extend(judge for _, judge in judges_of(evaluator))
    return judges


def _check(runner: EvaluationRunner, *, is_batch: bool) -> None:
    """Refuse off-peak evaluators that would never run or are escalated."""
    problems: list[tuple[str | None, str]] = []
    for step in runner.steps:
        if step.evaluator.schedule != OffPeak.schedule:
            continue
        label = step.evaluator.label
        judges = [judge for _, judge in judges_of(step.evaluator)]
        if is_batch and not (judges and all(judge.takes_batches for judge in judges)):
            wrong = f"{label} has schedule off_peak, and no judge whose provider has a batch API (anthropic)"
            problems.append(("off_peak.batch", wrong))
        if step.second:
            wrong = f"{label} is escalated, which is decided when the answer comes: give it a sample_rate instead"
            problems.append(("escalation", f"{wrong}, or schedule: immediate"))
    if problems:
        raise ConfigurationError.of(problems)


def _task_of(settings: HandlerSettings, agent: str, entry: dict[str, Any], origin: Waited) -> Task:
    """Return the answer as a task, with its original sampling.

    Its evaluation is due at no time, so that no lag is recorded.
    """
    value = EvaluationInput.model_validate(entry["input"])
    task = Task(settings, value.agent or agent, origin)
    spans = map(_span_context, entry["links"])
    task.links = tuple(span for span in spans if span is not None)
    sampled = Sampled(**entry["sampled"])
    task.select = Selection("off_peak")
    task.late = "off_peak"
    task.target = _span_context(entry["span"])
    task.sampled = sampled
    task.started_ns = entry["started_ns"]
    # answers that an older version kept have the end alone
    task.answered_ns = entry.get("answered_ns") or entry["ended_ns"]
    task.decision = SamplingDecision(True, sampled.probability, sampled.reason or "unknown")
    task.randomness = sampled.randomness
    task.call_id = entry.get("call_id")  # answers that an older version kept have none
    task.input = value
    if value.conversation is not None:
        task.subject = "conversation"
    return task


def erase_waiting_of(path: Path, erasure: Erasure, *, dry_run: bool = False) -> int:
    """Delete the waiting answers of a file that match, its free pages too, and return how many.

    With `dry_run` they are only counted. Blocks.
    """
    if not path.is_file():
        return 0
    with erasing(path, dry_run=dry_run) as connection:
        concerned = []
        for id, text in connection.execute("SELECT id, entry FROM waiting"):
            try:
                entry = json.loads(text)
                value = EvaluationInput.model_validate(entry["input"])
                moment_ns = entry["ended_ns"] or entry["started_ns"]
                is_concerned = erasure.concerns_input(value, moment_ns)
            except (ValueError, KeyError, TypeError):
                is_concerned = True
            if is_concerned:
                concerned.append((id,))
        if not dry_run:
            connection.executemany("DELETE FROM waiting WHERE id = ?", concerned)
            connection.execute(FORGET)
        return len(concerned)


def _ids(span: SpanContext | None) -> dict[str, Any] | None:
    reference = reference_of(span)
    return None if reference is None else reference.model_dump()


def _span_context(ids: dict[str, Any] | None) -> SpanContext | None:
    if ids is None:
        return None
    trace_id = int(ids["trace_id"], 16)
    span_id = int(ids["span_id"], 16)
    flags = TraceFlags(ids["trace_flags"])
    state = None
    if ids["trace_state"]:
        state = TraceState.from_header([ids["trace_state"]])
    return SpanContext(trace_id, span_id, True, flags, state)
