"""Process exit: deliver what is pending, within a time limit."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import sys
import threading
import time
import weakref
from typing import Any

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log

EXIT_TIMEOUT_S = 2.0

LIVE: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""The pipelines of this process, by their ids."""


def living() -> list[Any]:
    """Return everything in `LIVE`, also while another thread adds to it."""
    pipelines: list[Any] = []
    for reference in LIVE.valuerefs():
        pipeline = reference()
        if pipeline is not None:
            pipelines.append(pipeline)
    return pipelines


WATCHED: list[bool] = []
"""Not empty once the exit is watched: from the first answer on, when the application's providers
are set up.
"""
_elsewhere: list[bool] = []
"""One entry for each answer that ended before one on the main thread, which alone may set signals."""
_MOST_ELSEWHERE = 256
reset_in_child(WATCHED.clear)
reset_in_child(_elsewhere.clear)


def watch_answer() -> None:
    """Watch the exit from the first answer on, and SIGTERM from the first on the main thread.

    It is called for each answer until `WATCHED`.
    """
    if not _elsewhere:
        watch_exit()
    if threading.current_thread() is threading.main_thread():
        WATCHED.append(True)
        if _wanted[0]:
            handle_sigterm(True)
        return
    _elsewhere.append(True)
    if len(_elsewhere) >= _MOST_ELSEWHERE:  # such as those of a server with threads: all of them
        WATCHED.append(True)


def watch_exit() -> None:
    """Register, or do so anew.

    Exit handlers run last in, first out, and ours runs before those of the application.
    """
    if _ENDING:
        return  # they are running: a list that is walked is not changed
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    for finalizer in _FINALIZERS:
        finalizer.cancel()
    _FINALIZERS.clear()
    # Children of multiprocessing, and of Celery's fork of it, end without exit handlers, but run
    # their finalizers.
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        _finalize_with(sys.modules["multiprocessing.util"])
    processes = sys.modules.get("billiard.process")
    if processes is not None and type(processes.current_process()).__name__ != "_MainProcess":
        _finalize_with(sys.modules["billiard.util"])
        _watch_pool_worker(processes.current_process())


def _finalize_with(util: Any) -> None:
    _FINALIZERS.append(util.Finalize(None, _at_exit, exitpriority=100))


def _watch_pool_worker(process: object) -> None:
    """Deliver before a child of billiard's pool ends.

    It ends by `os._exit`, with no finalizer, after its `on_exit`. Celery runs its tasks in such
    children.
    """
    pool = sys.modules.get("billiard.pool")
    worker = getattr(process, "_target", None)
    if pool is None or not isinstance(worker, pool.Worker) or worker in _POOL_WORKERS:
        return
    _POOL_WORKERS.append(worker)
    before = worker.on_exit

    def on_exit(pid: int, exitcode: int) -> None:
        try:
            _at_exit()
        finally:
            if before is not None:
                before(pid, exitcode)

    worker.on_exit = on_exit


_ENDING: list[bool] = []
_FINALIZERS: list[Any] = []
_POOL_WORKERS: list[Any] = []
reset_in_child(_ENDING.clear)
reset_in_child(_FINALIZERS.clear)
reset_in_child(_POOL_WORKERS.clear)


def _at_exit() -> None:
    """Deliver what is pending, within the longest `shutdown_timeout_s`, whatever hangs."""
    _ENDING.append(True)
    _deliver(last=True)
    for pipeline in living():
        pipeline.executor.leave()


def _deliver(*, last: bool) -> None:
    pipelines = living()
    deadline = time.monotonic() + max(
        (pipeline.shutdown_timeout_s for pipeline in pipelines), default=0.0
    )
    for pipeline in pipelines:
        try:
            left_s = max(0.0, deadline - time.monotonic())
            pipeline.shutdown(left_s) if last else pipeline.flush(left_s)
        except Exception as error:
            pipeline.broken("exit", error)


