"""Events: the only file that meets OpenTelemetry's logs interface, which is still private.

An event is a log record with an event name. Everything here is called on the background thread.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from functools import cache
from typing import Any

from opentelemetry import _logs
from opentelemetry.context import Context

from agenteval_otel.semconv import SCHEMA_URL, SCOPE_NAME


@cache
def scope_version() -> str:
    """The version of this distribution; empty where it runs from a bare folder. Reads a file, once."""
    try:
        return importlib.metadata.version("agenteval-otel")
    except (ImportError, OSError):  # without the right to read it, not even the module that reads it is imported
        return ""


def global_logger_provider() -> Any | None:
    """The application's logger provider; None when it has not set a real one."""
    provider = _logs.get_logger_provider()
    # The placeholder's class is private to the interface.
    placeholder = isinstance(provider, _logs.NoOpLoggerProvider) or type(provider).__name__ == "ProxyLoggerProvider"
    return None if placeholder else provider


# An enumeration's name is looked up in Python: once here instead of for each event.
_INFO = (_logs.SeverityNumber.INFO, _logs.SeverityNumber.INFO.name)
_WARN = (_logs.SeverityNumber.WARN, _logs.SeverityNumber.WARN.name)


class EventLog:
    """Writes events with a logger provider."""

    def __init__(self, provider: Any) -> None:
        self._logger = provider.get_logger(SCOPE_NAME, version=scope_version(), schema_url=SCHEMA_URL)

    def emit(
        self, name: str, *, context: Context, timestamp_ns: int, body: str, attributes: Mapping[str, Any], warn: bool
    ) -> None:
        """Write one event; every string must have been sanitised."""
        severity, severity_text = _WARN if warn else _INFO
        self._logger.emit(
            event_name=name, context=context, timestamp=timestamp_ns, severity_number=severity,
            severity_text=severity_text, body=body, attributes=attributes,
        )  # fmt: skip
