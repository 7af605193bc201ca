"""The version of this distribution."""

from __future__ import annotations

import importlib.metadata
from functools import cache


@cache
def scope_version() -> str:
    """Return the version of this distribution.

    It is empty if this runs from a bare folder. Reads a file, once.
    """
    try:
        return importlib.metadata.version("agenteval-otel")
    except (ImportError, OSError):
        # Without the right to read it, not even the module that reads it is imported.
        return ""
