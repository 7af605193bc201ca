"""Quiet: what the SDK and its exporters say while they work for us comes out once a minute, and without our secrets.

An exporter that finds nobody says so with every try, and quotes what the other side answered, which may be our key. The
host's own exporters of the same kind share those loggers, so nothing of theirs is changed: a filter on them looks only
at lines that are written on a thread while it works for us, and turns those into warnings of ours.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from agenteval_otel.masking import mask_known
from agenteval_otel.runtime.log import log

__all__ = ["Quiet"]

_FAMILY = "opentelemetry."
_MAX_CHARS = 300


class Quiet:
    """Makes the SDK's lines about one signal ours. To be created when the SDK is imported: it needs its loggers.

    Args:
        signal: Named as the part that the lines are about.
        secrets: What must not be in them.
    """

    def __init__(self, signal: str, secrets: Iterable[str]) -> None:
        self._signal, self._secrets = signal.lower(), tuple(secrets)
        _watch()

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with what the SDK says while it runs."""

        def quietly(*args: Any, **kwargs: Any) -> Any:
            before, _here.quiet = getattr(_here, "quiet", None), self
            try:
                return function(*args, **kwargs)
            finally:
                _here.quiet = before

        return quietly

    def take(self, record: logging.LogRecord) -> bool:
        """Write the line as our own, where it says that something is wrong; False: the record itself goes nowhere."""
        try:
            said = record.getMessage()
            masked = mask_known(said, self._secrets)
            if record.levelno < logging.WARNING and record.exc_info is None:
                return masked == said
            log.warning("export_failed", part=self._signal, said=masked[:_MAX_CHARS])
        except Exception:
            return False
        return False


_here = threading.local()


def _divert(record: logging.LogRecord) -> bool:
    quiet: Quiet | None = getattr(_here, "quiet", None)
    return True if quiet is None else quiet.take(record)


def _watch() -> None:
    """Put the filter on every logger of the family, where it is not yet."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith(_FAMILY) and isinstance(logger, logging.Logger):
            logger.addFilter(_divert)
