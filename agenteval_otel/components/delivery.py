"""Delivery to a receiver that may be away.

A thread sends what is added, in batches, and again where that may help.

`ResultBatcher` has each save wait for its write, which is right for a disk. A receiver on the
network may be away for minutes, or not know a trace yet: no evaluation may wait for that, so what
is lost is reported later.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeGuard

from agenteval_otel.components.retry import Entry, RetryQueue
from agenteval_otel.errors import StorageError
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.runtime.worker import Worker, new_loop

NOT_THERE_YET = "not_there_yet"
"""The error type of what the receiver may take later, such as a score of a trace that it has not
got: that value waits, the others go on. Every other error that is worth a retry holds up
everything.
"""

_BATCH_BYTES = 512 * 1024
_BATCH_ITEMS = 100
# of one receiver, so that one that is away leaves room for other providers
_MAX_BYTES = 8 * 1024 * 1024
_IDLE_S = 10.0  # after which the connections are closed and the thread ends
_LATE_S = 1.0  # the first wait of a value that the receiver cannot take yet
_LATEST_S = 8.0  # its longest wait
_HURRIED_S = 0.25  # its longest wait during a flush
_LOOK_AGAIN_S = 0.02


class DeliveryError(StorageError):
    """Why a value was not sent, in our own words: neither content nor secrets.

    Args:
        message: What happened.
        error_type: Which way it failed, in a word of a closed list.
        status: The receiver's, where it answered.
        retryable: Whether sending again may help.
        retry_after_s: How long the receiver asks to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        error_type: str,
        status: int | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        self.error_type = error_type
        self.status = status
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        super().__init__(message)


class BatchSender(Protocol):
    """Sends batches, all on one thread and event loop."""

    async def send(self, values: Sequence[Any]) -> Sequence[DeliveryError | None]:
        """Send the values, and return None or the error of each.

        Values whose error is `retryable` come again.
        """
        ...

    async def close(self) -> None: ...


