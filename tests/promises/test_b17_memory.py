"""B17: what waits is counted as Python keeps it, in any script, and a request that kills the
sidecar ends its loop.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.promises.figures import Recorder
from tests.promises.programs import run_program
from tests.promises.receiver import Receiver
from tests.promises.served import Served, add_span, messages, new_trace_id
from tests.promises.sidecars import MIB, answer, settings_with

MOST = 400 * MIB
"""Of the 512 MB that the shipped unit has."""
WAITS = settings_with(quiet_s=0.5, parent_wait_s=3600)
QUICK = settings_with(quiet_s=0.5, parent_wait_s=2)
SMALL = {f"attribute.{number}.": str(10**12 + number) for number in range(900)}


def texts(widest: str) -> dict[str, str]:
    question = [{"role": "user", "parts": [{"type": "text", "content": "x" * 200_000 + widest}]}]
    return {"gen_ai.input.messages": json.dumps(question, ensure_ascii=False)}


VARIANTS: dict[str, Callable[[], dict[str, str]]] = {
    "ASCII": lambda: texts("!"),
    "Latin-1": lambda: texts("é"),
    "beyond Latin-1": lambda: texts("漢"),
    "an emoji": lambda: texts("\U0001f600"),
    "small attributes": lambda: {name + os.urandom(4).hex(): text for name, text in SMALL.items()},
}


def model_calls(variant: str, count: int = 20) -> bytes:
    """Model calls whose agent is still at work: they wait."""
    request = ExportTraceServiceRequest()
    for _ in range(count):
        add_span(
            request.resource_spans.add().scope_spans.add().spans,
            new_trace_id(),
            1,
            parent_id=2,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.output.messages": messages("assistant", "Yes."),
                **VARIANTS[variant](),
            },
        )
    return request.SerializeToString()


def fill(served: Served, variant: str) -> tuple[int, int]:
    """Send requests until there is no room; the bytes of those that were acknowledged, and their
    calls.
    """
    size_bytes = calls = 0
    while True:
        body = model_calls(variant)
        if served.post(body).status != 200:
            return size_bytes, calls
        size_bytes += len(body)
        calls += 20


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_shipped_unit_survives_texts_of_any_script(
    variant: str, tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """With default limits and `durable` it stays within 400 MB: full, killed and started again, and
    while the calls are evaluated.
    """
    arguments = ("--durable", str(tmp_path / "journal"))
    with Served(
        tmp_path / "sidecar", *arguments, settings=WAITS, endpoint=receiver.endpoint
    ) as served:
        before = served.rss_bytes
        size_bytes, calls = fill(served, variant)
        full = served.most_rss_bytes
        assert full <= MOST, (variant, full / MIB)
        served.kill()
        served.settings.write_text(QUICK)
        served.start()
        served.wait_for(receiver.events, "a result", 120.0)
        for _ in range(20):  # while others are evaluated
            served.post(model_calls(variant))
        again = served.most_rss_bytes
    promise(
        "B17",
        figure=f"{variant}: {size_bytes / MIB:.0f} MiB accepted, {before / MIB:.0f} -> "
        f"{full / MIB:.0f} MB, after SIGKILL and a restart {again / MIB:.0f} MB",
    )
    assert calls
    assert again <= MOST, (variant, again / MIB)


def test_a_request_that_kills_the_sidecar_ends_the_loop(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """Two starts end by SIGKILL while it is read again; the third one keeps it in a file, names it,
    and evaluates all others.
    """
    folder = tmp_path / "journal"
    reading = folder / "reading"
    heavy = model_calls("an emoji", 40)
    arguments = ("--durable", str(folder))
    settings = settings_with(quiet_s=60)
    with Served(
        tmp_path / "sidecar", *arguments, settings=settings, endpoint=receiver.endpoint
    ) as served:
        assert served.post(heavy).status == 200
        served.kill()
        starts = 0
        while _deaths(reading) < 2:
            starts += 1
            assert starts < 100, served.told
            served.start(until="")  # at once: what is read is noted for some milliseconds only
            # As the system would for its memory; where it was read already, that was no death.
            _kill_while(served, reading)
        served.settings.write_text(settings_with(quiet_s=0.2))
        served.start()
        (file,) = (folder / "quarantine").iterdir()
        assert file.read_bytes() == heavy
        assert f"file='{file}'" in served.told
        answer(served)
        served.wait_for(receiver.events, "a result")
        assert served.terminate() == 0
    promise(
        "B17", figure="SIGKILL while a request is read again: kept in a file at the third start"
    )


def _noted(reading: Path) -> str:
    """The note on the request that is being read, or nothing where there is none."""
    try:
        return reading.read_text()
    except FileNotFoundError:
        return ""


def _deaths(reading: Path) -> int:
    """How many starts in a row ended while a request was read."""
    note = _noted(reading)
    return int(note.split()[1]) if note else 0


def _kill_while(served: Served, reading: Path) -> None:
    """Kill the process as soon as it reads a request again, or once it has read it."""
    before = _noted(reading)
    while "ready\n" not in served.printed:
        if _noted(reading) not in ("", before):
            break
        time.sleep(0.0005)
    served.process.send_signal(signal.SIGKILL)
    served.process.wait(10)


PROGRAM = """
    import json, os, sys, threading
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from agenteval_otel import configure
    from agenteval_otel.instrumentation.spans import AgentEvalSpanProcessor
    from tests.promises.programs import rss

    configure(sample_rate=0.0, storage=[])
    provider = TracerProvider()
    provider.add_span_processor(AgentEvalSpanProcessor(quiet_s=0.2))
    tracer = provider.get_tracer("application")

    def model_call(number):
        with trace.use_span(tracer.start_span("agent")):  # still at work
            attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": "[]",
                          "gen_ai.input.messages": f"{number:08d}" * 131072 + sys.argv[1]}
            tracer.start_span("chat", attributes=attributes).end()

    model_call(0)
    threading.Event().wait(0.5)  # what the first one loads is not growth
    before, peak = rss(), 0
    for number in range(1, 200):
        model_call(number)
        peak = max(peak, rss())
    print("report", json.dumps({"growth": peak - before}), flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("widest", ["!", "é", "漢", "\U0001f600"])
def test_spans_in_the_host_take_no_more_in_another_script(widest: str, promise: Recorder) -> None:
    """The span processor keeps spans of 1 MB up to its 32 MiB, whatever their texts are."""
    report = run_program(PROGRAM, widest, timeout_s=300, MALLOC_MMAP_THRESHOLD_="65536").report()
    promise(
        "B17",
        figure=f"200 spans of 1 MB in the host: growth {report['growth'] / MIB:.0f} MB",
    )
    assert report["growth"] <= 64 * MIB
