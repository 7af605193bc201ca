"""Batches: what is to be saved goes to a thread of its own, so that a slow disk or server holds up no event loop.

What waits is saved together, within the memory of `MEMORY.results`. No batch is waited for longer than the sink's
patience; a sink that takes longer fails what waits, and at once what comes, until it is back, so nothing piles up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.runtime.worker import Worker

__all__ = ["WAIT_S", "Batches", "Sink"]

WAIT_S = 0.75
_BATCH_BYTES = 1024 * 1024
_BATCH_ITEMS = 100
_MAX_JOBS = 16
_QUEUE_S = 5.0
_IDLE_S = 0.5

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """Where batches go. One thread at a time calls it."""

    @property
    def place(self) -> str:
        """What it is called in messages; no secrets."""
        ...

    @property
    def patience_s(self) -> float:
        """How long a batch is waited for now."""
        ...

    def write(self, items: Sequence[T_contra], *, may_wait: bool) -> Sequence[Exception | None]:
        """Save them; for each None once it is saved, else why it is not. Raises nothing.

        Args:
            items: In their order.
            may_wait: Whether this is a thread that may be blocked.
        """
        ...

    def rest(self) -> None:
        """Nothing has come for a while. Raises nothing."""
        ...

    def close(self) -> None:
        """Release what is held; opened again by the next write."""
        ...


class Batches(Generic[T]):
    """Saves items of one process in batches. After a fork the child needs one of its own.

    Args:
        sink: Where they go.
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
        return f"<Batches {self.sink.place} waiting={self._waiting_bytes} bytes>"

    async def save(self, value: T, size: int) -> None:
        """Save an item of so many bytes, and wait until that is done; never blocks the event loop.

        Raises:
            StorageError: It was not saved in time or not whole, or more waits than may.
            OSError: The place cannot be opened or written.
        """
        item = _Item([value], size)
        patience_s = self.sink.patience_s
        with self._guard:
            self._refuse_or_reserve(item, patience_s)
            self._waiting.append(item)
            # A job that waits will save this item too.
            will_save = self._worker.waiting > 0 or self._worker.submit(self._save_waiting)
        try:
            if not will_save:  # no thread is to be had, as at the interpreter's exit: then it is saved here
                self._save_waiting(may_wait=False)
            await self._answer_to(item, patience_s)
        finally:
            item.leave()

    async def _answer_to(self, item: _Item[T], patience_s: float) -> None:
        """Wait for the item; longer than the patience only while it is its turn that does not come."""
        began, left = time.monotonic(), patience_s
        while not await item.done(left):
            now, since = time.monotonic(), self._busy_since
            left = min(patience_s if since is None else since + patience_s - now, began + _QUEUE_S - now)
            if left <= 0.0 and not item.future.done():
                raise StorageError(f"{self.sink.place}: not saved within {now - began:.2g} s")

    async def close(self) -> None:
        """Close the sink after what waits; a write that hangs closes it when it comes back.

        Raises:
            OSError: What was saved could not be brought to the disk.
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
        if self._waiting_bytes and not item.is_reserved:  # one at a time is saved whatever else waits in the process
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
        """Save what waits, in batches."""
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
    """A value, and the future of whoever waits for it; without a value it is the end."""

    def __init__(self, values: list[T], size: int) -> None:
        self.values, self.size, self.is_reserved = values, size, False
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    async def done(self, timeout_s: float) -> bool:
        """Wait for it so long; False when it is not done."""
        await asyncio.wait({self.future}, timeout=timeout_s)
        if not self.future.done():
            return False
        self.future.result()
        return True

    def leave(self) -> None:
        """Nobody waits for it any more: it is left out when its turn comes, and what became of it is told nobody."""
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()  # else the event loop would report that nobody asked

    def answer(self, error: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settle, error)

    def _settle(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            # One of its own for each that waits: who raises it adds to its traceback.
            self.future.set_exception(_again(error))


def _again(error: Exception) -> Exception:
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror, error.filename)
    return StorageError(str(error))
