"""C20: what was taken is delivered whichever way a pool or a server ends its children."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from tests.promises.endings import saved, until_stopped
from tests.promises.figures import Recorder
from tests.promises.programs import run_program, started_program

TASKS = 10
POOL = """
    import asyncio, os, signal, sys, time
    how, target = sys.argv[1], sys.argv[2]
    import billiard
    from billiard.pool import Pool
    from agenteval_otel import annotate, configure, monitor
    from agenteval_otel.storage import JsonFileStorageProvider

    async def judge(value):
        await asyncio.sleep(0.1)
        return True

    configure(evaluators=[judge], storage=[JsonFileStorageProvider(path=target)], sample_rate=1.0)

    @monitor
    def answer(name):
        annotate(session_id=name)
        return "an answer"

    def task(number):
        answer(str(number))

    ended = sys.argv[3]

    def on_exit(pid, exitcode):
        with open(ended, "a") as file:
            file.write(f"{exitcode}\\n")

    if how == "process":
        children = [billiard.Process(target=task, args=(number,)) for number in range(10)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    else:
        most = 1 if how == "recycled" else None
        pool = Pool(2, maxtasksperchild=most, on_process_exit=on_exit)
        for job in [pool.apply_async(task, (number,)) for number in range(10)]:
            job.get(60)
        pool.terminate() if how == "terminated" else pool.close()
        pool.join()
    print("main_ended", time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("how", ["recycled", "closed", "terminated", "process"])
def test_children_of_celerys_pool_deliver(how: str, tmp_path: Path, promise: Recorder) -> None:
    """Children of billiard, which end by `os._exit`, deliver as those of multiprocessing do, and
    their own hook at exit runs as before.
    """
    pytest.importorskip("billiard")
    target, ended = tmp_path / "results.jsonl", tmp_path / "ended"
    finished = run_program(POOL, how, str(target), str(ended), timeout_s=120)
    assert finished.code == 0, finished
    assert "Traceback" not in finished.stderr, finished.stderr
    promise("C20", figure=f"children of billiard, {how}: {len(saved(target))} of {TASKS}")
    assert saved(target) == sorted(map(str, range(TASKS)))
    children = len(ended.read_text().splitlines()) if ended.exists() else 0
    assert children >= {"recycled": TASKS, "process": 0}.get(how, 2)


FUNCTION = """
    import asyncio, os, signal, sys, threading
    from agenteval_otel import annotate, configure, flush, monitor
    from agenteval_otel.storage import JsonFileStorageProvider

    begun = threading.Semaphore(0)

    async def judge(value):
        begun.release()
        await asyncio.sleep(0.7)
        return True

    configure(evaluators=[judge], storage=[JsonFileStorageProvider(path=sys.argv[1])], sample_rate=1.0)

    @monitor
    def answer(name):
        annotate(session_id=name)
        return "an answer"

    def handler(number):
        for call in range(5):
            answer(f"{number}-{call}")
        for call in range(5):
            begun.acquire()
        if "flush" in sys.argv:
            flush(20)

    # The platform freezes the process right after each return, and ends it so, or by SIGTERM.
    for number in range(2):
        handler(number)
        os.kill(os.getpid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGTERM)
    asyncio.run(asyncio.sleep(60))
"""


@pytest.mark.parametrize("how", ["flush", "nothing"])
def test_a_function_that_is_frozen_after_each_return(
    how: str, tmp_path: Path, promise: Recorder
) -> None:
    """With `flush()` before the return all is there when it is frozen; without, what waited is
    delivered once it goes on, and the log names the cure.
    """
    target = tmp_path / "results.jsonl"
    env = {"AWS_LAMBDA_FUNCTION_NAME": "chat"}
    with started_program(FUNCTION, str(target), how, **env) as process:
        until_stopped(process)
        frozen = len(saved(target))
        assert frozen == (5 if how == "flush" else 0)
        threading.Event().wait(3)
        process.send_signal(signal.SIGCONT)
        until_stopped(process)
        process.send_signal(signal.SIGCONT)
        _, complaints = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert ("frozen_while_pending" in complaints) == (how == "nothing"), complaints
    assert ("flush()" in complaints) == (how == "nothing")
    assert len(saved(target)) == 10
    promise(
        "C20", figure=f"frozen function, {how}: {frozen} of 5 there when frozen, all at SIGTERM"
    )