class BatchDelivery:
    """Sends what is added, in batches, on a thread of its own.

    Args:
        place: Where it goes, in messages. It has no secrets.
        open_sender: Makes a new sender. Called on the thread.
        lose: Called for each value that is given up, with the reason.
        give_up_s: Age at which an attempt that failed is the last.
        linger_s: A batch waits so long for further values, but not during a flush.
    """

    def __init__(
        self,
        place: str,
        open_sender: Callable[[], BatchSender],
        lose: Callable[[Exception], None],
        *,
        give_up_s: float,
        linger_s: float,
    ) -> None:
        self._place = place
        self._open_sender = open_sender
        self._lose = lose
        self._give_up_s = give_up_s
        self._linger_s = linger_s
        self._closed = False
        self._worker = Worker("agenteval-scores", max_waiting=1)
        self._queue: RetryQueue[Any] = RetryQueue(
            MEMORY.results, max_bytes=_MAX_BYTES, max_age_s=give_up_s
        )
        self._running = False
        self._hurried = 0
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._queue.reset()
        self._running = False
        self._hurried = 0

    def _error(self, problem: str, error_type: str) -> DeliveryError:
        return DeliveryError(f"{self._place}: {problem}", error_type=error_type)

    def __repr__(self) -> str:
        return f"<Delivery {self._place} waiting={self._queue.size_bytes} bytes>"

    def add(self, value: object, size: int) -> None:
        """Have a value sent. Raises `DeliveryError` if there is no room or not enough time."""
        queue = self._queue
        with queue.changed:
            if self._closed:
                raise self._error("is closed", "closed")
            wait_s = queue.retry_at_s() - time.monotonic()
            if wait_s > self._give_up_s:
                raise self._error(f"asks to wait for {wait_s:.0f} s", "rate_limited")
            if queue.add(value, size) is None:
                raise self._error(f"does not keep up, {queue.size_bytes} bytes wait", "full")
            if not self._running:
                self._running = self._worker.submit(self._run)
            if not self._running:
                # As at the interpreter's exit. Nothing else waits: a thread ends when all is sent.
                queue.release(queue.remove_all(also_sending=False))
                raise self._error("no thread can be started", "no_thread")
            if len(queue) in (1, _BATCH_ITEMS):
                queue.changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until what waits is sent or given up. Return whether it is within the time.

        Nothing lingers meanwhile. Blocks.
        """
        changed = self._queue.changed
        with changed, self._in_a_hurry():
            left = self._queue.entries()
            return changed.wait_for(lambda: all(entry.is_over for entry in left), timeout_s)

    async def close(self, timeout_s: float) -> None:
        """Take nothing more, send what waits within the time, and give up the rest.

        The thread ends.
        """
        self._closed = True
        deadline = time.monotonic() + timeout_s
        with self._in_a_hurry():
            # Not a wait on another thread: at the interpreter's exit there is no executor.
            while self._queue.size_bytes and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_AGAIN_S)
        self.end()

    def end(self) -> None:
        """Take nothing more, and give up what waits. Returns at once. The thread ends."""
        self._closed = True
        self._give_up_all("not sent before the end")
        self._worker.close(0.0)

    @contextlib.contextmanager
    def _in_a_hurry(self) -> Iterator[None]:
        changed = self._queue.changed
        with changed:
            self._hurried += 1
            changed.notify_all()
        try:
            yield
        finally:
            with changed:
                self._hurried -= 1

    # --- the thread

    def _run(self) -> None:
        changed = self._queue.changed  # a forked child has a new one, and stops here
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                sender = self._open_sender()
                while changed is self._queue.changed:
                    entries = self._next()
                    if not entries:
                        break
                    outcomes = runner.run(self._outcomes(sender, entries))
                    self._settle(entries, outcomes)
                with contextlib.suppress(Exception):
                    runner.run(sender.close())
        except BaseException as error:  # as without a free descriptor: the next value tries again
            self._give_up_all(type(error).__name__)
            raise

    async def _outcomes(
        self, sender: BatchSender, entries: list[Entry[Any]]
    ) -> Sequence[Exception | None]:
        try:
            return await sender.send([entry.value for entry in entries])
        except Exception as error:
            return [error] * len(entries)

    def _next(self) -> list[Entry[Any]]:
        """Return the next batch, as soon as it is due.

        It is empty if the delivery is closed or has been idle.
        """
        queue = self._queue
        with queue.changed:
            idle_until_s = time.monotonic() + _IDLE_S
            while self._running:
                now_s = time.monotonic()
                due_at_s = self._due_at_s()
                if due_at_s <= now_s:
                    return queue.take(_BATCH_ITEMS, _BATCH_BYTES, at_most_s=self._postponed_for_s())
                is_idle = due_at_s == math.inf
                if is_idle and now_s >= idle_until_s:
                    break
                queue.changed.wait((idle_until_s if is_idle else due_at_s) - now_s)
            self._running = False
            return []

    def _postponed_for_s(self) -> float:
        return _HURRIED_S if self._hurried else math.inf

    def _due_at_s(self) -> float:
        """Return when the next batch may be sent, which is never while nothing waits."""
        queue = self._queue
        due_at_s = queue.postponed_until_s(self._postponed_for_s())
        oldest = queue.oldest()
        if oldest is not None:
            is_ready = len(queue) >= _BATCH_ITEMS or self._hurried
            due_at_s = min(due_at_s, oldest.added_s + (0.0 if is_ready else self._linger_s))
        return max(due_at_s, queue.retry_at_s())

    def _settle(self, entries: list[Entry[Any]], outcomes: Sequence[Exception | None]) -> None:
        """Release what is delivered, queue what is to be sent again, and give up the rest.

        An entry is sent again if that may help and it is young enough.
        """
        queue = self._queue
        lost: list[tuple[Entry[Any], Exception]] = []
        with queue.changed:
            if not queue.take_back(entries):
                return  # given up by `close` meanwhile, or the entries are a parent process's
            delays = [error for error in outcomes if _holds_up(error)]
            if delays:
                asked_s = max(error.retry_after_s or 0.0 for error in delays)
                queue.back_off(asked_s or None)
            else:
                queue.reached()
            again: list[Entry[Any]] = []
            for entry, error in zip(entries, outcomes, strict=True):
                if error is None:
                    queue.release([entry])
                elif _holds_up(error):
                    again.append(entry)
                elif not self._try_to_postpone(entry, error):
                    lost.append((entry, error))
            queue.put_back(again)
            if delays:
                lost += [(entry, delays[0]) for entry in queue.remove_expired()]
        self._give_up(lost)

    def _try_to_postpone(self, entry: Entry[Any], error: Exception) -> bool:
        """Postpone a value that the receiver may take later.

        Return False if that is too late, or if the error is another one.
        """
        if not isinstance(error, DeliveryError) or error.error_type != NOT_THERE_YET:
            return False
        wait_s = min(_LATEST_S, _LATE_S * 2.0**entry.retries)
        if not self._queue.can_wait_until(entry, time.monotonic() + wait_s):
            return False
        self._queue.postpone(entry, wait_s)
        return True

    def _give_up_all(self, why: str) -> None:
        with self._queue.changed:
            left = self._queue.remove_all(also_sending=True)
            self._running = False
        self._give_up([(entry, self._error(why, "not_sent")) for entry in left])

    def _give_up(self, lost: list[tuple[Entry[Any], Exception]]) -> None:
        """Report losses without the lock, then release them.

        So they are counted before `flush` returns.
        """
        for _, error in lost:
            self._lose(error)
        self._queue.release([entry for entry, _ in lost])


def _holds_up(error: Exception | None) -> TypeGuard[DeliveryError]:
    return (
        isinstance(error, DeliveryError) and error.retryable and error.error_type != NOT_THERE_YET
    )
