"""Courtesy: the host's spans come first where ours share its span processor.

The SDK's batch processor drops the oldest span of a full queue, whoever it belongs to. Ours only go in while that queue
holds little: else they wait for a moment, and are left out when it stays full. What the processor holds is looked at
through its private parts; where they look different it is taken to have room.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

__all__ = ["Courtesy", "is_crowded"]

_WAIT_S = 0.5
_LOOK_EVERY_S = 0.02


class Courtesy:
    """Waits for room in the host's span processor; on the pool's event loop only."""

    def __init__(self) -> None:
        self._since: float | None = None

    def __repr__(self) -> str:
        return f"<Courtesy {'waiting' if self._since is not None else 'free'}>"

    async def room(self, provider: Any, *, patient: bool = True) -> bool:
        """Whether a span of ours may go to this provider now.

        All that wait together wait half a second from when it was first found crowded: the pool's queue is bounded too.
        Without patience nothing waits.
        """
        if not is_crowded(provider):
            self._since = None
            return True
        if self._since is None:
            self._since = time.monotonic()
        deadline = self._since + _WAIT_S
        while patient and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_EVERY_S)
            if not is_crowded(provider):
                self._since = None
                return True
        return False


def is_crowded(provider: Any) -> bool:
    """Whether a batch processor of the provider is well filled: a quarter of its queue, or more than goes at once."""
    try:
        return any(map(_is_filled, provider._active_span_processor._span_processors))
    except Exception:
        return False


def _is_filled(processor: Any) -> bool:
    batches = getattr(processor, "_batch_processor", None)
    if batches is None:
        return False
    capacity = batches._max_queue_size
    # Its thread wakes up for a whole batch: fewer wait for its schedule, which says nothing.
    enough = min(max(capacity // 4, batches._max_export_batch_size), capacity // 2)
    return bool(len(batches._queue) >= max(1, enough))
