"""The worker process and its host: nothing stays when the host ends, and a forked host has a child of its own."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.promises.programs import run_program

PATIENCE_S = 30.0
PROGRAM = """
    import asyncio, atexit, os, sys
    sys.path[:0] = sys.argv[2:]
    from agenteval_otel.models import EvaluationInput
    from agenteval_otel.execution import Executor
    from tests.testing.computing import Computing, Troubled
    from tests.testing.evaluations import evaluate

    async def one(evaluator, text="x"):
        return (await evaluate(executor, evaluator, EvaluationInput(response=text)))[0].metadata

    executor, evaluator = Executor(live=True), Computing()
    atexit.register(executor.leave)  # as a pipeline does
    worker = asyncio.run(one(evaluator))["pid"]
    fork_server = executor._supervisor.server.pid
    if sys.argv[1] == "fork":
        pid = os.fork()
        if pid == 0:
            own = asyncio.run(one(evaluator))["pid"]
            os._exit(0 if own != worker and executor._supervisor.server.pid != fork_server else 1)
        print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        print("same", asyncio.run(one(evaluator))["pid"] == worker, flush=True)
    print("pids", fork_server, worker, flush=True)
    if sys.argv[1] == "killed":
        async def busy():
            hanging = asyncio.ensure_future(one(Troubled(timeout_s=60.0), "hang"))
            await asyncio.wait({hanging}, timeout=0.3)
            os.kill(os.getpid(), 9)
        asyncio.run(busy())
    if sys.argv[1] == "importing":
        import endless
        async def busy():
            await asyncio.wait({asyncio.ensure_future(one(endless.Endless()))}, timeout=0.3)
            os.kill(os.getpid(), 9)
        asyncio.run(busy())
"""
ENDLESS = """
import os, time
from tests.testing.computing import Computing
while os.environ["AGENTEVAL_ENABLED"] == "false":
    time.sleep(1)
class Endless(Computing, type="Endless"):
    pass
"""


def is_there(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(*pids: str) -> bool:
    deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while any(map(is_there, pids)) and time.monotonic() < deadline:
        pause.wait(0.02)
    return not any(map(is_there, pids))


@pytest.mark.parametrize(("how", "code"), [("normal", 0), ("killed", -9), ("importing", -9)])
def test_nothing_stays_when_the_host_ends(how: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    finished = run_program(PROGRAM, how, str(tmp_path), flags=("-W", "error"), AGENTEVAL_ENABLED="true")
    assert (finished.code, finished.stderr) == (code, "")
    assert gone(*finished.lines("pids")[0].split())


CONFIGURING = """
    import asyncio
    from agenteval_otel.evaluators import Func
    from agenteval_otel.execution import Executor
    from agenteval_otel.models import EvaluationInput
    from tests.testing.configuring import is_inert
    from tests.testing.evaluations import evaluate

    executor, evaluator = Executor(live=True), Func.of(is_inert, execution="process")
    (result,) = asyncio.run(evaluate(executor, evaluator, EvaluationInput(response="x")))
    executor.close()
    print("inert", result.score, executor.mode(evaluator), flush=True)
"""


def test_a_module_that_configures_does_nothing_there() -> None:
    """The application's module is imported once more; its `configure` and its monitored handlers have no effect."""
    finished = run_program(CONFIGURING)
    assert (finished.code, finished.lines("inert")) == (0, ["True process"])


def test_a_forked_host_has_a_child_of_its_own() -> None:
    finished = run_program(PROGRAM, "fork", flags=("-W", "error"))
    assert (finished.code, finished.stderr) == (0, "")
    assert (finished.lines("child"), finished.lines("same")) == (["0"], ["True"])
    assert gone(*finished.lines("pids")[0].split())
