"""What the background manages: bursts without loss, and responses a second with everything encoded for OTLP."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import subjects
from benchmarks.harness import Bench, Figure, Numbers, Phase, standalone

__all__ = ["BENCH"]

_now = time.perf_counter
_BURST = 1_000
_WAIT_S = 0.02


# --- bursts -----------------------------------------------------------------------------------------------------------
async def waiting(evaluation_input: Any) -> float:
    await asyncio.sleep(_WAIT_S)
    return 1.0


def _ours(*, waits: bool) -> subjects.Ours:
    return subjects.Ours(evaluators=[waiting] if waits else None)


def _rival(*, waits: bool, limit: int | None = None) -> subjects.Rival:
    return subjects.Rival(evaluator=subjects.Rival.trivial(_WAIT_S if waits else 0.0), limit=limit)


def _numbers(subject: Any, began: float, handed_over: float) -> Numbers:
    return {
        "evaluated": float(subject.evaluated()),
        "caller us": (handed_over - began) / _BURST * 1e6,
        "per s": subject.evaluated() / (_now() - began),
    }


def _sync(make: Callable[[], Any], quick: bool) -> Numbers:
    """A thousand calls one right after the other."""
    subjects.use_tracing()
    subject = make()
    handler = subject.wrap(subjects.answer)
    began = _now()
    for _ in range(_BURST):
        handler(subjects.QUESTION)
    handed_over = _now()
    subject.drain()
    return _numbers(subject, began, handed_over)


def _async(make: Callable[[], Any], quick: bool) -> Numbers:
    """A thousand calls at once on one event loop."""
    subjects.use_tracing()
    subject = make()
    handler = subject.wrap(subjects.answer_async)

    async def burst() -> tuple[float, float]:
        began = _now()
        await asyncio.gather(*(handler(subjects.QUESTION) for _ in range(_BURST)))
        handed_over = _now()
        if isinstance(subject, subjects.Rival):
            await subject.wait()
        return began, handed_over

    began, handed_over = asyncio.run(burst())
    if isinstance(subject, subjects.Ours):
        subject.drain()
    return _numbers(subject, began, handed_over)


# --- four evaluators, one core, OTLP ----------------------------------------------------------------------------------
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


def _four_ours(quick: bool) -> Numbers:
    from agenteval_otel.storage import OtlpStorageProvider

    _on_one_core()
    encoded = _Encoded()
    storage = OtlpStorageProvider(
        tracer_provider=encoded.traces, logger_provider=encoded.logs, meter_provider=encoded.meters
    )
    evaluators_us = _evaluators_us()
    subject = subjects.Ours(evaluators=_four_of_ours(), storage=[storage], own_span="never")
    handler, state = subject.wrap(subjects.answer), subject.pipeline.dispatcher.state
    calls = 3_000 if quick else 10_000
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


def _four_rivals(quick: bool) -> Numbers:
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


_PHASES = (
    Phase("trivial_sync", "ours", partial(_sync, partial(_ours, waits=False))),
    Phase("trivial_sync", "rival", partial(_sync, partial(_rival, waits=False, limit=100_000))),
    Phase("trivial_async", "ours", partial(_async, partial(_ours, waits=False))),
    Phase("trivial_async", "rival", partial(_async, partial(_rival, waits=False, limit=100_000))),
    Phase("waiting_sync", "ours", partial(_sync, partial(_ours, waits=True))),
    Phase("waiting_sync", "rival", partial(_sync, partial(_rival, waits=True))),
    Phase("waiting_async", "ours", partial(_async, partial(_ours, waits=True))),
    Phase("waiting_async", "rival", partial(_async, partial(_rival, waits=True))),
    Phase("waiting_async", "unbounded", partial(_async, partial(_rival, waits=True, limit=100_000))),
    Phase("four", "ours", _four_ours),
    Phase("four", "rival", _four_rivals),
)


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    lines: list[Figure] = []
    for phase, words in (
        ("waiting_async", "1,000 async calls at once, 20 ms evaluator"),
        ("waiting_sync", "1,000 sync calls at once, 20 ms evaluator"),
    ):
        kept = _pair(found, phase, "evaluated")
        lines.append(Figure(f"{words}: evaluated", "of 1,000", kept, "all", kept["ours"] == _BURST))
        costs = _pair(found, phase, "caller us")
        lines.append(Figure(f"{words}: caller", "us/call", costs, "below the rival", _below(costs)))
    for phase, words in (("trivial_sync", "sync"), ("trivial_async", "async")):
        rates = _pair(found, phase, "per s")
        lines.append(Figure(f"burst of 1,000 {words}, trivial evaluator", "evaluations/s", rates, "above the rival",
                            (rates["ours"] or 0) > (rates["rival"] or 0)))  # fmt: skip
        costs = _pair(found, phase, "caller us")
        lines.append(Figure(f"the same: caller, {words}", "us/call", costs, "below the rival", _below(costs)))
    four = found["four:ours"]
    rates = _pair(found, "four", "per s")
    lines.append(Figure("four evaluators, 1 KB, OTLP encoding, one core", "responses/s", rates, ">= 2,000",
                        (rates["ours"] or 0) >= 2_000))  # fmt: skip
    lines.append(Figure("the same, by CPU time", "responses/s", _pair(found, "four", "per cpu s")))
    lines.append(Figure("the same: evaluated and exported", "share", {"ours": min(four["evaluated"], four["events"]),
                        "rival": found["four:rival"]["evaluated"]}, "1", four["evaluated"] == 1))  # fmt: skip
    lines.append(Figure("the four evaluators by themselves", "us", {"ours": four["evaluators us"]}, "<= 100",
                        four["evaluators us"] <= 100))  # fmt: skip
    return lines


def _pair(found: dict[str, Numbers], phase: str, name: str) -> dict[str, float | None]:
    return {subject: found[f"{phase}:{subject}"][name] for subject in ("ours", "rival")}


def _below(values: dict[str, float | None]) -> bool:
    return (values["ours"] or 0.0) < (values["rival"] or 0.0)


BENCH = Bench(
    "throughput", "In the background", _PHASES, _figures, rounds=3,
    notes=(
        "pydantic-evals runs at most ten evaluations at once and drops the rest. In the trivial bursts and with four "
        "evaluators its limit is raised so that it loses none; the bursts with 20 ms evaluators show its defaults.",
        "Four evaluators: `ResponseHealth`, `RuleBased` (length, includes), `KeywordCoverage` twice: five results a "
        "response, each an event; one run span; histograms. The process is pinned to one core, the caller included.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)
