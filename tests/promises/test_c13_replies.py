"""C13: a flush says yes only for what the receiver took: not after a redirect, a login page, garbage or a rejection."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from agenteval_otel import monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from tests.promises.figures import Recorder

REJECTION = ExportLogsServiceResponse()
REJECTION.partial_success.rejected_log_records = 1
REJECTION.partial_success.error_message = "no"
REMARK = ExportLogsServiceResponse()
REMARK.partial_success.error_message = "a warning, nothing was rejected"
HTML = b"<html><body>Please log in.</body></html>"
PROTOBUF = "application/x-protobuf"

# Name: status, content type, body, and what the log line names.
REFUSALS: dict[str, tuple[int, str, bytes, str]] = {
    "301": (301, PROTOBUF, b"", "301"),
    "302": (302, "text/html", HTML, "302"),
    "307": (307, PROTOBUF, b"", "307"),
    "partial success": (200, PROTOBUF, REJECTION.SerializeToString(), "200"),
    "html": (200, "text/html; charset=utf-8", HTML, "200"),
    "garbage": (200, PROTOBUF, bytes(range(1, 41)), "200"),
    "garbage without a type": (200, "", bytes(range(1, 41)), "200"),
    "401": (401, "text/plain", b"who are you", "401"),
}
DELIVERIES: dict[str, tuple[int, str, bytes]] = {
    "empty": (200, "", b""),
    "204": (204, "", b""),
    "protobuf": (200, PROTOBUF, ExportLogsServiceResponse().SerializeToString()),
    "a warning": (200, PROTOBUF, REMARK.SerializeToString()),
    "json": (200, "application/json", b"{}"),
}


class Server:
    """Gives every request the same reply; `elsewhere` is where its redirects point to."""

    def __init__(self, elsewhere: str = "") -> None:
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        self.status, self.content_type, self.body = 200, "", b""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server.paths.append(self.path)
                server.bodies.append(self.rfile.read(int(self.headers.get("content-length") or 0)))
                self.send_response(server.status)
                if server.content_type:
                    self.send_header("content-type", server.content_type)
                if 300 <= server.status < 400:
                    self.send_header("location", f"{elsewhere}{self.path}")
                self.send_header("content-length", str(len(server.body)))
                self.end_headers()
                self.wfile.write(server.body)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                """Nothing on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """End the server and its thread."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def elsewhere() -> Iterator[Server]:
    """Where a redirect points to."""
    made = Server()
    yield made
    made.close()


@pytest.fixture
def server(elsewhere: Server) -> Iterator[Server]:
    """A proxy before the collector."""
    made = Server(elsewhere.endpoint)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _fresh_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that has written nothing yet."""
    monkeypatch.setattr(log, "_last", {})


def _monitored(endpoint: str, protocol: Any) -> tuple[Pipeline, Callable[[str], str]]:
    storage = OtlpStorageProvider(
        endpoint=endpoint, protocol=protocol, headers={"authorization": "Bearer sk-key"}, signals={"events"}
    )  # fmt: skip
    pipeline = Pipeline(
        sampler=RatioSampler(), evaluators=(ResponseHealth(),), storage=(storage,), dispatcher=InlineDispatcher()
    )  # fmt: skip
    return pipeline, monitor(pipeline=pipeline)(lambda question: "An answer.")


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_is_not_a_delivery(
    server: Server, elsewhere: Server, refusal: str, caplog: pytest.LogCaptureFixture, promise: Recorder
) -> None:
    """What was not taken makes the next flush say no, is counted, is logged with its status and is not sent again."""
    server.status, server.content_type, server.body, status = REFUSALS[refusal]
    pipeline, handler = _monitored(server.endpoint, "http/protobuf")
    with caplog.at_level(logging.WARNING, logger="agenteval_otel"):
        handler("A question?")
        assert pipeline.flush(10) is False
        assert pipeline.flush(10) is True
    assert server.paths == ["/v1/logs"], "sent once"
    assert elsewhere.paths == [], "a redirect is not followed"
    assert pipeline.accounting.failures == {"export:logs": 1}
    lines = [record.getMessage() for record in caplog.records if "export_failed" in record.getMessage()]
    assert len(lines) == 1
    assert status in lines[0]
    promise("C13", figure="redirects, login pages, garbage and rejections: no, counted, sent once")
    pipeline.shutdown(5)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_readable_reply_is_a_delivery(server: Server, delivery: str) -> None:
    """A 2xx with an empty or readable OTLP reply that rejects nothing is a yes, and nothing is counted."""
    server.status, server.content_type, server.body = DELIVERIES[delivery]
    pipeline, handler = _monitored(server.endpoint, "http/protobuf")
    handler("A question?")
    assert pipeline.flush(10) is True
    assert pipeline.accounting.failures == {}
    pipeline.shutdown(5)


@pytest.mark.parametrize(
    ("reply", "delivered"),
    [(REJECTION.SerializeToString(), False), (bytes(range(1, 41)), False), (REMARK.SerializeToString(), True),
     (b"", True)],
    ids=["partial success", "garbage", "a warning", "empty"],
)  # fmt: skip
def test_over_grpc(reply: bytes, delivered: bool, promise: Recorder) -> None:
    """Over gRPC rejections and unreadable replies are a no as well, counted, and not sent again."""
    asked: list[bytes] = []

    class Service(grpc.GenericRpcHandler):
        def service(self, call: Any) -> Any:
            def export(body: bytes, context: Any) -> bytes:
                asked.append(body)
                return reply

            return grpc.unary_unary_rpc_method_handler(export)

    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((Service(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        pipeline, handler = _monitored(f"http://127.0.0.1:{port}", "grpc")
        handler("A question?")
        assert pipeline.flush(10) is delivered
        assert pipeline.flush(10) is True
        assert len(asked) == 1
        assert pipeline.accounting.failures == ({} if delivered else {"export:logs": 1})
        promise("C13", figure="gRPC rejections and unreadable replies: no, counted, sent once")
        pipeline.shutdown(5)
    finally:
        server.stop(0).wait(5.0)
