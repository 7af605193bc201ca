"""The intake of what the receivers take.

Spans are put together by trace, and evaluated when their answer is complete.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from agenteval_otel.capture.assembly.traces import AssembledTrace, TraceAssembler
from agenteval_otel.capture.calls import CURRENT, EVALUATING
from agenteval_otel.capture.otlp.body import (
    SPAN_BYTES,
    BodyError,
    Decoding,
    Full,
    OtlpMessages,
    Room,
    Unavailable,
)
from agenteval_otel.capture.spans.base import role_of
from agenteval_otel.capture.spans.forwarded import ForwardedAnswer
from agenteval_otel.capture.spans.span import (
    ReadEvent,
    ReadSpan,
    event_of_log,
    plain_attributes,
    spans_of_otlp,
)
from agenteval_otel.config.process import default_pipeline, deliver, export_results, follow
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.errors import StorageError
from agenteval_otel.instrumentation.spans import SpanEvaluation, trace_is_concerned
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import MemoryBudget, MemoryPart, kept_bytes, text_bytes
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.semconv import (
    EVENT_ANSWER,
    EVENT_ANSWER_FORMER,
    EVENT_NO_SCORE,
    EVENT_RESULT,
    SCOPE_NAME,
)
from agenteval_otel.sidecar.erasure import erase_from_journal, keep_traces
from agenteval_otel.sidecar.journal import (
    LOGS,
    TRACES,
    Journal,
    JournalEntry,
    JournalFull,
    JournalUnavailable,
    Key,
)
from agenteval_otel.sidecar.quarantine import Quarantine
from agenteval_otel.sidecar.receipts import Receipt, Receipts
from agenteval_otel.sidecar.silence import Silence
from agenteval_otel.storage.erasure import Erasure

Requests = tuple[int, int]
"""Numbers of the first and the newest request of a trace."""

_TICK_S: Final = 0.1
_LOOK_AGAIN_S: Final = 0.01
_AT_ONCE: Final = 64
_AT_ONCE_BYTES: Final = 4 * 1024 * 1024
"""What is evaluated together: it takes its memory a second time while it is read."""
_DECODED_RATIO: Final = 5
"""Bytes in memory for each byte of a request at worst: one as messages, and four as text, because
one emoji makes each ASCII character take four."""
_SHARED_BYTES: Final = 4 * 1024
"""Attributes that the records of a resource share are divided among them, up to about this size.

What exceeds it counts for each record in full: a single one that waits keeps all of it in memory."""
_CHECKPOINT_S: Final = 1.0
"""How often segments are deleted, and how long a receiver that is away is left alone."""
_NOTE_S: Final = 0.02
"""How often exported answers are noted. Those after the last note are evaluated again after a kill."""
_EXPORT_S: Final = 30.0
_NEARLY_FULL: Final = 0.9
_RECORDS: Final = {TRACES: "spans", LOGS: "log records"}
_RETRIED_AT_ONCE: Final = (256, 16, 1)
"""How many answers are retried together that were under evaluation at one, two, and more deaths.

