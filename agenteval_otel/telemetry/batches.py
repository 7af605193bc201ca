"""Batches: what waits for export over OTLP, and the thread that exports it at low duty.

For our own providers only, in place of the SDK's batch processors: small batches with a rest after each, so that the
host's threads come to their turn; bounded by items and by bytes, the newest is left out when it is full; and what is
lost is known, so that a flush can tell the truth. Nothing here knows what it carries.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value

from agenteval_otel.telemetry.log import log

__all__ = ["Batches", "Verdict"]

MAX_ITEMS = 8_192
MAX_BYTES = 32 * 1024 * 1024
_BATCH_ITEMS = 128
_BATCH_BYTES = 1024 * 1024
_EAGER_ITEMS = 512
_DELAY_S = 1.0
_REST_MAX_S = 0.1


class Verdict(NamedTuple):
    """What became of a batch.

    Attributes:
        sent: The other side has it.
        too_large: It may take the halves.
        wait_s: It takes the batch after so many seconds; None where it did not say so.
    """

    sent: bool
    too_large: bool = False
    wait_s: float | None = None


class Batches:
    """A bounded queue with its thread, which starts with the first item and is a daemon in an empty context.

    Args:
        signal: Named in log lines.
        export: Sends a batch, for as long as that takes; what it raises counts as not sent.
        on_lost: Told the number of items that will never be sent, on whatever thread.
    """

    def __init__(self, signal: str, export: Callable[[Sequence[Any]], Verdict], on_lost: Callable[[int], None]) -> None:
        self._signal, self._export, self._on_lost = signal, export, on_lost
        self._queue: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._not_before = 0.0
        self._exporting = threading.Lock()
        self._due = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = self._failing = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<Batches {self._signal.lower()} items={len(self._queue)} bytes={self._bytes}>"

    def put(self, item: Any, size_bytes: int) -> None:
        """Take an item; never blocks. In a forked child nothing is taken: the child has providers of its own."""
        if self._pid != os.getpid():
            return
        if self._closed or len(self._queue) >= MAX_ITEMS or self._bytes + size_bytes > MAX_BYTES:
            self._on_lost(1)
            log.warning("export_queue_full", part=self._signal.lower())
            return
        self._bytes += size_bytes
        self._queue.append((item, size_bytes))
        if self._closed:  # a close came between
            self._give_up()
        elif self._thread is None:
            self._start()
        elif len(self._queue) >= _EAGER_ITEMS and not self._due.is_set():
            self._due.set()

    def flush(self) -> bool:
        """Export on this thread what waits now, without rests; False when something of it still does: it was told to.

        What comes meanwhile is for the next flush: it may come faster than it goes.
        """
        if self._pid != os.getpid():
            return True
        left = len(self._queue)
        while left > 0 and self._queue:
            if time.monotonic() < self._not_before:
                return False
            left -= self._export_next()
        with self._exporting:  # what the thread took out just before is out now
            return not self._queue or time.monotonic() >= self._not_before

    def close(self) -> None:
        """Take nothing more, export what waits, and end the thread.

        With the first batch that is not taken the rest is lost: the other side is away, and each try takes its time.
        """
        self._closed, self._failing = True, False
        self._due.set()
        while self._queue and not self._failing and time.monotonic() >= self._not_before:
            self._export_next()
        self._give_up()

    def _give_up(self) -> None:
        lost = 0
        while self._queue:
            with contextlib.suppress(IndexError):  # another thread is at it too
                self._queue.popleft()
                lost += 1
        if lost:
            self._on_lost(lost)

    def _start(self) -> None:
        if not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                thread = threading.Thread(
                    target=contextvars.Context().run, args=(self._work,), name="agenteval-export", daemon=True
                )
                thread.start()
                self._thread = thread
        except RuntimeError:  # at the interpreter's exit no thread starts any more: a flush exports what waits
            pass
        finally:
            self._starting.release()

    def _work(self) -> None:
        while not self._closed:
            self._due.wait(max(_DELAY_S, self._not_before - time.monotonic()))
            self._due.clear()
            waiting = len(self._queue)  # what comes meanwhile is for the next round: it would make batches of a few
            while waiting > 0 and not self._closed and time.monotonic() >= self._not_before:
                began = time.thread_time()
                waiting -= self._export_next()
                if len(self._queue) < MAX_ITEMS // 2:
                    time.sleep(min(_REST_MAX_S, time.thread_time() - began))

    def _export_next(self) -> int:
        """Export the oldest items, as many as go together; gives their number."""
        with self._exporting:
            batch = self._take()
            if batch:
                self._deliver(batch)
            return len(batch)

    def _take(self) -> list[tuple[Any, int]]:
        batch: list[tuple[Any, int]] = []
        size = 0
        while self._queue and len(batch) < _BATCH_ITEMS and (not batch or size + self._queue[0][1] <= _BATCH_BYTES):
            batch.append(self._queue.popleft())
            size += batch[-1][1]
        self._bytes -= size
        return batch

    def _deliver(self, batch: list[tuple[Any, int]]) -> None:
        verdict = self._sent([item for item, _ in batch])
        if verdict.sent:
            return
        self._failing = True
        if verdict.too_large and len(batch) > 1:
            middle = len(batch) // 2
            self._deliver(batch[:middle])
            if time.monotonic() < self._not_before:
                self._put_back(batch[middle:])  # the first half was told to wait
            else:
                self._deliver(batch[middle:])
        elif verdict.wait_s is not None and not self._closed:
            # Not at once, whatever it says: "after 0 s" would have a flush ask without end.
            self._not_before = time.monotonic() + max(_DELAY_S, verdict.wait_s)
            self._put_back(batch)
        else:
            self._on_lost(len(batch))

    def _put_back(self, batch: list[tuple[Any, int]]) -> None:
        size = sum(size for _, size in batch)  # first: between a load and a store nothing may be called
        self._bytes += size
        self._queue.extendleft(reversed(batch))

    def _sent(self, items: list[Any]) -> Verdict:
        token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))  # nobody traces what carries traces
        try:
            return self._export(items)
        except BaseException as error:  # also SystemExit: it would end the thread, and with it every export
            log.warning("export_failed", part=self._signal.lower(), error_type=type(error).__name__)
            return Verdict(sent=False)
        finally:
            detach(token)
