"""LogFilter: the SDK's log lines about our own exports become ours: once a minute, and without our secrets.

An exporter that reaches nobody logs each try, and quotes the reply, which may hold our key. The host's own exporters
share those loggers and are not touched: the filter looks only at lines that a thread writes while it works for us.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.masking import mask_known

_MAX_CHARS = 300
_current = threading.local()


class LogFilter:
    """Turns the SDK's lines about one signal into warnings of ours. Create it once the SDK is imported.

    Args:
        signal: Named as the part in the lines.
        secrets: What the lines must not hold.
    """

    def __init__(self, signal: str, secrets: Iterable[str]) -> None:
        self._signal, self._secrets = signal.lower(), tuple(secrets)
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if name.startswith("opentelemetry.") and isinstance(logger, logging.Logger):
                logger.addFilter(_divert)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the filter active on the thread while it runs."""

        def filtered(*args: Any, **kwargs: Any) -> Any:
            before, _current.filter = getattr(_current, "filter", None), self
            try:
                return function(*args, **kwargs)
            finally:
                _current.filter = before

        return filtered

    def passes(self, record: logging.LogRecord) -> bool:
        """Whether the record itself is written: a warning becomes a line of ours, a line with a secret is dropped."""
        try:
            text = record.getMessage()
            masked = mask_known(text, self._secrets)
            if record.levelno < logging.WARNING and record.exc_info is None:
                return masked == text
            log.warning("export_failed", part=self._signal, detail=masked[:_MAX_CHARS])
        except Exception:
            return False
        return False


def _divert(record: logging.LogRecord) -> bool:
    active: LogFilter | None = getattr(_current, "filter", None)
    return True if active is None else active.passes(record)
