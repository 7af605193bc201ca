"""An OTLP/HTTP receiver on loopback, in a process of its own, that takes 20 ms a request and says
what arrived.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.harness import ROOT, clean_environment

__all__ = ["EVENT", "Arrived", "receiver"]

EVENT = "gen_ai.evaluation.result"
_TAKES_S = 0.02


@dataclass(frozen=True)
class Arrived:
    """What arrived.

    Attributes:
        counts: Spans by the first word of their names, log records by their event names; each span
            once.
        events_ns: When the first evaluation event of a trace arrived, by trace id in hexadecimal.
    """

    counts: dict[str, int]
    events_ns: dict[str, int]


@dataclass(frozen=True)
class Receiver:
    """The receiver's address."""

    address: str

    def arrived(self) -> Arrived:
        """Everything since the start."""
        with urllib.request.urlopen(self.address) as response:
            return Arrived(**json.loads(response.read()))


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A running receiver, in a session of its own so that its CPU time is not the subject's."""
    command = [sys.executable, "-m", "benchmarks.speed.receiver"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(), start_new_session=True, **pipes
    ) as process:
        assert process.stdout is not None
        try:
            yield Receiver(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()


_bodies: list[tuple[int, str, bytes]] = []


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        # Decoded when somebody asks: the receiver shares the subject's cores.
        _bodies.append(
            (time.time_ns(), self.path, _plain(body, self.headers.get("content-encoding")))
        )
        time.sleep(_TAKES_S)
        self._answer(b"", "application/x-protobuf")

    def do_GET(self) -> None:
        self._answer(json.dumps(_decoded()).encode(), "application/json")

    def _answer(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def _plain(body: bytes, encoding: str | None) -> bytes:
    return gzip.decompress(body) if encoding == "gzip" else body


def _decoded() -> dict[str, Any]:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    names: dict[tuple[bytes, bytes], str] = {}
    counts: Counter[str] = Counter()
    events_ns: dict[str, int] = {}
    for at_ns, path, body in list(_bodies):
        if path.endswith("traces"):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    names.update(
                        {
                            (span.trace_id, span.span_id): span.name.split(" ")[0]
                            for span in scope.spans
                        }
                    )
        elif path.endswith("logs"):
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                for records in logs.scope_logs:
                    for record in records.log_records:
                        counts[record.event_name] += 1
                        if record.event_name == EVENT:
                            events_ns.setdefault(record.trace_id.hex(), at_ns)
    return {"counts": counts + Counter(names.values()), "events_ns": events_ns}


def _until_orphaned() -> None:
    """End with the process that started us, whatever becomes of it."""

    def watch() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _until_orphaned()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Requests)
    print(server.server_address[1], flush=True)
    server.serve_forever()
