"""Handover: whether the application's provider can take what is ours.

The SDK does not tell: after its shutdown it drops what comes with a warning for each, and its flush says True. So its
processors are looked at, through private parts; what looks different is taken to be well.
"""

from __future__ import annotations

from typing import Any

__all__ = ["can_take", "is_shut_down"]


def is_shut_down(provider: Any) -> bool:
    """Whether the provider takes nothing any more."""
    try:
        processors = _processors(provider)
        if processors is None:
            return getattr(provider, "_shutdown", False) is True  # a meter provider
        return bool(processors) and all(map(_is_shut_down, processors))
    except Exception:
        return False


def can_take(provider: Any) -> bool:
    """Whether every processor of the provider has room and runs; False where there is none."""
    try:
        processors = _processors(provider)
        if processors is None:
            return not is_shut_down(provider)
        return bool(processors) and not any(_is_shut_down(one) or _is_full(one) for one in processors)
    except Exception:
        return True


def _processors(provider: Any) -> list[Any] | None:
    """A tracer or logger provider's processors; None for what is neither."""
    for outer, inner in (
        ("_active_span_processor", "_span_processors"),
        ("_multi_log_record_processor", "_log_record_processors"),
    ):
        several = getattr(getattr(provider, outer, None), inner, None)
        if isinstance(several, tuple | list):
            return list(several)
    return None


def _is_shut_down(processor: Any) -> bool:
    return getattr(getattr(processor, "_batch_processor", processor), "_shutdown", False) is True


def _is_full(processor: Any) -> bool:
    batches = getattr(processor, "_batch_processor", None)
    return batches is not None and len(batches._queue) >= batches._max_queue_size
