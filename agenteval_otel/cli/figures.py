"""Numbers as options take them, and JSON as it is printed."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable
from typing import Any


def number_between(
    low: float, high: float, expected: str, kind: type[float] = float
) -> Callable[[str], Any]:
    """Return the type of an option: a number in this range.

    `expected` completes the message "must be ...".
    """

    def parse(text: str) -> float:
        with contextlib.suppress(ValueError):
            value = kind(text)
            if low <= value <= high:
                return value
        raise argparse.ArgumentTypeError(f"must be {expected}")

    return parse


whole_number = number_between(1, 999_999_999, "a whole number, at least 1", int)


def json_for_terminals(value: object) -> str:
    """Return indented JSON with control characters escaped.

    Names come from files, and must not steer a terminal.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    shown: list[str] = []
    for char in text:
        is_shown = char.isprintable() or char == "\n"
        shown.append(char if is_shown else json.dumps(char)[1:-1])
    return "".join(shown)
