"""D2: what `flush()` says is delivered is delivered: a process that is frozen right after it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.promises.figures import Recorder
from tests.promises.programs import PROJECT
from tests.promises.receiver import Receiver

CALLS = 50
PROGRAM = """
    import asyncio, os, signal, sys
    judge, target = sys.argv[1], sys.argv[2]
    from agenteval_otel import accounting, annotate, configure, flush, monitor
    from agenteval_otel.storage import OtlpStorageProvider

    async def short(given):
        await asyncio.sleep(0.05)
        return True

    async def hangs(given):
        await asyncio.Event().wait()

    configure(evaluators=[short if judge == "short" else hangs], sample_rate=1.0,
              storage=[OtlpStorageProvider(endpoint=target, protocol="http/protobuf")])

    @monitor
    def answer(name):
        annotate(response_id=name)
        return "an answer"

    def invoked(number, calls):
        for call in range(calls):
            answer(f"{number}-{call}")
        return flush(10.0 if judge == "short" else 0.3)

    # Between two invocations the platform freezes the process: it has no say in when that is.
    for number, calls in enumerate((int(sys.argv[3]), 1)):
        done = invoked(number, calls)
        pending = calls * (number + 1) - sum(accounting().values()) if number == 0 else 0
        print("flushed", done, pending, flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    print("outcomes", accounting()["evaluated"], sum(accounting().values()), flush=True)
"""


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "AGENTEVAL_"))}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), *arguments], cwd=PROJECT, env=clean,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    watchdog = threading.Timer(150, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def until_stopped(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the process to be stopped; what it said of its flush."""
    pid, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"{pid} ended: {status}"
    assert process.stdout is not None
    return process.stdout.readline().split()


def freeze_and_thaw(seconds: float, promise: Recorder) -> None:
    """Everything is at the receiver while the process stands still, and again after the next call."""
    receiver, never = Receiver(), threading.Event()
    try:
        with started("short", receiver.endpoint, str(CALLS)) as process:
            assert until_stopped(process) == ["flushed", "True", "0"]
            arrived = response_ids(receiver)
            assert sorted(arrived) == sorted(f"0-{call}" for call in range(CALLS))
            never.wait(seconds)
            process.send_signal(signal.SIGCONT)
            assert until_stopped(process) == ["flushed", "True", "0"]
            assert len(response_ids(receiver)) == CALLS + 1
            process.send_signal(signal.SIGCONT)
            said, complaints = process.communicate(timeout=30)
    finally:
        receiver.close()
    promise("D2", figure=f"{len(arrived)} of {CALLS} at the receiver when frozen, 0 pending; frozen for {seconds:g} s")
    assert said.split() == ["outcomes", str(CALLS + 1), str(CALLS + 1)], complaints
    assert complaints == ""
    ids = response_ids(receiver)
    assert len(ids) == len(set(ids)) == CALLS + 1


def response_ids(receiver: Receiver) -> list[str]:
    """The answer that each event at the receiver is about."""
    return [
        pair.value.string_value
        for event in receiver.events() for pair in event.attributes if pair.key == "gen_ai.response.id"
    ]  # fmt: skip


def test_nothing_is_left_in_a_frozen_process(promise: Recorder) -> None:
    """Stopped for seconds right after its flush, and going on afterwards."""
    freeze_and_thaw(2.0, promise)


@pytest.mark.full
def test_nothing_is_left_in_a_process_frozen_for_a_minute(promise: Recorder) -> None:
    """Stopped for a minute, as between two invocations of a function."""
    freeze_and_thaw(60.0, promise)


def test_a_process_that_is_never_thawed_has_lost_nothing(promise: Recorder) -> None:
    """Killed while it is frozen: what the flush said to be delivered is."""
    receiver = Receiver()
    try:
        with started("short", receiver.endpoint, str(CALLS)) as process:
            assert until_stopped(process) == ["flushed", "True", "0"]
            process.kill()
            process.communicate()
        assert len(set(response_ids(receiver))) == CALLS
        promise("D2", figure=f"killed while frozen: {CALLS} of {CALLS} at the receiver")
    finally:
        receiver.close()


def test_a_flush_that_is_not_done_says_so() -> None:
    """With a judge that hangs `flush()` is False: the caller knows that freezing would lose what is pending."""
    receiver = Receiver()
    try:
        with started("hangs", receiver.endpoint, "5") as process:
            assert until_stopped(process) == ["flushed", "False", "5"]
        assert response_ids(receiver) == []
    finally:
        receiver.close()
