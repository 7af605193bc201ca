"""C16: any input is accepted: nothing but a CaptureError comes out of capture, quickly, and no
stream is used up.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import io
import time
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import Arguments, CapturedCall
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.capture.text import CAP_CHARS
from tests.capture.hostile import (
    Broken,
    BrokenList,
    BrokenMapping,
    BrokenText,
    Hostile,
    NoClass,
    any_text,
    errors,
)
from tests.promises.figures import FULL, Recorder, sized

CASES = sized(200, 20_000)
CPU_S = 0.05
SLACK = 6.0
"""The promise is 50 ms on a free core; a crowded machine gets some room."""

FIELDS = (
    "role", "content", "type", "text", "choices", "message", "delta", "messages", "output", "usage", "tool_calls",
    "function", "arguments", "name", "id", "model", "parts", "kind", "part_kind", "event_kind", "index", "response",
    "result", "new_items", "final_output", "raw_responses", "_state", "message_history", "body", "status_code",
    "finish_reason", "input_tokens", "prompt_tokens", "response_metadata", "tool_call_chunks", "data", "item", "part",
    "content_block", "item_id", "output_index", "incomplete_details", "snapshot", "chunk", "event", "args",
)  # fmt: skip
WORDS = (
    "user", "assistant", "system", "tool", "ai", "human", "AIMessageChunk", "text", "output_text", "tool_use",
    "tool_result", "function_call", "function_call_output", "message", "reasoning", "response.output_text.delta",
    "response.created", "response.completed", "response.output_item.added", "response.function_call_arguments.delta",
    "message_start", "message_delta", "content_block_start", "content_block_delta", "text_delta", "input_json_delta",
    "part_start", "part_delta", "agent_run_result", "run_item_stream_event", "raw_response_event", "request",
    "response", "chat.completion", "tool-call", "tool-return", "user-prompt", "values", "updates", "constructor", "",
)  # fmt: skip


class Everything:
    def __getattr__(self, name: str) -> Any:
        return Everything() if not name.startswith("__") else object.__getattribute__(self, name)


class Endless(dict[str, Any]):
    def get(self, key: Any, default: Any = None) -> Any:
        return self


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Record:
    content: Any
    role: Any = "assistant"


class Model(BaseModel):
    content: Any
    usage: Any = None


def generator() -> Iterator[str]:
    yield "never"


def cyclic() -> Any:
    actual: dict[str, Any] = {"role": "assistant", "content": []}
    actual["content"].append(actual)
    actual["message"] = actual["messages"] = actual["choices"] = [actual]
    return actual


class Late(NamedTuple):
    """What is made only when it is captured: the test's own tools must not touch it."""

    make: Any


def made_of(value: Any) -> Any:
    kind = type(value)
    if kind is Late:
        return value.make()
    if kind is dict:
        return {key: made_of(item) for key, item in value.items()}
    if kind is types.SimpleNamespace:
        return types.SimpleNamespace(**made_of(vars(value)))
    return kind(made_of(item) for item in value) if kind in (list, tuple) else value


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    any_text,
    st.binary(),
    st.builds(bytearray, st.binary()),
    st.builds(Broken, st.sampled_from(["__str__", "__repr__", "__len__", "__iter__"]), errors),
    st.complex_numbers(),
)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)
odd = st.one_of(
    anything,
    st.sampled_from([Hostile, Everything, Endless, cyclic, generator, NoClass, object]).map(Late),
    st.builds(BrokenText, st.sampled_from(WORDS)),
    st.builds(BrokenList),
    st.builds(BrokenMapping),
    st.builds(Point, anything, anything),
    st.builds(Record, anything),
    st.builds(Model, content=anything),
    st.datetimes(),
    st.uuids(),
    st.decimals(),
    st.just(io.BytesIO(b"x")),
    st.just(types),
    st.just(print),
)
shaped = st.recursive(
    st.sampled_from(WORDS) | st.integers(-3, 10**6) | st.none() | odd,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
        st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6).map(
            lambda fields: types.SimpleNamespace(**fields)
        ),
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
    ),
    max_leaves=10,
)


def capture(
    answer: Any, *, prompt: Any = "asked", chunks: list[Any] | None = None, facts: Any = None
) -> Any:
    """The input, or None where the answer has no text that can be had; every other exception
    passes.
    """
    # The best of three: a garbage collection of everything that the test run holds is not ours.
    for _ in range(3):
        call = CapturedCall("agent")
        call.facts, call.ended_ns = facts, 1
        began = time.thread_time()
        try:
            call.prompt = call.keep(prompt)
            call.keep_answer(answer)
            call.keep_facts()
            if chunks is not None:
                kept: list[Any] = []
                for chunk in chunks:
                    call.keep_chunk(chunk, kept)
                call.keep_stream(kept, "completed", False)
            made = build_input(call, on_bad_fact=lambda *_: None)
        except CaptureError:
            made = None
        took_s = time.thread_time() - began
        if took_s < CPU_S:
            break
    assert took_s < CPU_S * SLACK
    if made is not None:
        assert type(made.response) is str
        assert len(made.response) < CAP_CHARS + 100
        made.model_dump_json().encode("utf-8")
    return made


