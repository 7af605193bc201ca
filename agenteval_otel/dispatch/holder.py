"""Which evaluator holds a thread, seen from another thread."""

from __future__ import annotations

import sys
import threading

from agenteval_otel.components import Component

__all__ = ["evaluator_on"]


def evaluator_on(thread: threading.Thread) -> Component | None:
    """The evaluator whose `evaluate` runs on the thread; of nested evaluators the outermost. None where none does."""
    found, frame = None, sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name == "evaluate":
            owner = frame.f_locals.get("self")
            kind: type = type(owner)  # `isinstance` would ask the object, which may be the host's
            if issubclass(kind, Component) and kind.contract == "evaluator":
                found = owner
        frame = frame.f_back
    return found
