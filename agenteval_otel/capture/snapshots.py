"""Whether what is judged is surely what was returned: told of every answer that may have changed, or is not whole.

The caller's thread takes references and one shallow copy. Text cannot change under them; what an object holds deeper
can, between the answer's return and its evaluation. To find out whether it did would cost the caller a deep copy, so
the input says that it could have.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from agenteval_otel.capture.calls import OBJECT_CHARS, SNAPSHOT_ITEMS, STREAM_CHARS
from agenteval_otel.capture.text import CAP_CHARS

__all__ = ["MUTABLE", "SNAPSHOT", "TRUNCATED", "state_of_answer", "state_of_chunks"]

SNAPSHOT: Final = "agenteval.snapshot"
"""Key in the input's metadata."""
MUTABLE: Final = "mutable"
TRUNCATED: Final = "truncated"
_FIXED: Final = (str, bytes, int, float, complex, type(None), Decimal, UUID, date, time, timedelta, enum.Enum)


def state_of_answer(answer: Any) -> str | None:
    """``mutable``, ``truncated`` (which says more), or None: the answer is judged as it was returned."""
    if type(answer) in (str, bytes, bytearray) and len(answer) > CAP_CHARS:
        return TRUNCATED
    return None if _is_fixed(answer) else MUTABLE


def state_of_chunks(chunks: Sequence[Any]) -> str | None:
    """The same of a stream, of which no more than `STREAM_CHARS` were kept."""
    kept = sum((len(chunk) or 1) if type(chunk) in (str, bytes) else OBJECT_CHARS for chunk in chunks)
    if kept >= STREAM_CHARS:
        return TRUNCATED
    return None if all(map(_is_fixed, chunks)) else MUTABLE


def _is_fixed(value: Any) -> bool:
    """Whether nobody can change a value; of a list or dictionary, which was copied, whether its items are fixed."""
    kind = type(value)
    if issubclass(kind, _FIXED):
        return True
    if kind is tuple or kind is frozenset:
        return _holds_fixed(value)
    if (kind is list or kind is dict) and len(value) <= SNAPSHOT_ITEMS:
        return all(issubclass(type(item), _FIXED) for item in (value.values() if kind is dict else value))
    return False


def _holds_fixed(group: Any) -> bool:
    """Whether tuples in tuples hold only what is fixed; not said of more than a thousand items in all."""
    waiting, left = [group], SNAPSHOT_ITEMS
    while waiting:
        items = waiting.pop()
        left -= len(items)
        if left < 0:
            return False
        for item in items:
            kind = type(item)
            if kind is tuple or kind is frozenset:
                waiting.append(item)
            elif not issubclass(kind, _FIXED):
                return False
    return True
