"""The package's log lines: structlog over the standard library's logger ``agenteval_otel``."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Any

from agenteval_otel.runtime.fork import reset_in_child

_EVERY_S = 60.0
_MAX_CAUSES = 256
_OTHERS = "other causes"
_NAME = "agenteval_otel"


class _Cause:
    """One event of one part, written at most once a minute; concurrent or nested warnings are left
    out.
    """

    def __init__(self) -> None:
        self.due, self.left_out = 0.0, 0
        self._writing = threading.Lock()

    def turn(self, now: float) -> int | None:
        """How many lines were left out, for the caller that writes the next one; None for all
        others.
        """
        if now >= self.due and self._writing.acquire(blocking=False):
            is_due, left_out = now >= self.due, self.left_out
            if is_due:
                self.due, self.left_out = now + _EVERY_S, 0
            self._writing.release()
            if is_due:
                return left_out
        self.left_out += 1
        return None


def _named(logger: Any, method: str, line: Any) -> str:
    """The line, with our name where no handler is set up: the standard library then writes the line
    alone.
    """
    return line if logging.getLogger(_NAME).hasHandlers() else f"agenteval-otel: {line}"


class _Plain:
    @staticmethod
    def warning(event: str, **facts: Any) -> None:
        line = " ".join(f"{name}={value!r}" for name, value in {"event": event, **facts}.items())
        logging.getLogger(_NAME).warning(_named(None, "", line))


class _Log:
    def __init__(self) -> None:
        self._last: dict[str, _Cause] = {}
        self._logger: Any = None

    def warning(self, event: str, **facts: Any) -> None:
        """Write ``event='...' part='...'``, or count that it was left out; never raises."""
        try:
            now = time.monotonic()
            left_out = self._cause(f"{event}:{facts.get('part', '')}"[:200], now).turn(now)
            if left_out is not None:
                self.load().warning(event, **facts, **({"left_out": left_out} if left_out else {}))
        except Exception:
            return

    def forget(self) -> None:
        self._last = {}  # a lock may have been taken while the parent forked

    def _cause(self, key: str, now: float) -> _Cause:
        causes = self._last
        if key not in causes and len(causes) >= _MAX_CAUSES:  # more than anybody reads
            for old in [name for name, cause in list(causes.items()) if cause.due <= now]:
                causes.pop(old, None)
            if len(causes) >= _MAX_CAUSES:
                key = _OTHERS  # they share one line a minute
        return causes.setdefault(key, _Cause())

    def load(self) -> Any:
        """Import structlog, which takes up to a tenth of a second; plain lines where it cannot be
        read.

        It imports rich where that is installed, which draws from `random`: the application's state
        is restored.
        """
        if self._logger is None:
            state = random.getstate()
            try:
                import structlog
            except Exception:  # as in a process that has lost the right to read it
                return _Plain
            finally:
                random.setstate(state)
            self._logger = structlog.wrap_logger(
                logging.getLogger(_NAME),
                processors=(structlog.processors.KeyValueRenderer(key_order=["event"]), _named),
                wrapper_class=structlog.stdlib.BoundLogger,
                context_class=dict,
                cache_logger_on_first_use=False,
            )
        return self._logger


log = _Log()
"""The package's logger."""
reset_in_child(log.forget)
