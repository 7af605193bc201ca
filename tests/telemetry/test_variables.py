"""The variables of OpenTelemetry's exporters, each obeyed by our own exporter as
docs/reference/variables.md says, or named as not obeyed.
"""

from __future__ import annotations

import gzip
import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.trace import SpanContext, TraceFlags

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.emitter import Emitter, score_attributes
from agenteval_otel.telemetry.providers import Providers
from agenteval_otel.telemetry.target import OtlpTarget, Signal, not_obeyed
from tests.backends.faults import PostHandler, serving

PAGE = Path(__file__).parents[2] / "docs/reference/variables.md"
SCORE, RESULTS = "gen_ai.evaluation.score", "agenteval.evaluation.results"
NOW_NS = 1_790_000_000_000_000_000
REQUESTS: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}


class Request(NamedTuple):
    """What arrived: where, with which headers, and the message."""

    path: str
    headers: dict[str, str]
    message: Any

    @property
    def signal(self) -> str:
        return next(name for name, kind in REQUESTS.items() if isinstance(self.message, kind))


class Collector:
    """A receiver on loopback that keeps what arrives."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.requests: list[Request] = []

    def of(self, signal: str) -> list[Request]:
        return [request for request in self.requests if request.signal == signal]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A receiver, in a process without variables of OpenTelemetry but for its endpoint."""
    made = Collector()

    class Handler(PostHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = UNPACK[headers.get("content-encoding", "")](self.body())
            kind = next(kind for name, kind in REQUESTS.items() if name in self.path)
            made.requests.append(Request(self.path, headers, kind.FromString(body)))
            self.answer(200, b"")

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with serving(Handler) as port:
        made.endpoint = f"http://127.0.0.1:{port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        yield made


def emit(times: int = 1) -> None:
    """Emit an answer's results to where the variables say, and have them exported each time."""
    emitter = Emitter(Providers(target=OtlpTarget()))
    try:
        for _ in range(times):
            emit_to(emitter)
            assert emitter.providers.flush(20)
    finally:
        emitter.close()


def emit_to(emitter: Emitter) -> None:
    """Emit an answer's results."""
    result = EvaluationResult(
        criterion_name="tone", evaluator_type="Tone", score=1, normalized=1.0, ended_ns=NOW_NS
    )
    response = AggregatedEvaluationResult(
        agent="shop", results=[result], started_ns=NOW_NS, ended_ns=NOW_NS
    )
    emitter.emit(
        response,
        evaluated=SpanContext(7, 7, True, TraceFlags(1)),
        scores=score_attributes(response.results),
    )


def resource_of(request: Request) -> dict[str, str]:
    [group] = getattr(
        request.message, f"resource_{'spans' if request.signal == 'traces' else request.signal}"
    )
    return {pair.key: pair.value.string_value for pair in group.resource.attributes}


def points_of(collector: Collector, name: str) -> list[Any]:
    """The points of a metric, in the order in which they came."""
    return [
        point
        for request in collector.of("metrics")
        for group in request.message.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.sum.data_points or metric.histogram.data_points
    ]


def by_default(collector: Collector) -> None:
    assert {request.path for request in collector.requests} == {
        "/v1/traces",
        "/v1/logs",
        "/v1/metrics",
    }


def has_header(collector: Collector) -> None:
    assert {request.headers.get("x-tenant") for request in collector.requests} == {"north south"}


def is_named(collector: Collector) -> None:
    assert {resource_of(request)["service.name"] for request in collector.requests} == {"shop"}


def is_of_team(collector: Collector) -> None:
    assert {resource_of(request)["team"] for request in collector.requests} == {"agents"}


def has_no_spans(collector: Collector) -> None:
    assert {request.signal for request in collector.requests} == {"logs", "metrics"}


def sends_nothing(collector: Collector) -> None:
    assert collector.requests == []


def is_packed(collector: Collector) -> None:
    assert {request.headers["content-encoding"] for request in collector.requests} == {"deflate"}


def packs_logs(collector: Collector) -> None:
    packed = {
        request.signal for request in collector.requests if "content-encoding" in request.headers
    }
    assert packed == {"logs"}


def has_three_attributes(collector: Collector) -> None:
    [request] = collector.of("traces")
    [span] = Signal("TRACES").records(request.message)
    assert len(span.attributes) == 3
    assert span.dropped_attributes_count > 0


def histogram_counts(collector: Collector) -> list[int]:
    return [point.count for point in points_of(collector, SCORE)]


def counted_results(collector: Collector) -> list[int]:
    """What each export says of the counter of results."""
    return [point.as_int for point in points_of(collector, RESULTS)]


def begin_where_the_one_before_has_ended(collector: Collector, name: str) -> bool:
    """Whether the points of a metric follow each other without a gap: else the Collector begins anew."""
    points = points_of(collector, name)
    assert len(points) >= 3
    return all(
        later.start_time_unix_nano == earlier.time_unix_nano
        for earlier, later in itertools.pairwise(points)
    )


def says_what_was_added(collector: Collector) -> None:
    for name in (SCORE, RESULTS):
        assert begin_where_the_one_before_has_ended(collector, name)
    assert histogram_counts(collector) == [1, 1, 1]
    assert sum(counted_results(collector)) == 3
    assert max(counted_results(collector)) == 1


def adds_histograms_alone(collector: Collector) -> None:
    assert histogram_counts(collector) == [1, 1, 1]
    assert counted_results(collector)[:3] == [1, 2, 3]


def says_all(collector: Collector) -> None:
    assert histogram_counts(collector)[:3] == [1, 2, 3]
    assert counted_results(collector)[:3] == [1, 2, 3]


def has_no_exemplars(collector: Collector) -> None:
    points = points_of(collector, SCORE)
    assert points
    assert not any(point.exemplars for point in points)


Check = Callable[[Collector], None]
SEEN: list[tuple[str, str, Check]] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "", by_default),
    ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=north%20south", has_header),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate", is_packed),
    ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "gzip", packs_logs),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta", says_what_was_added),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "lowmemory", adds_histograms_alone),
    ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "cumulative", says_all),
    ("OTEL_METRICS_EXEMPLAR_FILTER", "always_off", has_no_exemplars),
    ("OTEL_TRACES_EXPORTER", "none", has_no_spans),
    ("OTEL_TRACES_SAMPLER", "always_off", has_no_spans),
    ("OTEL_SDK_DISABLED", "true", sends_nothing),
    ("OTEL_SERVICE_NAME", "shop", is_named),
    ("OTEL_RESOURCE_ATTRIBUTES", "team=agents", is_of_team),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "3", has_three_attributes),
]


