"""Process exit: deliver what is pending, within a time limit."""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import time
import weakref
from typing import Any

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log

EXIT_TIMEOUT_S = 2.0

LIVE: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""The pipelines of this process, by their ids."""


def living() -> list[Any]:
    """Everything in `LIVE`, also while another thread adds to it."""
    return [pipeline for reference in LIVE.valuerefs() if (pipeline := reference()) is not None]


WATCHED: list[bool] = []
"""Not empty once the exit is watched: from the first answer on, when the application's providers
are set up.
"""
reset_in_child(WATCHED.clear)


def watch_exit() -> None:
    """Register, or do so anew: exit handlers run last in, first out, and ours runs before those of
    the application.
    """
    if _ENDING:
        return  # they are running: a list that is walked is not changed
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        # A child of multiprocessing ends without exit handlers, but runs its finalizers.
        for finalizer in _FINALIZERS:
            finalizer.cancel()
        _FINALIZERS[:] = [
            sys.modules["multiprocessing.util"].Finalize(None, _at_exit, exitpriority=100)
        ]


_ENDING: list[bool] = []
_FINALIZERS: list[Any] = []
reset_in_child(_ENDING.clear)
reset_in_child(_FINALIZERS.clear)


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
"""The handler from before ours. Ours is never installed a second time: a later one of the host's
may call it.
"""
_wanted: list[bool] = [False]


def handle_sigterm(wanted: bool) -> None:
    """Handle SIGTERM from now on, or no longer: deliver or count what is pending, at most for
    `shutdown_timeout_s`.

    A handler that the host has is called as well and decides what becomes of the process; without
    one the process then ends of the signal. A signal that the host ignores stays ignored. On
    another thread than the main one, or in a sub-interpreter, it changes nothing and logs that once
    a minute.
    """
    try:
        handler = signal.getsignal(signal.SIGTERM)
        # None: installed by code that is not Python.
        if wanted and not _before and handler not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGTERM, _on_sigterm)
            _before[:] = [handler]
        elif not wanted and handler is _on_sigterm:
            signal.signal(signal.SIGTERM, _before.pop())
        _wanted[:] = [wanted]
    except ValueError:
        log.warning("sigterm_not_handled", part="exit", remedy="configure on the main thread")


def _on_sigterm(number: int, frame: Any) -> None:
    before = _before[0] if _before else signal.SIG_DFL
    if callable(before):
        # The host's: it may end the process by an exception, after which the exit handlers run, or
        # let it go on.
        if _wanted[0]:
            _within_time(last=False)
        before(number, frame)
        return
    ours = signal.getsignal(signal.SIGTERM) is _on_sigterm
    _within_time(last=ours)
    if ours:  # else a later handler of the host's has called this one, and goes on itself
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _within_time(*, last: bool) -> None:
    """Deliver on another thread: the one that the signal interrupted may hold a lock that is needed
    for it.
    """
    done = _thread.allocate_lock()
    done.acquire()

    def deliver() -> None:
        try:
            _deliver(last=last)
        finally:
            done.release()

    try:
        # Not `threading.Thread`, whose start takes a lock of its own that the interrupted thread
        # may hold.
        _thread.start_new_thread(deliver, ())
    except RuntimeError:
        return
    done.acquire(
        timeout=max((pipeline.shutdown_timeout_s for pipeline in living()), default=EXIT_TIMEOUT_S)
    )
