"""A guard for every test of a room that starts threads: none of them outlives its test."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from agenteval_otel.config import set_current_pipeline

__all__ = ["no_thread_left"]

_PATIENCE_S = 5.0
_STAY = ("agenteval-sync", "agenteval-inline", "agenteval-executor")
"""Threads of the loops for callers without one, which stay until the process ends, and those of their
name look-ups, which end after five idle seconds."""


def _started_since(before: set[threading.Thread]) -> list[threading.Thread]:
    started = set(threading.enumerate()) - before
    return [thread for thread in started if not thread.name.startswith(_STAY)]


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Threads that a test started are over soon after it."""
    before = set(threading.enumerate())
    yield
    if (left_pipeline := set_current_pipeline(None)) is not None:
        left_pipeline.shutdown(_PATIENCE_S)
    deadline = time.monotonic() + _PATIENCE_S
    for thread in _started_since(before):
        with contextlib.suppress(RuntimeError):  # one that is only just being started
            thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread.name for thread in _started_since(before)]
    assert not left, f"threads that outlive their test: {left}"
