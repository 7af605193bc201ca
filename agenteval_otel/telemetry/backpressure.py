"""Backpressure: what the host's span and log processors still take before they drop spans of the host.

The SDK's batch processors evict the oldest item of a full queue, the host's or ours. Emission therefore waits while
a queue is more than a quarter full. The queues are private parts of the SDK, and of subclasses such as Langfuse's:
where they cannot be seen, at most 512 items go out per schedule delay. Other processors have no queue to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

_UNSEEN_ITEMS: Final = 512
_UNSEEN_DELAY_S: Final = 5.0
_STUCK_S: Final = 5.0
_NUDGE_S: Final = 0.1


def processors_of(provider: Any) -> tuple[Any, ...] | None:
    """The processors of an SDK provider of spans or logs; None where they cannot be seen."""
    processors = _seen(provider)
    return _seen(getattr(provider, "provider", None)) if processors is None else processors  # Logfire's is outside


def _seen(provider: Any) -> tuple[Any, ...] | None:
    processors = getattr(getattr(provider, "_active_span_processor", None), "_span_processors", None)
    if type(processors) is not tuple:
        processors = getattr(getattr(provider, "_multi_log_record_processor", None), "_log_record_processors", None)
    return processors if type(processors) is tuple else None


def is_batch_processor(processor: Any) -> bool:
    """Whether it is the SDK's own batch processor, or that of our private providers: neither acts on a span's start."""
    kind = type(processor)
    is_sdk = kind.__module__.startswith("opentelemetry.sdk.")
    return _is_ours(kind) or (is_sdk and kind.__name__ in ("BatchSpanProcessor", "BatchLogRecordProcessor"))


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("agenteval_otel.")


class Backpressure:
    """Says whether the processors behind some providers have room. Background thread only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._processors: list[tuple[Any, ...] | None] = []
        self._queues: list[tuple[Any, int, int]] = []
        self._unseen = False
        self._sent, self._since = 0, clock()
        self._full_since: float | None = None
        self._asked_at, self._least_over = 0.0, 0

    def __repr__(self) -> str:
        return f"<Backpressure queues={len(self._queues)} full={self._full_since is not None}>"

    def has_room(self, providers: Sequence[Any]) -> bool:
        """Whether the next answer may be emitted now."""
        processors = [processors_of(provider) for provider in providers]
        if processors != self._processors:
            self._look_at(processors)
        over = max((len(queue) - limit for queue, limit, _ in self._queues), default=-1)
        within_rate = not self._unseen or self._within_rate()
        if over < 0 and within_rate:
            self._full_since = None
            return True
        now = self._clock()
        if self._full_since is None or over < self._least_over:
            self._full_since = self._asked_at = now
            self._least_over = over
        # The SDK's thread can miss the wake-up of a full batch; the next item wakes it again.
        is_quiet = within_rate and now - self._asked_at >= _NUDGE_S
        if is_quiet and all(len(queue) < half for queue, _, half in self._queues):
            self._asked_at = now
            return True
        return False

    def is_stuck(self) -> bool:
        """Whether the processors have been full for five seconds without getting rid of anything."""
        return self._full_since is not None and self._clock() - self._full_since > _STUCK_S

    def sent(self, items: int) -> None:
        """Count what was emitted, for processors whose queues cannot be seen."""
        self._sent += items

    def _look_at(self, processors: list[tuple[Any, ...] | None]) -> None:
        self._processors, self._queues, self._unseen = processors, [], None in processors
        for processor in chain.from_iterable(filter(None, processors)):
            batches = getattr(processor, "_batch_processor", None)
            queue, capacity = getattr(batches, "_queue", None), getattr(batches, "_max_queue_size", None)
            batch = getattr(batches, "_max_export_batch_size", None)
            if hasattr(queue, "__len__") and type(capacity) is int and type(batch) is int:
                # The SDK's thread wakes up for a whole batch: a limit below that would wait for its schedule.
                self._queues.append((queue, max(1, min(max(capacity // 4, batch), capacity // 2)), capacity // 2))
            elif is_batch_processor(processor) and not _is_ours(type(processor)):
                self._unseen = True

    def _within_rate(self) -> bool:
        now = self._clock()
        if now - self._since >= _UNSEEN_DELAY_S:
            self._sent, self._since = 0, now
        return self._sent < _UNSEEN_ITEMS


def is_shut_down(provider: Any) -> bool:
    """Whether the provider is shut down. Cheap: called for every answer."""
    try:
        processors = processors_of(provider)
        if not processors:
            return getattr(provider, "_shutdown", False) is True  # a meter provider
        for processor in processors:  # noqa: SIM110 - a third less than `all`, on the caller's thread
            if not _is_shut_down(processor):
                return False
        return True
    except Exception:
        return False


def can_take(provider: Any) -> bool:
    """Whether every processor of the provider has room and runs; False where there is none."""
    try:
        processors = processors_of(provider)
        if processors:
            return not any(_is_shut_down(processor) or _is_full(processor) for processor in processors)
        has_none = hasattr(provider, "add_span_processor") or hasattr(provider, "add_log_record_processor")
        return not has_none and not is_shut_down(provider)  # a meter provider
    except Exception:
        return True


def _is_shut_down(processor: Any) -> bool:
    return getattr(getattr(processor, "_batch_processor", processor), "_shutdown", False) is True


def _is_full(processor: Any) -> bool:
    batches = getattr(processor, "_batch_processor", None)
    return batches is not None and len(batches._queue) >= batches._max_queue_size
