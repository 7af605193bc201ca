"""The emitter's two forms: what the SDK makes of spans and events, and messages filled without it,
are equal.

CI runs this file with the newest SDK and with the oldest that is supported (.ci/run).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.metrics import Observation
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor, ReadableLogRecord
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricReader, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, Tracer, TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from agenteval_otel import semconv as names
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, EvaluationResult
from agenteval_otel.models.judge_calls import Judgement
from agenteval_otel.models.value import construct
from agenteval_otel.telemetry import messages
from agenteval_otel.telemetry.emitter import Emitter, score_attributes
from agenteval_otel.telemetry.private import Exporter, own_resource, private_provider
from agenteval_otel.telemetry.providers import Providers
from agenteval_otel.telemetry.spans import context_of_span
from agenteval_otel.telemetry.target import OtlpTarget, SendOutcome, Signal
from tests.telemetry.encoded import sdk_signal
from tests.telemetry.support import start_no_thread

pytestmark = pytest.mark.filterwarnings("ignore:Log record attributes were dropped")

MESSAGES = {"TRACES": ExportTraceServiceRequest, "LOGS": ExportLogsServiceRequest}
NOW_NS = 1_790_000_000_000_000_000
EXAMPLES = 20
"""Of each environment: 180 of spans and events, 100 of metrics."""


class Receiver(OtlpTarget):
    """A target for spans and events that keeps the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Any] = []

    def is_configured(self, signal: str) -> bool:
        return signal in MESSAGES

    def preload(self, signal: str) -> None: ...

    def sender(self, signal: Signal) -> Any:
        keep, message = self.requests.append, MESSAGES[signal.name]

        class Sender:
            def send(self, body: bytes) -> SendOutcome:
                keep(message.FromString(body))
                return SendOutcome(True, "200")

            def close(self) -> None: ...

        return Sender()


