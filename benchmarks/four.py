"""Four evaluators with everything that they give encoded for OTLP, pinned to one core."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from benchmarks import subjects
from benchmarks.harness import Numbers

__all__ = ["ours", "rivals", "signals_only"]

_now = time.perf_counter
_KEYWORDS = ("Paris", "capital", "France", "government", "Seine")
_LEGAL = ("liability", "warranty")


def _four_of_ours() -> list[Any]:
    from agenteval_otel.evaluators import KeywordCoverage, ResponseHealth, RuleBased

    rules = [
        {"criterionName": "length", "config": {"type": "length", "min": 10, "max": 5_000}},
        {"criterionName": "mentions", "config": {"type": "includes", "keywords": ["Paris"], "caseSensitive": False}},
    ]
    return [
        ResponseHealth(), RuleBased.load({"rules": rules}),
        KeywordCoverage(expected_keywords=_KEYWORDS, criterion_name="coverage"),
        KeywordCoverage(expected_keywords=_LEGAL, match_whole_word=False, criterion_name="legal"),
    ]  # fmt: skip


def _four_of_rivals() -> list[Any]:
    """The same evaluators behind the rival's contract: only what surrounds them differs."""
    from dataclasses import dataclass

    from pydantic_evals.evaluators import Evaluator, EvaluatorContext

    from agenteval_otel.models import EvaluationInput

    @dataclass
    class Same(Evaluator[Any, Any, Any]):
        inner: Any

        async def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> dict[str, float]:
            given = EvaluationInput(prompt=subjects.QUESTION, response=ctx.output)
            results = await self.inner.evaluate(given, self.inner.criteria())
            return {result.criterion_name: float(result.score) for result in results}

    return [Same(each) for each in _four_of_ours()]


class _Encoded:
    """Providers of all signals whose exporters encode to OTLP's protobuf and drop the bytes."""

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

        counts = self.counts = {"spans": 0, "events": 0, "bytes": 0}

        class Spans(SpanExporter):
            def export(self, spans: Any) -> Any:
                counts["bytes"] += len(encode_spans(spans).SerializeToString())
                counts["spans"] += len(spans)
                return SpanExportResult.SUCCESS

        class Events(LogRecordExporter):
            def export(self, batch: Any) -> Any:
                counts["bytes"] += len(encode_logs(batch).SerializeToString())
                counts["events"] += len(batch)
                return LogRecordExportResult.SUCCESS

            def shutdown(self) -> None:
                return None

            def force_flush(self, timeout_millis: int = 0) -> bool:
                return True

        class Metrics(MetricExporter):
            def export(self, metrics_data: Any, timeout_millis: float = 0, **_: Any) -> Any:
                counts["bytes"] += len(encode_metrics(metrics_data).SerializeToString())
                return MetricExportResult.SUCCESS

            def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
                return None

            def force_flush(self, timeout_millis: float = 0) -> bool:
                return True

        self.traces = TracerProvider(shutdown_on_exit=False)
        self.traces.add_span_processor(BatchSpanProcessor(Spans(), max_queue_size=8_192))
        self.logs = LoggerProvider(shutdown_on_exit=False)
        self.logs.add_log_record_processor(BatchLogRecordProcessor(Events(), max_queue_size=8_192))
        reader = PeriodicExportingMetricReader(Metrics(), export_interval_millis=1_000)
        self.meters = MeterProvider([reader], shutdown_on_exit=False)

    def flush(self) -> None:
        """Encode what still waits."""
        for provider in (self.traces, self.logs, self.meters):
            provider.force_flush()


def _on_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _evaluators_us(rounds: int = 300) -> float:
    """What the four take together, by themselves, in microseconds."""
    from agenteval_otel.models import EvaluationInput

    evaluators = _four_of_ours()
    given = EvaluationInput(prompt=subjects.QUESTION, response=subjects.ANSWER)

    async def run() -> float:
        best = float("inf")
        for _ in range(rounds):
            began = _now()
            for evaluator in evaluators:
                await evaluator.evaluate(given, evaluator.criteria())
            best = min(best, _now() - began)
        return best * 1e6

    return asyncio.run(run())


