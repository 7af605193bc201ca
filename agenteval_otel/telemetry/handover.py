"""Handover: whether the application's provider can take what is ours.

The SDK does not tell: after its shutdown it drops what comes with a warning for each, and its flush says True. So its
processors are looked at, through private parts; what looks different is taken to be well.
"""

from __future__ import annotations

from typing import Any

from agenteval_otel.telemetry.backpressure import processors_of

__all__ = ["can_take", "is_shut_down"]


def is_shut_down(provider: Any) -> bool:
    """Whether the provider takes nothing any more. Cheap: it is asked with every answer."""
    try:
        processors = processors_of(provider)
        if not processors:
            return getattr(provider, "_shutdown", False) is True  # a meter provider
        return all(map(_is_shut_down, processors))
    except Exception:
        return False


def can_take(provider: Any) -> bool:
    """Whether every processor of the provider has room and runs; False where there is none."""
    try:
        processors = processors_of(provider)
        if not processors:
            return _takes_metrics(provider) and not is_shut_down(provider)
        return not any(_is_shut_down(one) or _is_full(one) for one in processors)
    except Exception:
        return True


def _takes_metrics(provider: Any) -> bool:
    return not hasattr(provider, "add_span_processor") and not hasattr(provider, "add_log_record_processor")


def _is_shut_down(processor: Any) -> bool:
    return getattr(getattr(processor, "_batch_processor", processor), "_shutdown", False) is True


def _is_full(processor: Any) -> bool:
    batches = getattr(processor, "_batch_processor", None)
    return batches is not None and len(batches._queue) >= batches._max_queue_size
