"""C11: an outage of the receiver is survived: nothing waits for it, losses are counted, and delivery resumes.

The receiver refuses, resets, hangs, trickles, throttles, refuses for good or answers with megabytes, and is well again;
meanwhile a host answers at a steady pace.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable

import pytest

from agenteval_otel import annotate, monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from tests.promises.outages import GRPC_FAULTS, HTTP_FAULTS, OtlpReceiver

RESUMES_S = 30.0
SILENT_S = float(os.environ.get("AGENTEVAL_C11_SECONDS", "180"))
MARGIN = 96 * 1024 * 1024
LASTING = ("429", "503")
"""Refusals that say when to come again: nothing is lost by them."""
CASES = [("http/protobuf", fault) for fault in HTTP_FAULTS] + [("grpc", fault) for fault in GRPC_FAULTS]


class Host:
    """A host that answers at a steady pace, and whose results go to the receiver and nowhere else."""

    def __init__(self, receiver: OtlpReceiver, pace_s: float) -> None:
        self.receiver, self.calls, self._pace_s = receiver, 0, pace_s
        self.pipeline = Pipeline(
            sampler=RatioSampler(), evaluators=(ResponseHealth(),), dispatcher=PoolDispatcher(),
            storage=(OtlpStorageProvider(endpoint=receiver.endpoint, protocol=receiver.protocol),),
        )  # fmt: skip
        self._answer = monitor(pipeline=self.pipeline, agent="host")(_answer)

    def answer(self, seconds: float) -> float:
        """Answer for so long; gives the median of what an answer took the caller, in seconds."""
        pause, until, took = threading.Event(), time.monotonic() + seconds, []
        while time.monotonic() < until:
            self.calls += 1
            began = time.perf_counter()
            self._answer(self.calls)
            took.append(time.perf_counter() - began)
            pause.wait(self._pace_s)
        return statistics.median(took)

    def resumes(self) -> float:
        """Seconds until one of the answers that are given from now on arrives."""
        first, began = self.calls + 1, time.monotonic()
        while not any(f"r-{number}" in self.receiver.taken for number in range(first, self.calls + 1)):
            assert time.monotonic() - began < 2 * RESUMES_S, "nothing is delivered any more"
            self.answer(0.05)
        return time.monotonic() - began

    def lost(self) -> int:
        """Events that were counted as lost on the way out."""
        failures = self.pipeline.accounting.failures
        return sum(count for part, count in failures.items() if "export" in part or "otlp" in part)


def _answer(number: int) -> str:
    annotate(response_id=f"r-{number}")
    return "an answer"


def outlive(
    protocol: str, fault: str, promise: Callable[..., None], *, seconds: float, pace_s: float = 0.005
) -> OtlpReceiver:
    """A receiver that is well, broken for so long, and well again."""
    with OtlpReceiver(protocol) as receiver:
        host = Host(receiver, pace_s)
        try:
            host.answer(0.3)
            assert host.pipeline.flush(20.0)
            assert len(receiver.taken) == host.calls
            quiet = host.answer(0.5)
            host.pipeline.flush(20.0)
            before = rss()
            receiver.breaks(fault)
            faulty = min(host.answer(seconds / 3) for _ in range(3))
            flush_began = time.monotonic()
            told = host.pipeline.flush(0.3)
            flushed_s = time.monotonic() - flush_began
            grown = rss() - before
            receiver.heals()
            resumed_s = host.resumes()
            host.pipeline.flush(30.0)
            missing = host.calls - len(receiver.taken)
            promise("C11", figure=(
                f"{protocol} {fault} for {seconds:g} s: resumed after {resumed_s:.1f} s, {missing} of {host.calls} not "
                f"delivered, memory {grown / 2**20:+.0f} MB, a call {quiet * 1e6:.0f} -> {faulty * 1e6:.0f} us"
            ))  # fmt: skip
            outcomes = host.pipeline.accounting.outcomes()
            assert outcomes["evaluated"] == host.calls == sum(outcomes.values())
            assert resumed_s <= RESUMES_S
            assert grown <= MARGIN
            assert flushed_s <= 0.6
            assert faulty <= 4 * quiet + 100e-6
            assert max(receiver.taken.values()) == 1, "delivered twice"
            assert not missing or host.lost(), "losses are counted"
            assert not told or fault in ("413", "large answer")
            if fault in (*LASTING, "413"):
                assert missing == 0, "what may be sent again, or in halves, is not lost"
        finally:
            host.pipeline.shutdown(2.0)
    return receiver


def rss() -> int:
    """What this process holds in memory, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters that give up after a second, so that outages of seconds show what outages of minutes do."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


@pytest.mark.parametrize(("protocol", "fault"), CASES)
@pytest.mark.usefixtures("impatient")
def test_a_short_outage(protocol: str, fault: str, promise: Callable[..., None]) -> None:
    """Callers notice nothing, a flush does not wait, delivery resumes, and what is lost is counted."""
    receiver = outlive(protocol, fault, promise, seconds=1.8)
    if fault in ("400", "INVALID_ARGUMENT"):
        assert max(receiver.bodies.values()) == 1, "a refusal for good is not repeated"
    if fault == "large answer":
        assert receiver.answered_bytes <= 8 * 1024 * 1024, "a large answer is not read"


@pytest.mark.full
@pytest.mark.parametrize(("protocol", "fault"), CASES)
def test_a_long_outage(protocol: str, fault: str, promise: Callable[..., None]) -> None:
    """The same for half a minute, with the patience that exporters have."""
    outlive(protocol, fault, promise, seconds=30.0)


@pytest.mark.full
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_minutes_without_an_answer(protocol: str, promise: Callable[..., None]) -> None:
    """Minutes of a receiver that takes connections and never answers, at 200 answers a second; by hand also ten."""
    outlive(protocol, "half-open", promise, seconds=SILENT_S)
