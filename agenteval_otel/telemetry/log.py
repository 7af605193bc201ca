"""Our own few log lines: structlog over the standard library's logger ``agenteval_otel``.

The host's structlog configuration is neither used nor changed. The same event is written at most once a minute, with
the number of times it was left out: a guest that repeats itself is a nuisance, and a log handler that exports could
otherwise feed itself. structlog is imported with the first line that is written: most processes write none.
"""

from __future__ import annotations

import logging
import time
from functools import cached_property
from typing import Any

__all__ = ["log"]

_EVERY_S = 60.0
_MAX_EVENTS = 256


class _Log:
    """Writes ``event='...' part='...'`` lines as warnings; at most one a minute of each event and part."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}

    def warning(self, event: str, **facts: Any) -> None:
        """Write a warning, or count that it was left out."""
        key = f"{event}:{facts.get('part', '')}"[:200]
        now = time.monotonic()
        last, left_out = self._last.get(key, (-_EVERY_S, 0))
        if now - last < _EVERY_S:
            self._last[key] = (last, left_out + 1)
            return
        if len(self._last) >= _MAX_EVENTS:
            self._last.clear()
        self._last[key] = (now, 0)
        self._structured.warning(event, **facts, **({"left_out": left_out} if left_out else {}))

    @cached_property
    def _structured(self) -> Any:
        import structlog

        return structlog.wrap_logger(
            logging.getLogger("agenteval_otel"),
            processors=(structlog.processors.KeyValueRenderer(key_order=["event"]),),
            wrapper_class=structlog.stdlib.BoundLogger,
            context_class=dict,
            cache_logger_on_first_use=False,
        )


log = _Log()
"""The one logger: what it left out is known across the rooms."""
