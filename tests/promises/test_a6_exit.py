"""A6: the process ends within two seconds and with its own exit code, whatever of ours hangs."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agenteval_otel.engine.pipeline import EXIT_TIMEOUT_S
from agenteval_otel.semconv import OVERALL_SCORE
from tests.backends.collector import Collector
from tests.backends.faults import BlackHole
from tests.promises.figures import Recorder
from tests.promises.programs import Finished, pythons, run_program

MARGIN_S, REPEATS = 0.5, 4
INTERPRETER_S = 3.0
"""What the interpreter may take longer to end than without any call, on a machine whose load
changes meanwhile: it only bounds a hang there, which would not end at all."""
PROGRAM = """
    import asyncio, atexit, sys, threading, time
    fault, end, target, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    atexit.register(lambda: print("ours_ended", time.monotonic(), flush=True))  # the first runs last
    from agenteval_otel import configure, monitor, flush, accounting
    from agenteval_otel.engine.pipeline import PoolDispatcher
    from agenteval_otel.storage import JsonFileStorageProvider, OtlpStorageProvider

    never = threading.Event()
    if end == "at exit":
        atexit.register(lambda: [answer("at exit") for _ in range(calls)])

    async def hangs(value):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    def blocks(value):
        never.wait()

    def fine(value):
        return True

    async def in_a_thread(value):
        return await asyncio.to_thread(fine, value)

    async def looks_up(value):
        return bool(await asyncio.get_running_loop().getaddrinfo("localhost", 80))

    evaluators = {
        "async judge": [hangs, fine], "sync judge": [blocks, fine], "file": [in_a_thread, looks_up],
    }.get(fault, ["ResponseHealth"])
    storage = {
        "grpc": lambda: OtlpStorageProvider(endpoint=target, protocol="grpc"),
        "http": lambda: OtlpStorageProvider(endpoint=target, protocol="http/protobuf"),
        "full disk": lambda: JsonFileStorageProvider(path="/dev/full"),
        "file": lambda: JsonFileStorageProvider(path=target),
    }.get(fault, lambda: JsonFileStorageProvider(path="/dev/null"))()

    configure(evaluators=evaluators, storage=[storage], sample_rate=1.0, enabled="off" not in sys.argv)

    @monitor
    def answer(question):
        return "an answer to " + question

    @monitor
    async def answer_async(question):
        return "an answer to " + question

    if end == "asyncio":
        async def main():
            await asyncio.gather(*(answer_async("q") for _ in range(calls)))
        asyncio.run(main())
    elif end != "at exit":
        for _ in range(calls):
            answer("question")
    if end == "warm":
        flush(1.5)
    print("calls", calls, flush=True)
    print("main_ended", time.monotonic(), flush=True)
    if end == "error":
        raise ValueError("the program's own")
    if end == "exit":
        sys.exit(3)
"""
SDK_LOADED = """
    import opentelemetry.sdk._logs.export, opentelemetry.sdk.metrics.export, opentelemetry.sdk.trace.export
