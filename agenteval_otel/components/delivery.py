"""Delivery to a receiver that may be away: a bounded queue, and a thread that sends batches, again
where that may help.

`ResultBatcher` has each save wait for its write, which is right for a disk. A receiver on the
network may be away for minutes, or not know a trace yet: no evaluation may wait for that, so what
is lost is reported later.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeGuard

from agenteval_otel.components.http_client.client import wait_before
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
_FIRST_RETRY_S = 0.5
_LATE_S = 1.0
_LATEST_S = 8.0
_HURRIED_S = 0.25
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
        """Send the values, and return None or the error of each. Values whose error is `retryable`
        come again.
        """
        ...

    async def close(self) -> None: ...


class _Item:
    __slots__ = ("added", "due", "is_over", "retries", "size", "tried", "value")

    def __init__(self, value: object, size: int) -> None:
        self.value = value
        self.size = size
        self.retries = 0
        self.is_over = False
        self.added = self.due = self.tried = time.monotonic()


class BatchDelivery:
    """Sends what is added, in batches, on a thread of its own.

    Args:
        place: Where it goes, in messages; no secrets.
        open_sender: A new sender; called on the thread.
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
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        # In a forked child: what waits is the parent's, which sends it.
        self._changed = threading.Condition()
        self._waiting: deque[_Item] = deque()
        self._late: list[_Item] = []
        self._sending: list[_Item] = []
        self._bytes = 0
        self._running = False
        self._not_before = 0.0
        self._failures = 0
        self._hurried = 0

    def _error(self, problem: str, error_type: str) -> DeliveryError:
        return DeliveryError(f"{self._place}: {problem}", error_type=error_type)

    def __repr__(self) -> str:
        return f"<Delivery {self._place} waiting={self._bytes} bytes>"

    def add(self, value: object, size: int) -> None:
        """Have a value sent. Raises `DeliveryError` if there is no room or not enough time."""
        item = _Item(value, size)
        with self._changed:
            if self._closed:
                raise self._error("is closed", "closed")
            if (wait_s := self._not_before - item.added) > self._give_up_s:
                raise self._error(f"asks to wait for {wait_s:.0f} s", "rate_limited")
            if self._bytes + size > _MAX_BYTES or not MEMORY.results.reserve(size):
                raise self._error(f"does not keep up, {self._bytes} bytes wait", "full")
            self._bytes += size
            self._waiting.append(item)
            if not self._running:
                self._running = self._worker.submit(self._run)
            has_thread = self._running
            if not has_thread:  # as at the interpreter's exit
                self._waiting.pop()
                self._release(item)
            elif len(self._waiting) in (1, _BATCH_ITEMS):
                self._changed.notify_all()
        if not has_thread:
            raise self._error("no thread can be started", "no_thread")

    def flush(self, timeout_s: float) -> bool:
        """Wait until what waits is sent or given up. Return whether it is within the time. Nothing
        lingers meanwhile. Blocks.
        """
        with self._changed, self._in_a_hurry():
            left = [*self._sending, *self._late, *self._waiting]
            return self._changed.wait_for(lambda: all(item.is_over for item in left), timeout_s)

    async def close(self, timeout_s: float) -> None:
        """Take nothing more, send what waits within the time, and give up the rest. The thread
        ends.
        """
        self._closed = True
        deadline = time.monotonic() + timeout_s
        with self._in_a_hurry():
            # Not a wait on another thread: at the interpreter's exit there is no executor.
            while self._bytes and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_AGAIN_S)
        self._give_up_all("not sent before the end")
        self._worker.close(0.0)

    @contextlib.contextmanager
    def _in_a_hurry(self) -> Iterator[None]:
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._hurried -= 1

    def _release(self, *items: _Item) -> None:
        size = 0
        for item in items:
            item.is_over = True
            size += item.size
        self._bytes -= size
        MEMORY.results.release(size)
        self._changed.notify_all()

    # --- the thread
    # --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        changed = self._changed  # a child that a job has forked has another one
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                sender = self._open_sender()
                while changed is self._changed and (items := self._next()):
                    outcomes = runner.run(self._outcomes(sender, items))
                    self._settle(items, outcomes)
                with contextlib.suppress(Exception):
                    runner.run(sender.close())
        except BaseException as error:  # as without a free descriptor: the next value tries again
            self._give_up_all(type(error).__name__)
            raise

    async def _outcomes(
        self, sender: BatchSender, items: list[_Item]
    ) -> Sequence[Exception | None]:
        try:
            return await sender.send([item.value for item in items])
        except Exception as error:
            return [error] * len(items)

    def _next(self) -> list[_Item]:
        """Return the next batch, as soon as it is due. It is empty if the delivery is closed or has
        been idle.
        """
        with self._changed:
            idle_until = time.monotonic() + _IDLE_S
            while self._running:
                now = time.monotonic()
                due_at = self._due_at(now)
                if due_at is not None and due_at <= now:
                    return self._taken(now)
                if due_at is None and now >= idle_until:
                    break
                self._changed.wait((idle_until if due_at is None else due_at) - now)
            self._running = False
            return []

    def _due_at(self, now: float) -> float | None:
        """Return when the next batch may be sent, or None if nothing waits."""
        times = [self._late_at(item) for item in self._late]
        if self._waiting:
            is_full = len(self._waiting) >= _BATCH_ITEMS or self._hurried
            times.append(now if is_full else self._waiting[0].due + self._linger_s)
        return max(min(times), self._not_before) if times else None

    def _late_at(self, item: _Item) -> float:
        return min(item.due, item.tried + _HURRIED_S) if self._hurried else item.due

    def _taken(self, now: float) -> list[_Item]:
        late = [item for item in self._late if self._late_at(item) <= now]
        if late:
            self._late = [item for item in self._late if self._late_at(item) > now]
            self._waiting.extendleft(reversed(late))
        items = list[_Item]()
        size = 0
        while self._waiting and len(items) < _BATCH_ITEMS and size < _BATCH_BYTES:
            items.append(self._waiting.popleft())
            size += items[-1].size
        self._sending = items
        return items

    def _settle(self, items: list[_Item], outcomes: Sequence[Exception | None]) -> None:
        """Release what is delivered, queue what is worth a retry and young enough, and give up the
        rest.
        """
        lost: list[tuple[_Item, Exception]] = []
        with self._changed:
            if self._sending is not items:
                return  # closed meanwhile, and given up; or in a forked child
            now = time.monotonic()
            self._sending = []
            again: list[_Item] = []
            delays = [error for error in outcomes if _holds_up(error)]
            self._failures = self._failures + 1 if delays else 0
            if delays:
                retry_after_s = max(error.retry_after_s or 0.0 for error in delays) or None
                self._not_before = now + wait_before(
                    min(self._failures - 1, 8), _FIRST_RETRY_S, retry_after_s
                )
            for item, error in zip(items, outcomes, strict=True):
                wait_s = self._not_before - now if _holds_up(error) else _late_wait_s(item, error)
                if error is None:
                    self._release(item)
                elif wait_s is None or now + wait_s > item.added + self._give_up_s:
                    lost.append((item, error))
                elif _holds_up(error):
                    again.append(item)
                else:
                    item.due, item.tried, item.retries = now + wait_s, now, item.retries + 1
                    self._late.append(item)
            self._waiting.extendleft(reversed(again))
            if delays:
                lost += [(item, delays[0]) for item in self._too_old()]
        self._give_up(lost)

    def _too_old(self) -> list[_Item]:
        """Take out what will be too old when the receiver may be asked again."""
        oldest = self._not_before - self._give_up_s
        old = [item for item in (*self._waiting, *self._late) if item.added < oldest]
        if old:
            self._waiting = deque(item for item in self._waiting if item.added >= oldest)
            self._late = [item for item in self._late if item.added >= oldest]
        return old

    def _give_up_all(self, why: str) -> None:
        with self._changed:
            left = [*self._sending, *self._late, *self._waiting]
            self._sending = []
            self._late = []
            self._running = False
            self._waiting.clear()
        self._give_up([(item, self._error(why, "not_sent")) for item in left])

    def _give_up(self, lost: list[tuple[_Item, Exception]]) -> None:
        """Report losses without the lock, then release them: they are counted before `flush`
        returns.
        """
        for _, error in lost:
            self._lose(error)
        with self._changed:
            self._release(*(item for item, _ in lost))


def _holds_up(error: Exception | None) -> TypeGuard[DeliveryError]:
    return (
        isinstance(error, DeliveryError) and error.retryable and error.error_type != NOT_THERE_YET
    )


def _late_wait_s(item: _Item, error: Exception | None) -> float | None:
    is_late = isinstance(error, DeliveryError) and error.error_type == NOT_THERE_YET
    return min(_LATEST_S, _LATE_S * 2.0**item.retries) if is_late else None
