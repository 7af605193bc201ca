"""The host's spans come first in the span processor that they share with ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel import monitor
from agenteval_otel.dispatch import PoolDispatcher
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.pipeline.load_shedding import LoadSheddingSettings
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry.courtesy import Courtesy, is_crowded

CAPACITY = 2_048


class Gate(SpanExporter):
    """Keeps the names of what it gets; while it is shut an export takes for ever."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.open = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """One batch."""
        self.open.wait(60)
        self.names += [span.name for span in spans]
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Let go."""
        self.open.set()


@pytest.fixture
def gate() -> Gate:
    """An exporter that is shut."""
    return Gate()


@pytest.fixture
def host(gate: Gate) -> Iterator[TracerProvider]:
    """The host's provider, with the SDK's batch processor as it comes."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(gate))
    yield provider
    gate.open.set()
    provider.shutdown()


def _write(provider: TracerProvider, count: int) -> None:
    tracer = provider.get_tracer("host")
    for _ in range(count):
        tracer.start_span("host").end()


def test_a_burst_costs_the_host_none_of_its_spans(host: TracerProvider, gate: Gate) -> None:
    """5,000 evaluated responses in bursts behind an exporter that is slow: no span of the host is lost.

    Each burst leaves as many spans of the host as the queue can hold; with one of ours for each they would not fit.
    """
    pipeline = Pipeline(
        sampler=RatioSampler(), evaluators=(ResponseHealth(),), dispatcher=PoolDispatcher(max_items=20_000),
        storage=(OtlpStorageProvider(tracer_provider=host, signals={"traces"}),), own_span="never",
        load_shedding=LoadSheddingSettings(enabled=False),  # on a busy machine it would evaluate less
    )  # fmt: skip
    tracer = host.get_tracer("host")

    @monitor(pipeline=pipeline, agent="agent")
    def answer(question: str) -> str:
        return "An answer."

    for _ in range(4):
        gate.open.clear()
        for _ in range(1_250):
            with tracer.start_as_current_span("host"):
                answer("A question?")
        assert pipeline.dispatcher.flush(60)
        gate.open.set()
        host.force_flush()
    assert gate.names.count("host") == 5_000
    ours, left_out = gate.names.count("evaluation agent"), pipeline.accounting.failures["span_left_out"]
    assert 0 < ours == pipeline.accounting.outcomes()["evaluated"] - left_out
    assert pipeline.accounting.outcomes()["evaluated"] == 5_000
    pipeline.shutdown(5)


def test_crowded_is_a_quarter_of_the_queue(host: TracerProvider, gate: Gate) -> None:
    """A processor with few spans has room, one that holds a whole batch and a quarter of its queue has none."""
    assert not is_crowded(host)
    _write(host, CAPACITY // 2 + 512)  # a batch of 512 may be under way
    assert is_crowded(host)


@pytest.mark.parametrize(
    "provider", [object(), None, TracerProvider(shutdown_on_exit=False)], ids=["foreign", "none", "without processor"]
)
def test_what_cannot_be_seen_has_room(provider: Any) -> None:
    """A provider of another make is taken to have room."""
    assert not is_crowded(provider)


def test_a_processor_without_a_queue_has_room() -> None:
    """A processor that exports at once holds nothing."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    assert not is_crowded(provider)


def test_it_waits_for_room_and_not_for_long(host: TracerProvider, gate: Gate) -> None:
    """With a full processor it says no: after its wait, at once without patience; with room it says yes."""
    courtesy = Courtesy()
    _write(host, CAPACITY)

    async def rooms() -> list[bool]:
        return [
            await courtesy.room(host, patient=False),
            *(await asyncio.gather(courtesy.room(host), courtesy.room(host))),
        ]

    assert asyncio.run(rooms()) == [False, False, False]
    gate.open.set()
    host.force_flush()
    assert asyncio.run(courtesy.room(host))
