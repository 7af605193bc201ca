"""Stream: one signal on its way out: items, then encoded batches that wait for the receiver.

What waits is bounded by `MEMORY.encoded_batches`. Each item is encoded once; a retry sends the same bytes. Whatever is
lost is counted with its reason.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value

from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.telemetry.senders import Delivery, Sender
from agenteval_otel.telemetry.signals import Signal

_BATCH_ITEMS = 128
_BATCH_BYTES = 1024 * 1024
_BACKOFF_S = (1.0, 10.0)


class _Batch:
    """An encoded request; packed in memory while it waits for a receiver that is away."""

    def __init__(self, data: bytes, count: int, encoded_ns: int) -> None:
        self._data, self._packed, self.count, self.encoded_ns, self._reserved = data, False, count, encoded_ns, 0

    @property
    def data(self) -> bytes:
        """The request as it is sent."""
        return zlib.decompress(self._data) if self._packed else self._data

    def pack(self) -> None:
        """Make it small: OTLP repeats itself."""
        if not self._packed:
            self._data, self._packed = zlib.compress(self._data, 1), True

    def reserve(self) -> bool:
        """Reserve memory for it; False where there is no room."""
        if MEMORY.encoded_batches.reserve(len(self._data)):
            self._reserved = len(self._data)
            return True
        return False

    def release(self) -> None:
        """Give its memory back."""
        MEMORY.encoded_batches.release(self._reserved)
        self._reserved = 0


class Stream:
    """Everything but `put`, `drop_oldest` and `give_up` is called by one thread at a time.

    Args:
        signal: What is sent.
        sender: How it is sent.
        around: Wraps what calls the SDK, whose log lines become ours.
        on_lost: Called with the signal in lower case, the reason and the number of items.
        make_room: Drops the oldest of all streams; False where nothing is left to drop.
    """

    def __init__(
        self, signal: Signal, sender: Sender, around: Callable[..., Any], on_lost: Callable[[str, str, int], object],
        make_room: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.name, self.sender = signal.name.lower(), sender
        self._signal, self._on_lost, self._make_room = signal, on_lost, make_room
        self._encode: Callable[[Any], Any] = around(signal.encode)
        self._items: deque[tuple[Any, int]] = deque()
        self._batches: deque[_Batch] = deque()
        self._retry_at = self._backoff_s = 0.0
        self.not_before = 0.0
        """The receiver has asked not to be asked until then, in monotonic seconds."""

    def __len__(self) -> int:
        return len(self._items)

    def oldest_ns(self) -> int | None:
        """When the oldest waiting batch was encoded; None where none waits."""
        with contextlib.suppress(IndexError):
            return self._batches[0].encoded_ns
        return None

    def is_waiting(self) -> bool:
        """Whether the receiver is away, and it is too early for the next try."""
        return time.monotonic() < max(self._retry_at, self.not_before)

    def put(self, item: Any, size_bytes: int) -> None:
        """Take an item; where there is no room the oldest goes. Never blocks."""
        while not MEMORY.encoded_batches.reserve(size_bytes):
            if not self._make_room():
                self.lose("no_room", 1)
                return
        self._items.append((item, size_bytes))

    def keep_newest(self, item: Any) -> None:
        """Take an item in place of all that waits."""
        batches = self._encoded(item)
        with contextlib.suppress(IndexError):
            while True:
                self._batches.popleft().release()
        self._keep(batches)

    def encode_next(self) -> int:
        """Encode the oldest items, as many as go together; gives their number, at least 1."""
        items: list[Any] = []
        size = 0
        with contextlib.suppress(IndexError):  # another thread drops the oldest
            while len(items) < _BATCH_ITEMS and (not items or size + self._items[0][1] <= _BATCH_BYTES):
                item, size_bytes = self._items.popleft()
                items.append(item)
                size += size_bytes
        batches = self._encoded(items) if items else []
        MEMORY.encoded_batches.release(size)
        self._keep(batches)
        return max(1, len(items))

    def send_next(self) -> bool:
        """Send the oldest batch; False when it has to wait."""
        try:
            batch = self._batches.popleft()
        except IndexError:
            return True
        delivery = self._send(batch.data)
        batch.release()
        if delivery.retryable:
            self._back_off(delivery)
            batch.pack()
            self._put_back(batch)
            return False
        self._backoff_s = self._retry_at = 0.0
        if delivery.too_large and batch.count > 1:
            first = batch.count // 2
            halves = self._signal.halves(batch.data, batch.count)
            self._put_back(_Batch(halves[1], batch.count - first, batch.encoded_ns))
            self._put_back(_Batch(halves[0], first, batch.encoded_ns))
        elif delivery.rejected or not delivery.delivered:
            lost = min(delivery.rejected, batch.count) if delivery.delivered else batch.count
            log.warning("export_failed", part=self.name, status=delivery.status, lost=lost)
            self.lose("too_large" if delivery.too_large else "rejected", lost)
        return True

    def drop_oldest(self) -> bool:
        """Drop the oldest batch, else the oldest item; False where nothing waits."""
        with contextlib.suppress(IndexError):
            batch = self._batches.popleft()
            batch.release()
            self.lose("no_room", batch.count)
            return True
        with contextlib.suppress(IndexError):
            MEMORY.encoded_batches.release(self._items.popleft()[1])
            self.lose("no_room", 1)
            return True
        return False

    def give_up(self) -> None:
        """Count everything that waits as lost."""
        lost = 0
        with contextlib.suppress(IndexError):
            while True:
                MEMORY.encoded_batches.release(self._items.popleft()[1])
                lost += 1
        with contextlib.suppress(IndexError):
            while True:
                batch = self._batches.popleft()
                batch.release()
                lost += batch.count
        if lost:
            self.lose("shutdown", lost)

    def lose(self, reason: str, count: int) -> None:
        """Count items that will never be sent."""
        self._on_lost(self.name, reason, count)

    def _encoded(self, items: Any) -> list[_Batch]:
        """The items as requests; an item that cannot be encoded costs itself."""
        try:
            request = self._encode(items)
            return [_Batch(request.SerializeToString(), self._signal.count(request), time.monotonic_ns())]
        except Exception as error:
            if isinstance(items, list) and len(items) > 1:
                middle = len(items) // 2
                return self._encoded(items[:middle]) + self._encoded(items[middle:])
            log.warning("export_failed", part=self.name, status=type(error).__name__, lost=1)
            self.lose("unencodable", 1)
            return []

    def _keep(self, batches: list[_Batch]) -> None:
        away = self.is_waiting()
        for batch in batches:
            if away:
                batch.pack()
            while not batch.reserve():
                if not self._make_room():
                    self.lose("no_room", batch.count)
                    break
            else:
                self._batches.append(batch)

    def _put_back(self, batch: _Batch) -> None:
        if batch.reserve():
            self._batches.appendleft(batch)
        else:  # the room is taken meanwhile, and this batch is the oldest
            self.lose("no_room", batch.count)

    def _back_off(self, delivery: Delivery) -> None:
        now = time.monotonic()
        least, most = _BACKOFF_S
        self._backoff_s = min(most, max(least, 2 * self._backoff_s))
        self._retry_at = now + self._backoff_s * (0.8 + os.urandom(1)[0] / 640)
        if delivery.wait_s is not None:
            # Never at once: with "after 0 s" a flush would retry without end.
            self.not_before = now + max(least, delivery.wait_s)
        log.warning("export_failed", part=self.name, status=delivery.status, waiting_batches=len(self._batches) + 1)

    def _send(self, data: bytes) -> Delivery:
        token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))  # exports are not traced
        try:
            return self.sender.send(data)
        except BaseException as error:  # also SystemExit: it would end the thread, and with it every export
            return Delivery(False, type(error).__name__)
        finally:
            detach(token)
