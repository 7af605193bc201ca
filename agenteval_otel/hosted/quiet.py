"""Quiet: the calls of ours leave nothing in the host's own logs and traces.

A client logs a line for every request, and at the level of debugging all that it sends: the answers under evaluation.
A host's instrumentation of HTTP would show the calls among the agent's own. Both are told by the context of the call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["quietly", "watch"]

_FAMILIES: Final = ("anthropic", "httpx2", "httpcore2")
_asking: ContextVar[bool] = ContextVar("agenteval_asking", default=False)


@contextmanager
def quietly() -> Iterator[None]:
    """While it is open, what this context calls is not logged by the clients and not traced by instrumentation."""
    from opentelemetry import context
    from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

    # Older instrumentation looks for the plain word.
    suppressed = context.set_value("suppress_instrumentation", True)
    token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True, suppressed))
    flag = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(flag)
        context.detach(token)


def watch() -> None:
    """Put the filter on the clients' loggers, which are there once the clients are imported; may be called again."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] in _FAMILIES and isinstance(logger, logging.Logger):
            logger.addFilter(_is_the_hosts)


def _is_the_hosts(record: logging.LogRecord) -> bool:
    return not _asking.get()