def ours(quick: bool) -> Numbers:
    from agenteval_otel.storage import OtlpStorageProvider

    _on_one_core()
    encoded = _Encoded()
    storage = OtlpStorageProvider(
        tracer_provider=encoded.traces, logger_provider=encoded.logs, meter_provider=encoded.meters
    )
    evaluators_us = _evaluators_us()
    subject = subjects.Ours(evaluators=_four_of_ours(), storage=[storage], own_span="never")
    handler, state = subject.wrap(subjects.answer), subject.pipeline.dispatcher.state
    calls = 2_000 if quick else 5_000
    for _ in range(200):
        handler(subjects.QUESTION)
    subject.drain()
    encoded.flush()
    before, began, cpu = dict(encoded.counts), _now(), time.process_time()
    for index in range(calls):
        # A caller that waits, instead of being dropped, while the queue is well filled.
        while not index % 100 and state()["size"] > 1_000:
            time.sleep(0.005)
        handler(subjects.QUESTION)
    subject.drain()
    encoded.flush()
    took, used = _now() - began, time.process_time() - cpu
    events = encoded.counts["events"] - before["events"]
    return {
        "per s": calls / took, "per cpu s": calls / used, "evaluated": (subject.evaluated() - 200) / calls,
        "events": events / calls / 5, "evaluators us": evaluators_us,
        "bytes": (encoded.counts["bytes"] - before["bytes"]) / calls,
    }  # fmt: skip


def signals_only(quick: bool) -> Numbers:
    """What the SDK alone takes for the same signals: a run span, five events and seven histogram records, encoded."""
    from opentelemetry import _logs
    from opentelemetry.context import Context

    _on_one_core()
    encoded = _Encoded()
    tracer, logger = encoded.traces.get_tracer("floor"), encoded.logs.get_logger("floor")
    histogram = encoded.meters.get_meter("floor").create_histogram("score")
    event: dict[str, Any] = {
        **{f"text.{index}": "some value" for index in range(8)},
        **{f"number.{index}": 0.5 for index in range(4)},
    }
    run: dict[str, Any] = {
        **{f"text.{index}": "some value" for index in range(9)},
        **{f"number.{index}": 0.5 for index in range(7)},
    }
    calls, severity = 1_000 if quick else 3_000, _logs.SeverityNumber.INFO
    began, cpu = _now(), time.process_time()
    for index in range(calls):
        span = tracer.start_span("evaluation answer", attributes={"a": "b", "c": "d"})
        for _ in range(5):
            logger.emit(
                event_name="gen_ai.evaluation.result", context=Context(), timestamp=1, severity_number=severity,
                severity_text="INFO", body="criterion pass", attributes=event,
            )  # fmt: skip
        for _ in range(7):
            histogram.record(0.5, {"gen_ai.evaluation.name": "criterion", "gen_ai.agent.name": "answer"})
        span.set_attributes(run)
        span.end()
        if not index % 500:
            encoded.flush()  # so that the processors' queues lose none
    encoded.flush()
    took, used = _now() - began, time.process_time() - cpu
    return {"per s": calls / took, "per cpu s": calls / used}


def rivals(quick: bool) -> Numbers:
    from opentelemetry import _logs, trace

    _on_one_core()
    encoded = _Encoded()
    trace.set_tracer_provider(encoded.traces)
    _logs.set_logger_provider(encoded.logs)
    subject = subjects.Rival(evaluators=_four_of_rivals(), limit=100_000)
    handler = subject.wrap(subjects.answer_async)
    calls = 500 if quick else 2_000

    async def run() -> None:
        for start in range(0, calls, 100):
            await asyncio.gather(*(handler(subjects.QUESTION) for _ in range(start, min(start + 100, calls))))
        await subject.wait()

    began, cpu = _now(), time.process_time()
    asyncio.run(run())
    encoded.flush()
    took, used = _now() - began, time.process_time() - cpu
    return {"per s": calls / took, "per cpu s": calls / used, "evaluated": subject.evaluated() / calls / 5}
