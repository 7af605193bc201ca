"""The worker process: results as inline, nothing of the host's, the trouble of one evaluation is
its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.run import EvaluationRunner
from agenteval_otel.evaluators import (
    Evaluator,
    Func,
    KeywordCoverage,
    ResponseHealth,
    RuleBased,
    ToolUse,
)
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score
from tests.execution.support import facts, fork_server_of, outcome, run
from tests.execution.support import with_executor as with_any_executor
from tests.promises.programs import run_program
from tests.testing.computing import Computing, Filling, Looking, Secretive, Troubled, is_long
from tests.testing.doubles import Fixed

BUILT_IN = [
    ResponseHealth(),
    KeywordCoverage(criterion_name="kw", expected_keywords=["paris", "rome"]),
    RuleBased.load(
        {
            "rules": [
                {"criterion": "Short", "type": "length", "max": 20},
                {
                    "criterion": "Digits",
                    "type": "regex",
                    "pattern": "[0-9]+",
                    "expectedOutcome": "match",
                },
                {
                    "criterion": "Quoted",
                    "sourceTextField": "context.text",
                    "type": "includes",
                    "keywords": ["a"],
                    "expectedOutcome": "any",
                },
            ]
        }
    ),
]


with_executor = partial(with_any_executor, live=True)


def comparable(results: list[EvaluationResult]) -> list[tuple[Any, ...]]:
    times = {"started_ns": None, "ended_ns": None}
    return [
        (result.model_copy(update=times), type(result.score), result.filler) for result in results
    ]


def test_results_and_failures_are_those_of_an_inline_run() -> None:
    evaluators: list[Evaluator] = [
        *BUILT_IN,
        Troubled(),
        Filling(criterion_name="filling"),
        Func.of(is_long, threshold=1),
    ]
    apart = [evaluator.model_copy(update={"execution": "process"}) for evaluator in evaluators]
    evaluators = [evaluator.model_copy(update={"execution": "thread"}) for evaluator in evaluators]
    words = ["exit", "value", "key", "skip", "word", "own", "unicode", "filler", "metadata", "any"]
    texts = st.sampled_from(words) | st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
    inputs = st.builds(
        EvaluationInput,
        response=texts,
        prompt=st.none() | texts,
        context=st.none()
        | st.dictionaries(st.sampled_from(["text", "x"]), texts | st.lists(st.integers() | texts)),
        error_type=st.none() | st.just("ValueError"),
        duration_s=st.none() | st.floats(0, 10),
    )
    loop, executor = asyncio.new_event_loop(), Executor(live=True)

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(given=inputs)
    def same(given: EvaluationInput) -> None:
        runners = (
            EvaluationRunner(evaluators, executor=executor),
            EvaluationRunner(apart, executor=executor),
        )
        expected, actual = (loop.run_until_complete(runner.run(given)) for runner in runners)
        assert comparable(actual.results) == comparable(expected.results)
        assert actual.errors == expected.errors

    try:
        same()
        assert {executor.state(evaluator).mode for evaluator in apart} == {"process"}
    finally:
        executor.close()
        loop.close()


def test_it_runs_in_another_process_that_is_started_once() -> None:
    async def work(executor: Executor) -> None:
        assert "not started" in repr(executor.supervisor)
        evaluator, sizes = Computing(cpu_s=0.001), (0, 1, 1 << 20, 5)
        actual = await asyncio.gather(*(facts(executor, evaluator, "x" * size) for size in sizes))
        assert tuple(fact["length"] for fact in actual) == sizes
        (pid,) = {fact["pid"] for fact in actual}
        assert pid not in (os.getpid(), fork_server_of(executor))

    with_executor(work)


def test_nothing_of_the_host_goes_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has the lowest priority, no input, the usual variables only, and does not evaluate the
    handlers it calls.

    No `sitecustomize` of the host's runs there, and on Linux the kernel ends it before the host.
    """
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for number, name in enumerate(
        ["OTEL_EXPORTER_OTLP_HEADERS", "ANTHROPIC_API_KEY", "PYTHON_API_KEY"]
    ):
        monkeypatch.setenv(name, f"canary-{number}")
    monkeypatch.setenv("COMPUTING_KEY", "canary-4")

    async def work(executor: Executor) -> dict[str, Any]:
        await run(executor, Looking())
        actual = await facts(executor, Secretive(api_key="its own"))
        assert actual == {"key": "its own", "variable": "canary-4"}
        process = Path(f"/proc/{fork_server_of(executor)}")
        assert not {"canary", "PYTHONPATH"} & set(
            re.split(r"\W|_", (process / "environ").read_text())
        )
        assert (process / "oom_score_adj").read_text() == "1000\n"
        return await facts(executor, Looking())

    actual = with_executor(work)
    environment = actual["environment"]
    assert "canary" not in json.dumps(actual)
    assert (environment["PATH"], environment["PYTHONPATH"]) == (os.environ["PATH"], str(tmp_path))
    assert (environment["AGENTEVAL_ENABLED"], actual["nice"], actual["input"]) == ("false", 19, 0)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("reaped", [False, True])
def test_it_comes_back_when_all_of_it_is_killed(reaped: bool) -> None:
    """A killed fork server, even one that the host's own code reaps, costs the evaluation under way
    and no other.
    """

    async def work(executor: Executor) -> None:
        first = await facts(executor, Computing())
        pid = fork_server_of(executor)
        under_way = asyncio.ensure_future(outcome(executor, Computing(cpu_s=0.3)))
        os.kill(pid, signal.SIGKILL)
        if reaped:
            with contextlib.suppress(ChildProcessError):  # ours was quicker
                await asyncio.to_thread(os.waitpid, pid, 0)
        assert await under_way in ("crashed", "scored")
        assert (await facts(executor, Computing()))["pid"] != first["pid"]
        assert fork_server_of(executor) != pid

    with_executor(work)


