"""What is taken on the caller's thread: the prompt's place, the snapshot, the estimate of bytes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.capture import (
    CapturedCall,
    ConversationParameter,
    OtherParameters,
    PromptParameter,
    estimate_bytes,
    snapshot,
)


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


def nothing() -> None: ...


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = [
    (plain, ("hi",), {}, "hi"),
    (plain, (), {"thing": "hi"}, "hi"),
    (named, ("ann", "hi"), {}, "hi"),
    (named, ("ann",), {"prompt": "hi"}, "hi"),
    (keyword_only, ("ann",), {"question": "hi"}, "hi"),
    (keyword_only, ("ann",), {}, None),
    (variadic, ("hi", "there"), {}, "hi"),
    (keywords, (), {"prompt": "hi"}, "hi"),
    (positional_only, ("hi",), {"other": "x"}, "hi"),
    (nothing, (), {}, None),
    (Agent.ask, (Agent(), [], "hi"), {}, "hi"),
    (Agent.anything, (Agent(), "hi"), {}, "hi"),
    (Agent().ask, ([], "hi"), {}, "hi"),
    (Agent(), ("hi",), {}, "hi"),
    (functools.partial(named, "ann"), ("hi",), {}, "hi"),
    (max, ("hi",), {}, "hi"),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "expected"), CASES)
def test_the_prompt_is_found(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], expected: Any
) -> None:
    """The prompt is the argument with an obvious name, else the first that is not self; None when it was not passed."""
    assert PromptParameter(function).of(args, kwargs) == expected


def test_a_wrong_call_gives_no_prompt() -> None:
    """A call with too few arguments, which the handler itself will refuse, does no harm here."""
    assert PromptParameter(named).of((), {}) is None
    assert PromptParameter(Agent.ask).of((Agent(),), {}) is None


def conversational(question: str, session_id: str = "", *, conversation_id: Any = None) -> None: ...


def configured(state: Any, config: Any = None) -> None: ...


ID = UUID(int=7)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (conversational, ("hi", "s-1"), {}, "s-1"), (conversational, ("hi",), {"session_id": "s-2"}, "s-2"),
        (conversational, ("hi", "s-1"), {"conversation_id": 17}, "17"),
        (conversational, ("hi",), {"conversation_id": ID}, str(ID)),
        (conversational, ("hi",), {"conversation_id": ["no id"]}, None), (conversational, ("hi",), {}, None),
        (configured, ({}, {"configurable": {"thread_id": "t-1"}}), {}, "t-1"),
        (configured, ({},), {"config": {"configurable": {"thread_id": 3}}}, "3"),
        (configured, ({},), {"config": {"configurable": None}}, None), (configured, ({},), {"config": "x"}, None),
        (keywords, (), {"thread_id": "t-2", "prompt": "hi"}, "t-2"), (Agent.ask, (Agent(), [], "hi"), {}, None),
    ],
)  # fmt: skip
def test_the_conversation_is_found(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], expected: Any
) -> None:
    """The conversation's id is the argument of that name, else the thread of a graph's configuration."""
    finder = ConversationParameter(function)
    assert finder.of(args, kwargs) == expected
    assert finder.present is (function is not Agent.ask)


def test_system_text_and_history_are_found_beside_the_prompt() -> None:
    """What has the name of a system text or of a history is taken by reference; the prompt itself is neither."""

    def handler(question: str, history: list[Any], system_prompt: str = "Be nice.") -> None: ...

    def chat(messages: list[Any], system: str | None = None) -> None: ...

    history: list[Any] = ["a"]
    found = OtherParameters(handler).of(("hi", history), {"system_prompt": "Be kind."})
    assert found == {"system": "Be kind.", "history": ["a"]}
    assert found["history"] is not history, "a list gets its shallow copy"
    assert OtherParameters(handler).of(("hi",), {}) is None
    assert OtherParameters(chat).of(([],), {"system": "Be nice."}) == {"system": "Be nice."}
    assert OtherParameters(plain).present is False
    assert OtherParameters(max).present is False


def test_a_snapshot_is_shallow_and_bounded() -> None:
    """Plain lists and dictionaries are copied one level deep up to 1,000 items; everything else is the same object."""
    inner: list[int] = []
    for value in ([inner], {"a": inner}):
        copied = snapshot(value)
        assert copied == value
        assert copied is not value
    assert snapshot([inner])[0] is inner
    for kept in ("text", 7, None, (1,), [0] * 1_001, Agent()):
        assert snapshot(kept) is kept


def test_a_later_change_does_not_reach_the_snapshot() -> None:
    """What is judged is what was returned, whatever the host does with its list afterwards."""
    answer = ["a"]
    kept = snapshot(answer)
    answer.append("b")
    assert kept == ["a"]


def test_texts_are_measured_exactly() -> None:
    """Text and bytes count what they take."""
    for value in ("", "x" * 10_000, "\U0001f680" * 100, b"y" * 5_000, None):
        assert estimate_bytes(value) == sys.getsizeof(value)


class Counted(list[Any]):
    """A list of the host's own class that counts the use of its methods."""

    used = 0

    def __len__(self) -> int:
        Counted.used += 1
        return 0

    def __iter__(self) -> Any:
        Counted.used += 1
        return iter(())

    def __sizeof__(self) -> int:
        Counted.used += 1
        return 0


