"""A7: a process that forks while its threads submit gets children that neither hang nor repeat the
parent's work.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.promises.figures import Recorder
from tests.promises.programs import run_program

FORKS = 200
CHILD_CALLS = 3
PROGRAM = """
    import faulthandler, json, multiprocessing, os, sys, threading, time
    how, target, forks, child_calls = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    from agenteval_otel import accounting, configure, flush, monitor
    from agenteval_otel.engine.pipeline import PoolDispatcher
    from agenteval_otel.storage import JsonFileStorageProvider
    from agenteval_otel.evaluators import Func, ResponseHealth

    WATCHDOG_S = 30.0  # bounds what hangs; on a busy machine a child takes its time
    slow = Func.of(lambda value: True, criterion_name="slow")
    configure(evaluators=[ResponseHealth(), slow], storage=[JsonFileStorageProvider(path=target)], sample_rate=1.0,
              dispatcher=PoolDispatcher(linger_s=0.0))
    from agenteval_otel import annotate

    @monitor
    def answer(name):
        annotate(session_id=name)
        return "an answer to " + name

    def child(number):
        # Accounting begins at zero, own calls are evaluated, nothing of the parent's is.
        began = sum(accounting().values())
        for call in range(child_calls):
            answer(f"child-{number}-{call}")
        flushed = flush(25.0)
        outcomes = accounting()
        if began or not flushed or outcomes["evaluated"] != child_calls:
            print("child", number, "began at", began, "flushed", flushed, outcomes, file=sys.stderr, flush=True)
            faulthandler.dump_traceback(all_threads=True)
            return 1
        return 0

    def wait_for(pid):
        # os.waitpid has no time limit: look again until the watchdog ends.
        never, deadline = threading.Event(), time.monotonic() + WATCHDOG_S
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            never.wait(0.001)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return "hung"

    def by_os_fork(number):
        pid = os.fork()
        if pid == 0:
            os._exit(child(number))
        return wait_for(pid)

    context = multiprocessing.get_context("fork")
    def by_multiprocessing(number):
        process = context.Process(target=lambda: sys.exit(child(number)))
        process.start()
        process.join(WATCHDOG_S + 2.0)
        if process.exitcode is None:
            process.kill()
            process.join()
            return "hung"
        return process.exitcode

    def by_preload(number):
        # As gunicorn --preload: the application is loaded and warm, then several workers are forked at once.
        pids = []
        for worker in range(4):
            if (pid := os.fork()) == 0:
                os._exit(child(f"{number}-{worker}"))
            pids.append(pid)
        return next((code for code in map(wait_for, pids) if code), 0)

    stop, counts = threading.Event(), [0, 0, 0]
    def submit(index):
        while not stop.is_set():
            answer(f"parent-{index}-{counts[index]}")
            counts[index] += 1
            stop.wait(0.0005)

    threads = [threading.Thread(target=submit, args=(index,)) for index in range(len(counts))]
    for thread in threads:
        thread.start()
    fork = {"os.fork": by_os_fork, "multiprocessing": by_multiprocessing, "preload": by_preload}[how]
    codes = [fork(number) for number in range(forks)]
    stop.set()
    for thread in threads:
        thread.join()
    flushed = flush(30.0)
    print("report", json.dumps({"codes": codes, "calls": sum(counts), "flushed": flushed, "accounting": accounting()}))
"""


@pytest.mark.parametrize(
    ("how", "forks"),
    [("os.fork", FORKS), ("multiprocessing", FORKS // 8), ("preload", FORKS // 10)],
)
def test_children_neither_hang_nor_repeat_the_parents_work(
    python: str, tmp_path: Path, how: str, forks: int, promise: Recorder
) -> None:
    """Children of a process whose threads submit neither hang nor evaluate what the parent took."""
    target = tmp_path / "results.jsonl"
    finished = run_program(
        PROGRAM, how, str(target), str(forks), str(CHILD_CALLS), python=python, timeout_s=240
    )
    report = finished.report()
    assert report["codes"] == [0] * forks, finished.stderr
    outcomes = report["accounting"]
    assert report["flushed"]
    assert sum(outcomes.values()) == report["calls"]
    sessions = [json.loads(line)["sessionId"] for line in target.read_text().splitlines() if line]
    assert len(sessions) == len(set(sessions)), "each response is evaluated once"
    of_parent = sum(session.startswith("parent") for session in sessions)
    assert of_parent == outcomes["evaluated"]
    children = forks * (4 if how == "preload" else 1)
    assert len(sessions) - of_parent == children * CHILD_CALLS
    promise(
        "A7",
        figure=f"{how}: {children} children, 0 hung, 0 responses scored twice, all of the children's scored",
    )
