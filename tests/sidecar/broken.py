"""An evaluator that quotes the answer when it fails."""

from __future__ import annotations

from typing import Any


def broken(value: Any) -> bool:
    """Raise, with the answer in the message."""
    raise ValueError(f"cannot score {value!r}")
