"""A real Jaeger for tests, all in one: started on free loopback ports, read through its query API
by service.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from .faults import LOOPBACK
from .process import BackendError, BackendProcess

TRACE_LIMIT = 1_500


class JaegerSpan(NamedTuple):
    """A span as Jaeger shows it; `parents` are the ids of the spans that it is a `CHILD_OF`, empty
    for a root.

    `links` are the trace and span ids of what it follows from.
    `tags` are its attributes and what Jaeger adds (`span.kind`, ...), `warnings` clock skew or a
    missing parent.
    """

    name: str
    span_id: str
    parents: tuple[str, ...]
    tags: Mapping[str, Any]
    start_us: int
    duration_us: int
    warnings: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()


class JaegerTrace(NamedTuple):
    """A trace as Jaeger shows it, its spans in no particular order."""

    trace_id: str
    spans: tuple[JaegerSpan, ...]

    def warnings(self) -> list[str]:
        return [f"{span.name}: {warning}" for span in self.spans for warning in span.warnings]

    def orphans(self) -> list[str]:
        """Names of the spans that refer to a parent which is not in the trace."""
        known = {span.span_id for span in self.spans}
        return [span.name for span in self.spans if not known.issuperset(span.parents)]


class Jaeger(BackendProcess):
    """One Jaeger process and its API, its traces in memory."""

    title = "Jaeger"
    port_names = (
        "otlp_grpc",
        "otlp_http",
        "query_http",
        "query_grpc",
        "admin",
        "collector_http",
        "collector_grpc",
    )

    @property
    def otlp_endpoint(self) -> str:
        """Host and port of its OTLP receiver over gRPC, as a Collector's exporter takes them."""
        return f"{LOOPBACK}:{self.ports.otlp_grpc}"

    def traces(
        self, service: str, *, tags: Mapping[str, str] | None = None, since_s: float = 3600.0
    ) -> list[JaegerTrace]:
        """Traces of the service that hold a span with these tags and began since then."""
        now_us = int(time.time() * 1e6)
        # Without start, end and lookback it finds nothing and does not say why.
        requests = {
            "service": service,
            "start": str(now_us - int(since_s * 1e6)),
            "end": str(now_us + 60_000_000),
            "lookback": "custom",
            "limit": str(TRACE_LIMIT),
            **({"tags": json.dumps(dict(tags))} if tags else {}),
        }
        answer = self._get_json(self.ports.query_http, "/api/traces", requests)
        if answer.get("errors"):
            raise BackendError(f"Jaeger answered {answer['errors']}")
        return [_trace(actual) for actual in answer["data"] or []]

    def trace(self, trace_id: str) -> JaegerTrace | None:
        """The trace of this id (lower-case hexadecimal), or None when Jaeger does not have it."""
        try:
            answer = self._get_json(self.ports.query_http, f"/api/traces/{trace_id}")
        except BackendError as error:
            if "status 404" in str(error):
                return None
            raise
        return _trace(answer["data"][0])

    def raw_trace(self, trace_id: str) -> str:
        """All that Jaeger has of a trace, as it answers: what spans log too."""
        return self._get(self.ports.query_http, f"/api/traces/{trace_id}")

    def _arguments(self) -> list[str]:
        ports = self.ports
        listeners = {
            "collector.otlp.grpc.host-port": ports.otlp_grpc,
            "collector.otlp.http.host-port": ports.otlp_http,
            "query.http-server.host-port": ports.query_http,
            "query.grpc-server.host-port": ports.query_grpc,
            "collector.http-server.host-port": ports.collector_http,
            "admin.http.host-port": ports.admin,
            "collector.grpc-server.host-port": ports.collector_grpc,
        }
        return [
            *(f"--{flag}={LOOPBACK}:{port}" for flag, port in listeners.items()),
            "--log-level=warn",
        ]

    def _environment(self) -> dict[str, str]:
        # No sampler: Jaeger sends traces of itself to port 4317, whoever listens there, and waits
        # for it at its end.
        return {"SPAN_STORAGE_TYPE": "memory", "OTEL_TRACES_SAMPLER": "always_off"}

    def _health(self) -> tuple[int, str]:
        return self.ports.admin, "/"


def _trace(actual: Mapping[str, Any]) -> JaegerTrace:
    return JaegerTrace(actual["traceID"], tuple(map(_span, actual["spans"])))


def _span(span: Mapping[str, Any]) -> JaegerSpan:
    return JaegerSpan(
        name=span["operationName"],
        span_id=span["spanID"],
        start_us=span["startTime"],
        duration_us=span["duration"],
        parents=tuple(to["spanID"] for to in span["references"] if to["refType"] == "CHILD_OF"),
        links=tuple(
            (to["traceID"], to["spanID"])
            for to in span["references"]
            if to["refType"] == "FOLLOWS_FROM"
        ),
        tags={tag["key"]: tag["value"] for tag in span["tags"]},
        warnings=tuple(span["warnings"] or ()),
    )
