"""Where a judge may be asked: what settings say as a number, or a name that leads to public addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError, JudgeError
from agenteval_otel.hosted.addresses import guard_of
from agenteval_otel.judges import AnthropicJudge, Judge, OpenAICompatibleJudge
from agenteval_otel.testing import ModelReply, ModelServer
from tests.judges.asking import GOOD, ask, failure, hosted

BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])


@BOTH
@pytest.mark.parametrize(
    "url",
    [
        "ftp://judge.example", "file:///etc/passwd", "judge.example", "//judge.example", "", "https://",
        "https://user:pass@judge.example", "https://judge.example/v1?key=1", "https://judge.example/#x",
        "https://judge.example:99999", "https://judge.example:0", "https://judge.example/a b", "https://judge\n.example",
        "http://169.254.169.254/latest", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/", "http://0.0.0.0",
        "http://[::]", "http://224.0.0.1",
    ],
)  # fmt: skip
def test_an_address_that_is_none(kind: type[Judge], url: str) -> None:
    """Another scheme, a user, a query, a broken port, and addresses that no judge answers at, are refused at load."""
    with pytest.raises(ConfigurationError, match="base_url") as raised:
        kind.load({"model": "m", "base_url": url})
    assert "pass" not in str(raised.value)


@pytest.mark.parametrize(
    "found",
    [
        "127.0.0.1", "10.0.0.5", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1", "fe80::1",
        "fd00::1", "::ffff:127.0.0.1", "224.0.0.1",
    ],
)  # fmt: skip
@BOTH
def test_a_name_that_leads_inside_is_not_connected_to(
    kind: type[Judge], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a name's server says, no connection is made to an address that is not public."""
    connected: list[Any] = []

    async def resolved(self: Any, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port))]

    async def connect(self: Any, sock: Any, address: Any) -> None:
        connected.append(address)
        raise OSError

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", resolved)
    monkeypatch.setattr("asyncio.selector_events.BaseSelectorEventLoop.sock_connect", connect)
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    judge = kind(model="m", base_url="http://judge.example", api_key="key", retry_base_s=0.0)  # type: ignore[call-arg]
    error = failure(judge)
    assert (error.error_type, error.retryable) == ("connection_error", False)
    assert "allow_private" in str(error)
    assert connected == []


def test_the_connection_goes_to_what_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is answered differently the second time is connected to by the first answer."""
    answers = iter(["93.184.216.34", "127.0.0.1"])

    async def resolved(self: Any, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", resolved)
    info: dict[str, Any] = {"host": "judge.example", "port": 443}
    guard = guard_of("https://judge.example/v1", allow_private=False)
    assert guard is not None
    asyncio.run(guard("connection.connect_tcp.started", info))
    assert info["host"] == "93.184.216.34"


@BOTH
def test_the_client_takes_the_address_that_was_checked(kind: type[Judge], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guard puts in place of the name is what the HTTP client connects to."""
    with ModelServer([GOOD]) as server:
        port = int(server.url.rpartition(":")[2])

        async def checked(host: str, _: int) -> str:
            return "127.0.0.1" if host == "judge.example" else "0.0.0.0"

        monkeypatch.setattr("agenteval_otel.hosted.addresses._public_address", checked)
        judge = kind(model="m", base_url=f"http://judge.example:{port}/v1", api_key="key")  # type: ignore[call-arg]
        assert ask(judge).answer["score"] == 4
        assert server.headers[0]["host"] == f"judge.example:{port}"


@BOTH
def test_localhost_and_written_numbers_are_meant(kind: type[Judge]) -> None:
    """A judge on this machine needs no leave."""
    with ModelServer([GOOD]) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert ask(kind(model="m", base_url=url, api_key="key")).answer["score"] == 4  # type: ignore[call-arg]
    assert guard_of("http://10.1.2.3:8000/v1", allow_private=False) is None
    assert guard_of("http://vllm.models.svc:8000/v1", allow_private=True) is None
    assert guard_of("http://2130706433/", allow_private=False) is not None


@BOTH
def test_no_redirect_is_followed(kind: type[Judge]) -> None:
    """A redirect is a failure: the key and the question do not go on to another place."""
    with ModelServer([GOOD]) as other:
        with ModelServer([ModelReply(status=307, headers={"Location": f"{other.url}/v1/messages"})]) as server:
            found = failure(hosted(kind, server))
        assert isinstance(found, JudgeError)
        assert found.error_type == "bad_request"
        assert other.requests == []
