"""Exporter: sends what our own providers emit, on one thread at low duty for all signals.

It stands in place of the SDK's batch processors and exporters: those drop a batch after ten seconds without a receiver,
discard the result, and take CPU time from the host's threads. Of metrics only the newest collection waits: it is
cumulative and replaces the older ones.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.telemetry.senders import Sender
from agenteval_otel.telemetry.signals import Signal
from agenteval_otel.telemetry.stream import Stream

_EAGER_ITEMS = 512
_DELAY_S = 1.0
_MAX_ROUNDS = 64
_REST_MAX_S = 0.1


class Exporter:
    """A bounded queue for each signal, and their background worker, which looks at them once a second.

    Args:
        on_lost: Called with the signal in lower case, one of `semconv.LOST_REASONS` and the number of items that will
            never be sent, on whatever thread.
    """

    def __init__(self, on_lost: Callable[[str, str, int], object]) -> None:
        self._on_lost = on_lost
        self._streams: dict[str, Stream] = {}
        self._collect: Callable[[], None] | None = None
        self._collect_every_s = self._collect_at = 0.0
        self._exporting = threading.Lock()
        self._worker = Worker(
            "agenteval-export", max_waiting=_MAX_ROUNDS, idle_s=_DELAY_S, on_idle=self._export_all, stays=True
        )
        self._closed = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<Exporter {' '.join(sorted(stream.name for stream in self._streams.values()))}>"

    def add(self, signal: Signal, sender: Sender, around: Callable[..., Any]) -> None:
        """Add a signal; `around` wraps what calls the SDK, whose log lines become ours."""
        self._streams[signal.name] = Stream(signal, sender, around, self._on_lost, self._drop_oldest)

    def collect_with(self, collect: Callable[[], None], every_s: float) -> None:
        """Have metrics collected every so often, and with each flush; `collect` calls `keep_newest`."""
        self._collect, self._collect_every_s, self._collect_at = collect, every_s, time.monotonic() + every_s
        self._worker.start()

    def put(self, name: str, item: Any, size_bytes: int) -> None:
        """Take an item of a signal; never blocks. In a forked child nothing is taken: it has providers of its own."""
        if self._pid != os.getpid():
            return
        stream = self._streams[name]
        if self._closed:
            stream.lose("shutdown", 1)
            return
        stream.put(item, size_bytes)
        if self._closed:  # a close came between
            stream.give_up()
        elif not self._worker.has_thread:
            self._worker.start()  # at the interpreter's exit none starts: a flush exports what waits
        elif len(stream) >= _EAGER_ITEMS and not self._worker.waiting:
            self._worker.submit(self._export_all)

    def keep_newest(self, metrics: Any) -> None:
        """Take a collection of metrics in place of the one that waits."""
        self._streams["METRICS"].keep_newest(metrics)

    def flush(self) -> bool:
        """Send on this thread what waits now, without rests; False where something of it still waits.

        What comes meanwhile is for the next flush: it may come faster than it goes.
        """
        if self._pid != os.getpid():
            return True
        self._collect_now()
        return all([self._flush(stream) for stream in list(self._streams.values())])

    def close(self) -> None:
        """Take nothing more, send what waits, and end the thread.

        After the first batch of a signal that is refused the rest of the signal is lost: the receiver is down.
        """
        if self._pid != os.getpid() or self._closed:
            return
        self._closed = True
        self._worker.close(0.0)
        self.flush()
        for stream in self._streams.values():
            stream.give_up()
            stream.sender.close()

    def _flush(self, stream: Stream) -> bool:
        items = len(stream)
        while items > 0:
            with self._exporting:
                items -= stream.encode_next()
        end_ns = time.monotonic_ns()
        while True:
            with self._exporting:  # what the thread was sending is sent now, or waits again
                oldest_ns = stream.oldest_ns()
                if oldest_ns is None or oldest_ns > end_ns:
                    return True
                if time.monotonic() < stream.not_before or not stream.send_next():
                    return False

    def _collect_now(self) -> None:
        if self._collect is None:
            return
        self._collect_at = time.monotonic() + self._collect_every_s
        try:
            with self._exporting:
                self._collect()
        except Exception as error:
            log.warning("export_failed", part="metrics", status=type(error).__name__)

    def _export_all(self) -> None:
        if not self._closed and time.monotonic() >= self._collect_at:
            self._collect_now()
        for stream in list(self._streams.values()):
            self._export(stream)

    def _export(self, stream: Stream) -> None:
        """Encode what waits now, with rests, and send it as far as the receiver takes it."""
        items = len(stream)  # later items are for the next round: they would make small batches
        while not self._closed:
            began = time.thread_time()
            with self._exporting:
                if items > 0:
                    items -= stream.encode_next()
                going = stream.oldest_ns() is not None and not stream.is_waiting() and stream.send_next()
            if items <= 0 and not going:
                return
            time.sleep(min(_REST_MAX_S, time.thread_time() - began))

    def _drop_oldest(self) -> bool:
        """Make room; metrics stay, the newest replaces them anyway."""
        streams = [stream for name, stream in list(self._streams.items()) if name != "METRICS"]
        streams.sort(key=lambda stream: stream.oldest_ns() or time.monotonic_ns())
        return any(stream.drop_oldest() for stream in streams)
