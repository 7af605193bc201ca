"""D2: what `flush()` says is delivered is delivered: a process that is frozen right after it leaves
nothing behind.
"""

from __future__ import annotations

import signal
import subprocess
import threading

import pytest

from tests.promises.endings import until_stopped
from tests.promises.figures import Recorder
from tests.promises.programs import started_program
from tests.promises.receiver import Receiver
from tests.promises.sidecars import of_events

CALLS, RESPONSE_ID = 50, "gen_ai.response.id"
PROGRAM = """
    import asyncio, os, signal, sys
    from agenteval_otel import accounting, annotate, configure, flush, monitor
    from agenteval_otel.storage import OtlpStorageProvider

    async def judge(value):
        await (asyncio.Event().wait() if "hangs" in sys.argv else asyncio.sleep(0.05))
        return True

    configure(evaluators=[judge], sample_rate=1.0,
              storage=[OtlpStorageProvider(endpoint=sys.argv[1], protocol="http/protobuf")])

    @monitor
    def answer(name):
        annotate(response_id=name)
        return "an answer"

    def invoked(number, calls):
        for call in range(calls):
            answer(f"{number}-{call}")
        return flush(0.3 if "hangs" in sys.argv else 60.0)

    # Between two invocations the platform freezes the process: it has no say in when that is.
    for number, calls in enumerate((int(sys.argv[2]), 1)):
        done = invoked(number, calls)
        pending = calls * (number + 1) - sum(accounting().values()) if number == 0 else 0
        print("flushed", done, pending, flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    print("outcomes", accounting()["evaluated"], sum(accounting().values()), flush=True)
"""


def flushed(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the process to be stopped; what it said of its flush."""
    until_stopped(process)
    return process.stdout.readline().split()


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.full)])
def test_nothing_is_left_in_a_frozen_process(
    seconds: int, receiver: Receiver, promise: Recorder
) -> None:
    """Stopped right after its flush, as between two invocations of a function, and going on
    afterwards.
    """
    with started_program(PROGRAM, receiver.endpoint, str(CALLS)) as process:
        assert flushed(process) == ["flushed", "True", "0"]
        arrived = of_events(receiver, RESPONSE_ID)
        assert sorted(arrived) == sorted(f"0-{call}" for call in range(CALLS))
        threading.Event().wait(seconds)
        process.send_signal(signal.SIGCONT)
        assert flushed(process) == ["flushed", "True", "0"]
        assert len(of_events(receiver, RESPONSE_ID)) == CALLS + 1
        process.send_signal(signal.SIGCONT)
        printed, complaints = process.communicate(timeout=30)
    promise(
        "D2",
        figure=f"{len(arrived)} of {CALLS} at the receiver when frozen, 0 pending; frozen for {seconds} s",
    )
    assert printed.split() == ["outcomes", str(CALLS + 1), str(CALLS + 1)], complaints
    assert complaints == ""
    ids = of_events(receiver, RESPONSE_ID)
    assert len(ids) == len(set(ids)) == CALLS + 1


def test_a_flush_that_is_not_done_says_so(receiver: Receiver) -> None:
    """With a judge that hangs `flush()` is False: the caller knows that freezing would lose what is
    pending.
    """
    with started_program(PROGRAM, receiver.endpoint, "5", "hangs") as process:
        assert flushed(process) == ["flushed", "False", "5"]
    assert of_events(receiver, RESPONSE_ID) == []
