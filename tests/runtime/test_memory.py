"""The memory bound: shared by its parts, exact under threads, new in a forked child."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.models import EvaluationInput
from agenteval_otel.runtime.memory import (
    MemoryBudget,
    decoded_bytes,
    kept_bytes,
    most_parsed_bytes,
    parsed_bytes,
)
from tests.promises.programs import together


def test_parts_have_ceilings_and_share_one_bound() -> None:
    budget = MemoryBudget(1_000)
    budget.results.max_bytes = 100
    assert budget.results.reserve(100)
    assert not budget.results.reserve(1)
    assert budget.captured_calls.reserve(600)
    assert not budget.encoded_batches.reserve(600)
    assert (budget.used_bytes, budget.encoded_batches.used_bytes) == (700, 0)
    budget.captured_calls.release(600)
    assert budget.encoded_batches.reserve(600)


def test_threads_that_meet_lose_no_update(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, too_many, granted = MemoryBudget(64), list[int](), list[int]()

    def work() -> None:
        for _ in range(5_000):
            if budget.results.reserve(16):
                granted.append(16)
                if sum(granted) > 64:
                    too_many.append(1)
                granted.pop()
                budget.results.release(16)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        together([work] * 8)
    finally:
        sys.setswitchinterval(before)
    assert (budget.used_bytes, budget.results.used_bytes, too_many) == (0, 0, [])


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_are_counted_as_the_text_that_they_become(data: bytes) -> None:
    """Whether they are UTF-8 or not; and a body never becomes more than is said."""
    text = data.decode("utf-8", "replace")
    assert sys.getsizeof(text) <= decoded_bytes(data) <= sys.getsizeof(text) + 80
    assert parsed_bytes(data) >= max(len(data), sys.getsizeof(text) - 80)
    assert most_parsed_bytes(data) >= parsed_bytes(data)


@given(st.text())
def test_escapes_in_json_are_counted_as_what_they_stand_for(text: str) -> None:
    """A body that is ASCII may say a character of four bytes."""
    text = text.encode("utf-16", "ignore").decode("utf-16", "ignore")
    body = json.dumps(text).encode()
    assert sys.getsizeof(json.loads(body)) <= parsed_bytes(body) + 80


VALUES: dict[str, Any] = {
    "texts": lambda: {f"{number}": "x" * (1_000 + number) + "\U0001f600" for number in range(100)},
    "small attributes": lambda: {f"attribute.{number}": 10**12 + number for number in range(900)},
    "nested": lambda: [{"a": [{"b": ["x" * number]}]} for number in range(500)],
    "an input": lambda: EvaluationInput(
        prompt="p" * 10_000, response="é" * 10_000, message_history=[
            {"role": "user", "content": "漢" * number} for number in range(200)
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_what_is_counted_is_what_python_keeps(name: str) -> None:
    """For texts of every width, numbers, containers and models: never less than 90 %, and at most
    half as much again, because short texts that are shared count each time.
    """
    make = VALUES[name]
    make()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        value = make()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.9 * kept <= kept_bytes(value) <= 1.5 * kept


def test_a_value_that_holds_itself_or_one_text_twice_is_counted_once() -> None:
    """A cycle ends, and a large text that a history repeats is no second one."""
    text = "x" * 100_000
    circle: list[Any] = [text, text]
    circle.append(circle)
    assert 100_000 < kept_bytes(circle) < 101_000


class _WithFields:
    """Holds a value as an object does."""

    def __init__(self, value: Any) -> None:
        self.value = value


ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.binary(max_size=20),
    st.text(max_size=20),
)
LARGE = ["x" * 2_000, "é" * 2_000, b"x" * 2_000]
PLAIN: st.SearchStrategy[Any] = st.recursive(
    ATOMS | st.sampled_from(LARGE),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=5), inner, max_size=5),
        inner.map(_WithFields),
    ),
    max_leaves=20,
)


def _walked_bytes(value: Any, counted: set[int]) -> int:
    """Return what `kept_bytes` says, by its definition: `getsizeof` of each part."""
    is_atom = value is None or isinstance(value, str | bytes | int | float)
    size_bytes = sys.getsizeof(value)
    if not is_atom or size_bytes > 1_024:
        if id(value) in counted:
            return 0
        counted.add(id(value))
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif not is_atom:
        parts = [value.__dict__]
    return size_bytes + sum(_walked_bytes(part, counted) for part in parts)


@given(PLAIN)
def test_every_part_counts_as_python_says(value: Any) -> None:
    """Containers, objects and large texts once, short texts and numbers each time."""
    assert kept_bytes([value, value]) == _walked_bytes([value, value], set())
