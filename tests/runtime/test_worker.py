"""The background worker: jobs in order on one thread, bounded, ended within a limit, begun anew in
a forked child.
"""

from __future__ import annotations

import contextvars
import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from agenteval_otel.runtime.worker import Flusher, Worker
from tests.promises.programs import run_program, together

HANG_S = 30.0


@pytest.fixture
def release() -> threading.Event:
    return threading.Event()


def holding(worker: Worker, release: threading.Event) -> None:
    entered = threading.Event()
    assert worker.submit(lambda: (entered.set(), release.wait(HANG_S)))
    assert entered.wait(HANG_S)


def test_jobs_run_in_order_on_one_thread() -> None:
    worker = Worker("jobs", max_waiting=100)
    assert not worker.has_thread
    ran: list[tuple[int, str, bool]] = []

    def job(number: int) -> Callable[[], None]:
        return lambda: ran.append(
            (number, threading.current_thread().name, threading.current_thread().daemon)
        )

    assert all(worker.submit(job(number)) for number in range(50))
    assert worker.close(HANG_S)
    assert ran == [(number, "jobs", True) for number in range(50)]
    assert worker.close(0.0)  # there is no thread to end


def test_what_it_does_not_take_is_counted(
    release: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    worker, ran = Worker("full", max_waiting=3), list[int]()
    holding(worker, release)
    taken = [worker.submit(lambda number=number: ran.append(number)) for number in range(10)]  # type: ignore[misc]
    assert (taken, worker.waiting) == ([True] * 3 + [False] * 7, 3)
    assert not worker.submit(lambda: None)
    assert sum("worker_full" in record.getMessage() for record in caplog.records) == 1
    release.set()
    assert worker.close(HANG_S)
    assert (ran, worker.waiting) == ([0, 1, 2], 0)


@pytest.mark.parametrize("error", [ValueError("private text"), SystemExit(1), KeyboardInterrupt()])
def test_an_error_ends_only_its_job(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    worker, threads = (
        Worker(f"failing {type(error).__name__}", max_waiting=10),
        list[threading.Thread](),
    )

    def fail() -> None:
        threads.append(threading.current_thread())
        raise error

    worker.submit(fail)
    worker.submit(lambda: threads.append(threading.current_thread()))
    assert worker.close(HANG_S)
    assert len(threads) == 2
    assert threads[0] is threads[1]
    assert (
        f"event='job_failed' part='{worker.name}' error_type='{type(error).__name__}'"
        in caplog.text
    )
    assert "private text" not in caplog.text


def test_closing_keeps_its_limit(release: threading.Event) -> None:
    worker, ran = Worker("jobs", max_waiting=10), list[int]()
    holding(worker, release)
    worker.submit(lambda: ran.append(1))
    assert not worker.close(0.0)
    assert worker.has_thread
    release.set()
    assert worker.close(HANG_S)
    assert (ran, worker.has_thread) == ([1], False)
    worker.submit(lambda: ran.append(2))  # the next job starts another thread
    assert worker.close(HANG_S)
    assert ran == [1, 2]


def test_several_threads_run_jobs_side_by_side(release: threading.Event) -> None:
    worker = Worker("jobs", max_waiting=10, idle_s=HANG_S, max_threads=3)
    ran, threads = threading.Semaphore(0), set[threading.Thread]()
    for _ in range(2):
        holding(worker, release)
    for _ in range(20):  # one after the other: the third thread is enough
        worker.submit(lambda: (threads.add(threading.current_thread()), ran.release()))
        assert ran.acquire(timeout=HANG_S)
    assert len(threads) == 1
    holding(worker, release)
    worker.submit(ran.release)
    assert worker.waiting == 1
    assert not worker.close(0.0)
    release.set()
    assert worker.close(HANG_S)
    assert ran.acquire(timeout=HANG_S)
    assert not worker.has_thread


def test_an_idle_thread_ends() -> None:
    idle, threads, ran = list[threading.Thread](), list[threading.Thread](), threading.Event()
    worker = Worker(
        "jobs", max_waiting=1, idle_s=0.0, on_idle=lambda: idle.append(threading.current_thread())
    )
    worker.submit(lambda: (threads.append(threading.current_thread()), ran.set()))
    assert ran.wait(HANG_S)
    threads[0].join(HANG_S)
    assert not worker.has_thread
    assert idle[-1] is threads[0]


def test_a_thread_that_stays_calls_again_and_again() -> None:
    """Also after an error, until it is closed; the jobs run in between."""
    called, calls = threading.Semaphore(0), list[threading.Thread]()

    def on_idle() -> None:
        calls.append(threading.current_thread())
        called.release()
        raise ValueError

    worker = Worker("periodic", max_waiting=1, idle_s=0.0, on_idle=on_idle, stays=True)
    worker.start()
    ran = threading.Event()
    assert all(called.acquire(timeout=HANG_S) for _ in range(3))
    assert worker.submit(ran.set)
    assert ran.wait(HANG_S)
    assert worker.close(HANG_S)
    assert len(set(calls)) == 1


def test_nothing_of_a_job_or_of_its_caller_is_kept(release: threading.Event) -> None:
    class Held:
        """Something of the caller's."""

    variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable", default=None)
    worker, ran, seen = (
        Worker("jobs", max_waiting=10, stays=True),
        threading.Event(),
        list[object](),
    )
    stack = Held()
    gone = weakref.ref(stack)
    variable.set(stack)
    worker.submit(lambda stack=stack: seen.append(variable.get()))  # type: ignore[misc]
    variable.set(None)
    del stack
    worker.submit(ran.set)
    assert ran.wait(HANG_S)
    gc.collect()
    assert (gone(), seen) == (None, [None])
    assert worker.close(HANG_S)


def test_a_signal_handler_may_submit_and_close_while_the_thread_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is one thread, and both jobs run; on the thread that starts it a close cannot wait, and
    raises nothing.
    """
    worker, ran, closed = Worker("jobs", max_waiting=10), list[threading.Thread](), list[bool]()
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        worker.submit(lambda: ran.append(threading.current_thread()))
        closed.append(worker.close(0.0))
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        worker.submit(lambda: ran.append(threading.current_thread()))
    assert worker.close(HANG_S)
    assert closed == [False]
    assert len(ran) == 2


def test_jobs_of_many_threads_run_one_at_a_time_and_none_is_lost() -> None:
    worker = Worker("jobs", max_waiting=100, idle_s=0.0)
    ran: list[int] = []
    taken: list[bool] = []
    working = threading.Lock()

    def job() -> None:
        assert working.acquire(blocking=False)
        ran.append(1)
        working.release()

    together([lambda: taken.extend(worker.submit(job) for _ in range(500))] * 4)
    assert worker.close(HANG_S)
    assert len(ran) == sum(taken)
    assert len(taken) == 2_000


FORKED = """
    import os, threading
    from agenteval_otel.runtime.worker import Worker

    worker, entered, release, ran = Worker("jobs", max_waiting=2), threading.Event(), threading.Event(), []
    worker.submit(lambda: (entered.set(), release.wait(30)))
    assert entered.wait(30)
    worker.submit(lambda: ran.append("of the parent"))
    with worker._lock:  # another thread of the parent's is just submitting
        pid = os.fork()
    if not pid:
        taken = [worker.submit(lambda: ran.append("of the child")) for _ in range(2)]
        os._exit(0 if worker.close(30) and all(taken) and ran == ["of the child"] * 2 else 1)
    _, status = os.waitpid(pid, 0)
    release.set()
    print("child", os.waitstatus_to_exitcode(status))
    print("parent", worker.close(30), *ran)
"""


def test_a_forked_child_begins_anew() -> None:
    finished = run_program(FORKED)
    assert finished.code == 0, finished.stderr
    assert finished.lines("child") == ["0"]
    assert finished.lines("parent") == ["True of the parent"]


# --- a flush in a thread of its own
# -----------------------------------------------------------------------------------


def test_each_thread_that_flushes_gets_its_own_result() -> None:
    """Flushes that overlap do not spoil each other's result."""
    calls, results = list[int](), list[bool]()
    flusher = Flusher(lambda: calls.append(1) is None)
    for _ in range(20):
        together([lambda: results.append(flusher.flush(HANG_S))] * 4)
    assert (results, len(calls)) == ([True] * 80, 80)


def test_a_flush_that_fails_or_hangs_is_none(release: threading.Event) -> None:
    def fail() -> bool:
        raise OSError

    assert not Flusher(fail).flush(HANG_S)
    assert not Flusher(lambda: False).flush(HANG_S)
    flusher = Flusher(lambda: release.wait(HANG_S))
    assert not flusher.flush(0.05)
    assert not flusher.flush(0.05)  # it waits for the first
    release.set()
    assert flusher.flush(HANG_S)
