"""An OTLP receiver on loopback that breaks and heals while clients talk to it: HTTP with every
refusal, and gRPC.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from contextlib import ExitStack
from http.server import ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from tests.backends.faults import PostHandler, free_ports, grpc_server

HTTP_FAULTS = (
    "refuse",
    "reset",
    "half-open",
    "trickle",
    "429",
    "503",
    "413",
    "400",
    "large answer",
)
GRPC_FAULTS = ("refuse", "half-open", "UNAVAILABLE", "INVALID_ARGUMENT")
LARGE_ANSWER = 64 * 1024 * 1024
MOST_RECORDS = 16
"""What a receiver takes at once while it answers 413."""
_ID = "gen_ai.response.id"


class OtlpReceiver:
    """Counts the response ids of the events that it takes; a context manager that keeps its port."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.fault: str | None = None  # what it does instead of taking; None while it is well
        self.taken: Counter[str] = Counter()
        self.bodies: Counter[bytes] = Counter()  # of requests for logs
        self.answered_bytes = 0  # the most that one client read of a large answer
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._holder: socket.socket | None = None
        self._stack = ExitStack()
        (self.port,) = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._listen()

    def __enter__(self) -> OtlpReceiver:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._deafen()

    def breaks(self, fault: str) -> None:
        self.fault = fault
        if fault == "refuse" or (fault == "half-open" and self.protocol == "grpc"):
            self._deafen()
            self._holder = socket.socket()
            self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._holder.bind(("127.0.0.1", self.port))
            if fault == "half-open":
                self._holder.listen(128)  # the system completes connections, and nobody takes them

    def heals(self) -> None:
        self.fault = None
        if self._holder is not None:
            self._holder.close()
            self._holder = None
            self._listen()

    def take(self, body: bytes) -> int:
        """Note what is in a request for logs; gives the number of records."""
        records = [
            record
            for resource in ExportLogsServiceRequest.FromString(body).resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]
        with self._lock:
            self.bodies[body] += 1
            if self.fault in (None, "large answer") or (
                self.fault == "413" and len(records) <= MOST_RECORDS
            ):
                for record in records:
                    self.taken.update(
                        pair.value.string_value for pair in record.attributes if pair.key == _ID
                    )
        return len(records)

    def wait(self, seconds: float) -> bool:
        """Let time pass; True when it is closed meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.fault is not None and not self._closed.wait(0.02):
            pass
        return self._closed.is_set()

    def _listen(self) -> None:
        if self.protocol == "grpc":
            self._stack.enter_context(grpc_server(self._export, self.port))
        else:
            server = _Http(("127.0.0.1", self.port), _Handler)
            server.receiver = self
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            self._stack.callback(server.server_close)
            self._stack.callback(server.shutdown)

    def _deafen(self) -> None:
        self._stack.close()

    def _export(self, method: str, body: bytes, context: Any) -> bytes:
        if "logs" not in method:
            return b""
        self.take(body)
        if self.fault is not None:
            context.abort(getattr(grpc.StatusCode, self.fault), "refused")
        return ExportLogsServiceResponse().SerializeToString()


class _Http(ThreadingHTTPServer):
    daemon_threads, block_on_close, allow_reuse_address, request_queue_size = True, False, True, 128
    receiver: OtlpReceiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of ours to print."""


class _Handler(PostHandler):
    server: _Http

    def do_POST(self) -> None:
        receiver, fault = self.server.receiver, self.server.receiver.fault
        if fault in ("reset", "half-open", "refuse"):
            if fault == "half-open":
                receiver.wait(600.0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        body = self.body()
        count = receiver.take(body) if self.path.endswith("/logs") else 0
        status = {"429": 429, "503": 503, "400": 400}.get(fault or "", 200)
        if fault == "413" and count > MOST_RECORDS:
            status = 413
        if fault in ("large answer", "trickle"):
            self._answer_slowly(fault)
        else:
            self.answer(status, headers={"Retry-After": "1"} if status in (429, 503) else None)

    def _answer_slowly(self, fault: str) -> None:
        receiver, sent = self.server.receiver, 0
        self.close_connection = True
        self.send_response(200 if fault == "large answer" else 503)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        part = b"\0" * (65_536 if fault == "large answer" else 1)
        try:
            while sent < LARGE_ANSWER and receiver.fault == fault:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                sent += len(part)
                if fault == "trickle" and receiver.wait(0.1):
                    return
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            return
        finally:
            receiver.answered_bytes = max(receiver.answered_bytes, sent)
