"""Answers of a collector: bounded, and its refusals understood."""

from __future__ import annotations

import email.utils
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.dispatch import InlineDispatcher
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry import replies
from agenteval_otel.telemetry.replies import bounded_session


class Server:
    """Answers as it is told to: a status, headers and a body that may be endless."""

    def __init__(self) -> None:
        told: dict[str, Any] = {"status": 200, "headers": {}, "endless": False}
        seen: list[int] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                seen.append(len(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(told["status"])
                for name, value in told["headers"].items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    while told["endless"]:
                        self.wfile.write(b"x" * 65_536)
                except OSError:
                    told["closed"] = True

            def log_message(self, *_: Any) -> None:
                """Nothing on stderr."""

        self.told, self.seen = told, seen
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


def _post(server: Server) -> Any:
    session = bounded_session()
    with session:
        session.post(server.endpoint, data=b"batch", timeout=10)
    return session


@pytest.mark.parametrize("headers", [{}, {"content_length": str(10**9)}, {"content_encoding": "gzip"}])
def test_an_endless_answer_is_not_read(server: Server, headers: dict[str, str]) -> None:
    """Of an answer that is large, endless or packed only the status is looked at, and the connection is closed."""
    server.answers(200, endless=True, **headers)
    assert _post(server).status == 200


@pytest.mark.parametrize(
    ("status", "said", "wait_s"),
    [(429, "7", 7.0), (503, "0", 0.0), (503, "100000", replies.MAX_WAIT_S), (429, "soon", None), (429, "nan", None),
     (400, "7", None), (413, "7", None), (200, "7", None)],
)  # fmt: skip
def test_retry_after(server: Server, status: int, said: str, wait_s: float | None) -> None:
    """Only who is asked to come later waits, for as long as is said and a minute at most."""
    server.answers(status, retry_after=said, content_length="0")
    session = _post(server)
    assert (session.status, session.wait_s) == (status, wait_s)


def test_retry_after_a_date(server: Server) -> None:
    """The moment may be said as a date."""
    server.answers(503, retry_after=email.utils.formatdate(time.time() + 20, usegmt=True), content_length="0")
    assert 0.0 < (_post(server).wait_s or 0.0) <= 20.0


@pytest.mark.parametrize(("status", "requests"), [(400, 1), (413, 1), (401, 1)])
def test_refusals_are_not_repeated(server: Server, status: int, requests: int) -> None:
    """What is refused for good is sent once, and counted as lost."""
    pipeline = Pipeline(
        sampler=RatioSampler(), evaluators=(ResponseHealth(),), dispatcher=InlineDispatcher(),
        storage=(OtlpStorageProvider(endpoint=server.endpoint, protocol="http/protobuf", signals={"events"}),),
    )  # fmt: skip
    server.answers(status, content_length="0")
    monitor(pipeline=pipeline)(lambda question: "An answer.")("A question?")
    assert not pipeline.flush(10)
    assert len(server.seen) == requests
    assert pipeline.accounting.failures == {"export:logs": 1}
    pipeline.shutdown(5)
