"""The child process of the ``cpu`` lane: results as inline, nothing of the host's, one task's trouble is its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import Evaluator, Func, KeywordCoverage, ResponseHealth, RuleBased
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.engine import EvaluationRunner, Lanes
from agenteval_otel.engine.lanes import MAX_STUCK
from tests.testing.computing import Computing, Filling, Looking, Secretive, Troubled, is_long
from tests.testing.doubles import Fixed

BUILT_IN = [
    ResponseHealth(),
    KeywordCoverage(criterion_name="kw", expected_keywords=["paris", "rome"]),
    RuleBased.load({"rules": [
        {"criterionName": "Short", "config": {"type": "length", "max": 20}},
        {"criterionName": "Digits", "config": {"type": "regex", "pattern": "[0-9]+", "expectedOutcome": "match"}},
        {"criterionName": "Quoted", "sourceTextField": "context.text", "config": {"type": "includes", "keywords": ["a"],
         "expectedOutcome": "any"}},
    ]}),
]  # fmt: skip


def with_lanes(work: Any) -> Any:
    """What the work gives, with lanes as a pipeline has them."""

    async def run() -> Any:
        lanes = Lanes(live=True)
        try:
            return await work(lanes)
        finally:
            lanes.close()

    return asyncio.run(run())


def one(lanes: Lanes, evaluator: Evaluator, text: str = "text") -> Coroutine[Any, Any, list[EvaluationResult]]:
    return lanes.run(evaluator, "cpu", EvaluationInput(response=text), evaluator.criteria())


async def said(lanes: Lanes, evaluator: Evaluator, text: str) -> str:
    """The word of the failure, or ``scored``."""
    try:
        await one(lanes, evaluator, text)
    except EvaluationError as error:
        return error.error_type
    return "scored"


def template_of(lanes: Lanes) -> int:
    child = lanes._child
    assert child is not None
    assert child._template is not None
    return child._template._pid


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def reap(pid: int) -> None:
    """What hosts do that reap every child; only this one, or it would wait for others that do not end."""
    with contextlib.suppress(ChildProcessError):  # ours was quicker
        os.waitpid(pid, 0)


def comparable(results: list[EvaluationResult]) -> list[tuple[Any, ...]]:
    times = {"started_ns": None, "ended_ns": None}
    return [(result.model_copy(update=times), type(result.score), result.filler) for result in results]


def test_results_and_failures_are_those_of_an_inline_run() -> None:
    """Whatever built-in evaluators, functions and raising ones give for any input, the child process gives the same."""
    evaluators = [*BUILT_IN, Troubled(), Filling(criterion_name="filling"), Func.of(is_long, threshold=1)]
    words = ["exit", "value", "key", "skip", "word", "own", "unicode", "filler", "metadata", "any"]
    texts = st.sampled_from(words) | st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
    inputs = st.builds(
        EvaluationInput, response=texts, prompt=st.none() | texts,
        context=st.none() | st.dictionaries(st.sampled_from(["text", "x"]), texts | st.lists(st.integers() | texts)),
        error_type=st.none() | st.just("ValueError"), duration_s=st.none() | st.floats(0, 10),
    )  # fmt: skip
    loop, lanes = asyncio.new_event_loop(), Lanes(live=True)

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(given=inputs)
    def same(given: EvaluationInput) -> None:
        inline = EvaluationRunner(evaluators, lanes=Lanes())
        apart = EvaluationRunner(evaluators, lanes=lanes)
        apart._plan = [planned._replace(lane="cpu") for planned in apart._plan]
        expected, found = (loop.run_until_complete(runner.run(given)) for runner in (inline, apart))
        inline.lanes.close()
        assert comparable(found.results) == comparable(expected.results)
        assert found.errors == expected.errors

    try:
        same()
        assert all(lanes._records.of(evaluator).stays is None for evaluator in evaluators)
    finally:
        lanes.close()
        loop.close()


def test_it_runs_in_another_process_that_is_started_once() -> None:
    """Nothing is started before the first evaluation; all of them run in one other process, with text of any size."""

    async def work(lanes: Lanes) -> None:
        assert "not started" in repr(lanes._child)
        evaluator = Computing(cpu_s=0.001)
        found = await asyncio.gather(*(one(lanes, evaluator, "x" * size) for size in (0, 1, 1 << 20, 5)))
        facts = [results[0].metadata or {} for results in found]
        assert [fact["length"] for fact in facts] == [0, 1, 1 << 20, 5]
        assert len({fact["pid"] for fact in facts}) == 1
        assert facts[0]["pid"] not in (os.getpid(), template_of(lanes))
        assert lanes.cpu_s > 0.004

    with_lanes(work)


def test_nothing_of_the_host_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the lowest priority, no input, the usual variables only, and does not evaluate the handlers it calls."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer canary-1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-2")
    monkeypatch.setenv("PYTHON_API_KEY", "canary-3")
    monkeypatch.setenv("COMPUTING_KEY", "canary-4")

    async def work(lanes: Lanes) -> dict[str, Any]:
        secretive = Secretive(api_key="its own")
        await one(lanes, Looking())
        (result,) = await one(lanes, secretive)
        assert result.metadata == {"key": "its own", "variable": "canary-4"}
        (result,) = await one(lanes, Looking())
        assert "canary" not in environment_of(template_of(lanes))
        return result.metadata or {}

    facts = with_lanes(work)
    assert "canary" not in json.dumps(facts)
    assert facts["environment"]["PATH"] == os.environ["PATH"]
    assert facts["environment"]["AGENTEVAL_ENABLED"] == "false"
    assert facts["nice"] == 19
    assert facts["input"] == 0


def test_one_tasks_end_is_its_own() -> None:
    """Of a batch with a crash, an exit and an endless loop in it just these fail; the others run in the next worker."""

    async def work(lanes: Lanes) -> None:
        troubles = {7: ("segfault", "crashed"), 20: ("_exit", "crashed"), 33: ("hang", "timeout")}
        evaluators = [Troubled(criterion_name=f"t{number}", timeout_s=0.5) for number in range(40)]
        words = await asyncio.gather(*(
            said(lanes, evaluator, troubles.get(number, ("fine", ""))[0]) for number, evaluator in enumerate(evaluators)
        ))  # fmt: skip
        assert words == [troubles.get(number, ("", "scored"))[1] for number in range(40)]

    with_lanes(work)


def test_who_ends_its_process_is_quarantined(caplog: pytest.LogCaptureFixture) -> None:
    """After three crashes an evaluator fails at once, which is said once; the process that is there stays."""

    async def work(lanes: Lanes) -> None:
        bad, good = Troubled(criterion_name="bad"), Computing()
        words = [await said(lanes, bad, "segfault") for _ in range(MAX_STUCK + 2)]
        assert words == ["crashed"] * MAX_STUCK + ["quarantined"] * 2
        assert await said(lanes, bad, "fine") == "quarantined"
        assert await said(lanes, good, "x") == "scored"

    with_lanes(work)
    (line,) = [entry.message for entry in caplog.records]
    assert "evaluator_quarantined" in line
    assert "Troubled:bad" in line


@pytest.mark.parametrize("reaped", [False, True])
def test_it_comes_back_when_all_of_it_is_killed(reaped: bool) -> None:
    """When the whole child is killed, and even reaped by the host's own code, the next evaluation has another one."""

    async def work(lanes: Lanes) -> None:
        (first,) = await one(lanes, Computing())
        pid = template_of(lanes)
        under_way = asyncio.ensure_future(one(lanes, Computing(cpu_s=0.3)))
        os.kill(pid, signal.SIGKILL)
        if reaped:
            await asyncio.to_thread(reap, pid)
        (second,) = await under_way
        assert (first.metadata or {})["pid"] != (second.metadata or {})["pid"]
        assert template_of(lanes) != pid

    with_lanes(work)