class Hostile:
    """An object whose every method raises."""

    def __init__(self) -> None:
        object.__setattr__(self, "payload", "x" * 1_000)

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("touched")

    def __len__(self) -> int:
        raise RuntimeError("touched")

    def __iter__(self) -> Any:
        raise RuntimeError("touched")

    def __sizeof__(self) -> int:
        raise RuntimeError("touched")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("touched")

    def __hash__(self) -> int:
        raise RuntimeError("touched")


class Slotted:
    __slots__ = ("text",)


def test_the_hosts_methods_are_not_called() -> None:
    """Measuring calls no method of the host's classes, so it can neither raise nor take long."""
    Counted.used = 0
    assert estimate_bytes(Counted([1, 2])) > 0
    assert Counted.used == 0
    assert estimate_bytes(Hostile()) > 1_000
    assert estimate_bytes([Hostile(), {"a": Hostile()}]) > 1_000
    assert estimate_bytes(Slotted()) == 64
    assert estimate_bytes(Hostile) == 64


def test_the_effort_is_independent_of_the_size() -> None:
    """A list of a million items is looked at as closely as one of a hundred."""
    looked: list[str] = []

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            looked.append(frame.f_code.co_name)

    def effort(value: Any) -> int:
        looked.clear()
        sys.setprofile(watch)
        try:
            estimate_bytes(value)
        finally:
            sys.setprofile(None)
        return len(looked)

    for make in (list, tuple, lambda items: dict(enumerate(items))):
        assert effort(make(["text"] * 100)) == effort(make(["text"] * 200_000))


def test_the_rest_is_extrapolated() -> None:
    """A long list of equal texts is estimated within a fifth of what it takes."""
    texts = ["x" * 1_000 for _ in range(5_000)]
    real = sum(map(sys.getsizeof, texts)) + sys.getsizeof(texts)
    assert abs(estimate_bytes(texts) - real) < real / 5
    assert abs(estimate_bytes({str(i): text for i, text in enumerate(texts)}) - real) < real / 5


def test_cycles_end() -> None:
    """A list that holds itself is measured to the same depth as any other."""
    cycle: list[Any] = []
    cycle.append(cycle)
    assert estimate_bytes(cycle) > 0


anything = st.recursive(
    st.none() | st.text() | st.binary() | st.integers() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
)


@given(anything)
def test_any_value_is_measured(value: Any) -> None:
    """Every plain value has an estimate above zero."""
    assert estimate_bytes(value) > 0


def test_a_call_shows_its_state() -> None:
    """The captured call says in its repr how it stands, and never its content."""
    call = CapturedCall(None, "support")
    call.answer = "secret"
    assert repr(call) == "<CapturedCall support answered>"
    call.error_type = "ValueError"
    assert repr(call) == "<CapturedCall support ValueError>"


class Request:
    """As web frameworks call it."""


def test_what_the_web_framework_hands_over_is_no_prompt() -> None:
    """A request, a socket or background tasks beside the question are passed over, whatever they are called."""

    def plain(request: Request, item: str) -> None: ...
    def spelled(request: starlette.requests.Request, item: str) -> None: ...  # type: ignore[name-defined] # noqa: F821
    def own(request: dict[str, str], item: str) -> None: ...

    assert [PromptParameter(handler).name for handler in (plain, spelled, own)] == ["item", "item", "request"]
