"""Types of options."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def at_least_one(text: str) -> int:
    """A whole number from 1."""
    value = int(text) if text.isdecimal() and len(text) < 10 else 0
    if value < 1:
        raise argparse.ArgumentTypeError("must be a whole number, at least 1")
    return value


def number_between(low: float, high: float, meaning: str) -> Callable[[str], float]:
    """A number in this range; `meaning` completes the message "must be ..."."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be {meaning}")
        return value

    return parse


def comma_separated(*known: str) -> Callable[[str], list[str]]:
    """Names with commas between them, for ``action="extend"``; of the `known` ones, where there are any."""

    def parse(text: str) -> list[str]:
        items = [item.strip() for item in text.split(",") if item.strip()]
        if not items:
            raise argparse.ArgumentTypeError("expected at least one value")
        for item in items:
            if known and item not in known:
                raise argparse.ArgumentTypeError(f"{item!r} is none of {', '.join(known)}")
        return items

    return parse
