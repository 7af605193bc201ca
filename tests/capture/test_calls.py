"""What is taken on the caller's thread: the prompt's place, plain data of our own, and its size."""

from __future__ import annotations

import ast
import dataclasses
import functools
import gc
import json
import pathlib
import sys
import weakref
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agenteval_otel import capture
from agenteval_otel.capture.calls import Arguments
from agenteval_otel.capture.detached import READ, take


class Agent:
    def ask(self, history: list[str], question: str) -> None: ...
    def anything(self, *parts: str) -> None: ...
    def __call__(self, text: str) -> None: ...


def plain(thing: str) -> None: ...
def named(user: str, prompt: str) -> None: ...
def keyword_only(user: str, *, question: str = "") -> None: ...
def variadic(*parts: str, **rest: str) -> None: ...
def keywords(**rest: str) -> None: ...
def positional_only(text: str, /, other: str = "") -> None: ...
def ids_alone(order_id: str, customer: str) -> None: ...
def two_unknown(one: Any, other: Any) -> None: ...
def counted(count: int, remark: str) -> None: ...
def nothing() -> None: ...


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = [
    (plain, ("hi",), {}, "hi"),
    (plain, (), {"thing": "hi"}, "hi"),
    (named, ("ann", "hi"), {}, "hi"),
    (named, ("ann",), {"prompt": "hi"}, "hi"),
    (named, (), {}, None),
    (keyword_only, ("ann",), {"question": "hi"}, "hi"),
    (keyword_only, ("ann",), {}, None),
    (variadic, ("hi", "there"), {}, "hi"),
    (keywords, (), {"prompt": "hi"}, "hi"),
    (positional_only, ("hi",), {"other": "x"}, "hi"),
    (nothing, (), {}, None),
    (Agent.ask, (Agent(), [], "hi"), {}, "hi"),
    (Agent.ask, (Agent(),), {}, None),
    (Agent.anything, (Agent(), "hi"), {}, "hi"),
    (Agent().ask, ([], "hi"), {}, "hi"),
    (Agent(), ("hi",), {}, "hi"),
    (functools.partial(named, "ann"), ("hi",), {}, "hi"),
    (max, ("hi",), {}, "hi"),
    (lambda user_id, q: None, ("u-17", "hi"), {}, "hi"),
    (lambda session_id, msg: None, ("s-1", "hi"), {}, "hi"),
    (lambda db, user_question: None, (object(), "hi"), {}, "hi"),
    (lambda tenant, chatInput: None, ("acme", "hi"), {}, "hi"),
    (lambda model, user_query: None, ("m", "hi"), {}, "hi"),
    (lambda k, utterance: None, (3, "hi"), {}, "hi"),
    (lambda ctx, body: None, (object(), "hi"), {}, "hi"),
    (ids_alone, ("o-1", "c-1"), {}, None),
    (ids_alone, (), {"order_id": "o-1"}, None),
    (two_unknown, (3, "hi"), {}, "hi"),
    (two_unknown, ("hi",), {"other": 3}, "hi"),
    (two_unknown, ("one", "other"), {}, None),
    (counted, (3, "hi"), {}, "hi"),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "expected"), CASES)
def test_the_prompt_is_found(function: Any, args: Any, kwargs: Any, expected: Any) -> None:
    """The prompt is the argument with an obvious name, else the only text that is no id, setting or
    resource; None when it was not passed, or where several may be it.
    """
    assert Arguments(function).prompt(args, kwargs) == expected


def conversational(question: str, session_id: str = "", *, conversation_id: Any = None) -> None: ...


def configured(state: Any, config: Any = None) -> None: ...


ID = UUID(int=7)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (conversational, ("hi", "s-1"), {}, "s-1"),
        (conversational, ("hi",), {"session_id": "s-2"}, "s-2"),
        (conversational, ("hi", "s-1"), {"conversation_id": 17}, "17"),
        (conversational, ("hi",), {"conversation_id": ID}, str(ID)),
        (conversational, ("hi",), {"conversation_id": ["no id"]}, None),
        (conversational, ("hi",), {}, None),
        (configured, ({}, {"configurable": {"thread_id": "t-1"}}), {}, "t-1"),
        (configured, ({},), {"config": {"configurable": {"thread_id": 3}}}, "3"),
        (configured, ({},), {"config": {"configurable": None}}, None),
        (configured, ({},), {"config": "x"}, None),
        (keywords, (), {"thread_id": "t-2", "prompt": "hi"}, "t-2"),
        (Agent.ask, (Agent(), [], "hi"), {}, None),
    ],
)
def test_the_conversation_is_found(function: Any, args: Any, kwargs: Any, expected: Any) -> None:
    """The conversation's id is the argument of that name, else the thread of a graph's
    configuration.
    """
    assert Arguments(function).conversation(args, kwargs) == expected


@dataclasses.dataclass(slots=True)
class Slots:
    text: str
    empty: Any = dataclasses.field(init=False)


class Extra(BaseModel):
    model_config = {"extra": "allow"}
    text: str


class Answer:
    role = "assistant"

    def __init__(self) -> None:
        self.text, self.client, self._secret = "stored", object(), "s"


