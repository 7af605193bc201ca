"""Lines that commands print beside their reports."""

from __future__ import annotations

import sys

from agenteval_otel.runtime.masking import printable


def note(line: str) -> None:
    """Print a line on standard error, below what is on standard output already."""
    sys.stdout.flush()
    print(printable(line), file=sys.stderr, flush=True)


def say(line: str) -> None:
    """Print a line on standard output at once, for a service manager that reads line by line."""
    print(printable(line), flush=True)
