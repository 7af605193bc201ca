"""Tool calls: put together from whole calls, from pieces of arguments, and from results that come later.

A call is known by its id; a piece without one by the response and the index that it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as has
from typing import Any, Final

from agenteval_otel.capture.fields import MAX_ITEMS, field, first, items, json_object
from agenteval_otel.capture.text import CAP_CHARS, PlainCopy, clean

__all__ = ["Call", "Calls", "call_of", "plain_calls", "read_calls"]

_MAX_PIECES: Final = 4 * CAP_CHARS


@dataclass(slots=True)
class Call:
    """One call; `pieces` are its arguments as far as they came."""

    id: str | None
    name: str
    arguments: Any = None
    pieces: list[str] = has(default_factory=list)
    result: Any = None
    has_result: bool = False


class Calls:
    """The tool calls of one answer, in the order in which they were begun."""

    def __init__(self) -> None:
        self._all: list[Call] = []
        self._by_id: dict[str, Call] = {}
        self._by_place: dict[Any, Call] = {}
        self._chars = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, call: Call, place: Any = None) -> None:
        """A call as a whole; one that is known already by its id or its place is completed by it."""
        known = self._by_id.get(call.id) if call.id else None
        if known is None and place is not None:
            known = self._by_place.get(place)
        if known is None:
            self._begin(call, place)
            return
        known.name = call.name or known.name
        if call.arguments is not None or call.pieces:
            known.arguments, known.pieces = call.arguments, call.pieces
        if call.has_result:
            known.result, known.has_result = call.result, True

    def extend(self, place: Any, *, id: str | None = None, name: str | None = None, piece: Any = None) -> None:
        """The next piece of a call's arguments; the first one names the call."""
        call = self._by_id.get(id) if id else self._by_place.get(place)
        if call is None:
            call = Call(id, name or "")
            self._begin(call, place)
        self._by_place[place] = call
        if name and not call.name:
            call.name = name
        if isinstance(piece, str) and self._chars < _MAX_PIECES:
            self._chars += len(piece)
            call.pieces.append(clean(piece))
        elif piece is not None and not isinstance(piece, str):
            call.arguments = piece

    def complete(self, place: Any, arguments: Any) -> None:
        """The whole arguments of a call whose pieces may have come before."""
        call = self._by_place.get(place)
        if call is not None and arguments is not None:
            call.arguments, call.pieces = arguments, []

    def set_result(self, id: str | None, result: Any) -> None:
        """The result of a call; of one that is not known, nothing."""
        call = self._by_id.get(id) if id else None
        if call is not None:
            call.result, call.has_result = result, True

    def finished(self) -> list[dict[str, Any]] | None:
        """The calls as fields of `ToolCall`, plain and bounded all together; None where there is none."""
        return plain_calls(self._all, PlainCopy())

    def _begin(self, call: Call, place: Any) -> None:
        if len(self._all) >= MAX_ITEMS:
            return
        self._all.append(call)
        if call.id:
            self._by_id[call.id] = call
        if place is not None:
            self._by_place[place] = call


def plain_calls(calls: list[Call], copy: PlainCopy) -> list[dict[str, Any]] | None:
    """Calls as fields of `ToolCall`; None where there is none that has a name."""
    plain = [
        {
            "id": call.id,
            "name": clean(call.name, 256),
            "arguments": _plain(copy, _arguments(call)),
            "result": _plain(copy, call.result),
        }
        for call in calls
        if call.name
    ]
    return plain or None


def call_of(value: Any) -> Call | None:
    """One call: ``{id, function: {name, arguments}}``, ``{name, args}``, a part that calls a tool, or our own form."""
    if isinstance(value, str | bytes | list | tuple):
        return None
    source = value if (function := field(value, "function")) is None else function
    name = first(source, "name", "tool_name", "toolName")
    if name is None:
        return None
    arguments = next((raw for key in ("arguments", "args", "input") if (raw := field(source, key)) is not None), None)
    call = Call(first(value, "call_id", "id", "tool_call_id", "toolCallId", "toolUseId"), name, arguments)
    result = next((raw for key in ("result", "output") if (raw := field(value, key)) is not None), None)
    if result is not None:
        call.result, call.has_result = result, True
    return call


def read_calls(value: Any) -> list[dict[str, Any]] | None:
    """A list of tool calls of any of these forms as fields of `ToolCall`; None where there is none."""
    calls = Calls()
    for item in items(value):
        call = call_of(item)
        if call is not None:
            calls.add(call)
    return calls.finished()


def _arguments(call: Call) -> Any:
    arguments = "".join(call.pieces) if call.pieces else call.arguments
    if isinstance(arguments, str):
        read = json_object(arguments)
        return arguments if read is None else read
    return arguments


def _plain(copy: PlainCopy, value: Any) -> Any:
    try:
        return copy.take(value)
    except Exception:
        return None  # what cannot be read is not made up