def test_signals_of_a_group_do_not_end_it() -> None:
    async def work(executor: Executor) -> None:
        evaluator = Computing()
        first = await facts(executor, evaluator)
        pid = fork_server_of(executor)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
        assert (await facts(executor, evaluator), fork_server_of(executor)) == (first, pid)
        assert os.getpgid(pid) != os.getpgid(0)

    with_executor(work)


def test_a_cancelled_run_is_forgotten_and_the_end_is_prompt() -> None:
    async def work(executor: Executor) -> int:
        await run(executor, Computing())
        task = asyncio.ensure_future(run(executor, Troubled(timeout_s=60.0), "hang"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return fork_server_of(executor)

    pid = with_executor(work)
    for thread in threading.enumerate():
        if thread.name == "agenteval-supervisor":
            thread.join(10)
            assert not thread.is_alive()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_was_taken_is_delivered_after_the_end_was_asked_for() -> None:
    async def work(executor: Executor) -> list[Any]:
        await run(executor, Computing())
        under_way = asyncio.ensure_future(run(executor, Computing(cpu_s=0.2)))
        await asyncio.sleep(0)
        executor.close()
        return [(await under_way)[0].score, (await run(executor, Computing()))[0].score]

    assert with_executor(work) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("evaluator", "why"),
    [
        (Func.of(lambda _: 1.0, criterion_name="c", execution="process"), "<lambda> is not what"),
        (Func.of(partial(is_long), execution="process"), "no name to import it by"),
        (Fixed(action=lambda _: Score(value=1.0), execution="process"), "not in its dump"),
        (
            ToolUse(expectations=[{"name": "a", "argument_checks": bool}], execution="process"),
            "expectations[0].arg",
        ),
    ],
)
def test_what_cannot_be_made_again_stays(
    evaluator: Evaluator, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(executor: Executor) -> list[Any]:
        results = [*await run(executor, evaluator), *await run(executor, evaluator)]
        assert "not started" in repr(executor.supervisor)
        return [executor.state(evaluator).mode, *[result.status for result in results]]

    assert with_executor(work) == ["thread", "scored", "scored"]
    (line,) = [entry.message for entry in caplog.records]
    assert "evaluator_not_portable" in line
    assert why in line


PATIENCE_S = 30.0
PROGRAM = """
    import asyncio, atexit, os, sys
    sys.path[:0] = sys.argv[2:]
    from agenteval_otel.models import EvaluationInput
    from agenteval_otel.engine.execution import Executor
    from tests.testing.computing import Computing, Troubled
    from tests.testing.evaluations import evaluate

    async def one(evaluator, text="x"):
        return (await evaluate(executor, evaluator, EvaluationInput(response=text)))[0].metadata

    executor, evaluator = Executor(live=True), Computing()
    atexit.register(executor.leave)  # as a pipeline does
    worker = asyncio.run(one(evaluator))["pid"]
    fork_server = executor.supervisor.server.pid
    if sys.argv[1] == "fork":
        pid = os.fork()
        if pid == 0:
            own = asyncio.run(one(evaluator))["pid"]
            os._exit(0 if own != worker and executor.supervisor.server.pid != fork_server else 1)
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
    finished = run_program(
        PROGRAM, how, str(tmp_path), flags=("-W", "error"), AGENTEVAL_ENABLED="true"
    )
    assert (finished.code, finished.stderr) == (code, "")
    assert gone(*finished.lines("pids")[0].split())


CONFIGURING = """
    import asyncio
    from agenteval_otel.evaluators import Func
    from agenteval_otel.engine.execution import Executor
    from agenteval_otel.models import EvaluationInput
    from tests.testing.configuring import is_inert
    from tests.testing.evaluations import evaluate

    executor, evaluator = Executor(live=True), Func.of(is_inert, execution="process")
    (result,) = asyncio.run(evaluate(executor, evaluator, EvaluationInput(response="x")))
    executor.close()
    print("inert", result.score, executor.state(evaluator).mode, flush=True)
"""


def test_a_module_that_configures_does_nothing_there() -> None:
    finished = run_program(CONFIGURING)
    assert (finished.code, finished.lines("inert")) == (0, ["True process"])


def test_a_forked_host_has_a_child_of_its_own() -> None:
    finished = run_program(PROGRAM, "fork", flags=("-W", "error"))
    assert (finished.code, finished.stderr) == (0, "")
    assert (finished.lines("child"), finished.lines("same")) == (["0"], ["True"])
    assert gone(*finished.lines("pids")[0].split())


RUN = """
import asyncio
from agenteval_otel.engine.execution import Executor
from agenteval_otel.evaluators import Func
from agenteval_otel.models import EvaluationInput
from tests.testing.evaluations import evaluate

def is_there(evaluation_input):
    return True

if __name__ == "__main__":
    executor, evaluator = Executor(live=True), Func.of(is_there, execution="process")
    (result,) = asyncio.run(evaluate(executor, evaluator, EvaluationInput(response="x")))
    executor.close()
    print("ran", result.score, executor.state(evaluator).mode, flush=True)
"""


@pytest.mark.parametrize("file", ["run_it/__main__.py", "run_it.py"])
def test_a_package_or_module_that_is_run_evaluates_by_its_own_functions(
    file: str, tmp_path: Path
) -> None:
    """`python -m package`: by its name `multiprocessing` would not load it; `python -m module` it
    would.
    """
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(RUN)
    finished = run_program(
        "import runpy; runpy.run_module('run_it', run_name='__main__', alter_sys=True)",
        PYTHONPATH=str(tmp_path),
    )
    assert (finished.code, finished.lines("ran")) == (0, ["True process"]), finished.stderr
