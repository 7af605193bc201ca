"""A9: our warnings neither feed themselves, nor block, nor repeat, whatever the host does with its
logging.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import re
import threading
import time
import traceback
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler, LogRecordProcessor
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, SimpleLogRecordProcessor

from agenteval_otel import annotate, monitor
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.evaluators import Func, ResponseHealth
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import RatioSampler, SamplingContext, SamplingDecision
from agenteval_otel.storage import OtlpStorageProvider
from tests.backends.faults import black_hole, refused_port
from tests.promises.bench import pipeline_of
from tests.promises.figures import FULL, Recorder
from tests.promises.programs import run_program, together
from tests.testing.doubles import Keeping

SECONDS = 75.0 if FULL else 4.0
"""The long form is longer than the minute in which a cause is written once."""
OURS = "agenteval_otel"


class Kept(logging.Handler):
    """Keeps what is written, with how deep the writing thread's stack was in logging."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.deepest = 0

    def emit(self, record: logging.LogRecord) -> None:
        callers = traceback.walk_stack(inspect.currentframe())
        depth = sum(frame.f_code.co_name == "callHandlers" for frame, _ in callers)
        self.deepest = max(self.deepest, depth)
        self.lines.append(f"{record.name}: {record.getMessage()}")

    def ours(self) -> Counter[str]:
        """How often each cause was written: the event and the part of each of our lines."""
        lines = "\n".join(self.lines)
        return Counter(
            re.findall(rf"^{OURS}: .*\[(event=\S+(?: part=[^\s\]]+)?)", lines, re.MULTILINE)
        )

    def of_exporters(self, port: int) -> list[str]:
        """Lines that the SDK's exporters wrote about an endpoint."""
        lines = [line for line in self.lines if line.startswith("opentelemetry")]
        return [line for line in lines if f"port={port}" in line]


