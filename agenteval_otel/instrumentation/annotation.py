"""`annotate`: facts that only the handler knows, added from inside it."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any, Unpack

from agenteval_otel.capture import Facts
from agenteval_otel.capture.calls import CURRENT, CapturedCall
from agenteval_otel.capture.detached import take
from agenteval_otel.capture.fields import MAX_ITEMS
from agenteval_otel.instrumentation.wrappers import wrap

_MAX_FRAMES = 500
_MAX_FACTS = 64
_MAX_CALLS = MAX_ITEMS + 1  # one more than is read: it tells that there were more
_WRAPPERS = wrap.__globals__


def annotate(**facts: Unpack[Facts]) -> None:
    """Add facts to the monitored call that is running; never raises, does nothing outside of a sampled call.

    Facts are detached from the host when the handler ends, and read on the background thread. Type checkers refuse an
    unknown fact; at run time it is counted as ``annotate:<name>`` and left out, like a value of the wrong type.

    Args:
        facts: Any of the keywords of `agenteval_otel.capture.Facts`. ``context`` is a mapping or a list of documents,
            ``cost`` is in USD, ``tool_calls`` are added to those set before; any other fact replaces the earlier one.
    """
    try:
        call = _running_call()
        if call is None or call.settings is None:
            return
        known = call.facts = call.facts or {}
        for name, value in dict[str, Any](facts).items():
            before = known.get(name)
            if name == "tool_calls" and isinstance(value, list | tuple) and isinstance(before, list | tuple):
                value = [*before, *islice(value, max(0, _MAX_CALLS - len(before)))]
            if name in known or len(known) < _MAX_FACTS:
                # Where the call waits already, nothing of the host's joins it.
                known[name] = take(value).value if call.ended_ns else value
    except Exception:
        return


def _running_call() -> CapturedCall | None:
    """The innermost monitored call on this stack; in a task or thread that a handler started, the inherited one.

    A stream's context is its consumer's, so a context variable would leak there: its frame is looked for instead.
    """
    frame: Any = sys._getframe(2)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        # Where a wrapper's inner function uses it, the variable is a cell.
        if frame.f_globals is _WRAPPERS and "call" in (*frame.f_code.co_varnames, *frame.f_code.co_cellvars):
            call: CapturedCall | None = frame.f_locals.get("call")
            return call
        frame = frame.f_back
    return CURRENT.get()
