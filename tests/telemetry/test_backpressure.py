"""Backpressure: what the host's batch processors still take, read from real processors of the SDK."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, InMemoryLogRecordExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry.providers import (
    Backpressure,
    Providers,
    is_batch_processor,
    processors_of,
)
from agenteval_otel.testing import ManualClock, RecordedTelemetry
from tests.pipeline.support import eventually
from tests.promises.bench import pipeline_of
from tests.testing.doubles import Free

_NEVER_MS = 3_600_000
_BOUND_S = 30.0


class Held(SpanExporter):
    """Takes a batch and keeps the SDK's thread until it may go on."""

    def __init__(self) -> None:
        self.holds, self.may_go_on = threading.Semaphore(0), threading.Semaphore(0)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.holds.release()
        self.may_go_on.acquire(timeout=_BOUND_S)
        return SpanExportResult.SUCCESS

    def take_the_next(self) -> None:
        """Export the batch that is held, and hold the next one."""
        self.may_go_on.release()
        assert self.holds.acquire(timeout=_BOUND_S)

    def release(self) -> None:
        """Hold nothing any more."""
        self.may_go_on.release(1_000)


class Host:
    """An application's tracer provider, whose exporter has just taken a batch and keeps it."""

    def __init__(self, *, capacity: int = 2_048, batch: int = 512) -> None:
        self.exporter = Held()
        self.processor = BatchSpanProcessor(
            self.exporter,
            max_queue_size=capacity,
            max_export_batch_size=batch,
            schedule_delay_millis=_NEVER_MS,
        )
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("host")
        self.end(batch)
        assert self.exporter.holds.acquire(timeout=_BOUND_S)

    def end(self, spans: int) -> None:
        for _ in range(spans):
            self.tracer.start_span("host work").end()

    def shutdown(self) -> None:
        self.exporter.release()
        self.provider.shutdown()


@pytest.fixture
def hosts() -> Iterator[Any]:
    """Makes hosts, and ends them."""
    made: list[Host] = []

    def make(**settings: int) -> Host:
        made.append(Host(**settings))
        return made[-1]

    yield make
    for host in made:
        host.shutdown()


@pytest.mark.parametrize(
    ("capacity", "batch", "limit"),
    [(2_048, 512, 512), (4_096, 512, 1_024), (1_024, 512, 512), (100, 100, 50), (4, 1, 1)],
)
def test_there_is_room_below_a_quarter_or_a_batch(
    hosts: Any, capacity: int, batch: int, limit: int
) -> None:
    """Up to a quarter of the queue, or a whole batch where that is more, but never above half of
    it.
    """
    host, pressure = hosts(capacity=capacity, batch=batch), Backpressure(ManualClock(100.0))
    assert pressure.has_room([host.provider])
    host.end(limit - 1)
    assert pressure.has_room([host.provider])
    host.end(1)
    assert not pressure.has_room([host.provider])


def test_the_fullest_of_several_processors_decides(hosts: Any) -> None:
    """Of two providers one is full: nothing is emitted to either. A processor that is added later
    counts too.
    """
    full, free, pressure = hosts(), hosts(), Backpressure(ManualClock(100.0))
    late = TracerProvider(shutdown_on_exit=False)
    full.end(512)
    assert pressure.has_room([free.provider, late])
    assert not pressure.has_room([free.provider, full.provider])
    assert pressure.has_room([free.provider, late])
    late.add_span_processor(full.processor)
    assert not pressure.has_room([free.provider, late])


def test_one_answer_goes_out_each_tenth_of_a_second_below_half(hosts: Any) -> None:
    """The SDK's thread can miss that a batch is full: the next item wakes it. Above half of the
    queue none goes out.
    """
    clock = ManualClock(100.0)
    host, pressure = hosts(), Backpressure(clock)
    host.end(600)
    assert not pressure.has_room([host.provider])
    clock.advance(0.11)
    assert pressure.has_room([host.provider])
    assert not pressure.has_room([host.provider])
    clock.advance(0.11)
    assert pressure.has_room([host.provider])
    host.end(424)
    clock.advance(0.11)
    assert not pressure.has_room([host.provider])