The more deaths, the fewer others share the risk."""
_RETRIED_AFTER_S: Final = (0.0, 5.0, 10.0)
"""How long a process has to live before it retries them, so that a loop of deaths does not pay for
the same answers each time."""
_MAX_ATTEMPTS: Final = 5
_SLOW_START: Final = 2
_SLOW_GROWTH: Final = 16
_SLOW_END: Final = 256
"""After a death at most 2 answers are under evaluation, and one more for every 16 that are
evaluated: so in a loop of deaths the judge is paid little for what is lost each time. From 256 on,
as many as the queue takes."""
_RETRIED_BYTES: Final = 16 * 1024 * 1024
_CROWDED: Final = 0.5
"""Above this share of memory or disk, older traces are evaluated before they are complete."""
# traces that are evaluated, and whose requests are still in the journal
_MAX_UNEXPORTED: Final = 200_000


class _WaitingAnswer(NamedTuple):
    """An answer that `@monitor` sent, complete as it is, until it is submitted.

    Attributes:
        number: Of its request in the journal. 0 without a journal.
    """

    answer: ForwardedAnswer
    number: int
    size_bytes: int


class Intake:
    """Takes requests on any thread, assembles and evaluates on one of its own.

    A request is taken as a whole or refused as a whole with `Full`. Single spans without ids are
    rejected. What was taken is in memory, and with `journal` on the disk.

    Args:
        settings: How long and how much waits.
        journal: Where requests are written before they count as taken.
    """

    def __init__(self, settings: SidecarSettings) -> None:
        self._evaluation = SpanEvaluation(nested_agents=settings.nested_agents)
        self.silence = Silence()
        self._assembler = TraceAssembler(
            is_mark=self._evaluation.is_mark,
            quiet_s=settings.quiet_s,
            parent_wait_s=max(settings.parent_wait_s, settings.quiet_s),
            max_spans=settings.max_waiting_bytes // SPAN_BYTES,
            max_bytes=settings.max_waiting_bytes,
            remember_s=settings.remember_s,
            remember_bytes=settings.remember_bytes,
        )
        self._parent_wait_s = max(settings.parent_wait_s, settings.quiet_s)
        self._quiet_s = settings.quiet_s
        self._max_decoded_bytes = min(
            _DECODED_RATIO * settings.max_request_bytes, settings.max_waiting_bytes
        )
        self._max_request_bytes = settings.max_request_bytes
        self._memory = MemoryPart(
            MemoryBudget(settings.max_waiting_bytes), settings.max_waiting_bytes
        )
        self._lock = threading.Lock()  # of the assembler and the journal
        self._journal: Journal | None = None
        self._answers: deque[_WaitingAnswer] = deque()
        self._answers_bytes = 0
        # For each trace that waits, its first and newest request in the journal. The key of
        # forwarded answers is the negative number of their request.
        self._waiting: dict[int, Requests] = {}
        # Those that were under evaluation when an earlier process died: retried after all others.
        # Each with the numbers of its requests.
        self._suspects: dict[int, list[int]] = {}
        self._retried: list[Receipt] = []
        self._is_out_of_time = False
        self._read_at = 0.0
        # the newest request of an earlier process
        self._left_up_to = 0
        self._starts_slowly = False
        self._receipts = Receipts()
        self._dropped_at = 0.0
        self._export_after = 0.0
        # the request of an earlier process that is read next, or was last
        self._reading: int | None = None
        self._waits_for_room = False  # while reading: nothing comes in until something goes
        self._quarantine: Quarantine | None = None
        tick_s = min(max(settings.quiet_s / 4, 0.05), _TICK_S)
        self.decoding: Decoding | None = None
        self._worker = Worker(
            "agenteval-sidecar", max_waiting=64, idle_s=tick_s, on_idle=self._look, stays=True
        )
        self._checkpoints = Worker(
            "agenteval-journal",
            max_waiting=1,
            idle_s=_NOTE_S,
            on_idle=self._note,
            stays=True,
        )
        self.messages = {TRACES: OtlpMessages("trace"), LOGS: OtlpMessages("logs")}
        if settings.durable is not None:
            folder = Path(settings.durable)
            self._journal = Journal(folder, settings.durable_max_bytes)
            self._quarantine = Quarantine(folder)
            self._reading = 0
            self._starts_slowly = self._journal.died and _asks_models(default_pipeline())
        self.bind(default_pipeline())
        if self._journal is not None and self._journal.damaged:
            default_pipeline().accounting.fail("journal:damaged", self._journal.damaged)
        follow(self)

    def __repr__(self) -> str:
        return f"<Intake {self._assembler!r}>"

    def bind(self, pipeline: Pipeline) -> None:
        """Feed this pipeline from now on. Called when the settings have changed."""
        pipeline.sources.add(self)

    def start(self) -> None:
        """Start the threads. With a journal, requests are refused until `read_left` has come back."""
        self._worker.start()
        if self._journal is not None:
            self._checkpoints.start()

    def read_left(self, ending: threading.Event) -> int:
        """Take what an earlier process has left, and return how many requests.

        Blocks until then, or until `ending`. As much as there is room for is in memory, the rest
        stays on the disk until room is free.
        """
        journal = self._journal
        count = 0
        if journal is None:
            return count
        for entry in journal.left():
            self._reading = entry.number
            if not self._take_again(entry, ending):
                return count
            count += 1
        with self._lock:
            journal.done.clear()
            self._left_up_to = self._reading or 0
            self._reading = None
            # They have waited before; and half a minute is more than a client's pause after 429.
            self._assembler.shorten_wait(self._parent_wait_s / 2)
            self._read_at = time.monotonic()
        return count

    def _take_again(self, entry: JournalEntry, ending: threading.Event) -> bool:
        """Take a request of an earlier process as soon as there is room.

        Return False if the process ended before. A request that cannot be taken is kept in a file.
        """
        assert self._quarantine is not None
        number, kind, data = entry
        if self._quarantine.has_killed(number):
            self._give_up(number, kind, data, "the process ended each time it was read")
            return True
        if len(data) > self._max_request_bytes:
            self._give_up(number, kind, data, "larger than max_request_bytes")
            return True
        while True:
            try:
                with self._quarantine.reading(number):
                    request = self.messages[kind].request.FromString(data)
                    self._add(kind, request, len(data), lambda: number)
                return True
            except Full:
                del request  # it takes memory too
                if not self._has_waited_for_room(ending):
                    return False
            except BodyError as refusal:  # the limits are lower now
                self._give_up(number, kind, data, str(refusal))
                return True
            except Exception as error:
                self._give_up(number, kind, data, type(error).__name__)
                return True

    def _has_waited_for_room(self, ending: threading.Event) -> bool:
        """Wait until something has left the memory. Return False if the process ended before."""
        used_bytes = self._memory.used_bytes
        self._waits_for_room = True
        try:
            while not ending.wait(_TICK_S):
                if self._memory.used_bytes < used_bytes or not used_bytes:
                    return True
            return False
        finally:
            self._waits_for_room = False

    def _give_up(self, number: int, kind: int, data: bytes, reason: str) -> None:
        """Keep a request of the journal in a file of its own, for its operator."""
        assert self._quarantine is not None
        try:
            file = str(self._quarantine.keep(kind, data))
        except OSError as error:
            file = f"stays in the journal: {error.strerror}"
            with self._lock:
                self._waiting[-number] = number, number
        default_pipeline().accounting.fail("journal:quarantined")
        log.warning(
            "request_quarantined", part="durable", reason=reason, file=file, size_bytes=len(data)
        )

    def room(self) -> Room:
        """Return how much memory a request may take that is to be decoded.

        Raises `Full` while none is taken.
        """
        if self._is_busy():
            raise Full
        memory = self._memory
        return Room(self._max_decoded_bytes, memory.max_bytes - memory.used_bytes)

    def _is_busy(self) -> bool:
        return self._reading is not None or len(self._receipts) > _MAX_UNEXPORTED

    def take(self, kind: int, request: Any, data: bytes | None = None) -> int:
        """Take a request. Return how many of its records have no ids and are not taken.

        Raises `Full`. May block.

        Args:
            kind: `TRACES` or `LOGS`.
            request: The message.
            data: Its bytes, where they are known.
        """
        journal = self._journal
        if journal is None:
            size_bytes = len(data) if data is not None else request.ByteSize()
            return self._add(kind, request, size_bytes, None)
        if self._is_busy():
            raise Full
        written = request.SerializeToString() if data is None else data
        if not journal.fits(len(written)):
            self._count("refused", _count_of(kind, request))
            raise BodyError(
                413, f"larger than the {journal.max_bytes:,} bytes of durable_max_bytes"
            )
        return self._add(kind, request, len(written), partial(journal.write, kind, written))

    def note_empty(self, kind: int, request: Any) -> None:
        """Count a request of a client in which nothing is known, such as one of another signal."""
        if _count_of(kind, request):
            return
        default_pipeline().accounting.fail("requests:no_records")
        log.warning(
            "request_without_records",
            part="receiver",
            why=f"nothing in the request is known as {_RECORDS[kind]}",
            fix="send spans to /v1/traces and log records to /v1/logs, and no other signal",
        )

    def has_room(self) -> bool:
        """Tell whether a request of an ordinary size would be taken, for readiness."""
        return self.problem() is None

    def problem(self) -> str | None:
        """Return why requests are refused at present, in words.

        The result is None if they are taken.
        """
        if self._reading is not None:
            return "what an earlier process left is being read"
        if self._journal is not None and self._journal.problem is not None:
            return self._journal.problem
        usage = self._usage()
        return None if usage < _NEARLY_FULL else f"{usage:.0%} of memory or disk is taken"

    def state(self) -> dict[str, int]:
        """Return what waits: traces and forwarded answers, and bytes."""
        return {
            "size": self._assembler.traces + len(self._answers),
            "bytes": self._memory.used_bytes,
            "max_bytes": self._memory.max_bytes,
        }

    def _usage(self) -> float:
        """Return the share of memory or disk that is taken, whichever is larger."""
        journal = self._journal
        on_disk = 0.0 if journal is None else journal.size_bytes / journal.max_bytes
        return max(on_disk, self._memory.used_bytes / self._memory.max_bytes)

    def drain(self, timeout_s: float, *, last: bool = False) -> bool:
        """Submit the answers that have come so far. With `last`, also those that wait for a parent.

        Return False if time ran out.
        """
        if not self._worker.has_thread:
            return True
        self._starts_slowly = False
        done = threading.Event()
        return self._worker.submit(partial(self._look, done, last)) and done.wait(timeout_s)

    def erase(self, erasure: Erasure) -> int:
        """Remove the waiting traces and answers that are concerned, on the disk too.

        Return how many traces, answers and quarantined files were removed. Blocks. Raises
        `StorageError` while the journal is being read, or if the disk refuses.
        """
        traces: set[int] = set()

        def is_erased(trace: int, spans: Sequence[ReadSpan], events: Sequence[ReadEvent]) -> bool:
            return trace in traces or trace_is_concerned(erasure, trace, spans, events)

        files = 0
        if self._journal is not None and self._quarantine is not None:
            if self._reading is not None:
                raise StorageError(
                    "what an earlier process left is being read: try again once /readyz says yes"
                )
            traces |= erase_from_journal(self._journal, self.messages, erasure, self._lock)
            files = self._quarantine.erase(erasure)
        assembler = self._assembler
        with self._lock:
            before = assembler.size_bytes + self._answers_bytes
            traces.update(assembler.remove(is_erased))
            # A later span of the same answer, such as the agent's own, may hold what was erased.
            assembler.close(traces - {0})
            answers: list[_WaitingAnswer] = []
            for waiting in self._answers:
                answer = waiting.answer
                if answer.trace_id in traces:
                    continue
                if not trace_is_concerned(erasure, 0, (), [answer.event]):
                    answers.append(waiting)
            removed = len(self._answers) - len(answers)
            self._answers = deque(answers)
            self._answers_bytes = sum(waiting.size_bytes for waiting in answers)
            self._memory.release(before - assembler.size_bytes - self._answers_bytes)
        self._count("dropped", removed)
        return len(traces - {0}) + removed + files

    def close(self, timeout_s: float) -> bool:
        """Evaluate and export what has come, and end the threads. Return False if time ran out."""
        deadline = time.monotonic() + timeout_s
        drained = self.drain(timeout_s / 2, last=True)
        self._is_out_of_time = True
        self._worker.close(max(0.0, deadline - time.monotonic()))
        if self._journal is not None:
            self._checkpoints.close(max(0.0, deadline - time.monotonic()))
            deliver(max(0.0, deadline - time.monotonic()))
            self._checkpoint(max(0.0, deadline - time.monotonic()))
            with self._lock:  # a request that is still being taken is written or refused
                self._journal.close()
        return drained

    def _add(
        self, kind: int, request: Any, size_bytes: int, obtain_number: Callable[[], int] | None
    ) -> int:
        """Reserve memory, write the request to the journal, and add it to the assembler.

        The steps happen in this order. `obtain_number` writes the request and returns its number,
        None without a journal. Return how many records have no ids.
        """
        memory = self._memory
        count = _count_of(kind, request)
        # A character of Latin-1 has two bytes in UTF-8, and one in memory.
        least = size_bytes // 2 + SPAN_BYTES * count
        if least > memory.max_bytes or memory.used_bytes + least > memory.max_bytes:
            self._refuse(kind, request, least)
        records, invalid = _records_in(kind, request)
        sizes = _sizes_of(records)
        reserved = sum(sizes)
        if records and not memory.reserve(reserved):
            self._refuse(kind, request, reserved)
        kept = 0
        try:
            with self._lock:
                before = self._assembler.size_bytes + self._answers_bytes
                number = 0
                # Nothing is written where nothing is kept: log records without a span.
                if records and obtain_number is not None:
                    number = obtain_number()
                self._assemble(records, sizes, number)
                kept = self._assembler.size_bytes + self._answers_bytes - before
        except JournalUnavailable as error:
            self._count("refused", count)
            self._expect(kind, request)
            raise Unavailable(str(error)) from None
        except JournalFull:
            self._refuse(kind, request, 0)
        finally:
            # What the assembler did not keep, late spans among them, takes no memory any more.
            memory.release(reserved - kept)
        if self._answers and not self._worker.waiting:
            self._worker.submit(self._look)
        if invalid:
            self._count("invalid", invalid)
        return invalid

    def _refuse(self, kind: int, request: Any, size_bytes: int) -> NoReturn:
        """Count the records as refused, and raise: `BodyError` if they can never fit, else `Full`.

        Traces with a part among them are left out if they never fit. Else they wait for that part,
        which is sent again: without it they would be scored as if they were whole.
        """
        self._count("refused", _count_of(kind, request))
        if size_bytes > self._memory.max_bytes:
            with self._lock:
                before = self._assembler.size_bytes
                for trace_id in _trace_ids_of(kind, request):
                    self._assembler.lose(trace_id)
                self._memory.release(before - self._assembler.size_bytes)
            raise BodyError(
                413, f"takes more than the {self._memory.max_bytes:,} bytes of max_waiting_bytes"
            )
        self._expect(kind, request)
        log.warning("spans_refused", part="receiver", taken=f"{self._usage():.0%}")
        raise Full

    def _expect(self, kind: int, request: Any) -> None:
        """Have the traces with a part in a refused request wait for it."""
        with self._lock:
            before = self._assembler.size_bytes
            self._assembler.expect(_trace_ids_of(kind, request), time.monotonic())
            self._memory.release(before - self._assembler.size_bytes)

    def _assemble(self, records: list[_Record], sizes: list[int], number: int) -> None:
        """Add records to what waits. `number` is that of their request, 0 without a journal."""
        assembler = self._assembler
        now_s = time.monotonic()
        done = {} if self._journal is None else self._journal.done
        for record, size_bytes in zip(records, sizes, strict=True):
            if number and self._reading is not None and self._keep_for_later(record, number):
                continue
            if isinstance(record, ForwardedAnswer):
                if not number or number > done.get((0, number), 0):
                    self._keep_answer(record, number, size_bytes)
                continue
            if number:
                # A request that is read again: its trace was evaluated before the crash.
                if done and number <= done.get((record.trace_id, 0), 0):
                    if isinstance(record, ReadSpan) and role_of(record) is not None:
                        assembler.know(record.trace_id, record.span_id)
                    continue
                first, _ = self._waiting.get(record.trace_id, (number, number))
                self._waiting[record.trace_id] = first, number
            if isinstance(record, _Event):
                kept = assembler.add_event(
                    record.event, record.trace_id, record.span_id, size_bytes, now_s
                )
            else:
                kept = assembler.add(record, size_bytes, now_s)
            if not kept:
                self._count("dropped")

    def _keep_for_later(self, record: _Record, number: int) -> bool:
        """Keep a record for later if an earlier process may have died of it. Return whether it is kept."""
        journal = self._journal
        key = _key_of(record, number)
        if journal is None or not journal.attempts(_journal_key(key)):
            return False
        if number <= journal.done.get(_journal_key(key), 0):
            return False
        numbers = self._suspects.setdefault(key, [])
        if not numbers or numbers[-1] != number:
            numbers.append(number)
        return True

    def _keep_answer(self, answer: ForwardedAnswer, number: int, size_bytes: int) -> None:
        self._answers.append(_WaitingAnswer(answer, number, size_bytes))
        self._answers_bytes += size_bytes
        if number:
            self._waiting[-number] = number, number

    def _look(self, done: threading.Event | None = None, last: bool = False) -> None:
        """Evaluate what is complete, while the queue has room.

        With `done` there is no wait for a quiet trace.
        """
        try:
            CURRENT.set(EVALUATING)
            self._wait_for_room()
            quiet_s = 0.0 if done is not None else None
            while self._submit_answers() or self._submit_traces(quiet_s=quiet_s, last=last):
                self._wait_for_room()
            while self._suspects and self._reading is None:
                self._retry_suspects(last=last)
                if not last or self._is_out_of_time:
                    break
                time.sleep(_LOOK_AGAIN_S)
            with self._lock:
                self._evaluation.count_assembled(self._assembler)
            self.silence.look(default_pipeline().accounting)
        except Exception as error:
            default_pipeline().broken("spans", error)
        finally:
            if done is not None:
                done.set()

    def _wait_for_room(self) -> None:
        while not (default_pipeline().has_room() and self._at_once() > 0):
            time.sleep(_LOOK_AGAIN_S)

    def _at_once(self) -> int:
        """Return how many traces may be submitted now."""
        if not self._starts_slowly:
            return _AT_ONCE
        settled = self._receipts.settled()
        most = _SLOW_START + settled // _SLOW_GROWTH
        if most >= _SLOW_END:
            self._starts_slowly = False
        return min(_AT_ONCE, most - (self._receipts.opened - settled))

    def _submit_answers(self) -> bool:
        """Submit some forwarded answers, always all of a request: requests are noted as a whole."""
        taken: list[tuple[ForwardedAnswer, Receipt | None]] = []
        taken_bytes = 0
        receipts: dict[int, Receipt] = {}
        at_once = self._at_once()
        with self._lock:
            answers = self._answers
            number = 0
            while answers:
                is_same_request = number != 0 and answers[0].number == number
                is_full = len(taken) >= at_once or taken_bytes >= _AT_ONCE_BYTES
                if is_full and not is_same_request:
                    break
                answer, number, size_bytes = answers.popleft()
                taken_bytes += size_bytes
                self._answers_bytes -= size_bytes
                requests = self._waiting.pop(-number, None)
                if requests is not None:
                    receipts[number] = self._receipts.issue(-number, *requests)
                taken.append((answer, receipts.get(number)))
            self._begin(receipts.values())
        try:
            for answer, receipt in taken:
                self._evaluation.evaluate_forwarded(answer, receipt)
        finally:
            self._memory.release(taken_bytes)
            self._note_submitted(receipts.values())
        return bool(taken)

    def _submit_traces(self, *, quiet_s: float | None, last: bool) -> bool:
        traces, receipts = self._complete(quiet_s=quiet_s, last=last)
        try:
            self._evaluation.evaluate(traces, receipts)
        finally:
            # Until here their spans are in memory, and what is read of them too.
            self._memory.release(sum(trace.size_bytes for trace in traces))
            self._note_submitted(receipt for receipt in receipts if receipt is not None)
        return bool(traces)

    def _complete(
        self, *, quiet_s: float | None, last: bool
    ) -> tuple[list[AssembledTrace], list[Receipt | None]]:
        """Take some complete traces from the assembler. Their memory stays reserved."""
        assembler = self._assembler
        traces: list[AssembledTrace] = []
        receipts: list[Receipt | None] = []
        taken_bytes = 0
        at_once = max(1, self._at_once())
        with self._lock:
            before = assembler.size_bytes
            complete: Iterable[AssembledTrace]
            # What waits for a parent is left to the next process, which reads it in the journal.
            if last and self._journal is None:
                complete = assembler.take_all()
            else:
                max_age_s = self._max_age_s()
                complete = assembler.take(
                    self._seen_until_s(), quiet_s=quiet_s, max_age_s=max_age_s
                )
            for trace in complete:
                traces.append(trace)
                taken_bytes += trace.size_bytes
                if len(traces) >= at_once or taken_bytes >= _AT_ONCE_BYTES:
                    break
            # What left the assembler beside these traces, such as spans that it dropped.
            self._memory.release(before - assembler.size_bytes - taken_bytes)
            for trace in traces:
                trace_id = trace.spans[0].trace_id
                requests = self._waiting.pop(trace_id, None)
                if requests is None:
                    receipts.append(None)
                else:
                    receipts.append(self._receipts.issue(trace_id, *requests))
            self._begin(receipt for receipt in receipts if receipt is not None)
        return traces, receipts

    def _seen_until_s(self) -> float:
        """Return the moment up to which everything that came has been put together.

        On a busy machine requests wait to be decoded: a trace is not quiet while its spans may be
        among them.
        """
        oldest_s = None if self.decoding is None else self.decoding.waits_since_s()
        return time.monotonic() if oldest_s is None else oldest_s

    def _max_age_s(self) -> float | None:
        """Return the age at which a trace is evaluated as it is.

        None means the age of the assembler.
        """
        if self._waits_for_room:
            # No parent can come: requests are refused, and what is on the disk finds no room.
            return self._quiet_s
        return self._parent_wait_s if self._usage() > _CROWDED else None

    def _begin(self, receipts: Iterable[Receipt]) -> None:
        """Note in the journal what is evaluated next, in case this process dies of it."""
        keys = [_journal_key(receipt.key) for receipt in receipts]
        if keys and self._journal is not None:
            self._journal.begin(keys)

    def _note_submitted(self, receipts: Iterable[Receipt]) -> None:
        with self._lock:
            self._receipts.submitted(receipts)

    # --- what earlier processes may have died of
    # ----------------------------------------------------------------------------------------------------

    def _retry_suspects(self, *, last: bool) -> None:
        """Evaluate some of the suspects, once the ones before are evaluated."""
        journal = self._journal
        is_over = all(receipt.is_evaluated for receipt in self._retried)
        if journal is None or not is_over or not default_pipeline().has_room():
            return
        with self._lock:
            attempts = {key: journal.attempts(_journal_key(key)) for key in self._suspects}
            fewest = min(attempts.values())
            place = min(fewest, len(_RETRIED_AT_ONCE)) - 1  # in the tables of retries
            # Requests of the earlier process that did not kill it come first.
            others = any(first <= self._left_up_to for first, _ in self._waiting.values())
            wait_s = max(_RETRIED_AFTER_S[place], self._parent_wait_s if others else 0.0)
            if not last and time.monotonic() < self._read_at + wait_s:
                return
            at_once = _RETRIED_AT_ONCE[place]
            if self._starts_slowly:
                at_once = max(1, min(at_once, self._at_once()))
            keys = [key for key in self._suspects if attempts[key] == fewest][:at_once]
        by_key: dict[int, list[_Record]]
        if fewest >= _MAX_ATTEMPTS:
            self._give_up_suspect(journal, keys[0], fewest)
            by_key = {keys[0]: []}  # nothing is evaluated, and the suspect is noted as done
        else:
            by_key = self._read_suspects(journal, keys)
        with self._lock:
            receipts = []
            for key in by_key:
                numbers = self._suspects.pop(key)
                receipts.append(self._receipts.issue(key, numbers[0], numbers[-1]))
            self._retried = receipts
            self._begin(receipts)
        for receipt in receipts:
            self._evaluate_again(by_key[receipt.key], receipt)

    def _give_up_suspect(self, journal: Journal, key: int, attempts: int) -> None:
        """Quarantine what several processes died of: each time the judge was paid again."""
        for entry in journal.requests_numbered(self._suspects[key]):
            request, records = self._records_of(entry)
            traces: set[int] = set()
            for record in records:
                if _key_of(record, entry.number) == key:
                    traces.add(record.trace_id)
            if traces:
                keep_traces(entry.kind, request, traces)
                reason = f"{attempts} processes ended while it was evaluated"
                self._give_up(entry.number, entry.kind, request.SerializeToString(), reason)

    def _read_suspects(self, journal: Journal, keys: Sequence[int]) -> dict[int, list[_Record]]:
        """Return the records of traces or requests, of as many as fit into `_RETRIED_BYTES`."""
        by_key: dict[int, list[_Record]] = {key: [] for key in keys}
        size_bytes = 0
        numbers: set[int] = set()
        for key in keys:
            numbers.update(self._suspects[key])
        for entry in journal.requests_numbered(numbers):
            _, records = self._records_of(entry)
            size_bytes += sum(_sizes_of(records))
            if size_bytes > _RETRIED_BYTES and len(by_key) > 1:
                # Those that are whole by now, else one of them; the others are read next time.
                whole = [key for key in by_key if self._suspects[key][-1] < entry.number]
                if not whole:
                    whole = [next(iter(by_key))]
                by_key = {key: by_key[key] for key in whole}
            for record in records:
                key = _key_of(record, entry.number)
                if key in by_key:
                    by_key[key].append(record)
        return by_key

    def _records_of(self, entry: JournalEntry) -> tuple[Any, list[_Record]]:
        request = self.messages[entry.kind].request.FromString(entry.data)
        records, _ = _records_in(entry.kind, request)
        return request, records

    def _evaluate_again(self, records: Sequence[_Record], receipt: Receipt) -> None:
        """Submit what was complete for an earlier process, and is not waited for again."""
        assembler = TraceAssembler(
            is_mark=self._evaluation.is_mark, max_bytes=self._memory.max_bytes
        )
        try:
            for record in records:
                if isinstance(record, ForwardedAnswer):
                    self._evaluation.evaluate_forwarded(record, receipt)
                elif isinstance(record, _Event):
                    assembler.add_event(
                        record.event, record.trace_id, record.span_id, _size_of(record), 0.0
                    )
                else:
                    assembler.add(record, _size_of(record), 0.0)
                    with self._lock:
                        if role_of(record) is not None:
                            self._assembler.know(record.trace_id, record.span_id)
            traces = list(assembler.take_all())
            self._evaluation.evaluate(traces, [receipt] * len(traces))
        finally:
            self._note_submitted([receipt])

    # --- what is done
    # ----------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        """Export and note what was evaluated, and once a second delete segments."""
        now_s = time.monotonic()
        drops = now_s >= self._dropped_at + _CHECKPOINT_S
        if drops or (self._receipts.has_news() and now_s >= self._export_after):
            self._checkpoint(drops=drops)

    def _checkpoint(self, timeout_s: float = _EXPORT_S, *, drops: bool = True) -> None:
        """Export what was evaluated, then note it in the journal as done."""
        journal = self._journal
        if journal is None:
            return
        with self._lock:
            needs_export = self._receipts.look()
        if needs_export and not export_results(timeout_s):
            self._export_after = time.monotonic() + _CHECKPOINT_S
        with self._lock:
            self._receipts.look()
            done = self._receipts.done(self._suspects)
            needed_from = self._needed_from(journal, done) if drops else 0
            noted = {_journal_key(key): newest for key, newest in done.items()}
            if journal.finish(noted, needed_from):
                self._receipts.forget(done)
            if drops and journal.problem is not None:
                journal.probe()

    def _needed_from(self, journal: Journal, done: Mapping[int, int]) -> int:
        """Return the number of the first request that is needed once these are noted as done."""
        self._dropped_at = time.monotonic()
        waiting = self._assembler.trace_ids()
        self._waiting = {
            key: requests for key, requests in self._waiting.items() if key in waiting or key < 0
        }
        firsts = [first for first, _ in self._waiting.values()]
        firsts += [numbers[0] for numbers in self._suspects.values()]
        unread = journal.number + 1 if self._reading is None else self._reading
        return min([unread, self._receipts.needed_from(done), *firsts])

    def _count(self, what: str, count: int = 1) -> None:
        default_pipeline().accounting.count_spans(what, count)


def _asks_models(pipeline: Pipeline) -> bool:
    """Tell whether an evaluator of the settings calls a model, which is paid by the call."""
    for options in (pipeline.handlers.defaults, *pipeline.handlers.agents.values()):
        if any(evaluator.calls_model for evaluator in options.evaluators or ()):
            return True
    return False


def _journal_key(key: int) -> Key:
    """Return the journal's key of a trace, or of a request, whose key here is its negative number."""
    return (key, 0) if key >= 0 else (0, -key)