def test_signals_of_a_group_do_not_end_it() -> None:
    """An interrupt at the terminal or a service's SIGTERM is the host's to act on."""

    async def work(lanes: Lanes) -> None:
        evaluator = Computing()
        (first,) = await one(lanes, evaluator)
        pid = template_of(lanes)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
        (second,) = await one(lanes, evaluator)
        assert (template_of(lanes), (first.metadata or {})["pid"]) == (pid, (second.metadata or {})["pid"])
        assert os.getpgid(pid) != os.getpgid(0)

    with_lanes(work)


def test_a_cancelled_run_is_forgotten_and_the_end_is_prompt() -> None:
    """Nobody waits for an evaluation whose run was cancelled: closing ends thread and child at once."""

    async def work(lanes: Lanes) -> int:
        await one(lanes, Computing())
        task = asyncio.ensure_future(one(lanes, Troubled(timeout_s=60.0), "hang"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return template_of(lanes)

    others = set(threading.enumerate())
    pid = with_lanes(work)
    for thread in set(threading.enumerate()) - others:
        if thread.name == "agenteval-child":
            thread.join(10)
            assert not thread.is_alive()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_was_taken_is_delivered_after_the_end_was_asked_for() -> None:
    """Evaluations under way when the lanes are closed come to their end, and late ones are done too."""

    async def work(lanes: Lanes) -> list[Any]:
        await one(lanes, Computing())
        under_way = asyncio.ensure_future(one(lanes, Computing(cpu_s=0.2)))
        await asyncio.sleep(0)
        lanes.close()
        return [(await under_way)[0].score, (await one(lanes, Computing()))[0].score]

    assert with_lanes(work) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("evaluator", "why"),
    [
        (Func.of(lambda _: 1.0, criterion_name="c"), "<lambda> is not what"),
        (Func.of(functools.partial(is_long)), "no name to import it by"),
        (Fixed(action=lambda _: 1.0), "expected a Score"),
    ],
)
def test_what_cannot_be_made_again_stays(evaluator: Evaluator, why: str) -> None:
    """A lambda, a partial function or a field outside of the dump keeps an evaluator in this process, on a thread."""

    async def work(lanes: Lanes) -> str:
        try:
            await one(lanes, evaluator)
        except EvaluationError as error:
            return str(error)
        return str(lanes._records.of(evaluator).stays)

    assert why in with_lanes(work)


def test_without_a_python_it_is_a_thread(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where the running program is no Python, or starts none, evaluations run on a thread, and the log says so."""

    async def work(lanes: Lanes) -> list[int]:
        found = [await one(lanes, Computing()) for _ in range(3)]
        return [(results[0].metadata or {})["pid"] for results in found]

    monkeypatch.setattr("sys.executable", "/usr/bin/uwsgi")
    monkeypatch.setattr("sys.exec_prefix", "/nowhere")
    monkeypatch.setattr("sys.base_exec_prefix", "/nowhere")
    assert with_lanes(work) == [os.getpid()] * 3
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert with_lanes(work) == [os.getpid()] * 3
    lines = [entry.message for entry in caplog.records]
    assert {line.partition(" said=")[0] for line in lines} == {"event='child_unavailable'"}
