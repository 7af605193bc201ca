"""C17: agent spans arrive whichever way the process ends, whether our pipeline or the host's
provider is made first.
"""

from __future__ import annotations

import signal
import textwrap
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.semconv import EXPORT_REASON, EXPORT_SIGNAL, OVERALL_SCORE
from tests.backends.faults import free_ports
from tests.promises.endings import get, server
from tests.promises.figures import Recorder
from tests.promises.programs import Finished, run_program
from tests.promises.receiver import Receiver, instance_of

CALLS = 300
SDK = """
    import asyncio, atexit, multiprocessing, os, signal, sys, threading, time
    from opentelemetry import _logs, metrics, trace
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from agenteval_otel import accounting, annotate, configure, flush, monitor

    endpoint = sys.argv[1]
    SLOW_S, EVERY_MS = 0.0, 60_000  # nothing leaves by itself: what arrives was exported at the end

    class Slow(OTLPSpanExporter):
        def export(self, spans):
            if SLOW_S:
                threading.Event().wait(SLOW_S)
            return super().export(spans)

    def providers():
        tracers = TracerProvider()
        tracers.add_span_processor(BatchSpanProcessor(Slow(endpoint + "/v1/traces"), schedule_delay_millis=EVERY_MS))
        trace.set_tracer_provider(tracers)
        loggers = LoggerProvider()
        loggers.add_log_record_processor(
            BatchLogRecordProcessor(OTLPLogExporter(endpoint + "/v1/logs"), schedule_delay_millis=EVERY_MS))
        _logs.set_logger_provider(loggers)
        metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint + "/v1/metrics"), export_interval_millis=EVERY_MS)]))

    def inner():
        with trace.get_tracer("application").start_as_current_span("application"):
            pass
"""
PROGRAM = (
    SDK
    + """
    how, order, calls, judge = sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
    from agenteval_otel.evaluators import Func

    def hangs(evaluation_input):
        threading.Event().wait(30)

    def settings():
        evaluators = [Func.of(hangs, execution="inline")] if judge == "hangs" else ["ResponseHealth"]
        configure(evaluators=evaluators, sample_rate=1.0,
                  dispatcher={"type": "pool", "stall_s": 30.0})

    if order == "provider first":
        providers()
    settings()

    @monitor(agent="support")
    def answer(question):
        inner()
        return "An answer to " + question

    @monitor(agent="support")
    async def answer_async(question):
        inner()
        return "An answer to " + question

    if order == "ours first":  # an answer, with which the exit is watched, before there is any provider
        answer("early")
        assert flush(20)
    if order in ("ours first", "after decoration"):
        providers()

    def work():
        for number in range(calls):
            answer(str(number))

    def ended():
        print("main_ended", time.monotonic(), flush=True)

    async def main():
        await asyncio.gather(*(answer_async(str(number)) for number in range(calls)))

    if how == "child":
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
    elif how == "asyncio.run":
        asyncio.run(main())
    else:
        work()
    ended()
    if how == "sys.exit":
        sys.exit(3)
    if how == "exception":
        raise ValueError("the program's own")
    if how == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(20)
"""
)
CODES = {
    "end": 0,
    "sys.exit": 3,
    "exception": 1,
    "SIGTERM": -signal.SIGTERM,
    "child": 0,
    "asyncio.run": 0,
}


def spans_named(receiver: Receiver, prefix: str) -> list[Any]:
    """The spans of this name, each once."""
    spans = [span for span in receiver.spans() if span.name.startswith(prefix)]
    assert len({span.span_id for span in spans}) == len(spans), "no span twice"
    return spans


def has_results(span: Any) -> bool:
    """Tell whether it carries the results of an answer."""
    return any(pair.key == OVERALL_SCORE for pair in span.attributes)


def env_of(providers: str, receiver: Receiver) -> dict[str, str]:
    """The variables of a process that has no providers of its own: then ours export by themselves."""
    actual = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    return actual if providers == "private" else {}


def assert_complete(
    receiver: Receiver, calls: int, finished: Finished | None = None, own_spans: bool = True
) -> None:
    """Each agent span once, with the results, and below it the application's span; none of these
    without its parent.
    """
    agents = {span.span_id for span in spans_named(receiver, "invoke_agent support")}
    inner = spans_named(receiver, "application")
    results = [span for span in receiver.spans() if has_results(span)]
    assert (len(agents), len(results), len(receiver.events())) == (calls, calls, calls), finished
    assert {span.span_id for span in results} == agents
    assert len(inner) == (calls if own_spans else 0), finished
    assert {span.parent_span_id for span in inner} == (agents if own_spans else set())


