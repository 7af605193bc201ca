"""What the OpenAI client gives, chat completions and the Responses API, captured by its shape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from agenteval_otel import annotate
from agenteval_otel.testing import ModelReply, ModelServer
from tests.capture.support import ASKED, CALLING, LOOK, ONLY_CALLING, WEATHER, found, passed_on, returned, streamed
from tests.instrumentation.support import Seen

CHAT: Any = {"model": "gpt-x", "messages": ASKED}
COUNTED: Any = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
INPUT: Any = {"model": "gpt-x", "input": "How is the weather?", "instructions": "Be nice."}
CALL = ("weather", WEATHER["arguments"], None)
WHOLE = (LOOK, [CALL], (7, 9), "gpt-x", "tool_calls")
RESPONSE = (LOOK, [CALL], (7, 9), "gpt-x", "completed")


@pytest.fixture
def client() -> Iterator[openai.OpenAI]:
    with ModelServer([CALLING]) as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="test") as made:
        yield made


def test_a_completion(client: openai.OpenAI) -> None:
    """The completion, its dictionary and its JSON tell the same; the message alone tells text and calls."""
    completion = client.chat.completions.create(**CHAT)
    for answer in (completion, completion.model_dump(), completion.model_dump_json()):
        given = returned(answer)
        assert found(given) == WHOLE
        assert given.response_id == completion.id
    for message in (completion.choices[0].message, completion.choices[0].message.model_dump()):
        assert found(returned(message)) == (LOOK, [CALL], None, None, None)


def test_a_completion_in_chunks(client: openai.OpenAI) -> None:
    """Chunks, as objects and as dictionaries, give text, assembled arguments, and usage from the last one."""
    chunks = list(client.chat.completions.create(**COUNTED))
    for stream in (chunks, [chunk.model_dump() for chunk in chunks]):
        given = streamed(stream)
        assert found(given) == WHOLE
        assert given.response_id == "chatcmpl-00000001"
    uncounted = streamed(client.chat.completions.create(**CHAT, stream=True))
    assert found(uncounted) == (LOOK, [CALL], None, "gpt-x", "tool_calls")


def test_chunks_mixed_with_text(client: openai.OpenAI) -> None:
    """What the handler says itself stands in the text where it was said."""
    chunks = list(client.chat.completions.create(**CHAT, stream=True))
    assert streamed(["One moment. ", *chunks, b" Done."]).response == f"One moment. {LOOK} Done."


def test_the_stream_helper(client: openai.OpenAI) -> None:
    """The helper's events tell everything once."""
    with client.chat.completions.stream(**CHAT) as stream:
        events = list(stream)
    assert found(streamed(events)) == (LOOK, [CALL], None, "gpt-x", "tool_calls")
    assert streamed([event for event in events if event.type == "content.delta"]).response == LOOK


def test_a_response(client: openai.OpenAI) -> None:
    """The response, its dictionary and its JSON tell the same; so do its items, as far as they know."""
    response = client.responses.create(**INPUT)
    for answer in (response, response.model_dump(), response.model_dump_json(warnings=False)):
        given = returned(answer)
        assert found(given) == RESPONSE
        assert given.response_id == response.id
    for items in (response.output, response.model_dump()["output"]):
        assert found(returned(items)) == (LOOK, [CALL], None, None, None)


def test_a_response_in_events(client: openai.OpenAI) -> None:
    """The whole response at the stream's end does not double what came before it."""
    events = list(client.responses.create(**INPUT, stream=True))
    for stream in (events, [event.model_dump(warnings=False) for event in events]):
        given = streamed(stream)
        assert found(given) == RESPONSE
        assert given.response_id == "resp_00000001"
    cut = streamed(events[:-1])
    assert found(cut) == (LOOK, [CALL], None, "gpt-x", None)
    assert cut.response_id == "resp_00000001"
    with client.responses.stream(**INPUT) as stream_helper:
        assert found(streamed(stream_helper)) == RESPONSE


def test_the_async_client() -> None:
    """The async client's stream is the same."""
    with ModelServer([CALLING]) as server:

        async def stream() -> Any:
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="test") as client:
                async for chunk in await client.chat.completions.create(**COUNTED):
                    yield chunk

        async def response() -> Any:
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="test") as client:
                return await client.responses.create(**INPUT)

        assert found(passed_on(stream)) == WHOLE
        assert found(returned(asyncio.run(response()))) == RESPONSE


def test_answers_without_text_and_refusals() -> None:
    """An answer that only calls tools has no text; a refusal is what the model said."""
    refusal = {"role": "assistant", "content": None, "refusal": "I will not."}
    body = {"id": "c", "object": "chat.completion", "model": "m", "created": 1, "choices": [
        {"index": 0, "message": refusal, "finish_reason": "stop"}]}  # fmt: skip
    replies = [ONLY_CALLING, ONLY_CALLING, ONLY_CALLING, ModelReply(body=body)]
    with ModelServer(replies) as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="test") as client:
        assert found(returned(client.chat.completions.create(**CHAT)))[:2] == ("", [CALL])
        assert found(streamed(client.chat.completions.create(**CHAT, stream=True)))[:2] == ("", [CALL])
        assert found(returned(client.responses.create(**INPUT)))[:2] == ("", [CALL])
        assert found(returned(client.chat.completions.create(**CHAT))) == ("I will not.", None, None, "m", "stop")


def test_why_it_stopped() -> None:
    """A response that was cut off says by what."""
    cut = ModelReply(text="cut", finish_reason="length")
    with ModelServer([cut]) as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="test") as client:
        assert returned(client.responses.create(**INPUT)).finish_reason == "max_output_tokens"
        assert streamed(client.responses.create(**INPUT, stream=True)).finish_reason == "max_output_tokens"
        assert returned(client.chat.completions.create(**CHAT)).finish_reason == "length"


def test_the_events_as_a_proxy_passes_them_on(client: openai.OpenAI) -> None:
    """Both formats are read from their server-sent events."""
    with client.chat.completions.with_streaming_response.create(**COUNTED) as response:
        assert found(streamed([f"{line}\n" for line in response.iter_lines()])) == WHOLE
    with client.responses.with_streaming_response.create(**INPUT, stream=True) as events:
        assert found(streamed(events.iter_bytes(50))) == RESPONSE


def test_the_client_s_stream_belongs_to_its_reader(client: openai.OpenAI) -> None:
    """A handler that returns the client's stream is not evaluated: reading it here would take it from its reader."""
    seen = Seen()
    stream = client.chat.completions.create(**CHAT, stream=True)
    assert seen.monitor(lambda prompt: stream)("asked") is stream
    assert seen.outcomes == {"capture_failed": 1}
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == LOOK
    seen.pipeline.shutdown(5)


def test_a_usage_object_as_a_fact(client: openai.OpenAI) -> None:
    """`annotate(usage=...)` takes the client's own object."""
    seen = Seen()

    @seen.monitor
    def handler(question: str) -> str | None:
        completion = client.chat.completions.create(**CHAT)
        annotate(usage=completion.usage, tool_calls=completion.choices[0].message.tool_calls, model=completion.model)
        return completion.choices[0].message.content

    handler("How is it?")
    assert found(seen.last) == (LOOK, [CALL], (7, 9), "gpt-x", None)
    seen.pipeline.shutdown(5)