@pytest.mark.sized
@settings(
    max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=not FULL
)
@given(
    answer=shaped,
    prompt=shaped,
    chunks=st.none() | st.lists(shaped, max_size=6),
    facts=st.dictionaries(
        st.sampled_from(
            ["usage", "tool_calls", "message_history", "response", "prompt", "metadata", "model"]
        ),
        shaped,
        max_size=2,
    ),
)
def test_any_answer_prompt_stream_and_fact(
    answer: Any, prompt: Any, chunks: Any, facts: Any, promise: Recorder
) -> None:
    """Whatever is returned, asked, streamed and said: an input whose text is clean, or a
    CaptureError.
    """
    capture(made_of(answer), prompt=made_of(prompt), chunks=made_of(chunks), facts=made_of(facts))
    promise("C16", figure=f"{CASES} answers, prompts, streams and facts: 0 exceptions")


@settings(
    max_examples=CASES // 4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
@given(shaped, shaped)
def test_any_argument(item: Any, other: Any) -> None:
    """What is looked for among a handler's arguments on the caller's thread never raises, whatever
    they are.
    """

    def handler(
        prompt: Any,
        conversation_id: Any = None,
        config: Any = None,
        system: Any = None,
        history: Any = None,
    ):  # type: ignore[no-untyped-def]
        ...

    item, other = made_of(item), made_of(other)
    result = Arguments(handler).conversation(
        (item, other, item), {"system": other, "history": item}
    )
    assert result is None or type(result) is str
    call = CapturedCall("agent")
    Arguments(handler).take(call, (item, other, item), {"system": other, "history": item})
    assert call.others is None or type(call.others) is dict


def deep(wrap: Callable[[Any], Any]) -> Any:
    actual: Any = "x"
    for _ in range(100_000):
        actual = wrap(actual)
    return actual


LARGE: dict[str, Any] = {
    "10 MB of text": lambda: "x" * 10_000_000,
    "10 MB of bytes": lambda: b"x" * 10_000_000,
    "10 MB of JSON text": lambda: (
        '{"object": "chat.completion", "choices": [' + '{"a": 1},' * 1_000_000 + "{}]}"
    ),
    "JSON text just below the cap": lambda: (
        '{"object": "response", "output": [' + "[]," * 80_000 + "[]]}"
    ),
    "deep JSON text": lambda: (
        '{"object": "response", "output": ' + "[" * 100_000 + "]" * 100_000 + "}"
    ),
    "10 MB in a field": lambda: {"role": "assistant", "content": "x" * 10_000_000},
    "10 MB in a dataclass": lambda: Record(["x" * 10_000_000]),
    "a deep list": lambda: deep(lambda inner: [inner]),
    "a deep dictionary": lambda: deep(lambda inner: {"message": inner}),
    "a million messages": lambda: [{"role": "user", "content": "x"}] * 1_000_000,
    "a million parts": lambda: {
        "role": "assistant",
        "content": [{"type": "text", "text": "x"}] * 1_000_000,
    },
    "a million calls": lambda: {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "1",
                "function": {"name": "f", "arguments": {str(key): key for key in range(1_000)}},
            }
        ]
        * 1_000_000,
    },
    "large arguments": lambda: {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": str(key),
                "function": {"name": "f", "arguments": '{"a": "' + "x" * 200_000 + '"}'},
            }
            for key in range(100)
        ],
    },
    "a cycle": cyclic,
    "a huge number": lambda: 10**5_000,
    "numbers": lambda: list(range(1_000_000)),
    "many odd things": lambda: [
        datetime.datetime.now(),
        decimal.Decimal("1e999"),
        uuid.uuid4(),
        object(),
        Hostile(),
    ],
}


@pytest.mark.parametrize("name", LARGE)
def test_large_deep_and_cyclic_values(name: str, promise: Recorder) -> None:
    """Size, depth and cycles cost no more than small values do, as an answer, a prompt, a chunk and
    a fact.
    """
    value = LARGE[name]()
    began = time.thread_time()
    capture(value)
    promise(
        "C16",
        figure=f"large, deep and cyclic values: {(time.thread_time() - began) * 1e3:.0f} ms of CPU",
    )
    capture("answer", prompt=value)
    capture(None, chunks=["a", value, {"content": "b"}])
    capture("answer", facts={"metadata": {"value": value}, "tool_calls": value})
    # taken apart by hand: clearing it is not what is tested
    while "deep" in name and isinstance(value, list | dict):
        value = next(iter(value.values() if isinstance(value, dict) else value), None)


@pytest.mark.parametrize(
    "make", [generator, lambda: iter([1]), lambda: map(str, [1]), lambda: io.StringIO("never")]
)
def test_no_stream_is_used_up(make: Any) -> None:
    """An iterator as an answer, a prompt, a part of one or a fact is never advanced; as an answer
    it has no text.
    """
    stream = make()
    assert capture(stream) is None
    capture({"content": stream, "messages": stream, "choices": [{"message": stream}]})
    capture("answer", prompt=stream, facts={"metadata": {"x": stream}, "response": stream})
    capture(None, chunks=["a", stream])
    assert len(list(stream)) == 1