class SdkSpans(SpanProcessor):
    """What the SDK makes of spans, in batches of the same exporter."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def on_end(self, span: ReadableSpan) -> None:
        if span.context and span.context.trace_flags.sampled:
            self._exporter.put("TRACES", span, messages.size_of(span.attributes or {}))


class SdkRecords(LogRecordProcessor):
    """The same for log records."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def on_emit(self, log_record: Any) -> None:
        record = log_record.log_record
        record.context = None
        readable = ReadableLogRecord(
            record, log_record.resource, log_record.instrumentation_scope, log_record.limits
        )
        self._exporter.put("LOGS", readable, messages.size_of(record.attributes or {}))

    def shutdown(self) -> None:
        """Nothing is held."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


def providers_of_host(receiver: Receiver) -> tuple[Providers, Exporter]:
    """An application's providers, which export by the SDK's own encoders."""
    exporter = Exporter(lambda *lost: providers.lose(*lost))
    for signal in map(sdk_signal, MESSAGES):
        exporter.add(signal, receiver.sender(signal))
    tracers = TracerProvider(resource=own_resource(), shutdown_on_exit=False)
    tracers.add_span_processor(SdkSpans(exporter))
    loggers = LoggerProvider(resource=own_resource(), shutdown_on_exit=False)
    loggers.add_log_record_processor(SdkRecords(exporter))
    providers = Providers(tracer_provider=tracers, logger_provider=loggers)
    return providers, exporter


def emitted(case: dict[str, Any], *, own: bool) -> tuple[list[Any], dict[tuple[str, str], int]]:
    """The requests of one response by our own providers or by the application's, and what was lost;
    what has no fixed value is numbered.
    """
    receiver = Receiver()
    logging.disable()  # what cannot be encoded is logged, hundreds of times here
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            patch.delenv(name)
        for name, value in case["environment"].items():
            patch.setenv(name, value)
        if own:
            providers, exporter = Providers(target=receiver), None
        else:
            providers, exporter = providers_of_host(receiver)
        emitter = Emitter(providers, **case["emitter"], signals=frozenset({"traces", "events"}))
        try:
            providers.agent_tracer()
            providers.events()
            start_no_thread(patch)  # the exporter's may send a part before
            run(emitter, case, together=own)
            if exporter is not None:
                exporter.flush()
        finally:
            logging.disable(logging.NOTSET)
            emitter.close()
    return normalised(receiver.requests, case["evaluated"]), providers.lost


def run(emitter: Emitter, case: dict[str, Any], *, together: bool) -> None:
    """What the engine, a host and an evaluator do with the emitter for one response, or for several
    that are alike, which may be sent together.
    """
    response, evaluated, run_span = case["response"], case["evaluated"], None
    write_agent_span(emitter, case)
    if case["begins"]:
        run_span = emitter.open_run_span(response.agent or "", evaluated, response.started_ns)
    if run_span is not None:
        run_span.set_attributes(case["of_evaluator"])
        tracer = emitter.tracer()
        assert tracer is not None
        tracer.start_span(
            "judge", context=trace.set_span_in_context(run_span), start_time=NOW_NS
        ).end(NOW_NS)
    scores = score_attributes(response.results)
    begun = [run_span, *[None] * (case["responses"] - 1)]
    if together:
        emissions = [
            emitter.emission(response, evaluated, scores, span, str.upper) for span in begun
        ]
        emitter.send(emissions, spans=case["spans"])
    else:
        for span in begun:
            emitter.emit(
                response,
                evaluated=evaluated,
                scores=scores,
                run_span=span,
                redact=str.upper,
                spans=case["spans"],
            )
    emitter.emit_event(
        "agenteval.objective.breached",
        span=None,
        body="tone is breached",
        attributes={"agenteval.objective.criterion": "tone", "agenteval.objective.rate": 0.5},
        warn=True,
    )


def write_agent_span(emitter: Emitter, case: dict[str, Any]) -> None:
    """An agent span, with all that code of the host may put on it."""
    tracer = emitter.providers.agent_tracer()
    assert tracer is not None
    evaluated = case["evaluated"]
    span = tracer.start_span(
        "invoke_agent",
        context=context_of_span(evaluated),
        kind=SpanKind.CLIENT,
        links=[] if evaluated is None else [Link(evaluated, {"because": "asked"})],
        start_time=NOW_NS,
    )
    of_host = case["of_host"]
    span.set_attributes(of_host)
    span.add_event("found", of_host, timestamp=NOW_NS + 1)
    if of_host:
        span.set_status(StatusCode.ERROR, "it broke")
    span.end(NOW_NS + 2)


def normalised(requests: list[Any], evaluated: SpanContext | None) -> list[Any]:
    known = (
        {}
        if evaluated is None
        else {bytes_of(evaluated.trace_id, 16): b"", bytes_of(evaluated.span_id, 8): b""}
    )

    def numbered(generated: bytes) -> bytes:
        known.setdefault(generated, b"%d" % len(known))
        return known[generated] or generated

    for request in requests:
        signal = Signal("LOGS" if hasattr(request, "resource_logs") else "TRACES")
        for record in signal.records(request):
            record.trace_id = numbered(record.trace_id)
            record.span_id = numbered(record.span_id)
            if hasattr(record, "parent_span_id"):
                record.parent_span_id = numbered(record.parent_span_id)
            else:
                assert record.observed_time_unix_nano > NOW_NS
                record.observed_time_unix_nano = 0
                if not record.event_name.startswith("gen_ai"):
                    record.time_unix_nano = 0
    return sorted(requests, key=lambda request: request.DESCRIPTOR.full_name)


def bytes_of(number: int, length: int) -> bytes:
    return number.to_bytes(length)


TEXTS = st.one_of(
    st.sampled_from(["pass", "fail", "", "x" * 40_000, "schön\0", "half \ud83d of it", "👍"]),
    st.text(st.characters(exclude_categories=()), max_size=40),
)
WORDS = st.from_regex(r"[a-z][a-z_]{0,12}", fullmatch=True)
NUMBERS = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.booleans())
TIMES = st.integers(NOW_NS - 10**12, NOW_NS)
TOKENS = st.one_of(st.none(), st.integers(-(2**65), 2**65))


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def constructed(kind: Any, /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values as the engine makes them, whose texts validation need not have seen."""
    return st.fixed_dictionaries(fields).map(lambda known: construct(kind, known))


