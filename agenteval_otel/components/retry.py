"""Retries: how long to wait before one, how many there may be, and a queue of what is sent again.

The exporter, the scores that are sent to other products and the writer of results use the queue.
Each has its own thread and its own way of sending.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

from agenteval_otel.runtime.fork import RANDOM, ForkSafeLock
from agenteval_otel.runtime.memory import MemoryPart

T = TypeVar("T")
_LONGEST_S: Final = 8.0
_MAX_DOUBLINGS: Final = 8
_FREE: Final = 2.0  # retries that a `RetryBudget` always allows
_SAVED: Final = 10.0  # unused retries that it keeps for later


def wait_before(retry: int, base_s: float, retry_after_s: float | None = None) -> float:
    """Return the seconds to wait before the retry, the first being 0.

    They are doubled each time up to 8, less up to a half by chance.

    The wait is never less than `retry_after_s`. That is prolonged by up to 25 % of jitter, at most
    1 s.
    """
    drawn = RANDOM.random()
    wait = min(_LONGEST_S, base_s * 2.0**retry) * (1.0 - drawn / 2.0)
    if retry_after_s is None:
        return wait
    return max(wait, retry_after_s + drawn * min(1.0, retry_after_s / 4.0))


class RetryBudget:
    """Limits retries to ``max(2, share x calls)``. Of unused ones at most ten are saved."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._earned = 0.0
        self._used = 0.0
        self._lock = ForkSafeLock()

    def count_call(self) -> None:
        with self._lock:
            self._earned += self._share
            self._used = max(self._used, self._earned - _SAVED)

    def take(self) -> bool:
        """Tell whether there may be one more retry, which is then counted."""
        with self._lock:
            if self._used + 1.0 > max(_FREE, self._earned + 1e-9):
                return False
            self._used += 1.0
            return True


class Entry(Generic[T]):
    """Holds one value of a `RetryQueue`.

    Attributes:
        added_s: When the value came, by `time.monotonic`. A retry keeps it.
        is_over: It was released: delivered, or reported as lost.
    """

    __slots__ = (
        "added_s",
        "due_s",
        "is_over",
        "is_reserved",
        "retries",
        "size_bytes",
        "tried_s",
        "value",
    )

    def __init__(self, value: T, size_bytes: int, added_s: float) -> None:
        self.value = value
        self.size_bytes = size_bytes
        self.added_s = added_s
        self.due_s = added_s
        self.tried_s = added_s
        self.retries = 0
        self.is_reserved = False
        self.is_over = False