def _key_of(record: _Record, number: int) -> int:
    """Return what a record of a request belongs to: its trace, or the request."""
    return -number if isinstance(record, ForwardedAnswer) else record.trace_id


def _groups_of(kind: int, request: Any) -> Iterator[Sequence[Any]]:
    """Yield the records of a request, as messages, by resource and scope."""
    if kind == LOGS:
        for resource_logs in request.resource_logs:
            for scope_logs in resource_logs.scope_logs:
                yield scope_logs.log_records
    else:
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                yield scope_spans.spans


def _count_of(kind: int, request: Any) -> int:
    return sum(map(len, _groups_of(kind, request)))


def _trace_ids_of(kind: int, request: Any) -> set[int]:
    """Return the traces that a request has a part of."""
    ids: set[bytes] = set()
    for records in _groups_of(kind, request):
        ids.update(record.trace_id for record in records)
    return {int.from_bytes(trace_id) for trace_id in ids if trace_id}


def _records_in(kind: int, request: Any) -> tuple[list[_Record], int]:
    """Return the records of a request that are taken, and how many are not, because they lack ids."""
    return _spans_of(request) if kind == TRACES else _events_of(request)


def _spans_of(request: Any) -> tuple[list[_Record], int]:
    """Return the spans of a request that have ids, and how many have none."""
    spans = list(spans_of_otlp(request.resource_spans))
    valid: list[_Record] = [span for span in spans if span.trace_id and span.span_id]
    return valid, len(spans) - len(valid)


