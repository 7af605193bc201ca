"""Shapes of answers and prompts."""

from __future__ import annotations

import types
from typing import Any

import pytest
from hypothesis import given

from agenteval_otel.errors import CaptureError
from tests.capture.support import answer_text, history_of, prompt_text, read_chunks
from tests.capture.test_text import BrokenMapping, BrokenText, anything

CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Where is my parcel?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "track", "arguments": '{"id": 7}'}},
            {"id": "call_2", "name": "notify", "arguments": {"to": "ann"}},
            "not a call",
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "name": "track", "content": "on its way"},
    {"role": "user", "content": "When will it come?"},
    {"role": "assistant", "content": "Tomorrow."},
]


class Reply:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __str__(self) -> str:
        return "a reply"


class Guarded:
    """Raises for the fields that one might look for."""

    @property
    def content(self) -> str:
        raise RuntimeError("not loaded")

    def __str__(self) -> str:
        return "guarded"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("text", "text"), ({"content": "text"}, "text"), ({"output": "text", "usage": 1}, "text"),
        ({"content": None, "answer": "text"}, "text"), (Reply(content="text"), "text"), (Reply(text="text"), "text"),
        (types.SimpleNamespace(message="text"), "text"), (Reply(content=7, text="text"), "text"),
        (["a", "b"], '["a", "b"]'), (None, ""), (7, "7"), (False, "False"), (b"text", "text"), ("a\ud800", "a\ufffd"),
        ({"content": "a\0b"}, "ab"),
    ],
)  # fmt: skip
def test_the_text_of_an_answer(answer: Any, expected: str) -> None:
    """Of a mapping or an object the text field, of plain data JSON, of the rest `str`; always clean."""
    assert answer_text(answer) == expected


@given(anything)
def test_any_answer_gives_text_or_our_error(answer: Any) -> None:
    """No answer raises anything but a CaptureError."""
    try:
        assert type(answer_text(answer)) is str
    except CaptureError:
        pass


@given(anything)
def test_any_prompt_gives_text_or_our_error(prompt: Any) -> None:
    """No prompt raises anything but a CaptureError, neither as text nor as a history."""
    for take in (prompt_text, history_of):
        try:
            take(prompt)
        except CaptureError:
            pass


def test_hostile_texts_and_mappings() -> None:
    """Text that breaks is read as what it holds; a mapping that breaks is a CaptureError."""
    assert answer_text(BrokenText("kept")) == "kept"
    assert answer_text({"content": BrokenText("kept")}) == "kept"
    with pytest.raises(CaptureError):
        answer_text(BrokenMapping())


def test_chunks_are_joined() -> None:
    """A streamed answer is its chunks one after another, of whatever shape, without separators."""
    assert read_chunks(["Hel", "lo", {"content": " wor"}, Reply(text="ld"), b"!"]).text == "Hello world!"
    assert read_chunks([]).text == ""
    assert read_chunks(["\ud83d", "\ude80"]).text == "\U0001f680"


def test_the_prompt_of_a_conversation_is_the_users_last_message() -> None:
    """Of a list of messages the last one of the user is the question."""
    assert prompt_text(CONVERSATION) == "When will it come?"
    assert prompt_text(tuple(CONVERSATION)) == "When will it come?"
    assert prompt_text([{"role": "system", "content": "x"}]) is None
    assert prompt_text("plain") == "plain"
    assert prompt_text(None) is None
    assert prompt_text([{"text": "no role"}]) == '[{"text": "no role"}]'


def test_the_history_keeps_roles_contents_and_tool_calls() -> None:
    """A conversation in OpenAI's form becomes messages; tool calls have id, name, arguments and result."""
    history = history_of(CONVERSATION)
    assert history is not None
    assert [message["role"] for message in history] == ["system", "user", "assistant", "tool", "user", "assistant"]
    assert history[2]["content"] is None
    assert history[2]["tool_calls"] == [
        {"id": "call_1", "name": "track", "arguments": {"id": 7}, "result": "on its way"},
        {"id": "call_2", "name": "notify", "arguments": {"to": "ann"}, "result": None},
    ]
    assert (history[3]["tool_call_id"], history[3]["tool_name"]) == ("call_1", "track")


def test_what_is_no_conversation_has_no_history() -> None:
    """Text, an empty list and lists of other things are no history."""
    for value in ("text", None, [], ["a"], [{"content": "x"}], {"role": "user"}):
        assert history_of(value) is None


def test_a_long_history_keeps_its_end() -> None:
    """Of a very long conversation the last messages are kept, without a gap, as many as the walk has parts for."""
    history = history_of([{"role": "user", "content": str(index)} for index in range(1_500)])
    assert history is not None
    assert [message["content"] for message in history] == [str(1_500 - number) for number in range(len(history), 0, -1)]
    assert 250 < len(history) <= 1_000