@pytest.mark.parametrize(
    ("name", "value", "check"), SEEN, ids=lambda part: getattr(part, "__name__", str(part))
)
def test_a_variable_is_obeyed(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, name: str, value: str, check: Check
) -> None:
    """What arrives at the receiver is as the variable says."""
    if value:
        monkeypatch.setenv(name, value)
    emit(times=3 if "TEMPORALITY" in name else 1)
    check(collector)


def test_an_endpoint_of_a_signal_is_used_as_it_is(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its own headers replace the common ones."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.endpoint}/traces/here")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=all")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-tenant=traces")
    emit()
    seen = {
        request.signal: (request.path, request.headers["x-tenant"])
        for request in collector.requests
    }
    assert seen == {
        "traces": ("/traces/here", "traces"),
        "logs": ("/v1/logs", "all"),
        "metrics": ("/v1/metrics", "all"),
    }


def test_a_delta_is_exported_once_however_often_providers_are_built(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emitter that is closed and used again, and another one of the same process, go on where the one
    before has ended.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    accounting = Accounting()
    accounting.outcome_counts("shop")["evaluated"] += 5
    for answers in (3, 1):
        emitter = Emitter(Providers(target=OtlpTarget()))
        emitter.observe(accounting, dict, dict)
        for _ in range(answers):
            emit_to(emitter)
            assert emitter.providers.flush(20)
            emitter.close()
    assert sum(counted_results(collector)) == 4
    assert sum(point.as_int for point in points_of(collector, "agenteval.responses")) == 5


IGNORED = {
    "OTEL_BSP_MAX_QUEUE_SIZE": "4096",
    "OTEL_BLRP_SCHEDULE_DELAY": "100",
    "OTEL_METRIC_EXPORT_TIMEOUT": "1000",
    "OTEL_CONFIG_FILE": "otel.yaml",
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
    "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION": "zstd",
    "OTEL_METRICS_EXEMPLAR_FILTER": "sometimes",
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "both",
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram",
}


def test_what_is_not_obeyed_is_named(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each with its value, in one log line when the exporter is made, and once alone."""
    assert not_obeyed({name: "" for name in IGNORED}) == []
    for name, value in IGNORED.items():
        assert not_obeyed({name: value}) == [f"{name}={value}"]
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4096")
    emit(times=2)
    lines = [line for line in caplog.messages if "variables_not_obeyed" in line]
    assert len(lines) == 1
    assert "OTEL_BSP_MAX_QUEUE_SIZE=4096" in lines[0]


def test_the_page_names_every_variable() -> None:
    """Those that are obeyed, and those that are not; of a variable for each signal the common form."""
    page = PAGE.read_text(encoding="utf-8")
    for name in {name for name, _, _ in SEEN} | IGNORED.keys():
        assert f"`{name.replace('OTLP_LOGS_', 'OTLP_')}`" in page, name