class _Event(NamedTuple):
    """A log record of a span."""

    trace_id: int
    span_id: int
    event: ReadEvent


_ANSWERS: Final = frozenset({EVENT_ANSWER, EVENT_ANSWER_FORMER})
# Sent by this package, and received again.
_RESULTS: Final = frozenset({EVENT_RESULT, EVENT_NO_SCORE})
_Record = ReadSpan | _Event | ForwardedAnswer


def _events_of(request: Any) -> tuple[list[_Record], int]:
    """Return the log records of spans, the forwarded answers, and 0.

    Other records without a span are ordinary log lines, which are ignored.
    """
    events: list[_Record] = []
    for group in request.resource_logs:
        resource: dict[str, Any] | None = None
        for scope_logs in group.scope_logs:
            is_ours = scope_logs.scope.name == SCOPE_NAME
            for record in scope_logs.log_records:
                trace_id = int.from_bytes(record.trace_id)
                span_id = int.from_bytes(record.span_id)
                if is_ours and record.event_name in _ANSWERS:
                    if resource is None:
                        resource = plain_attributes(group.resource.attributes)
                    flags = record.flags & 0xFF
                    event = event_of_log(record)
                    events.append(ForwardedAnswer(trace_id, span_id, flags, event, resource))
                elif trace_id and span_id and record.event_name not in _RESULTS:
                    events.append(_Event(trace_id, span_id, event_of_log(record)))
    return events, 0