_before: list[Any] = []
"""The handler from before ours. Ours is never installed a second time over another one: a later one
of the host's may call it.
"""
_wanted: list[bool] = [True]
_delivering: list[bool] = []
_INIT = 1
"""The id of a container's first process, for which the kernel ignores a signal's default action."""


def wish_for_sigterm(wanted: bool) -> None:
    """Say whether the first answer may have SIGTERM handled. `handle_sigterm` does it at once."""
    _wanted[:] = [wanted]


def handle_sigterm(wanted: bool, *, is_asked: bool = False) -> None:
    """Handle SIGTERM from now on, or no longer.

    What is pending is delivered or counted, at most for `shutdown_timeout_s`.

    A handler that the host has is called as well and decides what becomes of the process. Without
    one the process then ends of the signal, and at once of a second one. A signal that the host
    ignores stays ignored. On another thread than the main one, or in a sub-interpreter, it changes
    nothing, and logs that where `is_asked`.
    """
    wish_for_sigterm(wanted)
    try:
        handler = signal.getsignal(signal.SIGTERM)
        # None: installed by code that is not Python, before Python looked.
        is_free = handler not in (signal.SIG_IGN, None) and not _is_foreign(handler)
        if wanted and not _before and is_free:
            signal.signal(signal.SIGTERM, _on_sigterm)
            _before[:] = [handler]
        elif not wanted and handler is _on_sigterm:
            signal.signal(signal.SIGTERM, _before.pop())
    except ValueError:
        if is_asked:
            log.warning("sigterm_not_handled", part="exit", remedy="configure on the main thread")


def _is_foreign(handler: object) -> bool:
    """Tell whether code that is not Python has installed a handler since Python looked.

    An example is uWSGI. Linux tells that.
    """
    if handler is not signal.SIG_DFL:
        return False
    try:
        with open("/proc/self/status", "rb") as status:
            caught = next((line for line in status if line.startswith(b"SigCgt:")), b"0 0")
    except OSError:
        return False
    mask = int(caught.split()[1], 16)
    return bool(mask >> (signal.SIGTERM - 1) & 1)


def _leave_sigterm_to_the_child() -> None:
    """Give a forked child the handler from before.

    The child has nothing pending, and may have no use for us. Its own first answer decides anew.
    """
    _delivering.clear()
    with contextlib.suppress(ValueError):  # of a fork in a sub-interpreter
        if _before and signal.getsignal(signal.SIGTERM) is _on_sigterm:
            signal.signal(signal.SIGTERM, _before.pop())


reset_in_child(_leave_sigterm_to_the_child)


def _on_sigterm(number: int, frame: object) -> None:
    before = _before[0] if _before else signal.SIG_DFL
    if callable(before):
        # The host's: it may end the process by an exception, after which the exit handlers run, or
        # let it go on. Before it: uvicorn ends the process by the signal's default action, others
        # by `os._exit`. A second signal finds us delivering, and is the host's at once.
        if _wanted[0] and not _delivering:
            _within_time(last=False)
        before(number, frame)
        return
    # Either a later handler of the host's has called this one, and goes on itself, or the process
    # survives: then it goes on evaluating.
    if signal.getsignal(signal.SIGTERM) is not _on_sigterm or os.getpid() == _INIT:
        if not _delivering:
            _within_time(last=False)
        return
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    _within_time(last=True)
    os.kill(os.getpid(), number)


def _within_time(*, last: bool) -> None:
    """Deliver on another thread.

    The thread that the signal interrupted may hold a lock that is needed for it.
    """
    done = _thread.allocate_lock()
    done.acquire()

    def deliver() -> None:
        try:
            _deliver(last=last)
        finally:
            done.release()

    _delivering.append(True)
    try:
        # Not `threading.Thread`, whose start takes a lock of its own that the interrupted thread
        # may hold.
        _thread.start_new_thread(deliver, ())
        done.acquire(timeout=_timeout_s())
    except RuntimeError:  # no thread can be started
        pass
    finally:
        _delivering.clear()


def _timeout_s() -> float:
    return max((pipeline.shutdown_timeout_s for pipeline in living()), default=EXIT_TIMEOUT_S)