JUDGEMENTS = constructed(
    Judgement,
    model=TEXTS,
    response_id=some(TEXTS),
    input_tokens=TOKENS,
    output_tokens=TOKENS,
    cost_usd=some(st.floats()),
    cache_read_tokens=TOKENS,
    cache_write_tokens=TOKENS,
    from_cache=st.booleans(),
    left_out_chars=TOKENS,
)
RESULTS = constructed(
    EvaluationResult,
    criterion_name=WORDS,
    evaluator_type=WORDS,
    score=some(NUMBERS | TEXTS),
    error=some(TEXTS),
    skip_reason=some(TEXTS),
    reasoning=some(TEXTS),
    normalized=some(st.floats(0, 1)),
    label=some(TEXTS),
    passed=some(st.booleans()),
    threshold=some(st.floats()),
    reason_code=some(TEXTS),
    error_type=some(TEXTS),
    evaluator_id=some(TEXTS),
    evaluator_version=some(WORDS),
    calls_model=st.booleans(),
    shadow=st.booleans(),
    suspected_injection=st.booleans(),
    probability=some(st.floats(0, 1)),
    sampling_reason=some(TEXTS),
    judgement=some(JUDGEMENTS),
    started_ns=some(TIMES),
    ended_ns=TIMES,
)
RESPONSES = constructed(
    AggregatedEvaluationResult,
    results=st.lists(RESULTS, max_size=4),
    overall_score=some(st.floats(0, 1)),
    agent=some(TEXTS),
    model=some(TEXTS),
    response_id=some(TEXTS),
    conversation_id=some(TEXTS),
    started_ns=TIMES,
    ended_ns=TIMES,
    response_ended_ns=some(TIMES),
    sampling_probability=some(st.floats(0, 1)),
    sampling_reason=some(TEXTS),
    sampling_scope=some(WORDS),
    sampling_clustered=st.booleans(),
    has_ground_truth=st.booleans(),
    stream_end=some(WORDS),
    prompt_name=some(TEXTS),
    user_id=some(TEXTS),
    service=some(TEXTS),
    tags=some(st.dictionaries(TEXTS, TEXTS, max_size=3)),
    input_snapshot=some(constructed(EvaluationInput, prompt=some(TEXTS), response=some(TEXTS))),
)
IDS = st.tuples(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1))
CONTEXTS = st.builds(
    lambda ids, *others: SpanContext(*ids, *others),
    IDS | st.sampled_from([(0, 0), (7, 0)]),
    st.booleans(),
    st.sampled_from([1, 1, 1, 3, 2, 0]).map(TraceFlags),
    st.sampled_from([None, TraceState(), TraceState([("ot", "th:8"), ("vendor", "a=b")])]),
)
ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"OTEL_RESOURCE_ATTRIBUTES": "team=agents,empty=", "OTEL_SERVICE_NAME": "shop"},
    {"OTEL_ATTRIBUTE_COUNT_LIMIT": "7", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3"},
    {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "3", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "1"},
    {
        "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT": "3",
        "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT": "1",
    },
    {
        "OTEL_ATTRIBUTE_COUNT_LIMIT": "0",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "0",
        "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "0",
    },
    {"OTEL_TRACES_SAMPLER": "always_on"},
    {"OTEL_TRACES_SAMPLER": "parentbased_always_off"},
    {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"},
]
CASES = st.fixed_dictionaries(
    {
        "response": RESPONSES,
        "responses": st.integers(1, 3),
        "evaluated": some(CONTEXTS),
        "begins": st.booleans(),
        "spans": st.booleans(),
        "of_host": st.dictionaries(
            WORDS, NUMBERS | TEXTS | st.lists(WORDS, max_size=2), max_size=4
        ),
        "of_evaluator": st.dictionaries(WORDS, NUMBERS | st.lists(WORDS, max_size=2), max_size=2),
        "emitter": st.fixed_dictionaries(
            {
                "detail": st.sampled_from(["auto", "result", "response", "none"]),
                "placement": st.sampled_from(["child", "linked"]),
                "no_scores": st.booleans(),
                "content": st.sampled_from(
                    ["no_content", "span_only", "event_only", "span_and_event"]
                ),
            }
        ),
    }
)


PLAIN: dict[str, Any] = {
    "response": construct(
        AggregatedEvaluationResult,
        {
            "agent": "support",
            "started_ns": NOW_NS,
            "ended_ns": NOW_NS,
            "results": [
                EvaluationResult(
                    criterion_name="t", evaluator_type="T", score=1, label="pass", ended_ns=NOW_NS
                )
            ],
        },
    ),
    "responses": 1,
    "evaluated": SpanContext(7, 7, True, TraceFlags(1)),
    "begins": True,
    "spans": True,
    "environment": {},
    "of_host": {},
    "of_evaluator": {},
    "emitter": {},
}
LINKED: dict[str, Any] = {**PLAIN, "emitter": {"placement": "linked"}}
INVALID = {"evaluated": SpanContext(7, 0, False, TraceFlags(1))}


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=" ".join)
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(case=CASES)
@example(case=LINKED)
@example(case={**LINKED, **INVALID})
@example(case={**PLAIN, **INVALID})
def test_both_forms_are_equal(environment: dict[str, str], case: dict[str, Any]) -> None:
    """Request by request, message by message, lost item by lost item, whatever is emitted and
    however it is limited.
    """
    case = {**case, "environment": environment}
    assert emitted(case, own=True) == emitted(case, own=False)