@pytest.mark.parametrize(
    ("value", "expected", "is_data"),
    [
        (Slots("stored"), {"text": "stored"}, True),
        (Extra(text="stored", more=1), {"text": "stored", "more": 1}, True),
        (Answer(), {"text": "stored", "role": "assistant"}, False),
    ],
    ids=["slots", "extra", "object"],
)
def test_stored_fields_are_taken(value: Any, expected: dict[str, Any], is_data: bool) -> None:
    """Data classes and models give all their fields, slots and extra ones too; another object those
    of known names.
    """
    taken = take(value).value
    assert (taken.fields, taken.is_data, taken.type_name) == (
        expected,
        is_data,
        type(value).__name__,
    )


def test_every_field_that_a_format_reads_is_taken() -> None:
    """Whatever name a response format reads of an object is in the list of those that are taken."""
    actual: set[str] = set()
    readers = ("field", "first", "first_value", "kind_of")
    for file in pathlib.Path(capture.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in readers:
                actual |= {
                    argument.value
                    for argument in node.args[1:]
                    if isinstance(argument, ast.Constant)
                }  # type: ignore[misc]
    assert len(actual) > 60
    assert actual - READ == {"headers", "ns"} - READ


def test_large_values_are_taken_in_part() -> None:
    """Of a long list the first and the last thousand or so are taken; of messages the latest."""
    taken = take(list(range(100_000)))
    assert (taken.value[:2], taken.value[-2:], taken.truncated) == ([0, 1], [99_998, 99_999], True)
    assert len(taken.value) < 2_000
    messages = take(
        [{"role": "user", "content": [{"type": "text", "text": str(n)}]} for n in range(1_500)]
    )
    assert messages.truncated
    assert messages.value[-1]["content"][0]["text"] == "1499"
    assert take({n: [n] for n in range(100_000)}).truncated
    assert not take([[n] for n in range(400)]).truncated


def test_the_effort_is_independent_of_the_size() -> None:
    """A list of a million items costs no more than a fixed number of items does."""
    calls: list[str] = []

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            calls.append(event)

    def effort(value: Any) -> int:
        calls.clear()
        sys.setprofile(watch)
        try:
            take(value)
        finally:
            sys.setprofile(None)
        return len(calls)

    for make in (list, tuple, lambda items: dict(enumerate(items))):
        for item in ("text", {"role": "user", "content": "text"}):
            assert (
                effort(make([dict(item) if type(item) is dict else item for _ in range(50_000)]))
                < 60_000
            )
        assert effort(make(["text"] * 5_000)) == effort(make(["text"] * 200_000))


def test_the_size_is_that_of_what_is_kept() -> None:
    """Text and bytes count exactly, bytes as the text that is read of them; the estimate of a
    nested value is within a fifth of what its parts take, wherever the large ones are.
    """
    for value in ("", "x" * 10_000, "\U0001f680" * 100, None):
        assert take(value).size_bytes == sys.getsizeof(value)
    assert 5_000 < take(b"y" * 5_000).size_bytes < 5_100
    texts = [f"{number}" * 500 for number in range(100, 400)]
    real = sum(map(sys.getsizeof, texts)) + sys.getsizeof(texts)
    assert abs(take(texts).size_bytes - real) < real / 5
    assert abs(take({str(i): [text] for i, text in enumerate(texts)}).size_bytes - real) < real / 5
    among_short = ["x"] * 500 + ["x" * 10_000] * 100 + ["x"] * 500
    assert take(among_short).size_bytes > 1_000_000
    body = ("x" * 10_000 + "\U0001f680").encode()
    for value in (body, [body], {"body": body}, json.dumps({"a": body.decode()}).encode()):
        assert take(value).size_bytes > 40_000


def test_types_are_remembered_and_not_kept() -> None:
    """A class of the host's is not kept alive by having been read."""

    def made() -> weakref.ref[type]:
        kind = dataclasses.make_dataclass("Made", ["text"])
        assert take(kind("x")).value.fields == {"text": "x"}
        return weakref.ref(kind)

    kinds = [made() for _ in range(10)]
    gc.collect()
    assert [kind() for kind in kinds] == [None] * 10


anything = st.recursive(
    st.none() | st.text() | st.binary() | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
)


@settings(max_examples=60, deadline=None)
@given(anything)
def test_any_plain_value_is_taken_as_it_is(value: Any) -> None:
    """A plain value of ordinary size comes back equal and whole, with an estimate above zero."""
    taken = take(value)
    assert (taken.value, taken.truncated, taken.left_out) == (value, False, 0)
    assert taken.size_bytes > 0


class Request:
    """As web frameworks call it."""


def test_what_the_web_framework_hands_over_is_no_prompt() -> None:
    """A request, a socket or background tasks beside the question are passed over, whatever they
    are called.
    """

    def plain(request: Request, item: str) -> None: ...
    def spelled(request: starlette.requests.Request, item: str) -> None: ...  # type: ignore[name-defined] # noqa: F821
    def own(request: dict[str, str], item: str) -> None: ...

    assert [Arguments(handler).prompt_name for handler in (plain, spelled, own)] == [
        "item",
        "item",
        "request",
    ]