@contextmanager
def root_handlers(*handlers: logging.Handler) -> Iterator[None]:
    """The root logger with these handlers and nothing else."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = handlers
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.handlers[:], root.level = before, level


@contextmanager
def exporting_root(processor: LogRecordProcessor) -> Iterator[Kept]:
    """The root logger exports what is logged by OpenTelemetry's own handler, and keeps it."""
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(processor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        handler = LoggingHandler(logger_provider=provider)
    kept = Kept()
    with root_handlers(handler, kept):
        yield kept
    # with a black hole it takes half a minute
    threading.Thread(target=provider.shutdown, daemon=True).start()


@pytest.fixture(autouse=True)
def _short_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


class Fussy(RatioSampler, type="fussy"):
    def decide(self, context: SamplingContext) -> SamplingDecision:
        if context.randomness % 10 == 0:
            raise RuntimeError("sampler")
        return super().decide(context)


class Broken:
    type = "broken"

    async def save_result(self, aggregated: Any) -> None:
        raise OSError("disk full")


def warned_from_everywhere(endpoint: str, protocol: Any) -> Pipeline:
    """A pipeline of which sampler, capture, evaluator, storage and exporter break again and again."""

    def broken(value: Any) -> Any:
        raise ValueError("evaluator")

    return pipeline_of(
        ResponseHealth(),
        Func.of(broken, criterion_name="broken"),
        sampler=Fussy(),
        storage=(Broken(), OtlpStorageProvider(endpoint=endpoint, protocol=protocol)),
        dispatcher=PoolDispatcher(max_items=20_000),
    )


def handler_of(pipeline: Pipeline) -> Callable[[], str]:
    """A monitored function that also says a fact that is none."""

    @monitor(pipeline=pipeline, agent="agent")
    def answer() -> str:
        annotate(no_such_fact=1, ground_truth=object())
        return "an answer"

    return answer


def call_for(seconds: float, handler: Callable[[], Any]) -> int:
    """Call from two threads at once, which a busy machine may give longer; gives the number of
    calls. A thread that does not come back is a deadlock.
    """
    over, calls, pause = time.monotonic() + seconds, itertools.count(), threading.Event()

    def work() -> None:
        number = 0
        while time.monotonic() < over or number < 150:
            handler()
            number = next(calls)
            logging.getLogger("host").info("the host says something")
            pause.wait(0.002)

    together([work] * 2, seconds + 60.0)
    return next(calls)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("fault", ["refused", "black hole"])
@pytest.mark.sized
def test_one_line_a_minute_of_each_cause(
    fault: str, protocol: str, promise: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """The root logger exports to where nobody answers, and everything of ours is broken: a line a
    cause, no more. What the SDK writes about the host's own exporter is not ours to hold back.
    """
    with (
        refused_port() as ours,
        refused_port() as theirs,
        black_hole() as our_hole,
        black_hole() as their_hole,
    ):
        if fault == "black hole":
            ours, theirs = our_hole.port, their_hole.port
        target = f"http://127.0.0.1:{theirs}"
        logs = (
            GrpcLogs(endpoint=target)
            if protocol == "grpc"
            else HttpLogs(endpoint=f"{target}/v1/logs")
        )
        with exporting_root(BatchLogRecordProcessor(logs, schedule_delay_millis=100)) as kept:
            # The first exporter of the process is ours already when the handler's speaks.
            pipeline = warned_from_everywhere(f"http://127.0.0.1:{ours}", protocol)
            calls = call_for(SECONDS, handler_of(pipeline))
            assert not pipeline.flush(2.0)
            pipeline.shutdown(1.0)
    causes = kept.ours()
    most = max(causes.values())
    lines = f"{most} line a cause at most, {len(causes)} causes"
    promise("A9", figure=f"{calls} calls in {SECONDS:g} s: {lines}, depth {kept.deepest}")
    assert calls > 100
    assert "event='storage_failed' part='broken'" in causes
    assert "event='part_failed' part='sampler'" in causes
    # The minute's line may have gone to the exporter of the case before, which is still trying.
    assert "event='export_failed'" in " ".join(causes) or "export_failed" in caplog.text
    assert most <= 1 + SECONDS // 60
    assert kept.of_exporters(ours) == []
    if (fault, protocol) == ("refused", "http/protobuf"):  # the others name no port in this time
        assert kept.of_exporters(theirs)
    assert kept.deepest <= 2
    assert sum(pipeline.accounting.outcomes().values()) == calls
    assert pipeline.accounting.failures["storage:broken"] > 50


def test_a_handler_that_exports_at_once_does_not_recurse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A root handler that exports each line on the spot, and fails, meets each of our lines once."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")  # it is waited for at each line
    # the SDK's own recursion is not ours
    monkeypatch.setattr(logging.getLogger("opentelemetry"), "propagate", False)
    with refused_port() as port:
        exporter = HttpLogs(endpoint=f"http://127.0.0.1:{port}/v1/logs")
        with exporting_root(SimpleLogRecordProcessor(exporter)) as kept:
            pipeline = warned_from_everywhere(f"http://127.0.0.1:{port}", "http/protobuf")
            handle = handler_of(pipeline)
            for _ in range(50):
                handle()
            pipeline.shutdown(5.0)
    assert max(kept.ours().values()) == 1


def test_a_handler_that_raises_costs_no_result() -> None:
    """What a handler or a filter of the host's raises stays in the log line: everything else is
    saved and counted.
    """

    def raises(record: logging.LogRecord) -> bool:
        if not record.name.startswith(OURS):
            # A thread of the SDK's that an earlier test has left behind would end by it.
            return True
        raise RuntimeError("a handler of the host's")

    kept, handler = Keeping(), logging.Handler()
    handler.handle = raises
    pipeline = pipeline_of(storage=(Broken(), kept))
    with root_handlers(handler):
        logging.getLogger().setLevel(logging.INFO)
        handle = handler_of(pipeline)
        for _ in range(20):
            handle()
        assert not pipeline.flush(10.0), "one of the providers cannot save"
        pipeline.shutdown(5.0)
    assert len(kept.saved) == pipeline.accounting.outcomes()["evaluated"] == 20
    assert pipeline.accounting.failures["storage:broken"] == 20


def test_causes_without_end_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A cause that is different each time cannot make others be said again: beyond so many they
    share one line, and none of them is remembered.
    """

    def warn(numbers: range) -> None:
        for number in numbers:
            log.warning("fact_left_out", part=f"fact {number}")
            log.warning("storage_failed", part="disk")

    with caplog.at_level(logging.WARNING, logger=OURS):
        warn(range(1_000))
        tracemalloc.start()
        warn(range(1_000, 5_000))
        grown = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    lines = [record.getMessage() for record in caplog.records]
    assert sum("'disk'" in line for line in lines) == 1
    assert len(lines) <= 258
    assert grown < 100_000, "each remembered cause would take more than 200 bytes"


STRUCTLOG = """
    import logging, structlog
    def raises(*_):
        raise RuntimeError("a processor of the host's")
    structlog.configure(processors=[raises], logger_factory=raises, wrapper_class=raises, context_class=raises)
    configured = structlog.get_config()
    logging.basicConfig(format="%(name)s: %(message)s")
    from agenteval_otel.runtime.log import log
    log.warning("part_failed", part="sampler", error_type="ValueError")
    print("unchanged", structlog.get_config() == configured)
"""


def test_the_hosts_structlog_is_neither_used_nor_changed() -> None:
    """However the host has set structlog up, our line goes to the standard library's logger as
    always.
    """
    finished = run_program(STRUCTLOG)
    assert finished.lines("unchanged") == ["True"]
    assert finished.stderr == (
        "agenteval_otel: sampler failed (ValueError). See docs/reference/failures.md "
        "[event='part_failed' part='sampler' error_type='ValueError']\n"
    )


FORKED = """
    import logging, os, sys, threading, time
    import agenteval_otel.config
    from agenteval_otel.runtime.log import log
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="line %(message)s")
    over, ended, children = time.monotonic() + float(sys.argv[1]), threading.Event(), 0
    def warn():
        number = 0
        while not ended.is_set():
            log.warning("parent", part=str(number % 200)); number += 1
    for _ in range(3):
        threading.Thread(target=warn, daemon=True).start()
    while time.monotonic() < over or children <= 10:  # a busy machine makes few in that time
        child = os.fork()
        if child == 0:
            log.warning("child", part="0")
            os._exit(0)
        children += 1
        os.waitpid(child, 0)  # one that hangs ends the test
    ended.set()
    print("children", children, flush=True)
"""


@pytest.mark.sized
def test_a_forked_child_can_warn(python: str) -> None:
    """A child that is forked while other threads write our warnings writes its own, and does not
    hang.
    """
    finished = run_program(FORKED, "20" if FULL else "2", python=python)
    assert finished.code == 0, finished.stderr
    (children,) = finished.lines("children")
    assert finished.stdout.count("event='child'") == int(children) > 10
