"""Replies of a collector: bounded, and its refusals understood."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from agenteval_otel.telemetry import target
from agenteval_otel.telemetry.target import HttpSender, SendOutcome, Signal
from tests.backends.faults import PostHandler, serving


class Server:
    """Answers with a status, headers and a body that may be endless."""

    def __init__(self) -> None:
        self.status, self.endless = 200, False
        self.headers: dict[str, str] = {}
        self.endpoint, self.seen = "", list[int]()

    def answers(self, status: int, *, endless: bool = False, **headers: str) -> None:
        """From now on."""
        self.status, self.endless = status, endless
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture
def server() -> Iterator[Server]:
    """A collector."""
    made = Server()

    class Handler(PostHandler):
        def do_POST(self) -> None:
            made.seen.append(len(self.body()))
            self.send_response(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                while made.endless:
                    self.wfile.write(b"x" * 65_536)

    with serving(Handler) as address:
        made.endpoint = f"http://127.0.0.1:{address}"
        yield made


def _post(server: Server, compression: str = "none") -> SendOutcome:
    sender = HttpSender(Signal("LOGS"), server.endpoint, {}, 5.0, compression)
    try:
        return sender.send(b"batch" * 100)
    finally:
        sender.close()


@pytest.mark.parametrize(
    "headers", [{}, {"content_length": str(10**9)}, {"content_encoding": "gzip"}]
)
def test_an_endless_reply_is_not_read(server: Server, headers: dict[str, str]) -> None:
    """A reply that is large, endless or packed is no OTLP reply; its connection is closed, it is
    not asked again.
    """
    server.answers(200, endless=True, **headers)
    assert _post(server) == SendOutcome(False, "200, not an OTLP reply")


@pytest.mark.parametrize(
    ("status", "header", "wait_s"),
    [
        (429, "7", 7.0),
        (503, "0", 0.0),
        (503, "100000", target.MAX_WAIT_S),
        (429, "soon", None),
        (429, "nan", None),
        (400, "7", None),
        (413, "7", None),
        (200, "7", None),
    ],
)
def test_retry_after(server: Server, status: int, header: str, wait_s: float | None) -> None:
    """Only a receiver that asks to come later is waited for, as long as it asks for and a minute at
    most.
    """
    server.answers(status, retry_after=header, content_length="0")
    delivery = _post(server)
    assert (delivery.status, delivery.wait_s, delivery.retryable) == (
        str(status),
        wait_s,
        status in (429, 503),
    )


def test_compression(server: Server) -> None:
    """A request is packed as configured."""
    server.answers(200, content_length="0")
    assert _post(server, "gzip").delivered
    assert server.seen[0] < 100