@pytest.mark.parametrize("has_progress", [False, True])
def test_five_seconds_without_progress_are_stuck(hosts: Any, has_progress: bool) -> None:
    """A queue that gets rid of something is not stuck, however full it is; nor is one that has room
    again.
    """
    clock = ManualClock(100.0)
    host, pressure = hosts(batch=100), Backpressure(clock)
    host.end(1_536)
    for _ in range(5):
        assert not pressure.has_room([host.provider])
        assert not pressure.is_stuck()
        clock.advance(1.1)
        if has_progress:
            host.exporter.take_the_next()
    assert not pressure.has_room([host.provider])
    assert pressure.is_stuck() is not has_progress
    host.exporter.release()
    assert host.provider.force_flush()
    assert pressure.has_room([host.provider])
    assert not pressure.is_stuck()


@pytest.fixture
def unseen() -> Iterator[TracerProvider]:
    """A provider with the batch processor of an SDK that keeps its queue elsewhere."""
    of_another_sdk = {"__module__": BatchSpanProcessor.__module__}
    kind = type(BatchSpanProcessor.__name__, (SpanProcessor,), of_another_sdk)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(kind())
    yield provider
    provider.shutdown()


def test_a_queue_that_cannot_be_seen_takes_512_items_a_schedule_delay(
    unseen: TracerProvider,
) -> None:
    """Five seconds are the SDK's delay; no wake-up lets more through, and waiting is no standstill."""
    clock = ManualClock(100.0)
    pressure = Backpressure(clock)
    for _ in range(8):
        assert pressure.has_room([unseen])
        pressure.sent(64)
    for _ in range(40):
        assert not pressure.has_room([unseen])
        assert not pressure.is_stuck()
        clock.advance(0.12)
    clock.advance(0.3)
    assert pressure.has_room([unseen])
    pressure.sent(512)
    assert not pressure.has_room([unseen])


def test_what_is_emitted_counts_for_a_queue_that_cannot_be_seen(unseen: TracerProvider) -> None:
    """Spans and events of answers are what the rate is about: the rest waits for the next five
    seconds.
    """
    recorded = RecordedTelemetry()
    emits = OtlpStorageProvider(tracer_provider=unseen, logger_provider=recorded.logger_provider)
    # the first five seconds do not end
    emits.emitter.providers.backpressure = Backpressure(clock=lambda: 0.0)
    pipeline = pipeline_of(
        Free(), storage=(emits,), dispatcher=PoolDispatcher(), agent_span="never"
    )
    handler = monitor(agent="support", pipeline=pipeline)(str.upper)
    for _ in range(600):
        handler("answer")
    assert eventually(lambda: len(recorded.events()) >= 512 // 3, patience_s=30)
    assert not pipeline.flush(0.5)
    assert len(recorded.events()) <= 512
    assert not pipeline.shutdown(0.5)
    assert sum(pipeline.accounting.outcomes().values()) == 600
    recorded.shutdown()


def test_the_queue_of_log_records_counts_too() -> None:
    """Events go to the host's log processor, which drops the oldest as well."""
    provider, exporter = LoggerProvider(shutdown_on_exit=False), InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider.add_log_record_processor(
        BatchLogRecordProcessor(exporter, _NEVER_MS, 2_048, max_queue_size=2_048)
    )
    pressure, logger = Backpressure(ManualClock(100.0)), provider.get_logger("host")
    for _ in range(1_023):
        logger.emit(body="host")
    assert pressure.has_room([provider])
    logger.emit(body="host")
    assert not pressure.has_room([provider])
    provider.shutdown()


def test_other_processors_have_no_queue_to_wait_for(hosts: Any) -> None:
    """They are called at once; and spans do not end late where one is there."""
    host, pressure = hosts(), Backpressure(ManualClock(100.0))
    simple = TracerProvider(shutdown_on_exit=False)
    simple.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    simple.add_span_processor(SpanProcessor())
    assert pressure.has_room([simple, object()])
    assert list(map(is_batch_processor, processors_of(simple) or ())) == [False, False]
    assert list(map(is_batch_processor, processors_of(host.provider) or ())) == [True]
    assert Providers(tracer_provider=host.provider).takes_late_spans()
    assert not Providers(tracer_provider=simple).takes_late_spans()
