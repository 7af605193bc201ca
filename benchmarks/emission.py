"""Emission: processor time of an answer's run span, events and metrics, encoding included, in both
forms: OTLP messages filled directly, as where the application has no providers (ours), and through
the OpenTelemetry SDK, as where it has (raw).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.goals import holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone

__all__ = ["BENCH", "own_providers"]

_FLUSH_EVERY = 500
_CASES: dict[str, tuple[int, frozenset[str]]] = {
    "one result": (1, frozenset({"traces", "events", "metrics"})),
    "one result, no metrics": (1, frozenset({"traces", "events"})),
    "one result, metrics alone": (1, frozenset({"metrics"})),
    "eight results": (8, frozenset({"traces", "events", "metrics"})),
}


def _emissions(count: int, results: int) -> list[Callable[[Any], None]]:
    """Emissions of answers in traces of their own, as the sidecar has them."""
    from opentelemetry.trace import SpanContext, TraceFlags

    from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
    from agenteval_otel.telemetry.emitter import score_attributes

    now_ns = time.time_ns()
    scored = tuple(
        EvaluationResult(
            criterion_name=f"criterion_{number}",
            evaluator_type="ResponseHealth",
            evaluator_version="0123456789ab",
            score=1.0,
            normalized=1.0,
            threshold=0.5,
            passed=True,
            label="pass",
            reason_code="ok",
            probability=1.0,
            started_ns=now_ns,
            ended_ns=now_ns + 20_000,
        )
        for number in range(results)
    )
    scores = score_attributes(scored)

    def emission(number: int) -> Callable[[Any], None]:
        response = AggregatedEvaluationResult(
            agent="parcels",
            model="gpt-5-mini",
            response_id=f"response-{number}",
            conversation_id=f"chat-{number}",
            service="shop",
            prompt_version="3",
            results=scored,
            overall_score=1.0,
            started_ns=now_ns,
            ended_ns=now_ns + 50_000,
            response_ended_ns=now_ns - 10**9,
            sampling_probability=1.0,
            sampling_reason="ratio",
            sampling_scope="received",
        )
        evaluated = SpanContext(number + 1, number + 1, True, TraceFlags(1))
        return lambda emitter: emitter.emit(response, evaluated=evaluated, scores=scores)

    return [emission(number) for number in range(count)]


def own_providers() -> Any:
    """Providers of ours whose requests are encoded and sent nowhere."""
    from agenteval_otel.telemetry.providers import Providers
    from agenteval_otel.telemetry.target import OtlpTarget, SendOutcome

    class Sender:
        def send(self, body: bytes) -> SendOutcome:
            return SendOutcome(True, "200")

        def close(self) -> None: ...

    class Nowhere(OtlpTarget):
        def is_configured(self, signal: str) -> bool:
            return True

        def preload(self, signal: str) -> None: ...

        def sender(self, signal: Any) -> Any:
            return Sender()

    return Providers(target=Nowhere())


def _providers_of_sdk() -> Any:
    """The SDK's, whose batches are encoded and sent nowhere."""
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        MetricExporter,
        MetricExportResult,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    from agenteval_otel.telemetry.providers import Providers

    class Encoding(MetricExporter):
        def __init__(self, encode: Callable[[Any], Any], succeeded: Any) -> None:
            super().__init__()
            self._encode, self._succeeded = encode, succeeded

        def export(self, batch: Any, *_: Any, **__: Any) -> Any:
            self._encode(batch).SerializeToString()
            return self._succeeded

        def shutdown(self, *_: Any, **__: Any) -> None: ...

        def force_flush(self, *_: Any, **__: Any) -> bool:
            return True

    tracers, loggers = TracerProvider(), LoggerProvider()
    of_spans: Any = Encoding(encode_spans, SpanExportResult.SUCCESS)
    of_logs: Any = Encoding(encode_logs, LogRecordExportResult.SUCCESS)
    tracers.add_span_processor(BatchSpanProcessor(of_spans))
    loggers.add_log_record_processor(BatchLogRecordProcessor(of_logs))
    of_metrics = Encoding(encode_metrics, MetricExportResult.SUCCESS)
    meters = MeterProvider([PeriodicExportingMetricReader(of_metrics)])
    return Providers(tracer_provider=tracers, logger_provider=loggers, meter_provider=meters)


def _taken_us(
    own: bool, signals: Any, emissions: list[Callable[[Any], None]], rounds: int
) -> float:
    from agenteval_otel.telemetry.emitter import Emitter

    emitter = Emitter(own_providers() if own else _providers_of_sdk(), signals=signals)

    def taken_us() -> float:
        began = time.process_time()
        for number, emit in enumerate(emissions, 1):
            emit(emitter)
            if number % _FLUSH_EVERY == 0:
                emitter.providers.flush(60)
        return (time.process_time() - began) / len(emissions) * 1e6

    taken_us()
    best = min(taken_us() for _ in range(rounds))
    assert not emitter.providers.lost
    emitter.close()
    return best


def _measured(own: bool, size: Size) -> Numbers:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    count, rounds = size.of(_FLUSH_EVERY, 10 * _FLUSH_EVERY), size.of(1, 5)
    return {
        name: _taken_us(own, signals, _emissions(count, results), rounds)
        for name, (results, signals) in _CASES.items()
    }


def _figures(medians: dict[str, Numbers]) -> list[Figure]:
    messages, sdk = medians["emission:ours"], medians["emission:raw"]
    return [
        Figure(
            name,
            "us",
            {"ours": messages[name], "raw": sdk[name]},
            None if "alone" in name else holds("less", messages[name] < sdk[name]),
        )
        for name in _CASES
    ]


BENCH = Bench(
    "emission",
    "Emission: an answer's processor time, encoding included",
    (
        Phase("emission", "ours", partial(_measured, True)),
        Phase("emission", "raw", partial(_measured, False)),
    ),
    _figures,
    rounds=3,
    notes=(
        "Emission: ours fills OTLP's messages, as where the application has no providers; raw makes the SDK's spans, "
        "log records and histograms of the same results.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)