"""
FEWER_ENDS = {"http": ("warm", "error", "exit"), "full disk": ("normal", "error", "asyncio")}
"""Where another fault has met the other ends in the same place."""
CODES = {"normal": 0, "warm": 0, "error": 1, "exit": 3, "at exit": 0, "asyncio": 0}


def assert_own_end(finished: Finished, end: str) -> None:
    assert finished.code == CODES[end], finished.stderr
    assert finished.stderr.count("Traceback") == (1 if end == "error" else 0), finished.stderr
    assert not any(
        word in finished.stderr
        for word in ("/agenteval_otel/", "Task was destroyed", "Fatal Python error")
    )


def run_all(fault: str, target: str, calls: int, *more: str, python: str) -> dict[str, Finished]:
    """The program in every way of ending, two at a time: most of their time is waiting."""

    def run(end: str) -> Finished:
        arguments = (fault, end, target, str(calls), *more)
        return run_program(SDK_LOADED + PROGRAM, *arguments, python=python)

    ends = FEWER_ENDS.get(fault, tuple(CODES))
    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(ends, pool.map(run, ends), strict=True))


@pytest.mark.parametrize("fault", ["async judge", "sync judge", "grpc", "http", "full disk"])
def test_exit_is_bounded_and_keeps_its_code(
    python: str, hole: BlackHole, fault: str, promise: Recorder
) -> None:
    """With 2,048 responses queued and a part that hangs the process ends in time, with its own code
    and output.
    """
    loaded = run_all(fault, hole.endpoint, 2048, python=python)
    ours: dict[str, float] = {}
    for end, finished in loaded.items():
        assert_own_end(finished, end)
        (began,), (ended,) = finished.lines("main_ended"), finished.lines("ours_ended")
        ours[end] = round(float(ended) - float(began), 2)
    if fault in ("grpc", "http"):
        assert hole.wait_for_connection(0.1), "an exporter that never connected proves nothing"
    promise(
        "A6", figure=f"{fault}: exit after {max(ours.values()):.2f} s at worst of {len(ours)} ends"
    )
    assert max(ours.values()) <= EXIT_TIMEOUT_S + MARGIN_S, ours
    # With the monitoring switched off as much is loaded, and as busy is the machine.
    bare = exits_s(run_all(fault, hole.endpoint, 10, "off", python=python))
    most_s = EXIT_TIMEOUT_S + MARGIN_S + max(bare.values()) + INTERPRETER_S
    whole = exits_s(loaded)
    assert max(whole.values()) <= most_s, (whole, bare)


def exits_s(programs: dict[str, Finished]) -> dict[str, float]:
    """How long each took to end, by the way of ending."""
    return {end: finished.exit_s or 0.0 for end, finished in programs.items()}


@pytest.mark.parametrize(
    ("end", "calls"), [("asyncio", 200), ("normal", 1), ("exit", 1), ("error", 1), ("asyncio", 1)]
)
def test_what_was_taken_is_delivered_before_the_end(
    python: str, tmp_path: Path, end: str, calls: int, promise: Recorder
) -> None:
    """A program that ends right after its answers leaves every result behind, the first and only
    one too.

    Its evaluators need threads, as every model client does for its first name look-up.
    """

    def run(number: int) -> int:
        target = tmp_path / f"{number}.jsonl"
        finished = run_program(PROGRAM, "file", end, str(target), str(calls), python=python)
        assert_own_end(finished, end)
        lines = target.read_text().splitlines() if target.exists() else []
        for line in lines:
            assert [result["score"] for result in json.loads(line)["results"]] == [True, True]
        return len(lines)

    with ThreadPoolExecutor(max_workers=2) as pool:
        delivered = list(pool.map(run, range(REPEATS)))
    assert delivered == [calls] * REPEATS
    promise("A6", figure=f"pending at the end: {sum(delivered)} of {calls * REPEATS} delivered")


@pytest.mark.backend
@pytest.mark.parametrize(("fault", "calls"), [("grpc", 1), ("http", 1), ("grpc", 200)])
def test_what_was_taken_is_exported_before_the_end(
    collector: Collector, python: str, fault: str, calls: int
) -> None:
    """A program that has the SDK loaded and ends right after its first answer exports what that
    gave.
    """
    version = next(version for version, path in pythons().items() if path == python)
    if version.startswith("3.12."):
        pytest.skip("early 3.12 starts no thread at exit, and the SDK's processors need one")
    service = f"exit-{version}-{fault}-{calls}"
    target = collector.grpc_endpoint if fault == "grpc" else collector.http_endpoint
    arguments = (fault, "normal", target, str(calls))
    finished = run_program(
        SDK_LOADED + PROGRAM, *arguments, python=python, OTEL_SERVICE_NAME=service
    )
    assert_own_end(finished, "normal")
    assert finished.stderr == ""
    assert len(collector.wait_for(lambda seen: seen.logs(service), timeout_s=5)) == calls
    scored = [span for span in collector.spans(service) if OVERALL_SCORE in span.attributes]
    assert len(scored) == calls
