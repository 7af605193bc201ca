"""The background writer of results, which wait within `MEMORY.results`.

While a write hangs, saves fail at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

from agenteval_otel.components.retry import Entry, RetryQueue
from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.storage.base import EvaluationStorageProvider

HUNG_S = 5.0  # a write that takes longer has hung; a busy machine delays a thread for less
_BATCH_BYTES = 1024 * 1024
_BATCH_ITEMS = 100
_MAX_JOBS = 16
_INHERITED: list[Any] = []  # sinks of parent processes


class Sink(Protocol):
    """Where batches are written. One thread at a time calls it."""

    def write(self, items: Sequence[Any], *, may_wait: bool) -> Sequence[Exception | None]:
        """Save the items, on a thread that may be blocked if `may_wait`.

        Return None or the error for each.
        """
        ...

    def close(self) -> None: ...  # the next write opens it again


class BatchedStorageProvider(EvaluationStorageProvider):
    """A provider that writes in batches. Implement `place` and `open_sink`."""

    @property
    def place(self) -> str:
        """Return where results go, for messages. It has no secrets."""
        raise NotImplementedError

    def open_sink(self) -> Sink:
        """Open a new sink. Called once in each process, on the thread that writes."""
        raise NotImplementedError

    @cached_property
    def batcher(self) -> ResultBatcher:
        """Return the writer, which the first result starts, also after `close`."""
        return ResultBatcher(self.place, self.open_sink)

    async def close(self) -> None:
        if (batcher := self.__dict__.pop("batcher", None)) is not None:
            await batcher.close()


class ResultBatcher:
    """Saves the items of one process in batches.

    They go to the sink that `open_sink` makes on the thread that writes.
    """

    def __init__(self, place: str, open_sink: Callable[[], Sink]) -> None:
        self._place = place
        self._open_sink = open_sink
        self._closed = False
        self._worker = Worker("agenteval-save", max_waiting=_MAX_JOBS)
        self._queue: RetryQueue[_Save] = RetryQueue(MEMORY.results)
        self._sink: Sink | None = None
        self._write_began: float | None = None
        reset_in_child(self._reset_in_child)

    def _reset_in_child(self) -> None:
        """Reset in a forked child: waiting items and the sink are the parent's.

        The sink is kept, as freeing it would close its connection.
        """
        _INHERITED.append(self._sink)
        self._queue.reset()
        self._sink = None
        self._write_began = None

    def __repr__(self) -> str:
        return f"<ResultBatcher {self._place} waiting={self._queue.size_bytes} bytes>"

    async def save(self, value: object, size: int) -> None:
        """Save an item of `size` bytes and wait for it.

        Raises `StorageError`, or `OSError` of the file.
        """
        save = _Save(value)
        queue = self._queue
        with queue.changed:
            if self._closed:
                raise StorageError(f"{self._place}: closed")
            if self._remaining_s() <= 0.0:
                raise self._hung()
            # A single item is saved whatever else waits in this process.
            if queue.add(save, size, always=not queue.size_bytes) is None:
                raise StorageError(
                    f"{self._place}: does not keep up, {queue.size_bytes} bytes wait"
                )
            # A waiting job will save this item too.
            has_thread = self._worker.waiting > 0 or self._worker.submit(self._save_waiting)
        if not has_thread:  # none can be started, as at the interpreter's exit: saved here
            self._save_waiting(may_wait=False)
        try:
            # No longer than any write may take, however many are before it.
            while not save.outcome.done() and (remaining_s := self._remaining_s()) > 0.0:
                await asyncio.wait({save.outcome}, timeout=remaining_s)
            error = save.outcome.result() if save.outcome.done() else self._hung()
        finally:
            save.outcome.cancel()  # where it is not written yet, it is skipped
        if isinstance(error, OSError):  # a copy for each save: raising adds to the traceback
            raise OSError(error.errno, error.strerror, error.filename)
        if error is not None:
            raise StorageError(str(error))

    def _remaining_s(self) -> float:
        began = self._write_began
        return HUNG_S if began is None else began + HUNG_S - time.monotonic()

    def _hung(self) -> StorageError:
        return StorageError(f"{self._place}: a write has hung for more than {HUNG_S:g} s")

    async def close(self) -> None:
        """Close the sink after the waiting items.

        If a write hangs, it is closed as soon as that returns.
        """
        with self._queue.changed:
            self._closed = True
        closed = _Save(None)

        def close_sink() -> None:
            if self._sink is not None:
                self._sink.close()
            closed.answer(None)

        if not self._worker.submit(close_sink):
            close_sink()
        self._worker.close(0.0)
        await asyncio.wait({closed.outcome}, timeout=HUNG_S)

    def _save_waiting(self, *, may_wait: bool = True) -> None:
        while entries := self._queue.take(_BATCH_ITEMS, _BATCH_BYTES):
            self._write(entries, may_wait=may_wait)

    def _write(self, entries: list[Entry[_Save]], *, may_wait: bool) -> None:
        wanted = [entry.value for entry in entries if not entry.value.outcome.cancelled()]
        errors: Sequence[Exception | None]
        try:
            if self._sink is None:
                self._sink = self._open_sink()  # not timed: it may load a library
            sink = self._sink
            self._write_began = time.monotonic()
            errors = ()
            if wanted:
                errors = sink.write([save.value for save in wanted], may_wait=may_wait)
        except Exception as failure:
            errors = [failure] * len(wanted)
        self._write_began = None
        self._queue.release(self._queue.take_back(entries))
        for save, error in zip(wanted, errors, strict=True):
            save.answer(error)


class _Save:
    """A value, and what becomes of it: None once it is saved, else the error."""

    def __init__(self, value: object) -> None:
        self.value = value
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Exception | None] = self._loop.create_future()

    def answer(self, error: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # its event loop is closed
            self._loop.call_soon_threadsafe(self._resolve, error)

    def _resolve(self, error: Exception | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(error)
