"""Attributes that are not what they should be: nothing raises, everything is bounded, what can be
read is read.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.capture.spans.base import MAPPERS
from agenteval_otel.capture.spans.trace import read_traces
from agenteval_otel.capture.spans.values import MAX_JSON_CHARS, numbered, structured
from agenteval_otel.capture.text import CAP_CHARS
from agenteval_otel.mappers import ReadEvent, ReadSpan, read_trace
from agenteval_otel.models import EvaluationInput
from tests.mappers.support import NAMES, contents_of, read_at_once, spans_of

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"


def chat(answer: Any, question: Any = "[]", **more: Any) -> ReadSpan:
    attributes = {"gen_ai.operation.name": "chat", INPUT: question, OUTPUT: answer, **more}
    return ReadSpan(1, 1, None, "chat", 3, 1, 2, attributes)


def input_of(span: ReadSpan) -> EvaluationInput:
    """What the only answer of a span says."""
    reading = read_trace([span])
    assert not reading.failed
    [mapped] = reading.answers
    return mapped.input


def response_of(span: ReadSpan) -> Any:
    return input_of(span).response


def message(content: Any, role: Any = "assistant") -> list[dict[str, Any]]:
    return [{"role": role, "parts": [{"type": "text", "content": content}]}]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "no JSON",
        "{",
        "[1, 2",
        "null",
        "[null]",
        "[[[]]]",
        5,
        1.5,
        True,
        None,
        b"bytes",
        [],
        {},
        [None, 1, "text", {"parts": None}],
        [{"role": 5, "parts": []}],
        json.dumps(message({"not": "text"})),
        json.dumps(message(None)),
        "[" * 100_000,
        '{"a":' * 50_000,
        [{"role": "assistant", "parts": [{"type": "tool_call"}, {"type": None}, {}]}],
    ],
)
def test_what_is_no_message_is_no_answer(answer: Any) -> None:
    """It counts as missing content."""
    assert response_of(chat(answer)) is None


@pytest.mark.parametrize(
    "answer", [json.dumps(message("yes")), message("yes"), (*message("yes"),), message("yes")[0]]
)
def test_messages_are_read_from_text_and_from_structured_values(answer: Any) -> None:
    """Also from the SDK's own sequences."""
    assert response_of(chat(answer)) == "yes"


def test_messages_that_a_limit_has_cut_are_read_as_far_as_they_go() -> None:
    """The SDK cuts attributes at a length that is set: JSON breaks off within a text."""
    text = json.dumps([*message("first", "user"), *message("the answer goes on for long")])
    assert response_of(chat(text[: text.index(" for long")])) == "the answer goes on"


def test_a_cut_within_a_surrogate_pair_does_not_lose_the_message() -> None:
    """Lone surrogates are replaced: one would lose a batch in the exporter."""
    assert (
        response_of(chat('[{"role":"assistant","parts":[{"type":"text","content":"ok \\ud83d"}]}]'))
        == "ok \ufffd"
    )
    assert response_of(chat(message("nul \0 and \ud83d"))) == "nul  and \ufffd"


def test_a_long_answer_is_capped_and_said_to_be() -> None:
    """As captured answers are."""
    read = input_of(chat(message("x" * (CAP_CHARS + 100))))
    assert len(read.response) < CAP_CHARS + 100
    assert read.metadata == {"agenteval.snapshot": "truncated"}


def test_json_beyond_the_limit_is_read_of_an_answer_alone() -> None:
    """Its beginning is what is kept of a text. A question beyond the limit would be an earlier one."""
    long = "x" * MAX_JSON_CHARS
    response = response_of(chat(json.dumps(message(long))))
    assert CAP_CHARS / 2 < len(response) < CAP_CHARS + 100
    asked = json.dumps([*message("earlier", "user"), *message(long, "user")])
    read = input_of(chat(message("yes"), asked))
    assert read.prompt is None


def test_arguments_and_results_are_bounded() -> None:
    """Deep nesting ends, many items are cut."""
    deep: Any = "end"
    for _ in range(500):
        deep = [deep]
    call = {
        "type": "tool_call",
        "id": "1",
        "name": "t",
        "arguments": {"deep": deep, "many": list(range(50_000))},
    }
    read = input_of(chat([{"role": "assistant", "parts": [call]}]))
    [tool_call] = read.tool_calls or ()
    assert len(json.dumps(tool_call.arguments)) < 100_000


def test_a_thousand_messages_are_the_most() -> None:
    """The last ones are read."""
    messages = [message(str(number), "user")[0] for number in range(3_000)]
    read = input_of(chat(message("yes"), messages))
    assert read.prompt == "2999"
    assert len(read.message_history or ()) == 1_000


def test_numbered_attributes_are_sorted_by_number_and_bounded() -> None:
    """Numbers that are none are left out."""
    spread = {
        "m.10.a": 1,
        "m.9.a": 2,
        "m.x.a": 3,
        "m.9.b.0": 4,
        "mm.1.a": 5,
        "m.²": 6,
        f"m.{10**30}.a": 7,
    }
    assert numbered(spread, "m") == [{"a": 2, "b.0": 4}, {"a": 1}]
    assert len(numbered({f"m.{number}.a": 1 for number in range(5_000)}, "m")) == 1_000


@pytest.mark.parametrize(
    "text", ["[1] Oslo is the capital.", '"Quoted" at its begin', "{curly}", "[see the docs"]
)
def test_text_that_begins_like_json_stays_text(text: str) -> None:
    """Answers begin with references."""
    assert structured(text) == text


def test_events_without_content_say_nothing() -> None:
    """Of version 1.28, with content off, bodies hold roles and ids only."""
    span = chat(None, None)
    span.events = [
        ReadEvent("gen_ai.user.message", 1, {}, {}),
        ReadEvent("gen_ai.choice", 2, {}, {"index": 0, "message": None}),
        ReadEvent("gen_ai.choice", 3, {"message": None}, None),
        ReadEvent("gen_ai.tool.message", 4, {}, {"id": 5}),
    ]
    assert response_of(span) is None


ATTRIBUTES = sorted(
    {name for recorded in NAMES for span in spans_of(recorded) for name in span.attributes}
)
KEYS = (
    "role",
    "parts",
    "content",
    "type",
    "id",
    "name",
    "message",
    "args",
    "kwargs",
    "messages",
    "lc",
    "output",
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["chat", "LLM", "agent", "tool", "user", "invoke_agent", "text", "[]"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from(NAMES))
def test_any_value_in_any_attribute_gives_valid_inputs_or_none(
    data: st.DataObject, name: str
) -> None:
    """Some attributes of real spans get other values, as JSON text too: no mapper raises, every
    input is valid, and what is read later is what is read at once.
    """
    spans = spans_of(name)
    for span in spans:
        changed = data.draw(
            st.dictionaries(st.sampled_from(ATTRIBUTES), values | values.map(_as_json), max_size=4)
        )
        span.attributes = {**span.attributes, **changed}
    failed: list[str] = []
    [reading] = read_traces([spans], nested_agents=True, failed_later=failed.append)
    at_once = read_at_once(spans, nested_agents=True)
    assert repr(contents_of(reading)) == repr(contents_of(at_once))  # NaN is not equal to itself
    assert not reading.failed
    assert not failed
    for mapped in reading.answers:
        assert mapped.mapper in MAPPERS
        EvaluationInput.model_validate(mapped.input.model_dump(by_alias=True))
        json.dumps(mapped.input.model_dump(mode="json")).encode()


def _as_json(value: Any) -> str:
    return json.dumps(value)
