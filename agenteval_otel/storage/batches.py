"""The background writer of results: a slow disk or server blocks no event loop.

Waiting results are saved together, within the memory of `MEMORY.results`. No save waits longer than the sink's patience
for its batch; while a sink takes longer, waiting and new saves fail at once, so nothing piles up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.storage.base import EvaluationStorageProvider

__all__ = ["WAIT_S", "BatchedStorageProvider", "ResultBatcher", "Sink"]

WAIT_S = 0.75
_BATCH_BYTES = 1024 * 1024
_BATCH_ITEMS = 100
_MAX_JOBS = 16
_QUEUE_S = 5.0
_IDLE_S = 0.5

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """Where batches are written. One thread at a time calls it."""

    @property
    def place(self) -> str:
        """Its name in messages; no secrets."""
        ...

    @property
    def patience_s(self) -> float:
        """How long a save waits for its batch."""
        ...

    def write(self, items: Sequence[T_contra], *, may_wait: bool) -> Sequence[Exception | None]:
        """Save the items, on a thread that may be blocked if `may_wait`; None or the error for each. Raises nothing."""
        ...

    def rest(self) -> None:
        """Called after an idle time. Raises nothing."""
        ...

    def close(self) -> None:
        """Release what is open; the next write opens it again."""
        ...


class BatchedStorageProvider(EvaluationStorageProvider):
    """A provider that writes in batches. Implement `open_sink`."""

    def open_sink(self) -> Sink[Any]:
        """A new sink; called once in each process."""
        raise NotImplementedError

    @cached_property
    def _batchers(self) -> dict[int, ResultBatcher[Any]]:
        return {}

    @property
    def batcher(self) -> ResultBatcher[Any]:
        """The writer of this process: a forked child has its own."""
        pid = os.getpid()
        return self._batchers.get(pid) or self._batchers.setdefault(pid, ResultBatcher(self.open_sink()))

    async def close(self) -> None:
        """Close the sink after the waiting results; opened again by the next one."""
        batcher = self._batchers.pop(os.getpid(), None)
        self._batchers.clear()  # of the parent process
        if batcher is not None:
            await batcher.close()


class ResultBatcher(Generic[T]):
    """Saves the items of one process in batches.

    Args:
        sink: Where they are written.
    """

    def __init__(self, sink: Sink[T]) -> None:
        self.sink = sink
        self._waiting: deque[_Item[T]] = deque()
        self._waiting_bytes = 0
        self._busy_since: float | None = None
        self._guard = threading.Lock()
        self._closed = False
        self._worker = Worker("agenteval-save", max_waiting=_MAX_JOBS, idle_s=_IDLE_S, on_idle=self._rest)

    def __repr__(self) -> str:
        return f"<ResultBatcher {self.sink.place} waiting={self._waiting_bytes} bytes>"

    async def save(self, value: T, size: int) -> None:
        """Save an item of `size` bytes and wait for it; never blocks the event loop.

        Raises:
            StorageError: It was not saved in time or not completely, or too much waits.
            OSError: The file cannot be opened or written.
        """
        item = _Item([value], size)
        patience_s = self.sink.patience_s
        with self._guard:
            self._refuse_or_reserve(item, patience_s)
            self._waiting.append(item)
            # A waiting job will save this item too.
            will_save = self._worker.waiting > 0 or self._worker.submit(self._save_waiting)
        try:
            if not will_save:  # no thread can be started, as at the interpreter's exit: saved here
                self._save_waiting(may_wait=False)
            await self._answer_to(item, patience_s)
        finally:
            item.leave()

    async def _answer_to(self, item: _Item[T], patience_s: float) -> None:
        """Wait for the item; longer than the patience only while earlier batches are written."""
        began, remaining_s = time.monotonic(), patience_s
        while not await item.done(remaining_s):
            now, since = time.monotonic(), self._busy_since
            remaining_s = min(patience_s if since is None else since + patience_s - now, began + _QUEUE_S - now)
            if remaining_s <= 0.0 and not item.future.done():
                raise StorageError(f"{self.sink.place}: not saved within {now - began:.2g} s")

    async def close(self) -> None:
        """Close the sink after the waiting items; after a write that hangs as soon as that returns.

        Raises:
            OSError: Saved lines could not be synced to the disk.
        """
        with self._guard:
            self._closed = True
        last: _Item[T] = _Item([], 0)
        if not self._worker.submit(lambda: last.answer(self._shut())):
            self.sink.close()
            return
        self._worker.close(0.0)
        try:
            await last.done(WAIT_S)
        finally:
            last.leave()

    def _refuse_or_reserve(self, item: _Item[T], patience_s: float) -> None:
        if self._closed:
            raise StorageError(f"{self.sink.place}: closed")
        since = self._busy_since
        if since is not None and time.monotonic() - since > patience_s:
            raise StorageError(f"{self.sink.place}: a write has hung for more than {patience_s:g} s")
        item.is_reserved = MEMORY.results.reserve(item.size)
        if self._waiting_bytes and not item.is_reserved:  # a single item is saved whatever else waits in the process
            raise StorageError(f"{self.sink.place}: does not keep up, {self._waiting_bytes} bytes wait")
        self._waiting_bytes += item.size

    def _rest(self) -> None:
        if not self._closed:
            self._busy_since = time.monotonic()
            self.sink.rest()
            self._busy_since = None

    def _shut(self) -> Exception | None:
        try:
            self.sink.close()
        except Exception as error:
            return error
        return None

    def _save_waiting(self, *, may_wait: bool = True) -> None:
        """Save the waiting items, in batches."""
        while self._waiting:
            items: list[_Item[T]] = []
            size = 0
            while self._waiting and size < _BATCH_BYTES and len(items) < _BATCH_ITEMS:
                items.append(self._waiting.popleft())
                size += items[-1].size
            self._write(items, may_wait=may_wait)

    def _write(self, items: list[_Item[T]], *, may_wait: bool) -> None:
        wanted = [item for item in items if not item.future.cancelled()]
        self._busy_since = time.monotonic()
        outcomes = self.sink.write([value for item in wanted for value in item.values], may_wait=may_wait)
        self._busy_since = None
        with self._guard:
            self._waiting_bytes -= sum(item.size for item in items)
        MEMORY.results.release(sum(item.size for item in items if item.is_reserved))
        for item, outcome in zip(wanted, outcomes, strict=True):
            item.answer(outcome)


class _Item(Generic[T]):
    """A value, and the future of its save; without a value it stands for the end."""

    def __init__(self, values: list[T], size: int) -> None:
        self.values, self.size, self.is_reserved = values, size, False
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    async def done(self, timeout_s: float) -> bool:
        """Wait for it so long; False when it is not done. Raises its error."""
        await asyncio.wait({self.future}, timeout=timeout_s)
        if not self.future.done():
            return False
        self.future.result()
        return True

    def leave(self) -> None:
        """Nobody waits for it any more: it is skipped if it is not written yet."""
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()  # else the event loop would report an exception that was never retrieved

    def answer(self, error: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._resolve, error)

    def _resolve(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        elif isinstance(error, OSError):  # a copy for each save: raising adds to the traceback
            self.future.set_exception(OSError(error.errno, error.strerror, error.filename))
        else:
            self.future.set_exception(StorageError(str(error)))