def lost_items(receiver: Receiver) -> dict[tuple[str, str], int]:
    """`agenteval.export.lost` by signal and reason."""
    return receiver.totals("agenteval.export.lost", EXPORT_SIGNAL, EXPORT_REASON)


@pytest.mark.parametrize(
    ("how", "order"),
    [
        *((how, "provider first") for how in CODES),
        ("end", "after decoration"),
        ("end", "ours first"),
        ("child", "ours first"),
        ("SIGTERM", "ours first"),
        ("end", "private"),
    ],
)
def test_every_way_to_end(how: str, order: str, receiver: Receiver, promise: Recorder) -> None:
    """The last answer and then the end: whatever waits in the host's batch processor or in ours
    arrives, once.
    """
    finished = run_program(
        PROGRAM, receiver.endpoint, how, order, str(CALLS), "healthy", **env_of(order, receiver)
    )
    assert finished.code == CODES[how], finished
    assert ("Traceback" in finished.stderr) == (how == "exception"), finished.stderr
    assert_complete(receiver, CALLS, finished, own_spans=order != "private")
    assert not lost_items(receiver)
    promise("C17", figure=f"every end, in either order of making the parts: {CALLS} of {CALLS}")


@pytest.mark.parametrize("how", ["end", "SIGTERM", "child"])
def test_what_is_dropped_at_the_end_has_its_span(
    how: str, receiver: Receiver, promise: Recorder
) -> None:
    """An evaluator holds the background thread: the calls are dropped, and their spans are written
    all the same.
    """
    finished = run_program(PROGRAM, receiver.endpoint, how, "provider first", str(CALLS), "hangs")
    assert (finished.code, finished.stderr) == (CODES[how], "")
    agents = {span.span_id for span in spans_named(receiver, "invoke_agent support")}
    counted = lost_items(receiver).get(("traces", "shutdown"), 0)
    assert (len(agents), counted) == (CALLS, 0), finished
    assert {span.parent_span_id for span in spans_named(receiver, "application")} == agents
    outcomes = receiver.totals("agenteval.responses", "agenteval.outcome")
    assert outcomes == {"dropped_shutdown": CALLS}
    promise("C17", figure=f"ends with a hung evaluator: {len(agents)} of {CALLS}")


LATE = (
    SDK
    + """
    calls, shutdown_s, SLOW_S = int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    providers()
    configure(evaluators=["ResponseHealth"], sample_rate=1.0, shutdown_timeout_s=shutdown_s)

    @monitor(agent="support")
    def answer(question):
        return "An answer to " + question

    for number in range(calls):
        answer(str(number))
        if number % (calls // 200) == 0:
            inner()
    print("main_ended", time.monotonic(), flush=True)
"""
)


def test_what_cannot_be_placed_in_time_is_counted(receiver: Receiver, promise: Recorder) -> None:
    """A slow receiver at the end: the application's 200 spans arrive, and agent spans arrive or are
    counted.
    """
    calls = 4_000
    finished = run_program(LATE, receiver.endpoint, str(calls), "1.0", "0.4", timeout_s=120)
    assert (finished.code, finished.stderr) == (0, ""), finished
    agents = len(spans_named(receiver, "invoke_agent support"))
    counted = lost_items(receiver).get(("traces", "shutdown"), 0)
    promise(
        "C17",
        figure=f"slow receiver at the end: {agents} of {calls} placed, {counted} counted as lost",
    )
    assert len(spans_named(receiver, "application")) == 200
    assert agents + counted == calls
    assert 0 < counted < calls


FORKING = (
    SDK
    + """
    end, private = sys.argv[2], sys.argv[3] == "private"
    if not private:
        providers()
    configure(evaluators=["ResponseHealth"], sample_rate=1.0)

    @monitor(agent="support")
    def warm(question):
        return "warm"

    children = []

    @monitor(agent="support")
    def answer(question):
        if end == "multiprocessing":
            child = multiprocessing.get_context("fork").Process(target=answer_in_child)
            child.start()
            child.join()
            children.append(child.exitcode)
            return "An answer of the parent."
        pid = os.fork()
        if pid:
            children.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            return "An answer of the parent."
        children.append(None)
        return "An answer of the child."

    @monitor(agent="support")
    def in_child(question):
        return "An answer of the child."

    def answer_in_child():
        in_child("of the child")

    warm("a call before")
    assert flush(20)
    answer("q")
    if children == [None]:
        if end == "flush":
            flush(20)
            os._exit(0)
        sys.exit(0)
    print("children", children)
"""
)


