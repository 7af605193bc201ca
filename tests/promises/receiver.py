"""A loopback OTLP/HTTP endpoint that takes everything and keeps it, as bytes and as records."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Receiver"]


class Receiver:
    """Keeps what is posted to each signal's path, until it is closed."""

    def __init__(self) -> None:
        bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/logs": [], "/v1/metrics": []}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                packed = self.headers.get("content-encoding") == "gzip"
                bodies[self.path].append(gzip.decompress(body) if packed else body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing on stderr."""

        self.bodies = bodies
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """End the server and its thread."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def events(self) -> list[Any]:
        """The log records so far."""
        requests = [ExportLogsServiceRequest.FromString(body) for body in list(self.bodies["/v1/logs"])]
        return [
            record for request in requests for resource in request.resource_logs for scope in resource.scope_logs
            for record in scope.log_records
        ]  # fmt: skip

    def spans(self) -> list[Any]:
        """The spans so far."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in list(self.bodies["/v1/traces"])]
        return [
            span for request in requests for resource in request.resource_spans for scope in resource.scope_spans
            for span in scope.spans
        ]  # fmt: skip

    def totals(self, metric: str, attribute: str) -> dict[str, int]:
        """A cumulative counter's last values, by the value of one of its attributes; of one process."""
        found: dict[str, int] = {}
        for body in list(self.bodies["/v1/metrics"]):
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for one in (metric_ for scope in resource.scope_metrics for metric_ in scope.metrics):
                    if one.name == metric:
                        found = {_value(point, attribute): point.as_int for point in one.sum.data_points}
        return found


def _value(point: Any, attribute: str) -> str:
    return next((pair.value.string_value for pair in point.attributes if pair.key == attribute), "")