class RetryQueue(Generic[T]):
    """Holds what is to be sent to one receiver, oldest first, until it is delivered or lost.

    `take` hands entries out. `take_back` returns them from the sender. Then each is released, put
    back for the next try, or postponed until the receiver can know of it. The queue sends nothing
    and reports no loss: its owner does, before it releases the entry. Any thread.

    Args:
        memory: Counts what waits and bounds it.
        max_bytes: The queue's own bound, so that one receiver leaves room for others.
        max_age_s: Age after which `remove_expired` removes an entry.
        first_wait_s: The wait after the first failure. `wait_before` has the later ones.

    Attributes:
        changed: The lock of the queue. It is notified when entries are released.
        size_bytes: Of all entries that are not over.
        not_before_s: When the receiver may be asked again by its own word, by `time.monotonic`.
    """

    def __init__(
        self,
        memory: MemoryPart,
        *,
        max_bytes: float = math.inf,
        max_age_s: float = math.inf,
        first_wait_s: float = 0.5,
    ) -> None:
        self._memory = memory
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._first_wait_s = first_wait_s
        self.reset()

    def reset(self) -> None:
        """Forget everything, in a forked child: what waits is the parent's."""
        self.changed = threading.Condition()
        self._waiting: deque[Entry[T]] = deque()
        self._postponed: list[Entry[T]] = []
        self._sending: list[Entry[T]] = []
        self.size_bytes = 0
        self.not_before_s = 0.0
        self._retry_at_s = 0.0
        self._failures = 0

    def __len__(self) -> int:
        """Return how many entries wait. Those that are postponed or are being sent do not count."""
        return len(self._waiting)

    def entries(self) -> list[Entry[T]]:
        """Return all that is not over."""
        with self.changed:
            return [*self._sending, *self._postponed, *self._waiting]

    def oldest(self) -> Entry[T] | None:
        """Return the oldest that waits."""
        with self.changed:
            return self._waiting[0] if self._waiting else None

    def retry_at_s(self) -> float:
        """Return when the receiver may be asked again, by `time.monotonic`."""
        return max(self._retry_at_s, self.not_before_s)

    def add(
        self,
        value: T,
        size_bytes: int,
        *,
        always: bool = False,
        instead_of: Entry[T] | None = None,
    ) -> Entry[T] | None:
        """Add a value. Return None if there is no room for it, unless `always` is set.

        A value that comes `instead_of` a released entry has the age of that one, and is the next to
        be sent.
        """
        added_s = time.monotonic() if instead_of is None else instead_of.added_s
        entry = Entry(value, size_bytes, added_s)
        with self.changed:
            has_room = self.size_bytes + size_bytes <= self._max_bytes
            entry.is_reserved = has_room and self._memory.reserve(size_bytes)
            if not entry.is_reserved and not always:
                return None
            self.size_bytes += size_bytes
            if instead_of is None:
                self._waiting.append(entry)
            else:
                self._waiting.appendleft(entry)
        return entry

    def take(
        self, most: int, most_bytes: int = 0, *, at_most_s: float = math.inf
    ) -> list[Entry[T]]:
        """Return the next entries to send, at most `most`.

        At least one is returned if any waits, and none more once they have `most_bytes`.

        Postponed entries come first when they are due, or once they have waited for `at_most_s`.
        """
        with self.changed:
            now_s = time.monotonic()
            due = [entry for entry in self._postponed if _due_at_s(entry, at_most_s) <= now_s]
            for entry in reversed(due):
                self._postponed.remove(entry)
                self._waiting.appendleft(entry)
            taken: list[Entry[T]] = []
            size_bytes = 0
            while self._waiting and len(taken) < most and (not taken or size_bytes < most_bytes):
                entry = self._waiting.popleft()
                taken.append(entry)
                size_bytes += entry.size_bytes
            self._sending += taken
            return taken

    def take_back(self, entries: Iterable[Entry[T]]) -> list[Entry[T]]:
        """Return those of the entries that `take` handed out and that were not removed since."""
        with self.changed:
            sending = set(self._sending)
            back = [entry for entry in entries if entry in sending]
            sending.difference_update(back)
            self._sending = [entry for entry in self._sending if entry in sending]
            return back

    def put_back(self, entries: Iterable[Entry[T]]) -> None:
        """Make the entries the next to be sent."""
        with self.changed:
            self._waiting.extendleft(reversed(list(entries)))

    def postpone(self, entry: Entry[T], wait_s: float) -> None:
        """Keep one entry for a while. The others are sent meanwhile."""
        with self.changed:
            entry.tried_s = time.monotonic()
            entry.due_s = entry.tried_s + wait_s
            entry.retries += 1
            self._postponed.append(entry)

    def postponed_until_s(self, at_most_s: float = math.inf) -> float:
        """Return when the first postponed entry is due, by `time.monotonic`."""
        with self.changed:
            return min((_due_at_s(entry, at_most_s) for entry in self._postponed), default=math.inf)

    def back_off(self, retry_after_s: float | None = None) -> None:
        """Let the receiver have time after a failure that a retry may mend."""
        now_s = time.monotonic()
        doublings = min(self._failures, _MAX_DOUBLINGS)
        self._failures += 1
        self._retry_at_s = now_s + wait_before(doublings, self._first_wait_s)
        if retry_after_s is not None:
            self.not_before_s = now_s + wait_before(doublings, self._first_wait_s, retry_after_s)

    def reached(self) -> None:
        """Note that the receiver answered. The next failure is a first one again."""
        self._failures = 0
        self._retry_at_s = 0.0

    def can_wait_until(self, entry: Entry[T], then_s: float) -> bool:
        """Tell whether the entry is not too old for a try at that time."""
        return then_s <= entry.added_s + self._max_age_s

    def remove_expired(self) -> list[Entry[T]]:
        """Remove what will be too old when the receiver may be asked again."""
        with self.changed:
            then_s = max(time.monotonic(), self.retry_at_s())
            waiting = list(self._waiting)
            postponed = self._postponed
            self._waiting = deque(entry for entry in waiting if self.can_wait_until(entry, then_s))
            self._postponed = [entry for entry in postponed if self.can_wait_until(entry, then_s)]
            return [
                entry for entry in (*waiting, *postponed) if not self.can_wait_until(entry, then_s)
            ]

    def remove_oldest(self) -> list[Entry[T]]:
        """Remove the oldest that waits, if any does."""
        with self.changed:
            return [self._waiting.popleft()] if self._waiting else []

    def remove_all(self, *, also_sending: bool) -> list[Entry[T]]:
        """Remove everything, or everything but what is being sent."""
        with self.changed:
            removed = [*self._postponed, *self._waiting]
            self._postponed = []
            self._waiting.clear()
            if also_sending:
                removed = [*self._sending, *removed]
                self._sending = []
            return removed

    def release(self, entries: Iterable[Entry[T]]) -> None:
        """End entries that the queue no longer holds, and free their memory."""
        with self.changed:
            reserved_bytes = 0
            for entry in entries:
                entry.is_over = True
                self.size_bytes -= entry.size_bytes
                if entry.is_reserved:
                    reserved_bytes += entry.size_bytes
            self._memory.release(reserved_bytes)
            self.changed.notify_all()


def _due_at_s(entry: Entry[Any], at_most_s: float) -> float:
    return min(entry.due_s, entry.tried_s + at_most_s)