@pytest.mark.parametrize("end", ["sys.exit", "flush", "multiprocessing"])
@pytest.mark.parametrize("providers", ["host", "private"])
def test_a_fork_inside_the_handler(
    end: str, providers: str, receiver: Receiver, promise: Recorder
) -> None:
    """The span is ended by the process that started it; the child's copy is dropped, its answer
    evaluated.
    """
    finished = run_program(
        FORKING, receiver.endpoint, end, providers, **env_of(providers, receiver)
    )
    assert (finished.code, finished.stderr, finished.lines("children")) == (0, "", ["[0]"]), (
        finished
    )
    agents = spans_named(receiver, "invoke_agent support")
    runs = spans_named(receiver, "evaluation support")
    # One of `warm`, one of `answer`, both with their results. The child's answer has a run span: it
    # has only a copy of its parent's span, and a child of multiprocessing calls a handler of its
    # own, in the trace of the parent.
    assert (len(agents), len(runs), len(receiver.events())) == (2, 1, 3)
    assert all(map(has_results, (*agents, *runs)))
    assert runs[0].parent_span_id in {span.span_id for span in agents}
    promise("C17", figure="fork in the handler: its span 1 time, both answers evaluated")


KILLED = (
    SDK
    + """
    how, calls, EVERY_MS = sys.argv[2], int(sys.argv[3]), 500
    providers()
    configure(evaluators=["ResponseHealth"], sample_rate=1.0, handle_sigterm=False)

    @monitor(agent="support")
    def answer(question):
        return "An answer to " + question

    for number in range(calls):
        answer(str(number))
    assert flush(60)  # as after the delay of the host's batch processor
    for number in range(calls):
        answer(str(number))
    os._exit(0) if how == "os._exit" else os.kill(os.getpid(), getattr(signal, how))
"""
)


@pytest.mark.parametrize("how", ["os._exit", "SIGKILL", "SIGTERM"])
def test_without_an_exit_handler_the_last_moments_are_lost(
    how: str, receiver: Receiver, promise: Recorder
) -> None:
    """What is older than the delay of the host's batch processor has arrived, once; of what is
    younger none may.
    """
    finished = run_program(KILLED, receiver.endpoint, how, str(CALLS), timeout_s=90)
    assert finished.code == (0 if how == "os._exit" else -getattr(signal, how)), finished.stderr
    agents = len(spans_named(receiver, "invoke_agent support"))
    promise(
        "C17",
        figure=f"killed: {CALLS} of {CALLS} older ones, {agents - CALLS} of {CALLS} of the last moment",
    )
    assert CALLS <= agents <= 2 * CALLS


APPLICATION = (
    SDK.replace("sys.argv[1]", "os.environ['RECEIVER']")
    + """
    providers()
    configure(evaluators=["ResponseHealth"], sample_rate=1.0)

    @monitor(agent="support")
    def answer(question):
        inner()
        return "An answer to " + question

    def wsgi(environ, start_response):
        start_response("200 OK", [("content-type", "text/plain"), ("connection", "close")])
        return [f"{os.getpid()} {answer(environ['PATH_INFO'])}".encode()]
"""
)


def test_gunicorn_with_preload_and_four_workers(
    receiver: Receiver, tmp_path: Path, promise: Recorder
) -> None:
    """Four instances on all signals, whose sums add up, and each span once: the providers are made
    before the fork.
    """
    (tmp_path / "application.py").write_text(textwrap.dedent(APPLICATION))
    (port,) = free_ports(1)
    options = ("--preload", "--workers=4", f"--bind=127.0.0.1:{port}")
    answered: Counter[str] = Counter()
    with server(
        "gunicorn", *options, "application:wsgi", folder=tmp_path, RECEIVER=receiver.endpoint
    ) as process:
        deadline = time.monotonic() + 60
        while len(answered) < 4 or sum(answered.values()) < 80:
            assert time.monotonic() < deadline, answered
            # Four at once: one after the other, a single worker could take them all.
            with ThreadPoolExecutor(4) as callers:
                for body in callers.map(
                    lambda path: get(port, path, deadline), ["/a", "/b", "/c", "/d"]
                ):
                    answered[body.split()[0]] += 1
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert (code, len(answered)) == (0, 4), (tmp_path / "stderr").read_text()
    calls = sum(answered.values())
    assert_complete(receiver, calls)
    instances = set(receiver.newest("agenteval.responses"))
    promise(
        "C17",
        figure=f"gunicorn, preload, 4 workers: {len(instances)} instances, {calls} of {calls} agent spans",
    )
    assert len(instances) == 4
    for kind in ("traces", "logs"):
        assert set(map(instance_of, receiver.resources(kind))) == instances
    assert receiver.totals("agenteval.responses", "agenteval.outcome") == {"evaluated": calls}
