"""Replies of a collector: bounded, and its refusals understood."""

from __future__ import annotations

import email.utils
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agenteval_otel.telemetry import target
from agenteval_otel.telemetry.target import Delivery, HttpSender, Signal


class Server:
    """Answers as it is told to: a status, headers and a body that may be endless."""

    def __init__(self) -> None:
        reported: dict[str, Any] = {"status": 200, "headers": {}, "endless": False}
        seen: list[int] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                seen.append(len(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(reported["status"])
                for name, value in reported["headers"].items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    while reported["endless"]:
                        self.wfile.write(b"x" * 65_536)
                except OSError:
                    reported["closed"] = True

            def log_message(self, *_: Any) -> None:
                """Nothing on stderr."""

        self.told, self.seen = reported, seen
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def answers(self, status: int, *, endless: bool = False, **headers: str) -> None:
        """From now on."""
        self.told.update(status=status, endless=endless, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def close(self) -> None:
        """End the server and its thread."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A collector."""
    made = Server()
    yield made
    made.close()


def _post(server: Server, compression: str = "none") -> Delivery:
    sender = HttpSender(Signal("LOGS"), server.endpoint, {}, 5.0, compression)
    try:
        return sender.send(b"batch" * 100)
    finally:
        sender.close()


@pytest.mark.parametrize("headers", [{}, {"content_length": str(10**9)}, {"content_encoding": "gzip"}])
def test_an_endless_reply_is_not_read(server: Server, headers: dict[str, str]) -> None:
    """A reply that is large, endless or packed is no OTLP reply; its connection is closed, it is not asked again."""
    server.answers(200, endless=True, **headers)
    assert _post(server) == Delivery(False, "200, not an OTLP reply")


@pytest.mark.parametrize(
    ("status", "header", "wait_s"),
    [(429, "7", 7.0), (503, "0", 0.0), (503, "100000", target.MAX_WAIT_S), (429, "soon", None), (429, "nan", None),
     (400, "7", None), (413, "7", None), (200, "7", None)],
)  # fmt: skip
def test_retry_after(server: Server, status: int, header: str, wait_s: float | None) -> None:
    """Only a receiver that asks to come later is waited for, as long as it asks for and a minute at most."""
    server.answers(status, retry_after=header, content_length="0")
    delivery = _post(server)
    assert (delivery.status, delivery.wait_s, delivery.retryable) == (str(status), wait_s, status in (429, 503))


def test_retry_after_a_date(server: Server) -> None:
    """The moment may be a date."""
    server.answers(503, retry_after=email.utils.formatdate(time.time() + 20, usegmt=True), content_length="0")
    assert 0.0 < (_post(server).wait_s or 0.0) <= 20.0


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compression(server: Server, compression: str) -> None:
    """A request is packed as configured."""
    server.answers(200, content_length="0")
    assert _post(server, compression).delivered
    assert server.seen[0] < 100
