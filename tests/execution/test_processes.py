"""The worker process: results as inline, nothing of the host's, the trouble of one evaluation is its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.engine.run import EvaluationRunner
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import Evaluator, Func, KeywordCoverage, ResponseHealth, RuleBased
from agenteval_otel.execution import Executor
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score
from tests.execution.support import with_executor as with_any_executor
from tests.testing.computing import Computing, Filling, Looking, Secretive, Troubled, is_long
from tests.testing.doubles import Fixed
from tests.testing.evaluations import evaluate

BUILT_IN = [
    ResponseHealth(),
    KeywordCoverage(criterion_name="kw", expected_keywords=["paris", "rome"]),
    RuleBased.load({"rules": [
        {"criterion": "Short", "type": "length", "max": 20},
        {"criterion": "Digits", "type": "regex", "pattern": "[0-9]+", "expectedOutcome": "match"},
        {"criterion": "Quoted", "sourceTextField": "context.text", "type": "includes", "keywords": ["a"],
         "expectedOutcome": "any"},
    ]}),
]  # fmt: skip


with_executor = partial(with_any_executor, live=True)


def one(executor: Executor, evaluator: Evaluator, text: str = "text") -> Coroutine[Any, Any, list[EvaluationResult]]:
    return evaluate(executor, evaluator, EvaluationInput(response=text))


async def failure_or_scored(executor: Executor, evaluator: Evaluator, text: str) -> str:
    """The word of the failure, or ``scored``."""
    try:
        await one(executor, evaluator, text)
    except EvaluationError as error:
        return error.error_type
    return "scored"


def fork_server_of(executor: Executor) -> int:
    supervisor = executor._supervisor
    assert supervisor is not None
    assert supervisor.server is not None
    return supervisor.server.pid


def file_of(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def reap(pid: int) -> None:
    """What hosts do that reap every child; only this one, or it would wait for others that do not end."""
    with contextlib.suppress(ChildProcessError):  # ours was quicker
        os.waitpid(pid, 0)


def comparable(results: list[EvaluationResult]) -> list[tuple[Any, ...]]:
    times = {"started_ns": None, "ended_ns": None}
    return [(result.model_copy(update=times), type(result.score), result.filler) for result in results]


def test_results_and_failures_are_those_of_an_inline_run() -> None:
    """Whatever built-in evaluators, functions and raising ones give for any input, a worker process gives the same."""
    evaluators: list[Evaluator] = [
        *BUILT_IN, Troubled(), Filling(criterion_name="filling"), Func.of(is_long, threshold=1),
    ]  # fmt: skip
    apart = [evaluator.model_copy(update={"execution": "process"}) for evaluator in evaluators]
    evaluators = [evaluator.model_copy(update={"execution": "thread"}) for evaluator in evaluators]
    words = ["exit", "value", "key", "skip", "word", "own", "unicode", "filler", "metadata", "any"]
    texts = st.sampled_from(words) | st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
    inputs = st.builds(
        EvaluationInput, response=texts, prompt=st.none() | texts,
        context=st.none() | st.dictionaries(st.sampled_from(["text", "x"]), texts | st.lists(st.integers() | texts)),
        error_type=st.none() | st.just("ValueError"), duration_s=st.none() | st.floats(0, 10),
    )  # fmt: skip
    loop, executor = asyncio.new_event_loop(), Executor(live=True)

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(given=inputs)
    def same(given: EvaluationInput) -> None:
        runners = EvaluationRunner(evaluators, executor=executor), EvaluationRunner(apart, executor=executor)
        expected, actual = (loop.run_until_complete(runner.run(given)) for runner in runners)
        assert comparable(actual.results) == comparable(expected.results)
        assert actual.errors == expected.errors

    try:
        same()
        assert {executor.mode(evaluator) for evaluator in apart} == {"process"}
    finally:
        executor.close()
        loop.close()


def test_it_runs_in_another_process_that_is_started_once() -> None:
    """Nothing is started before the first evaluation; all of them run in one other process, with text of any size."""

    async def work(executor: Executor) -> None:
        assert "not started" in repr(executor._supervisor)
        evaluator = Computing(cpu_s=0.001)
        actual = await asyncio.gather(*(one(executor, evaluator, "x" * size) for size in (0, 1, 1 << 20, 5)))
        facts = [results[0].metadata or {} for results in actual]
        assert [fact["length"] for fact in facts] == [0, 1, 1 << 20, 5]
        assert len({fact["pid"] for fact in facts}) == 1
        assert facts[0]["pid"] not in (os.getpid(), fork_server_of(executor))

    with_executor(work)


def test_nothing_of_the_host_goes_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has the lowest priority, no input, the usual variables only, and does not evaluate the handlers it calls.

    No `sitecustomize` of the host's runs there, and on Linux the kernel ends it before the host.
    """
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for number, name in enumerate(["OTEL_EXPORTER_OTLP_HEADERS", "ANTHROPIC_API_KEY", "PYTHON_API_KEY"]):
        monkeypatch.setenv(name, f"canary-{number}")
    monkeypatch.setenv("COMPUTING_KEY", "canary-4")

    async def work(executor: Executor) -> dict[str, Any]:
        await one(executor, Looking())
        (result,) = await one(executor, Secretive(api_key="its own"))
        assert result.metadata == {"key": "its own", "variable": "canary-4"}
        (result,) = await one(executor, Looking())
        pid = fork_server_of(executor)
        assert not {"canary", "PYTHONPATH"} & set(re.split(r"\W|_", file_of(pid, "environ")))
        if sys.platform == "linux":
            assert file_of(pid, "oom_score_adj").strip() == "1000"
        return result.metadata or {}

    facts = with_executor(work)
    assert "canary" not in json.dumps(facts)
    assert facts["environment"]["PATH"] == os.environ["PATH"]
    assert facts["environment"]["PYTHONPATH"] == str(tmp_path)
    assert facts["environment"]["AGENTEVAL_ENABLED"] == "false"
    assert (facts["nice"], facts["input"]) == (19, 0)
    assert not (tmp_path / "ran").exists()


