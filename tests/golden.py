"""Loader for the recorded vectors beside the project, and the comparison that they ask for."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
GOLDEN = SHARED / "golden"
DATA = SHARED / "data"

_NUMBERS = {"__NaN__": math.nan, "__Infinity__": math.inf, "__-Infinity__": -math.inf}


FILES = ("agentdock_golden.json", "agentdock_golden_extra.json", "partnership_golden.json")


def vectors(*evaluators: str, files: Sequence[str] = FILES) -> list[Any]:
    """One pytest parameter a vector of these evaluators, its id the vector's; a skipped one when
    the files are away.
    """
    actual = []
    for path in (GOLDEN / name for name in files):
        if path.is_file():
            actual += [
                vector
                for vector in json.loads(path.read_text("utf-8"))
                if vector["evaluator"] in evaluators
            ]
    if not actual:
        return [
            pytest.param(
                None,
                marks=[pytest.mark.shared, pytest.mark.skip(f"no vectors in {GOLDEN}")],
                id="absent",
            )
        ]
    return [
        pytest.param(numbers(vector), marks=pytest.mark.shared, id=vector["id"])
        for vector in actual
    ]


def lines(name: str) -> list[dict[str, Any]]:
    """The records of a data file; skips the test where the file is absent."""
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def same(actual: Any, expected: Any) -> bool:
    """Floats within 1e-9, types exactly: 1 and 1.0 are equal, True is not 1."""
    if isinstance(actual, bool) or isinstance(expected, bool):
        return actual is expected
    if isinstance(actual, int | float) and isinstance(expected, int | float):
        both_nan = math.isnan(actual) and math.isnan(expected)
        return both_nan or math.isclose(actual, expected, rel_tol=0, abs_tol=1e-9)
    if isinstance(actual, list) and isinstance(expected, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(actual, dict) and isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(
            same(actual[key], expected[key]) for key in actual
        )
    return bool(actual == expected)


def numbers(value: Any) -> Any:
    """The value with the numbers that JSON does not have in the place of the words that stand for
    them.
    """
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [numbers(item) for item in value]
    return _NUMBERS.get(value, value) if isinstance(value, str) else value
