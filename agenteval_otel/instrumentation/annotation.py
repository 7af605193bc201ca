"""`annotate`: what only the handler knows, said from inside it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

from agenteval_otel.capture import CURRENT, CapturedCall, take
from agenteval_otel.capture.fields import MAX_ITEMS
from agenteval_otel.instrumentation.wrappers import wrap

__all__ = ["annotate"]

_MAX_FRAMES = 500
_MAX_FACTS = 64
_MAX_CALLS = MAX_ITEMS + 1  # one more than is read: it tells that there were more


def annotate(**facts: Any) -> None:
    """Add facts to the monitored call that is running; never raises, does nothing outside of a sampled call.

    Facts are detached from the host when the handler ends, and read on the background thread: ``context`` (mapping, or
    a list of documents), ``ground_truth``, ``tool_calls`` (added to those said before), ``usage``, ``cost`` (USD),
    ``model``, ``finish_reason``, ``response_id``, ``conversation_id``, ``session_id``, ``agent_id``, ``agent_config``,
    ``message_history``, ``metadata``, ``prompt``, ``response``, ``turns``, ``memory_stats``. An unknown fact is counted
    and left out.
    """
    try:
        call = _running_call()
        if call is None or call.settings is None:
            return
        known = call.facts
        if known is None:
            known = call.facts = {}
        for name, value in facts.items():
            if name == "tool_calls" and isinstance(value, list | tuple):
                value = _joined(known.get(name), value)
            if call.ended_ns:
                value = take(value).value  # the call waits already: nothing of the host's joins it
            if name in known or len(known) < _MAX_FACTS:
                known[name] = value
    except Exception:
        return


class _Calls(list[Any]):
    """Tool calls that were said one after another: a list of our own, so that it may grow in place."""


def _joined(before: Any, value: Sequence[Any]) -> list[Any]:
    if not isinstance(before, list):
        return value if isinstance(value, list) else list(value)
    calls = before if type(before) is _Calls else _Calls(islice(before, _MAX_CALLS))
    calls.extend(islice(value, max(0, _MAX_CALLS - len(calls))))
    return calls


def _running_call() -> CapturedCall | None:
    """The innermost monitored call on this stack; in a task or thread that a handler started, the one it inherited.

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


_WRAPPERS = wrap.__globals__