def _sizes_of(records: Sequence[_Record]) -> list[int]:
    """Return how many bytes Python keeps for each record.

    The attributes of a resource are divided among the records that share them, as far as they are
    no more than usual: a single record that waits keeps all of a large one alive.
    """
    sharing = Counter(id(record.resource) for record in records if not isinstance(record, _Event))
    shared: dict[int, int] = {}
    sizes = []
    for record in records:
        size_bytes = _size_of(record)
        if not isinstance(record, _Event):
            key = id(record.resource)
            whole = shared.get(key)
            if whole is None:
                whole = kept_bytes(record.resource)
                shared[key] = whole
            size_bytes += max(whole // sharing[key], whole - _SHARED_BYTES)
        sizes.append(size_bytes)
    return sizes


def _size_of(record: _Record) -> int:
    """Return how many bytes Python keeps for a record without its resource."""
    if not isinstance(record, ReadSpan):
        return _size_of_event(record.event)
    texts = (
        record.name,
        record.status_message,
        record.trace_state,
        record.scope,
        record.scope_version,
    )
    size_bytes = SPAN_BYTES + kept_bytes(record.attributes) + text_bytes(texts)
    return size_bytes + sum(map(_size_of_event, record.events))


def _size_of_event(event: ReadEvent) -> int:
    return (
        SPAN_BYTES + kept_bytes(event.name) + kept_bytes(event.attributes) + kept_bytes(event.body)
    )
