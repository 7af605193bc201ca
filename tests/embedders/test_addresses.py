"""Where an embedder may be asked: what settings say as a number, or a name that leads to public addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from agenteval_otel import EvaluationRunConfig
from agenteval_otel.embedders import OpenAICompatibleEmbedder
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.testing import ModelReply, ModelServer
from tests.embedders.asking import embedded, failure, hosted


@pytest.mark.parametrize(
    "url",
    [
        "ftp://embed.example", "file:///etc/passwd", "embed.example", "", "https://", "https://user:pass@embed.example",
        "https://embed.example/v1?key=1", "https://embed.example:0", "https://embed.example/a b",
        "http://169.254.169.254/latest", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/", "http://0.0.0.0",
        "http://224.0.0.1",
    ],
)  # fmt: skip
def test_an_address_that_is_none(url: str) -> None:
    """Another scheme, a user, a query, and addresses that no model answers at, are refused at load, by their path."""
    told = {"type": "openai_compatible", "model": "m", "base_url": url}
    evaluator = {"type": "NLPAccuracy", "criterion_name": "meaning", "embedder": told}
    with pytest.raises(ConfigurationError, match=r"evaluators\[0\]\.embedder\.base_url") as raised:
        EvaluationRunConfig.model_validate({"evaluators": [evaluator]})
    assert "pass" not in str(raised.value)


@pytest.mark.parametrize(
    "found",
    ["127.0.0.1", "10.0.0.5", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1", "fd00::1", "::ffff:127.0.0.1"],
)
def test_a_name_that_leads_inside_is_not_connected_to(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a name's server says, no connection is made to an address that is not public, unless settings allow."""
    connected: list[Any] = []

    async def resolved(self: Any, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port))]

    async def connect(self: Any, sock: Any, address: Any) -> None:
        connected.append(address)
        raise OSError

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", resolved)
    monkeypatch.setattr("asyncio.selector_events.BaseSelectorEventLoop.sock_connect", connect)
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    embedder = OpenAICompatibleEmbedder(model="m", base_url="http://embed.example", retry_base_s=0.0)
    error = failure(embedder)
    assert (error.error_type, error.retryable) == ("connection_error", False)
    assert "allow_private" in str(error)
    assert connected == []
    assert failure(embedder.model_copy(update={"allow_private": True})).error_type == "connection_error"
    assert connected != []


def test_no_redirect_is_followed() -> None:
    """The key and the texts do not go on to another place."""
    with ModelServer([ModelReply()]) as other:
        with ModelServer([ModelReply(status=308, headers={"Location": f"{other.url}/v1/embeddings"})]) as server:
            assert failure(hosted(server)).error_type == "bad_request"
        assert other.requests == []


def test_localhost_is_meant() -> None:
    """An embedder on this machine needs no leave."""
    with ModelServer([ModelReply()]) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert embedded(OpenAICompatibleEmbedder(model="m", base_url=url)).vectors.shape == (3, 64)
