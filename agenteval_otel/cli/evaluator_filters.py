"""Options that choose some of the evaluators of a settings file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import get_args

from agenteval_otel.evaluators.base import Execution


def add_evaluator_filters(add: Callable[..., object]) -> None:
    """Add ``--tags`` and ``--execution`` to a command."""
    add(
        "--tags",
        action="extend",
        type=_names_of_list,
        default=[],
        metavar="TAG,...",
        help="only evaluators with one of these tags",
    )
    add(
        "--execution",
        action="extend",
        type=_execution_names,
        default=[],
        metavar="MODE,...",
        help="only evaluators with this execution: inline, thread, process, async (calls a model)",
    )


def _names_of_list(text: str) -> list[str]:
    items = [item for item in map(str.strip, text.split(",")) if item]
    if not items:
        raise argparse.ArgumentTypeError("expected at least one value")
    return items


def _execution_names(text: str) -> list[str]:
    items = _names_of_list(text)
    for item in items:
        if item not in get_args(Execution):
            raise argparse.ArgumentTypeError(
                f"{item!r} is none of {', '.join(get_args(Execution))}"
            )
    return items
