"""The model server, used by the providers' own clients."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import httpx
import openai
import pytest
from openai.types.responses import ResponseFunctionToolCall

from agenteval_otel.testing import ModelReply, ModelServer

WEATHER = {"name": "weather", "arguments": {"city": "Kyōto", "days": [1, 2]}}
CALLING = ModelReply(text="Let me look.", tool_calls=[WEATHER, {"name": "time"}], input_tokens=7, output_tokens=9)  # type: ignore[arg-type]
ASKED: list[Any] = [{"role": "user", "content": "What is the weather?"}]


def claude(server: ModelServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="test", max_retries=0)


def gpt(server: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="test", max_retries=0)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([CALLING]) as running:
        yield running


def test_anthropic_messages_are_complete(server: ModelServer) -> None:
    """Plain and streamed messages have text, tool calls, usage, ids, stop reason and model."""
    with claude(server) as client:
        whole = client.messages.create(model="claude-x", max_tokens=10, messages=ASKED)
        with client.messages.stream(model="claude-x", max_tokens=10, messages=ASKED) as stream:
            assert "".join(stream.text_stream) == "Let me look."
            streamed = stream.get_final_message()
    for message in (whole, streamed):
        text, weather, hour = message.content
        assert isinstance(text, anthropic.types.TextBlock)
        assert isinstance(weather, anthropic.types.ToolUseBlock)
        assert isinstance(hour, anthropic.types.ToolUseBlock)
        assert (text.text, weather.name, weather.input) == ("Let me look.", "weather", WEATHER["arguments"])
        assert (hour.name, hour.input) == ("time", {})
        assert (message.model, message.stop_reason) == ("claude-x", "tool_use")
        assert (message.usage.input_tokens, message.usage.output_tokens) == (7, 9)
    assert whole.id != streamed.id
    assert [request["messages"] for request in server.requests] == [ASKED, ASKED]
    assert (server.paths[0], server.headers[0]["content-type"]) == ("/v1/messages", "application/json")


def test_chat_completions_are_complete(server: ModelServer) -> None:
    """Chunks have the usage only if the request includes it."""
    with gpt(server) as client:
        whole = client.chat.completions.create(model="gpt-x", messages=ASKED)
        options: Any = {"include_usage": True}
        counted = list(
            client.chat.completions.create(model="gpt-x", messages=ASKED, stream=True, stream_options=options)
        )
        silent = list(client.chat.completions.create(model="gpt-x", messages=ASKED, stream=True))
    message = whole.choices[0].message
    assert (message.content, whole.choices[0].finish_reason, whole.model) == ("Let me look.", "tool_calls", "gpt-x")
    assert message.tool_calls is not None
    assert json.loads(message.tool_calls[0].function.arguments) == WEATHER["arguments"]  # type: ignore[union-attr]
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (7, 9, 16)
    deltas = [chunk.choices[0].delta for chunk in counted if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Let me look."
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [call.id for call in calls if call.id] == ["call_00000200", "call_00000201"]
    arguments = "".join(call.function.arguments or "" for call in calls if call.index == 0 and call.function)
    assert json.loads(arguments) == WEATHER["arguments"]
    assert counted[-1].usage is not None
    assert counted[-1].usage.completion_tokens == 9
    assert all(chunk.usage is None for chunk in silent)


def test_responses_are_complete(server: ModelServer) -> None:
    """A streamed response ends with the complete one."""
    with gpt(server) as client:
        whole = client.responses.create(model="gpt-x", input="What is the weather?")
        with client.responses.stream(model="gpt-x", input="What is the weather?") as stream:
            events = list(stream)
            streamed = stream.get_final_response()
    for response in (whole, streamed):
        assert (response.output_text, response.model, response.status) == ("Let me look.", "gpt-x", "completed")
        weather = response.output[1]
        assert isinstance(weather, ResponseFunctionToolCall)
        assert json.loads(weather.arguments) == WEATHER["arguments"]
        assert response.usage is not None
        assert (response.usage.input_tokens, response.usage.output_tokens) == (7, 9)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Let me look."


def test_async_clients_are_answered(server: ModelServer) -> None:
    """Many requests may run at once."""

    async def ask() -> list[str]:
        async with (
            anthropic.AsyncAnthropic(base_url=server.url, api_key="test") as item,
            openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="test") as other,
        ):
            messages = [item.messages.create(model="m", max_tokens=9, messages=ASKED) for _ in range(8)]
            stream = await other.chat.completions.create(model="m", messages=ASKED, stream=True)
            texts = ["".join([chunk.choices[0].delta.content or "" async for chunk in stream])]
            texts += [message.content[0].text for message in await asyncio.gather(*messages)]  # type: ignore[union-attr]
            return texts

    assert asyncio.run(ask()) == ["Let me look."] * 9


def test_replies_are_sent_in_order_and_the_last_is_repeated() -> None:
    """A reply is a text, a `ModelReply` or a function of the request."""
    with ModelServer(["one", lambda body: body["messages"][0]["content"], "three"]) as server, gpt(server) as client:
        texts = [client.chat.completions.create(model="m", messages=ASKED).choices[0].message.content for _ in range(4)]
    assert texts == ["one", "What is the weather?", "three", "three"]


def test_finish_reason_and_reasoning_have_the_form_of_each_format() -> None:
    """Reasoning is no text of the answer."""
    with ModelServer([ModelReply(text="cut", reasoning="hm", finish_reason="length")]) as server:
        with claude(server) as client:
            message = client.messages.create(model="m", max_tokens=9, messages=ASKED)
            with client.messages.stream(model="m", max_tokens=9, messages=ASKED) as stream:
                streamed = stream.get_final_message()
        with gpt(server) as other:
            completion = other.chat.completions.create(model="m", messages=ASKED)
            response = other.responses.create(model="m", input="x")
            with other.responses.stream(model="m", input="x") as events:
                list(events)
    assert [block.type for block in message.content] == ["thinking", "text"] == [b.type for b in streamed.content]
    assert (message.stop_reason, streamed.stop_reason) == ("max_tokens", "max_tokens")
    assert completion.choices[0].finish_reason == "length"
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output_text == "cut"


def test_a_status_becomes_the_error_of_the_client() -> None:
    """It has headers and body; a client that retries gets the next reply."""
    limited = ModelReply(status=429, text="slow down", headers={"Retry-After": "0"})
    with ModelServer([limited]) as server:
        with claude(server) as client, pytest.raises(anthropic.RateLimitError, match="slow down") as raised:
            client.messages.create(model="m", max_tokens=9, messages=ASKED)
        assert raised.value.response.headers["retry-after"] == "0"
        with gpt(server) as other, pytest.raises(openai.RateLimitError, match="slow down"):
            list(other.chat.completions.create(model="m", messages=ASKED, stream=True))
    with ModelServer([limited, "fine"]) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="test", max_retries=1) as other:
            completion = other.chat.completions.create(model="m", messages=ASKED)
        assert completion.choices[0].message.content == "fine"
        assert len(server.requests) == 2
    with ModelServer([ModelReply(body="no json")]) as server, httpx.Client() as plain:
        assert plain.post(f"{server.url}/v1/messages", json={}).text == "no json"
        assert plain.post(f"{server.url}/v1/unknown", json={}).status_code == 404
        assert plain.post(f"{server.url}/v1/messages", content=b"{").status_code == 400
        assert plain.get(f"{server.url}/v1/models").status_code == 404
        assert len(server.requests) == 1


def test_streams_and_plain_replies_break_off() -> None:
    """The client sees a connection error, for a stream after the given number of events."""
    with ModelServer([ModelReply(text="Hello there, you", cut_after=3)]) as server, gpt(server) as client:
        stream = client.chat.completions.create(model="m", messages=ASKED, stream=True)
        assert [next(stream).choices[0].delta.content for _ in range(3)] == ["", "Hello t", "here, y"]
        with pytest.raises((httpx.RemoteProtocolError, openai.APIConnectionError)):
            next(stream)
        with pytest.raises((httpx.RemoteProtocolError, openai.APIConnectionError)):
            client.chat.completions.create(model="m", messages=ASKED)


def test_a_late_reply_meets_the_time_limit_of_the_client() -> None:
    """The delay is before the reply or within a stream; closing the server ends it."""
    late = ModelReply(text="late", delay_s=60.0)
    with ModelServer([late]) as server, gpt(server) as client, pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.1).chat.completions.create(model="m", messages=ASKED)
    with ModelServer([ModelReply(text="late", chunk_delay_s=60.0)]) as server:
        with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.1) as plain:
            plain.post(f"{server.url}/v1/responses", json={"stream": True})
        assert repr(server) == f"<ModelServer {server.url} requests=1>"


def test_a_closed_server_refuses_connections() -> None:
    """It can be closed twice. A server needs at least one reply."""
    server = ModelServer()
    with httpx.Client() as plain:
        assert plain.post(f"{server.url}/v1/messages", json={"model": "m"}).json()["content"][0]["text"] == "Hello."
        server.close()
        server.close()
        with pytest.raises(httpx.TransportError):
            plain.post(f"{server.url}/v1/messages", json={})
    for wrong in ([], "text"):
        with pytest.raises(ValueError, match="at least one reply"):
            ModelServer(wrong)


def test_network_faults_are_simulated() -> None:
    """A reply arrives byte by byte, in chunks without a length, after padding, or not at all."""
    slow = ModelReply(text="slow", trickle_s=0.0001)
    with ModelServer([slow, ModelReply(text="long", padding=50_000, chunked=True), ModelReply(resets=True)]) as server:
        for text, padding in (("slow", 0), ("long", 50_000)):
            with urllib.request.urlopen(_request(server), timeout=60.0) as response:
                body = response.read()
            assert json.loads(body)["content"][0]["text"] == text
            assert len(body) - len(body.lstrip()) == padding
        with pytest.raises((ConnectionResetError, urllib.error.URLError)):
            urllib.request.urlopen(_request(server), timeout=60.0)
        assert server.connections == 3


@pytest.mark.parametrize("hangs", ["before", "headers", "body"])
def test_a_half_open_connection_ends_with_the_server(hangs: Literal["before", "headers", "body"]) -> None:
    """Nothing more comes, until `close` ends it with its thread."""
    ended = threading.Event()
    received = threading.Event()

    def silent(_: dict[str, Any]) -> ModelReply:
        received.set()
        return ModelReply(text="never said", hangs=hangs)

    def read(server: ModelServer) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            urllib.request.urlopen(_request(server), timeout=60.0).read()
        ended.set()

    server = ModelServer([silent])
    thread = threading.Thread(target=read, args=(server,))
    thread.start()
    assert received.wait(30.0)
    assert not ended.is_set()
    server.close()
    thread.join(30.0)
    assert ended.is_set()


def _request(server: ModelServer) -> urllib.request.Request:
    return urllib.request.Request(f"{server.url}/v1/messages", data=b"{}", method="POST")
