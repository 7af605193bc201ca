"""C12: steps of the wall clock, and a process that stands still for a while, change neither
durations nor verdicts.
"""

from __future__ import annotations

import signal
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.promises.endings import until_stopped
from tests.promises.figures import Recorder
from tests.promises.programs import Finished, run_program, started_program

PROGRAM = """
    import asyncio, itertools, json, os, signal, sys, threading, time
    step, calls, stops = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "stops"

    # Before anything is imported: a part that keeps a reference to the function keeps the stepping one.
    real_ns, turn = time.time_ns, itertools.count()
    NS = 10**9
    OFFSETS = {
        "none": lambda n: 0,
        "a day on": lambda n: 86400 * NS * (n % 2), "a day back": lambda n: -86400 * NS * (n % 2),
        "a second back": lambda n: -NS * n, "slewing": lambda n: -n * 500_000,
        "to the epoch": lambda n: -real_ns() + n % 3,
    }
    def time_ns():
        return real_ns() + OFFSETS[step](next(turn))
    time.time_ns, time.time = time_ns, lambda: time_ns() / NS

    from agenteval_otel import accounting, annotate, configure, flush, monitor
    from agenteval_otel.engine.pipeline import PoolDispatcher
    from agenteval_otel.evaluators import Func, ResponseHealth
    from agenteval_otel.storage import OtlpStorageProvider
    from agenteval_otel.testing import RecordedTelemetry

    telemetry, kept, begun = RecordedTelemetry(), [], []

    async def judge(value):
        begun.append(value)
        if not stops:
            await asyncio.sleep(0.05)
            return True
        # The answer comes while this process stands still, and lies in the socket when it goes on.
        reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[4]))
        answer = await reader.read()
        writer.close()
        return answer == b"good"

    class Keeping:
        type = "keeping"
        async def save_result(self, aggregated):
            kept.append(json.loads(aggregated.model_dump_json(by_alias=True)))

    # The pause is longer than the judge's time limit, and than the time after which a worker is held to be stuck.
    limited = Func.of(judge, criterion_name="judge", timeout_s=2.0)
    configure(evaluators=[ResponseHealth(), limited], sample_rate=1.0, dispatcher=PoolDispatcher(stall_s=2.0),
              storage=[telemetry.storage(detail="result"), Keeping()])

    @monitor
    def answer(number):
        annotate(response_id=str(number))
        return "an answer"

    for number in range(calls):
        answer(number)
    if stops:
        never = threading.Event()
        while len(begun) < min(calls, 64):
            never.wait(0.005)
        os.kill(os.getpid(), signal.SIGSTOP)
        for number in range(calls, 2 * calls):
            answer(number)
    done = flush(30.0)
    spans = telemetry.spans()
    print("report", json.dumps({
        "done": done, "accounting": {name: count for name, count in accounting().items() if count}, "kept": kept,
        "spans": [(span.context.span_id, span.end_time - span.start_time, span.name) for span in spans],
        "events": [[event.attributes.get(name) for name in ("gen_ai.response.id", "gen_ai.evaluation.name",
                                                            "error.type")] for event in telemetry.events()],
    }, default=str), flush=True)
    os._exit(0)
"""
STEPS = ("none", "a day on", "a day back", "a second back", "slewing", "to the epoch")


def assert_whole(finished: Finished, calls: int, step: str = "none") -> list[float]:
    """All evaluated, none late, no duration below zero, each id once; gives the durations in ms."""
    report = finished.report()
    # The SDK's own flush reckons by the wall clock and says False when that jumps a day: then ours
    # has to say so too.
    assert report["done"] or "a day" in step
    assert report["accounting"] == {"evaluated": calls}
    assert [error for _, _, error in report["events"] if error] == []
    results = [(response, criterion) for response, criterion, _ in report["events"]]
    assert len(results) == len(set(results)) == 2 * calls
    ids = [span for span, _, _ in report["spans"]]
    assert len(ids) == len(set(ids))
    runs_ms = [item["metadata"]["durationMs"] for item in report["kept"]]
    assert len(runs_ms) == calls
    durations = [
        *runs_ms,
        *(nanoseconds / 1e6 for _, nanoseconds, name in report["spans"] if "evaluat" in name),
    ]
    durations += [
        (result["endedNs"] - result["startedNs"]) / 1e6
        for item in report["kept"]
        for result in item["results"]
    ]
    assert min(durations) >= 0
    return durations


@pytest.mark.parametrize("step", STEPS)
def test_steps_of_the_wall_clock_change_no_duration(
    step: str, python: str, promise: Recorder
) -> None:
    """While the clock jumps with every look at it, durations stay those of the monotonic clock."""
    finished = run_program(PROGRAM, step, "40", "runs", python=python)
    durations = assert_whole(finished, 40, step)
    promise(
        "C12",
        figure=f"clock stepped: durations {min(durations):.1f} to {max(durations):.0f} ms each, 0 timed out",
    )
    assert max(durations) < 20_000


class Slow(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        threading.Event().wait(0.5)
        self.wfile.write(b"good")


@pytest.fixture
def judge_port() -> Iterator[int]:
    """Where a slow judge answers, whatever becomes of the process that asks."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Slow) as server:
        server.request_queue_size = 128
        server.socket.listen(128)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


# The longer pause is longer than the limit after which a stalled worker is replaced.
@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.full)])
def test_no_burst_of_timeouts_after_a_pause(
    seconds: int, judge_port: int, promise: Recorder
) -> None:
    """A pause longer than the judge's time limit fails no evaluation that was under way, and none
    that comes after.
    """
    calls = 40
    with started_program(
        PROGRAM, "none", str(calls), "stops", str(judge_port), timeout_s=seconds + 60
    ) as process:
        until_stopped(process)
        threading.Event().wait(seconds)
        process.send_signal(signal.SIGCONT)
        stdout, stderr = process.communicate()
    assert_whole(Finished(process.returncode, stdout, stderr, None), 2 * calls)
    promise(
        "C12",
        figure=f"stopped for {seconds} s: 0 of {2 * calls} evaluations timed out after the thaw",
    )
