"""The child process when something is short: nothing is lost, nobody is blamed for it, and it comes back."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.dispatch.own import OwnThread
from agenteval_otel.errors import EvaluationError
from agenteval_otel.models import EvaluationInput, ToolCall
from agenteval_otel.engine import Lanes
from agenteval_otel.engine.child import Child, Job, Unavailable, client
from agenteval_otel.engine.child.answers import was_cut_short
from agenteval_otel.engine.child.conversation import Conversation
from agenteval_otel.engine.child.process import _python
from agenteval_otel.engine.child.recipes import with_environment
from tests.runner.support import INPUT, Starting
from tests.runner.test_child import environment_of, one, template_of, with_lanes
from tests.testing.computing import Computing, Looking


def job_of(evaluator: int = 1) -> Job:
    return Job(evaluator, lambda: b"{}", (INPUT, ()), 1.0)


async def place(lanes: Lanes) -> int:
    """The process in which an evaluation runs."""
    return (await one(lanes, Computing()))[0].metadata["pid"]  # type: ignore[index,no-any-return]


def no_more(*_: Any) -> Any:
    raise OSError(24, "Too many open files")


class NoThread(OwnThread):
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


@pytest.mark.parametrize("broken", [False, True])
def test_what_comes_while_the_thread_goes_to_sleep_wakes_it(broken: bool) -> None:
    """A job that is submitted after the thread looked, and before it waits, is seen at once and not in an hour."""

    class Racing(Child):
        @property
        def waiting(self) -> int:
            self._jobs.extend(jobs)
            self.wake()
            return 0

    async def race() -> None:
        jobs.append(job_of())
        child._wait(wake, time.monotonic())

    jobs: list[Job] = []
    child, wake = Racing(lambda _: None), pipe()
    child._wake, child.broken = wake, broken
    asyncio.run(race())
    assert len(child._jobs) == 1
    child._jobs.clear()
    for end in wake:
        os.close(end)


@pytest.mark.parametrize("what", ["pipe", "thread"])
def test_without_a_pipe_or_a_thread_it_is_the_lanes_thread(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the child's thread cannot begin, this evaluation runs here, and the next one tries again."""

    async def work(lanes: Lanes) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(*(os, "pipe", no_more) if what == "pipe" else (client, "OwnThread", NoThread))
            assert await place(lanes) == os.getpid()
            assert lanes._child is not None
            assert lanes._child.waiting == 0
        assert await place(lanes) != os.getpid()

    with_lanes(work)


@pytest.mark.parametrize("taken", [False, True])
def test_only_the_job_that_found_no_thread_is_given_back(taken: bool) -> None:
    """Other loops' jobs stay; one that another loop's thread took meanwhile is in good hands."""

    class Failing(Child):
        def _start(self) -> None:
            if taken:
                self._jobs.pop()
            raise OSError(24, "Too many open files")

    async def submit() -> bool:
        other = job_of()
        child._jobs.append(other)
        try:
            child.submit(job_of())
        except Unavailable:
            return False
        finally:
            assert list(child._jobs) == [other]
        return True

    child = Failing(lambda _: None)
    assert asyncio.run(submit()) is taken


def test_a_process_that_cannot_be_started_now_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Meanwhile evaluations run here without waiting, and the log says so once; after the pause there is a child."""

    async def work(lanes: Lanes) -> None:
        child = lanes._child
        assert child is not None
        with monkeypatch.context() as patch:
            patch.setattr(client, "Template", no_more)
            for _ in range(4):
                assert await place(lanes) == os.getpid()
                child._not_before = 0.0
        assert not child.broken
        assert await place(lanes) != os.getpid()

    with_lanes(work)
    (line,) = [entry.message for entry in caplog.records]
    assert "child_unavailable" in line


@pytest.mark.parametrize(("loading", "blamed"), [([], False), ([1], True)])
def test_only_who_was_being_loaded_is_to_blame(loading: list[int], blamed: bool) -> None:
    """What died with three templates has failed; it counts towards quarantine where its own module was imported."""

    async def die() -> list[bytes | Exception]:
        talk = Conversation()
        talk._loading, talk.under_way[7] = loading, job_of()
        return [answer for _ in range(3) for _, answer in talk.blame()]

    (answer,) = asyncio.run(die())
    assert isinstance(answer, bytes)
    assert was_cut_short(answer) is blamed


def test_an_input_that_cannot_be_read_there_is_nobodys_fault() -> None:
    """Nested deeper than JSON may be, it fails the evaluation alone: the worker stays, and no strike is counted."""
    nested: Any = 1
    for _ in range(220):
        nested = [nested]
    deep = EvaluationInput(response="x", tool_calls=[ToolCall(name="f", arguments=nested)])

    async def work(lanes: Lanes) -> None:
        evaluator = Computing()
        before = (await one(lanes, evaluator))[0].metadata
        with pytest.raises(EvaluationError, match="cannot read its input"):
            await lanes.run(evaluator, "cpu", deep, evaluator.criteria())
        assert (await one(lanes, evaluator))[0].metadata == before
        assert lanes._records.of(evaluator).stuck == 0

    with_lanes(work)


def test_an_evaluator_ends_what_it_started() -> None:
    """The worker does not act on a group's signals, but what its evaluators start does."""

    async def work(lanes: Lanes) -> Any:
        return (await one(lanes, Starting()))[0].score

    assert with_lanes(work) is True


@pytest.mark.skipif(not os.path.exists("/proc/self/oom_score_adj"), reason="Linux only")
def test_the_kernel_takes_it_before_the_host() -> None:
    """When memory runs out, the worker goes first, and then the template."""

    def points(pid: int) -> str:
        return Path(f"/proc/{pid}/oom_score_adj").read_text().strip()

    async def work(lanes: Lanes) -> list[str]:
        worker = await place(lanes)
        return [points(worker), points(template_of(lanes))]

    assert with_lanes(work) == ["1000", "900"]


def test_no_sitecustomize_of_the_hosts_runs_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What stands on PYTHONPATH does not run when it boots; programs that evaluators start have the variable again."""
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def work(lanes: Lanes) -> Any:
        (result,) = await one(lanes, Looking())
        assert "PYTHONPATH" not in environment_of(template_of(lanes))
        return (result.metadata or {})["environment"]["PYTHONPATH"]

    assert with_lanes(work) == str(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["uwsgi_python3", "mypythonapp", "python3.11.real"])
def test_only_a_python_is_started(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with ``python`` in its name is none, and a frozen one has no modules for another Python."""
    assert _python()
    monkeypatch.setattr("sys.executable", f"/usr/bin/{name}")
    monkeypatch.setattr("sys.exec_prefix", "/nowhere")
    monkeypatch.setattr("sys.base_exec_prefix", "/nowhere")
    with pytest.raises(Unavailable, match="no Python"):
        _python()
    monkeypatch.setattr("sys.executable", "/usr/bin/python3.11")
    assert _python() == "/usr/bin/python3.11"
    monkeypatch.setattr("sys.frozen", True, raising=False)
    with pytest.raises(Unavailable, match="frozen"):
        _python()


def test_variables_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluator that asks for a variable that was there does not take it from the others."""
    monkeypatch.setenv("COMPUTING_OLD", "old")
    with with_environment({"COMPUTING_OLD": "its own", "COMPUTING_NEW": "new"}):
        assert (os.environ["COMPUTING_OLD"], os.environ["COMPUTING_NEW"]) == ("its own", "new")
    assert os.environ["COMPUTING_OLD"] == "old"
    assert "COMPUTING_NEW" not in os.environ
