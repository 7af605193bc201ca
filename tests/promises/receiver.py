"""An OTLP/HTTP endpoint on loopback that keeps every request; it accepts them, or gives the reply
that a test sets.
"""

from __future__ import annotations

import gzip
from contextlib import ExitStack
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.backends.faults import PostHandler, serving

_REQUESTS: dict[str, tuple[Any, str]] = {
    "traces": (ExportTraceServiceRequest, "resource_spans"),
    "logs": (ExportLogsServiceRequest, "resource_logs"),
    "metrics": (ExportMetricsServiceRequest, "resource_metrics"),
}


class Reply(NamedTuple):
    status: int = 200
    content_type: str = ""
    body: bytes = b""


class Receiver:
    """Keeps the bodies of each path; a context manager.

    Attributes:
        reply: The answer to every request.
        location: Where its redirects point to.
    """

    def __init__(self) -> None:
        self.reply, self.endpoint, self.location = Reply(), "", ""
        self.paths: list[str] = []
        self.bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/logs": [], "/v1/metrics": []}
        self._stack = ExitStack()

    def __enter__(self) -> Receiver:
        receiver = self

        class Handler(PostHandler):
            def do_POST(self) -> None:
                body, reply = self.body(), receiver.reply
                receiver.paths.append(self.path)
                packed = self.headers.get("content-encoding") == "gzip"
                receiver.bodies[self.path].append(gzip.decompress(body) if packed else body)
                headers = {"content-type": reply.content_type} if reply.content_type else {}
                if 300 <= reply.status < 400:
                    headers["location"] = f"{receiver.location}{self.path}"
                self.answer(reply.status, reply.body, headers)

            do_GET = do_POST

        self.endpoint = f"http://127.0.0.1:{self._stack.enter_context(serving(Handler))}"
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def resources(self, signal: str) -> list[Any]:
        """The resources of all requests of a signal, in their order."""
        kind, name = _REQUESTS[signal]
        requests = [kind.FromString(body) for body in list(self.bodies[f"/v1/{signal}"])]
        return [resource for request in requests for resource in getattr(request, name)]

    def events(self) -> list[Any]:
        scopes = [scope for resource in self.resources("logs") for scope in resource.scope_logs]
        return [record for scope in scopes for record in scope.log_records]

    def spans(self) -> list[Any]:
        return [
            span
            for resource in self.resources("traces")
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def newest(self, metric: str) -> dict[str, list[Any]]:
        """The points of a cumulative counter as each process exported them last, by
        `service.instance.id`.
        """
        actual: dict[str, list[Any]] = {}
        for resource in self.resources("metrics"):
            for item in (
                item
                for scope in resource.scope_metrics
                for item in scope.metrics
                if item.name == metric
            ):
                actual[instance_of(resource)] = list(item.sum.data_points)
        return actual

    def totals(self, metric: str, *attributes: str) -> dict[Any, int]:
        """The sums of a counter over all processes, by the values of these attributes."""
        sums: dict[Any, int] = {}
        for point in (point for points in self.newest(metric).values() for point in points):
            values = {pair.key: pair.value.string_value for pair in point.attributes}
            key: Any = tuple(values.get(name, "") for name in attributes)
            key = key if len(key) > 1 else key[0]
            sums[key] = sums.get(key, 0) + point.as_int
        return {key: count for key, count in sums.items() if count}


def instance_of(resource: Any) -> str:
    pairs = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    return pairs.get("service.instance.id", "")
