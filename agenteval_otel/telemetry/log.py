"""Our own few log lines: structlog over the standard library's logger ``agenteval_otel``.

The host's structlog configuration is neither used nor changed. The same event is written at most once a minute, with
the number of times it was left out: a guest that repeats itself is a nuisance, and a log handler that exports could
otherwise feed itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import MutableMapping
from typing import Any

import structlog

__all__ = ["get_logger"]

_EVERY_S = 60.0


class _OncePerMinute:
    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}

    def __call__(self, logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        key = f"{event.get('event')}:{event.get('part', '')}"[:200]
        now = time.monotonic()
        last, left_out = self._last.get(key, (-_EVERY_S, 0))
        if now - last < _EVERY_S:
            self._last[key] = (last, left_out + 1)
            raise structlog.DropEvent
        if len(self._last) > 256:
            self._last.clear()
        self._last[key] = (now, 0)
        return {**event, "left_out": left_out} if left_out else event


_processors = (_OncePerMinute(), structlog.processors.KeyValueRenderer(key_order=["event"]))


def get_logger() -> Any:
    """A bound logger that renders ``event='...' key=value`` lines through the standard library."""
    return structlog.wrap_logger(
        logging.getLogger("agenteval_otel"),
        processors=_processors,
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=False,
    )
