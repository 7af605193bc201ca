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

from agenteval_otel.capture.text import CAP_CHARS

__all__ = ["MUTABLE", "SNAPSHOT", "TRUNCATED", "state_of_answer", "state_of_chunks"]

SNAPSHOT: Final = "agenteval.snapshot"
"""Key in the input's metadata."""
MUTABLE: Final = "mutable"
TRUNCATED: Final = "truncated"
_MAX_ITEMS: Final = 1_000
_OBJECT_CHARS: Final = 256
_FIXED: Final = (str, bytes, int, float, complex, type(None), Decimal, UUID, date, time, timedelta, enum.Enum)


def state_of_answer(answer: Any) -> str | None:
    """``mutable``, ``truncated`` (which says more), or None: the answer is judged as it was returned."""
    if type(answer) in (str, bytes, bytearray) and len(answer) > CAP_CHARS:
        return TRUNCATED
    return None if _is_fixed(answer, copied=True) else MUTABLE


def state_of_chunks(chunks: Sequence[Any]) -> str | None:
    """The same of a stream, of which no more than the cap was kept."""
    kept = sum(len(chunk) if type(chunk) is str else _OBJECT_CHARS for chunk in chunks)
    if kept >= CAP_CHARS:
        return TRUNCATED
    return None if all(_is_fixed(chunk, copied=True) for chunk in chunks) else MUTABLE


def _is_fixed(value: Any, *, copied: bool) -> bool:
    """Whether nobody can change a value; of a list or dictionary that was copied, whether its items are fixed."""
    kind = type(value)
    if issubclass(kind, _FIXED):
        return True
    if kind is tuple or kind is frozenset:
        return len(value) <= _MAX_ITEMS and all(_is_fixed(item, copied=False) for item in value)
    if copied and (kind is list or kind is dict) and len(value) <= _MAX_ITEMS:
        return all(issubclass(type(item), _FIXED) for item in (value.values() if kind is dict else value))
    return False