def test_the_end_of_one_evaluation_is_its_own() -> None:
    """Of a batch with a crash, an exit and an endless loop in it just these fail; the others run in the next worker."""

    async def work(executor: Executor) -> None:
        problems = {7: ("segfault", "crashed"), 20: ("_exit", "crashed"), 33: ("hang", "timeout")}
        evaluators = [Troubled(criterion_name=f"t{number}", timeout_s=3.0) for number in range(40)]
        words = await asyncio.gather(*(
            failure_or_scored(executor, evaluator, problems.get(number, ("fine", ""))[0])
            for number, evaluator in enumerate(evaluators)
        ))  # fmt: skip
        assert words == [problems.get(number, ("", "scored"))[1] for number in range(40)]

    with_executor(work)


@pytest.mark.parametrize("reaped", [False, True])
def test_it_comes_back_when_all_of_it_is_killed(reaped: bool) -> None:
    """A killed fork server, even one that the host's own code reaps, costs the evaluation under way and no other."""

    async def work(executor: Executor) -> None:
        (first,) = await one(executor, Computing())
        pid = fork_server_of(executor)
        under_way = asyncio.ensure_future(failure_or_scored(executor, Computing(cpu_s=0.3), "text"))
        os.kill(pid, signal.SIGKILL)
        if reaped:
            await asyncio.to_thread(reap, pid)
        assert await under_way in ("crashed", "scored")
        (second,) = await one(executor, Computing())
        assert (first.metadata or {})["pid"] != (second.metadata or {})["pid"]
        assert fork_server_of(executor) != pid

    with_executor(work)


def test_signals_of_a_group_do_not_end_it() -> None:
    """An interrupt at the terminal or a service's SIGTERM is the host's to act on."""

    async def work(executor: Executor) -> None:
        evaluator = Computing()
        (first,) = await one(executor, evaluator)
        pid = fork_server_of(executor)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
        (second,) = await one(executor, evaluator)
        assert (fork_server_of(executor), (first.metadata or {})["pid"]) == (pid, (second.metadata or {})["pid"])
        assert os.getpgid(pid) != os.getpgid(0)

    with_executor(work)


def test_a_cancelled_run_is_forgotten_and_the_end_is_prompt() -> None:
    """Nobody waits for an evaluation whose run was cancelled: closing ends the processes at once."""

    async def work(executor: Executor) -> int:
        await one(executor, Computing())
        task = asyncio.ensure_future(one(executor, Troubled(timeout_s=60.0), "hang"))
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
    """Evaluations under way when the executor is closed come to their end, and late ones are done too."""

    async def work(executor: Executor) -> list[Any]:
        await one(executor, Computing())
        under_way = asyncio.ensure_future(one(executor, Computing(cpu_s=0.2)))
        await asyncio.sleep(0)
        executor.close()
        return [(await under_way)[0].score, (await one(executor, Computing()))[0].score]

    assert with_executor(work) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("evaluator", "why"),
    [
        (Func.of(lambda _: 1.0, criterion_name="c", execution="process"), "<lambda> is not what"),
        (Func.of(partial(is_long), execution="process"), "no name to import it by"),
        (Fixed(action=lambda _: Score(value=1.0), execution="process"), "not in its dump"),
    ],
)
def test_what_cannot_be_made_again_stays(evaluator: Evaluator, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """A lambda, a partial function or a field outside of the dump keeps an evaluator in this process, on a thread."""

    async def work(executor: Executor) -> list[Any]:
        results = [*await one(executor, evaluator), *await one(executor, evaluator)]
        assert "not started" in repr(executor._supervisor)
        return [executor.mode(evaluator), *[result.status for result in results]]

    assert with_executor(work) == ["thread", "scored", "scored"]
    (line,) = [entry.message for entry in caplog.records]
    assert "evaluator_not_portable" in line
    assert why in line


@pytest.mark.parametrize("name", ["/usr/bin/uwsgi_python3", "mypythonapp", "python3.11.real", "/nowhere/python"])
def test_without_a_python_it_is_a_thread(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the running program is no Python, or starts none, evaluations run on a thread, and the log says so."""

    async def work(executor: Executor) -> list[int]:
        actual = [await one(executor, Computing()) for _ in range(2)]
        return [(results[0].metadata or {})["pid"] for results in actual]

    monkeypatch.setattr("sys.executable", name)
    monkeypatch.setattr("sys.exec_prefix", "/nowhere")
    monkeypatch.setattr("sys.base_exec_prefix", "/nowhere")
    assert with_executor(work) == [os.getpid()] * 2
    (line,) = [entry.message for entry in caplog.records]
    assert "worker_process_unavailable" in line
