"""The model server, used by the providers' own clients; what it sends is read by
tests/capture/test_providers.py.
"""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import openai
import pytest

from agenteval_otel.testing import ModelReply, ModelServer

ASKED: list[Any] = [{"role": "user", "content": "What is the weather?"}]


def claude(server: ModelServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="test", max_retries=0)


def gpt(server: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="test", max_retries=0)


def test_replies_are_sent_in_order_and_the_last_is_repeated() -> None:
    """A reply is a text, a `ModelReply` or a function of the request; requests, paths and headers
    are kept.
    """
    with (
        ModelServer(["one", lambda body: body["messages"][0]["content"], "three"]) as server,
        gpt(server) as client,
    ):
        texts = [
            client.chat.completions.create(model="m", messages=ASKED).choices[0].message.content
            for _ in range(4)
        ]
        options: Any = {"include_usage": True}
        stream = client.chat.completions.create(
            model="m", messages=ASKED, stream=True, stream_options=options
        )
        usages = [chunk.usage for chunk in stream]
        assert [request["messages"] for request in server.requests] == [ASKED] * 5
        assert (server.paths[0], server.headers[0]["content-type"]) == (
            "/v1/chat/completions",
            "application/json",
        )
        assert server.connections == 1
    assert texts == ["one", "What is the weather?", "three", "three"]
    assert [usage.completion_tokens for usage in usages if usage is not None] == [5], (
        "counted in the last chunk"
    )


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
    assert (
        [block.type for block in message.content]
        == ["thinking", "text"]
        == [b.type for b in streamed.content]
    )
    assert (message.stop_reason, streamed.stop_reason) == ("max_tokens", "max_tokens")
    assert completion.choices[0].finish_reason == "length"
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    assert response.output_text == "cut"


def test_a_status_becomes_the_error_of_the_client() -> None:
    """It has headers and body; a client that retries gets the next reply."""
    limited = ModelReply(status=429, text="slow down", headers={"Retry-After": "0"})
    with ModelServer([limited]) as server:
        with (
            claude(server) as client,
            pytest.raises(anthropic.RateLimitError, match="slow down") as raised,
        ):
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
        assert len(server.requests) == 1


def test_streams_and_plain_replies_break_off() -> None:
    """The client sees a connection error, for a stream after the given number of events."""
    with (
        ModelServer([ModelReply(text="Hello there, you", cut_after=3)]) as server,
        gpt(server) as client,
    ):
        stream = client.chat.completions.create(model="m", messages=ASKED, stream=True)
        assert [next(stream).choices[0].delta.content for _ in range(3)] == [
            "",
            "Hello t",
            "here, y",
        ]
        with pytest.raises((httpx.RemoteProtocolError, openai.APIConnectionError)):
            next(stream)
        with pytest.raises((httpx.RemoteProtocolError, openai.APIConnectionError)):
            client.chat.completions.create(model="m", messages=ASKED)


def test_a_late_reply_meets_the_time_limit_of_the_client() -> None:
    """Closing the server ends the delay."""
    late = ModelReply(text="late", delay_s=60.0)
    with (
        ModelServer([late]) as server,
        gpt(server) as client,
        pytest.raises(openai.APITimeoutError),
    ):
        client.with_options(timeout=0.1).chat.completions.create(model="m", messages=ASKED)


def test_a_closed_server_refuses_connections() -> None:
    """It can be closed twice. A server needs at least one reply."""
    server = ModelServer()
    with httpx.Client() as plain:
        assert (
            plain.post(f"{server.url}/v1/messages", json={"model": "m"}).json()["content"][0][
                "text"
            ]
            == "Hello."
        )
        server.close()
        server.close()
        with pytest.raises(httpx.TransportError):
            plain.post(f"{server.url}/v1/messages", json={})
    for wrong in ([], "text"):
        with pytest.raises(ValueError, match="at least one reply"):
            ModelServer(wrong)
