"""Clients' responses, damaged in every place: what is left is read, nothing is made up, nothing
else is raised.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.models import EvaluationInput
from agenteval_otel.testing import ModelServer
from tests.capture.support import ASKED, CALLING, LOOK

USER: Any = [{"role": "user", "content": "How is it?"}]
WRONG: tuple[Any, ...] = (None, 7, "wrong", [], {}, [None], {"wrong": "wrong"}, True)


@pytest.fixture(scope="module")
def dumps() -> dict[str, Any]:
    """Dumps of whole responses, and lists of dumps of streams, by name."""
    with ModelServer([CALLING]) as server:
        with anthropic.Anthropic(base_url=server.url, api_key="t") as claude:
            asking: Any = {"model": "claude-x", "max_tokens": 9, "messages": USER}
            message = claude.messages.create(**asking).model_dump()
            events = [event.model_dump() for event in claude.messages.create(**asking, stream=True)]
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="t") as gpt:
            chat: Any = {"model": "gpt-x", "messages": ASKED}
            completion = gpt.chat.completions.create(**chat).model_dump()
            counted: Any = {"stream": True, "stream_options": {"include_usage": True}}
            chunks = [
                chunk.model_dump() for chunk in gpt.chat.completions.create(**chat, **counted)
            ]
            response = gpt.responses.create(model="gpt-x", input="x").model_dump(warnings=False)
            stream = gpt.responses.create(model="gpt-x", input="x", stream=True)
            steps = [event.model_dump(warnings=False) for event in stream]
    graph = {
        "messages": [
            {"type": "human", "content": "How is it?"},
            {
                "type": "ai",
                "content": "",
                "id": "1",
                "tool_calls": [{"name": "weather", "args": {"a": 1}, "id": "c"}],
            },
            {"type": "tool", "content": "sunny", "tool_call_id": "c"},
            {
                "type": "ai",
                "content": "Let me look.",
                "response_metadata": {"model_name": "m", "id": "r"},
            },
        ]
    }
    return {
        "message": message,
        "message stream": events,
        "completion": completion,
        "completion stream": chunks,
        "response": response,
        "response stream": steps,
        "graph": graph,
    }


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every field and item."""
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in pairs:
        yield (*above, key)
        yield from places(item, (*above, key))


def damaged(value: Any, place: tuple[Any, ...]) -> Iterator[Any]:
    """The value with this place left out, of a wrong type, or cut short."""
    *above, last = place
    for wrong in (..., *WRONG, "cut"):
        made = copy.deepcopy(value)
        holder = made
        for key in above:
            holder = holder[key]
        if wrong is ...:
            del holder[last]
        elif wrong != "cut":
            holder[last] = wrong
        elif isinstance(holder[last], str | list):
            holder[last] = holder[last][: len(holder[last]) // 2]
        else:
            continue
        yield made


def atoms(value: Any) -> Iterator[Any]:
    """Everything in it that is neither a list nor a dictionary."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from atoms(item)
    else:
        yield value


def captured(value: Any) -> EvaluationInput | None:
    call = CapturedCall("agent")
    if isinstance(value, list):
        call.chunks = value
    else:
        call.answer = value
    try:
        return build_input(call, on_bad_fact=lambda *_: None)
    except CaptureError:
        return None


def check(made: EvaluationInput | None, value: Any) -> None:
    """Every fact stands in what was given, and the text is made of its text."""
    if made is None:
        return
    known = list(atoms(value))
    texts = [atom for atom in known if isinstance(atom, str)]
    for fact in (made.model, made.response_id, made.finish_reason, made.conversation_id):
        assert fact is None or fact in texts
    for call in made.tool_calls or ():
        assert call.name in texts
        assert call.id is None or call.id in texts
    numbers = [atom for atom in known if type(atom) is int]
    # with the tokens of a cache
    sums = {*numbers, *(number + other for number in numbers for other in numbers)}
    for count in (made.usage.input_tokens, made.usage.output_tokens) if made.usage else ():
        assert count is None or count in sums
    left = re.sub("[Tt]rue|null", "", made.response)
    keys = (
        {place[-1] for place in places(value) if isinstance(place[-1], str)}
        if isinstance(value, dict)
        else set()
    )
    for text in sorted({*filter(None, texts), *keys, "7"}, key=len, reverse=True):
        left = left.replace(text, "")
    assert left.strip('{}[]":, \n') in ("", "null", "true"), (
        f"made up: {left!r} in {made.response!r}"
    )


STREAMS = ("message stream", "completion stream", "response stream")


@pytest.mark.parametrize("name", ["message", "completion", "response", "graph", *STREAMS])
def test_damage_in_every_place(dumps: dict[str, Any], name: str) -> None:
    """Each field and item is left out, replaced by every wrong type, and cut short, one at a time."""
    value = dumps[name]
    result = list(places(value))
    for place in result if len(result) < 80 else result[:: len(result) // 40]:
        for broken in damaged(value, place):
            check(captured(broken), broken)


@pytest.mark.parametrize("name", STREAMS)
def test_streams_cut_shuffled_and_repeated(dumps: dict[str, Any], name: str) -> None:
    """A stream that begins late, ends early, comes backwards or twice gives what it has."""
    events = dumps[name]
    for start in range(0, len(events), 3):
        for stream in (
            events[start:],
            events[:start],
            events[:start] + events[start + 1 :],
            events[::-1],
        ):
            made = captured(stream)
            # Ends of blocks alone say nothing of what the answer was.
            assert made is not None or all(event["type"].endswith("_stop") for event in stream)
            check(made, stream)
    twice = captured(events + events)
    assert twice is not None
    assert twice.response in (LOOK, LOOK + LOOK)
