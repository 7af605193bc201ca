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
        assert [request["messages"] for request in server.requests] == [ASKED] * 4
        assert (server.paths[0], server.headers[0]["content-type"]) == (
            "/v1/chat/completions",
            "application/json",
        )
        assert server.connections == 1
    assert texts == ["one", "What is the weather?", "three", "three"]


def test_a_status_becomes_the_error_of_the_client() -> None:
    """It has headers and body, also where a stream was asked for."""
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


def test_a_wrong_request_is_refused_and_not_counted() -> None:
    """An unknown path and a body without JSON get no reply; a body may be any text."""
    with ModelServer([ModelReply(body="no json")]) as server, httpx.Client() as plain:
        assert plain.post(f"{server.url}/v1/messages", json={}).text == "no json"
        assert plain.post(f"{server.url}/v1/unknown", json={}).status_code == 404
        assert plain.post(f"{server.url}/v1/messages", content=b"{").status_code == 400
        assert len(server.requests) == 1


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
