"""The worker process when something is short: nothing is lost, nobody is blamed for it, and it
comes back.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.engine.execution import Executor, supervisor
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import Func
from agenteval_otel.models import EvaluationInput, ToolCall
from tests.execution.support import Starting, facts, run
from tests.execution.test_processes import with_executor
from tests.promises.programs import run_program
from tests.testing.computing import Computing, Troubled
from tests.testing.evaluations import evaluate


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork server that could not be started is tried again without a pause."""
    monkeypatch.setattr(supervisor, "_MAX_PAUSE_S", 0.0)


async def place(executor: Executor) -> int:
    return int((await facts(executor, Computing()))["pid"])


@pytest.mark.usefixtures("at_once")
def test_a_process_that_cannot_be_started_now_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Meanwhile evaluations run here without waiting, and the log says so once; after the pause
    there is a worker.
    """

    def no_more() -> Any:
        raise OSError(24, "Too many open files")

    async def work(executor: Executor) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(supervisor, "ForkServerClient", no_more)
            for _ in range(4):
                assert await place(executor) == os.getpid()
        assert await place(executor) != os.getpid()

    with_executor(work)
    (line,) = [entry.message for entry in caplog.records]
    assert "worker_process_unavailable" in line


@pytest.mark.usefixtures("at_once")
def test_an_evaluator_whose_module_ends_the_fork_server_leaves_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every answer is evaluated; the third time the evaluator goes to a thread, and others have a
    worker again.
    """
    (tmp_path / "fatal_module.py").write_text(
        "import os\nif os.environ.get('AGENTEVAL_ENABLED') == 'false':\n    os._exit(1)\n"
        "def fatal(evaluation_input):\n    return 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    fatal = Func.of(__import__("fatal_module").fatal, execution="process")

    async def work(executor: Executor) -> None:
        for _ in range(3):
            assert (await run(executor, fatal))[0].score == 1.0
        assert executor.state(fatal).mode == "thread"
        assert await place(executor) != os.getpid()

    with_executor(work)
    assert "it ends the process that imports it" in caplog.text


def test_an_input_that_json_cannot_hold_is_no_strike() -> None:
    """Nested deeper than JSON may be, it fails alone; without a JSON form, it is evaluated here.
    The worker stays.
    """
    nested: Any = 1
    for _ in range(220):
        nested = [nested]
    deep = EvaluationInput(response="x", tool_calls=[ToolCall(name="f", arguments=nested)])
    odd = EvaluationInput(response={"it": object()})

    async def work(executor: Executor) -> None:
        evaluator = Computing()
        before = await facts(executor, evaluator)
        with pytest.raises(EvaluationError, match="cannot read its input"):
            await evaluate(executor, evaluator, deep)
        (here,) = await evaluate(executor, evaluator, odd)
        assert (here.metadata or {})["pid"] == os.getpid()
        assert await facts(executor, evaluator) == before
        assert executor.state(evaluator).strikes == 0

    with_executor(work)


def test_criteria_of_each_input_reach_the_worker() -> None:
    async def work(executor: Executor) -> None:
        evaluator = Computing()
        own = EvaluationInput(response="x", criteria=evaluator.criteria())
        requests = [own.criteria, [], list(own.criteria), own.criteria, []]
        runs = [evaluate(executor, evaluator, own, criteria) for criteria in requests]
        assert [len(results) for results in await asyncio.gather(*runs)] == [1, 0, 1, 1, 0]

    with_executor(work)


def test_others_do_not_wait_for_a_replaced_worker() -> None:
    async def work(executor: Executor) -> None:
        first = Computing(cpu_s=0.05)
        await run(executor, first)
        under_way = [asyncio.ensure_future(run(executor, first)) for _ in range(3)]
        await asyncio.sleep(0)
        late = [
            asyncio.ensure_future(run(executor, Troubled(criterion_name=f"t{n}"), "fine"))
            for n in range(3)
        ]
        actual = await asyncio.gather(*under_way, *late)
        assert [results[0].score for results in actual] == [0.5] * 3 + [1.0] * 3

    with_executor(work)


def test_an_evaluator_ends_what_it_started() -> None:
    async def work(executor: Executor) -> Any:
        return (await run(executor, Starting()))[0].score

    assert with_executor(work) is True


KILLING = """
import os, signal, time

def kills_its_parent(evaluation_input):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(5)
    return True
"""
PROGRAM = """
    import signal
    from agenteval_otel import accounting, configure, flush, monitor
    from agenteval_otel.evaluators import Func
    from killing import kills_its_parent

    class Keeping:
        async def save_result(self, aggregated):
            (result,) = aggregated.results
            print("result", result.error_type, flush=True)

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as in many command-line programs
    configure(evaluators=[Func.of(kills_its_parent, execution="process")], sample_rate=1.0, storage=[Keeping()])
    for number in range(8):
        monitor(str.upper)("text")
    print("flushed", flush(50.0), accounting()["evaluated"])
"""


def test_what_ends_the_fork_server_never_runs_in_the_application(tmp_path: Path) -> None:
    (tmp_path / "killing.py").write_text(KILLING)
    finished = run_program(PROGRAM, timeout_s=90.0, PYTHONPATH=str(tmp_path))
    assert (finished.code, finished.lines("flushed")) == (0, ["True 8"]), finished.stderr
    assert len(finished.lines("result")) == 8
    assert set(finished.lines("result")) <= {"crashed", "quarantined"}