def test_a_single_wrong_attribute_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison fails where one attribute of one message is not what the SDK makes of it."""
    right = emitted(PLAIN, own=True)
    assert [request.DESCRIPTOR.name for request in right[0]] == [
        "ExportLogsServiceRequest",
        "ExportTraceServiceRequest",
    ]
    fill = messages.fill_attributes

    def fill_wrongly(pairs: Any, attributes: Any, longest: int | None = None) -> None:
        wrong = {names.SCORE_LABEL: "fail"} if names.SCORE_LABEL in attributes else {}
        fill(pairs, {**attributes, **wrong}, longest)

    monkeypatch.setattr(messages, "fill_attributes", fill_wrongly)
    assert emitted(PLAIN, own=True) != right == emitted(PLAIN, own=False)


FILTERS: list[dict[str, str]] = [
    {"OTEL_METRICS_EXEMPLAR_FILTER": name} for name in ("always_on", "always_off")
]
TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
DELTAS: list[dict[str, str]] = [{TEMPORALITY: "delta"}, {TEMPORALITY: "LowMemory"}]
# Their sums are exact in any order. Older SDKs count NaN.
AMOUNTS = st.integers(-1, 1_024).map(lambda number: number / 1_024) | st.sampled_from(
    [0.5, 0.75, 1e9]
)
MEASUREMENTS = st.tuples(
    st.sampled_from([names.METRIC_SCORE, names.METRIC_LAG]),
    AMOUNTS,
    st.dictionaries(st.sampled_from(["a", "b"]), WORDS, max_size=2),
    some(CONTEXTS),
)


class SdkMetrics(MetricReader):
    """What the SDK makes of measurements, for the same exporter."""

    def __init__(self, exporter: Exporter) -> None:
        is_delta = os.environ.get(TEMPORALITY, "cumulative") != "cumulative"
        deltas = {Histogram: AggregationTemporality.DELTA} if is_delta else {}
        super().__init__(preferred_temporality=deltas)
        self._exporter = exporter

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any
    ) -> None:
        self._exporter.streams["METRICS"].keep_collection(metrics_data)

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """Nothing is held."""


def provider_of_sdk(exporter: Exporter, sender: Any) -> MeterProvider:
    exporter.add(sdk_signal("METRICS"), sender)
    reader = SdkMetrics(exporter)
    provider = MeterProvider([reader], Resource({}), shutdown_on_exit=False)
    exporter.collect_with(reader.collect, 60.0)
    return provider


def collected(
    case: Sequence[Sequence[Any]], environment: dict[str, str], *, own: bool
) -> list[Any]:
    """What is sent of the measurements, after each of their lists; times are 0, and points in one
    order.
    """
    sent: list[Any] = []
    sender = SimpleNamespace(
        send=lambda body: sent.append(body) or SendOutcome(True, "200"), close=bool
    )
    target: Any = SimpleNamespace(sender=lambda _: sender)
    exporter = Exporter(lambda *_: None)
    with pytest.MonkeyPatch.context() as patch:
        start_no_thread(patch)
        for name, value in environment.items():
            patch.setenv(name, value)
        if own:
            provider = private_provider("METRICS", target, exporter, Resource({}))
        else:
            provider = provider_of_sdk(exporter, sender)
        meter = provider.get_meter(names.SCOPE_NAME, "1")
        totals: dict[str, float] = {}
        count = [0]
        meter.create_observable_gauge("gauge", [lambda _: [Observation(1)]], "s", "A gauge.")
        meter.create_observable_counter(
            "counter", [lambda _: [Observation(count[0], {"a": "b", "c": "d"})]], "1", "A counter."
        )
        meter.create_observable_up_down_counter(
            "sums",
            [lambda _: [Observation(value, {"of": name}) for name, value in totals.items()]],
        )
        meter.create_observable_gauge("raises", [lambda _: [Observation(1 / 0)]])
        instruments = {
            name: meter.create_histogram(
                name.name,
                unit=name.unit,
                description=name.description,
                explicit_bucket_boundaries_advisory=list(name.boundaries or ()),
            )
            for name in (names.METRIC_SCORE, names.METRIC_LAG)
        }
        for measurements in case:
            for instrument, amount, attributes, evaluated in measurements:
                ordered = dict(sorted(attributes.items()))
                instruments[instrument].record(
                    amount, ordered or None, context=context_of_span(evaluated)
                )
                totals[instrument] = totals.get(instrument, 0.0) + amount
                count[0] += 1
            exporter.flush()
    return [_without_times(ExportMetricsServiceRequest.FromString(body)) for body in sent]


def _without_times(request: Any) -> list[str]:
    [metrics] = [
        metrics
        for metrics in request.resource_metrics[0].scope_metrics
        if metrics.scope.name == names.SCOPE_NAME
    ]  # an SDK may have metrics of itself
    for metric in metrics.metrics:
        points = metric.histogram.data_points or metric.gauge.data_points or metric.sum.data_points
        for message in (
            *points,
            *(exemplar for point in points for exemplar in getattr(point, "exemplars", ())),
        ):
            assert message.time_unix_nano > NOW_NS
            message.time_unix_nano = 0
        for point in (*metric.sum.data_points, *metric.gauge.data_points):
            point.ClearField("exemplars")  # the SDK's have no span: nothing is observed in one
        for point in (*metric.sum.data_points, *metric.histogram.data_points):
            assert point.start_time_unix_nano > NOW_NS
            point.start_time_unix_nano = 0
        for point in metric.histogram.data_points:
            point.attributes.sort(key=lambda pair: pair.key)
        metric.histogram.data_points.sort(key=lambda point: str(point.attributes))
    return sorted(str(metric) for metric in metrics.metrics)


@pytest.mark.parametrize("environment", [{}, *FILTERS, *DELTAS], ids=str)
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(case=st.lists(st.lists(MEASUREMENTS, max_size=6), min_size=1, max_size=3))
def test_both_forms_of_metrics_are_equal(
    environment: dict[str, str], case: Sequence[Sequence[Any]]
) -> None:
    """Points, buckets, sums, gauges and exemplars, in each of several collections, whatever is
    measured. Counters are cumulative in both: the SDK's deltas are not ours.
    """
    environment = {
        **environment,
        **({TEMPORALITY: "lowmemory"} if TEMPORALITY in environment else {}),
    }
    if environment.get("OTEL_METRICS_EXEMPLAR_FILTER") == "always_on":
        # Outside any span the SDK's exemplar has the ids of the one before it; ours has none.
        case = [
            [item for item in items if item[3] is not None and item[3].is_valid] for items in case
        ]
    of_ours = collected(case, environment, own=True)
    assert of_ours == collected(case, environment, own=False)
    assert len(of_ours) == len(case)


def test_messages_are_filled_where_the_application_has_no_provider() -> None:
    """Agent spans are the SDK's, since code of the host runs in them; an application's provider has
    spans of both kinds.
    """
    own, host = Providers(target=Receiver()), Providers(tracer_provider=TracerProvider())
    assert isinstance(own.tracer(), messages.SpanMessages)
    assert isinstance(own.agent_tracer(), Tracer)
    assert host.tracer() is host.agent_tracer()
    assert isinstance(host.tracer(), Tracer)
    own.close()


def test_no_redactor_runs_while_several_are_sent() -> None:
    """A redactor may hang: with one response, while that one's emission is made, not while all of
    them are sent.
    """
    seen: list[str] = []
    result = EvaluationResult(
        criterion_name="t", evaluator_type="T", score=1, reasoning="a secret", ended_ns=NOW_NS
    )
    response = construct(
        AggregatedEvaluationResult, {"results": [result], "started_ns": NOW_NS, "ended_ns": NOW_NS}
    )
    receiver = Receiver()
    emitter = Emitter(
        Providers(target=receiver), content="event_only", signals=frozenset({"events"})
    )

    def redact(text: str) -> str:
        seen.append(text)
        return "redacted"

    emissions = [emitter.emission(response, PLAIN["evaluated"], {}, None, redact) for _ in range(2)]
    assert seen == ["a secret"] * 2
    emitter.send(emissions)
    emitter.close()
    assert seen == ["a secret"] * 2
    (request,) = receiver.requests
    assert str(request).count("redacted") == 2


def test_events_on_a_run_span_are_left_out_with_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are the one thing that the SDK's spans keep and ours do not."""
    receiver = Receiver()
    emitter = Emitter(Providers(target=receiver), signals=frozenset({"traces"}))
    span = emitter.open_run_span("support", PLAIN["evaluated"], NOW_NS)
    assert span is not None
    span.add_event("retrieved", {"documents": 3})
    span.record_exception(ValueError("broken"))
    span.update_name("renamed")
    span.set_attribute("documents", 3)
    span.end(NOW_NS + 1)
    assert emitter.providers.flush(10)
    [request] = receiver.requests
    [sent] = Signal("TRACES").records(request)
    assert (sent.name, len(sent.events), [pair.key for pair in sent.attributes][-1]) == (
        "renamed",
        0,
        "documents",
    )
    assert [record for record in caplog.records if "span_event_left_out" in record.getMessage()]
    emitter.close()
