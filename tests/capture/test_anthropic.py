"""What the Anthropic client gives, captured by its shape."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from agenteval_otel.testing import ModelReply, ModelServer
from tests.capture.support import ANSWER, CALLING, LOOK, ONLY_CALLING, WEATHER, found, passed_on, returned, streamed

ASKING: Any = {"model": "claude-x", "max_tokens": 99, "messages": [{"role": "user", "content": "How is it?"}]}
CALL = ("weather", WEATHER["arguments"], None)
WHOLE = (LOOK, [CALL], (7, 9), "claude-x", "tool_use")


@pytest.fixture
def client() -> Iterator[anthropic.Anthropic]:
    with ModelServer([CALLING]) as server, anthropic.Anthropic(base_url=server.url, api_key="test") as made:
        yield made


def test_a_message(client: anthropic.Anthropic) -> None:
    """The message object, its dictionary and its JSON tell the same; reasoning is no text."""
    message = client.messages.create(**ASKING)
    for answer in (message, message.model_dump(), message.model_dump_json(), message.to_dict(), {"response": message}):
        given = returned(answer)
        assert found(given) == WHOLE
        assert given.response_id == message.id
    for content in (message.content, message.model_dump()["content"]):
        assert found(returned(content))[:2] == (LOOK, [CALL])


def test_a_message_that_only_calls_tools() -> None:
    """An answer without text has the text ``""`` and its calls."""
    with ModelServer([ONLY_CALLING]) as server, anthropic.Anthropic(base_url=server.url, api_key="test") as client:
        assert found(returned(client.messages.create(**ASKING)))[:2] == ("", [CALL])
        assert found(streamed(client.messages.create(**ASKING, stream=True)))[:2] == ("", [CALL])


def test_a_stream(client: anthropic.Anthropic) -> None:
    """The stream's events, as objects and as dictionaries, tell what the message would."""
    events = list(client.messages.create(**ASKING, stream=True))
    for chunks in (events, [event.model_dump() for event in events]):
        given = streamed(chunks)
        assert found(given) == WHOLE
        assert (given.response_id, given.stream_end) == ("msg_00000001", "completed")


def test_the_stream_helpers_events_are_not_counted_twice(client: anthropic.Anthropic) -> None:
    """The helper repeats the text in events of its own; a handler that passes only those on is understood too."""
    with client.messages.stream(**ASKING) as stream:
        events = list(stream)
        final = stream.get_final_message()
    assert found(streamed(events)) == WHOLE
    assert found(streamed([*events, final])) == WHOLE
    assert streamed([event for event in events if event.type == "text"]).response == LOOK
    with client.messages.stream(**ASKING) as stream:
        assert streamed(stream.text_stream).response == LOOK


def test_the_async_client() -> None:
    """The async client's message and stream are the same objects."""
    with ModelServer([CALLING]) as server:

        async def stream() -> Any:
            async with anthropic.AsyncAnthropic(base_url=server.url, api_key="test") as client:
                async for event in await client.messages.create(**ASKING, stream=True):
                    yield event

        async def message() -> Any:
            async with anthropic.AsyncAnthropic(base_url=server.url, api_key="test") as client:
                return await client.messages.create(**ASKING)

        assert found(passed_on(stream)) == WHOLE
        assert found(returned(asyncio.run(message()))) == WHOLE


def test_a_stream_that_breaks_off(client: anthropic.Anthropic) -> None:
    """What came is told, what did not come is not made up: no finish reason, no output tokens."""
    events = list(client.messages.create(**ASKING, stream=True))
    texts = [index for index, event in enumerate(events) if event.type == "content_block_delta"
             and event.delta.type == "text_delta"]  # fmt: skip
    given = streamed(events[: texts[0] + 1])
    assert given.response == LOOK[:7]
    assert (given.finish_reason, given.tool_calls) == (None, None)
    assert given.usage is not None
    assert (given.usage.input_tokens, given.usage.output_tokens) == (7, None)


def test_the_events_as_a_proxy_passes_them_on(client: anthropic.Anthropic) -> None:
    """Server-sent events as bytes cut anywhere, or as lines, are read as the events that they carry."""
    with client.messages.with_streaming_response.create(**ASKING, stream=True) as response:
        raw = b"".join(response.iter_bytes())
    for size in (7, 100, len(raw)):
        assert found(streamed([raw[start : start + size] for start in range(0, len(raw), size)])) == WHOLE
    assert found(streamed(raw.decode().splitlines(keepends=True))) == WHOLE
    assert streamed([raw[: raw.index(b"text_delta") + 20]]).response == "", "an event that broke off says nothing"


def test_a_loop_with_tools_is_a_conversation() -> None:
    """The request's own messages, with the parts that call tools and bring results, are prompt and history."""
    with ModelServer([ONLY_CALLING, ANSWER]) as server, anthropic.Anthropic(base_url=server.url, api_key="t") as client:
        messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "How is it?"}]}]
        first = client.messages.create(**{**ASKING, "messages": messages})
        result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "sunny"}  # type: ignore[union-attr]
        messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        last = client.messages.create(**{**ASKING, "messages": messages})
    given = returned(last, prompt=messages, system="Be nice.")
    assert (given.prompt, given.response) == ("How is it?", "It is sunny.")
    assert given.message_history is not None
    assert [message.role for message in given.message_history] == ["system", "user", "assistant", "tool"]
    assert given.message_history[0].content == "Be nice."
    calls = given.message_history[2].tool_calls
    assert calls is not None
    assert (calls[0].name, calls[0].result) == ("weather", "sunny")
    whole = returned([*messages, {"role": "assistant", "content": last.content}])
    assert found(whole)[:2] == ("It is sunny.", [("weather", WEATHER["arguments"], "sunny")])


def test_tokens_of_the_cache_are_input() -> None:
    """Tokens that were read from or written to the cache count as input, as the GenAI conventions ask."""
    usage = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 10}
    body = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": [], "usage": usage}
    with (
        ModelServer([ModelReply(body=body)]) as server,
        anthropic.Anthropic(base_url=server.url, api_key="t") as client,
    ):
        given = returned(client.messages.create(**ASKING))
    assert given.usage is not None
    assert (given.usage.input_tokens, given.usage.output_tokens) == (115, 2)
    assert json.loads(given.model_dump_json(by_alias=True))["usage"] == {"inputTokens": 115, "outputTokens": 2}
