"""Reentrancy: monitored handlers do not sample calls made by evaluators, on any thread.

Usually the context marks such calls (`EVALUATING`). This module covers threads that an evaluator
starts and that lack the context: a thread inherits `daemon` from its parent, and our threads pass
the evaluation along as its value. A thread with an explicit ``daemon=True`` inherits nothing. To know
it, `threading.Thread` would have to be replaced in the host, so it counts as the host's, and the page
on own evaluators says so.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import time
from contextvars import ContextVar
from typing import Final


class _OfThread(threading.local):
    is_host = False


THREAD: Final = _OfThread()
"""Its `is_host` is True on threads that `under_evaluation` has seen to be the host's: cached there.
"""


class EvaluationScope(int):
    """Marks one evaluation under way, which is `over` once it is settled.

    It is an int that equals 1, so that the `daemon` of its threads can have it for ``True``.
    """

    def __new__(cls) -> EvaluationScope:
        return super().__new__(cls, 1)

    def __init__(self) -> None:
        self.over = False
        self._open = 1

    def opened(self) -> None:
        self._open += 1

    def closed(self) -> None:
        """Note that something that belonged to the evaluation has ended.

        With the last of it the evaluation is over.
        """
        self._open -= 1
        self.over = self._open <= 0


EVALUATION: Final[ContextVar[EvaluationScope | None]] = ContextVar(
    "agenteval_evaluation", default=None
)


class EvaluationThread(threading.Thread):
    """Runs evaluators, as our own daemon thread.

    Attributes:
        beat: Monotonic seconds of the last sign of life. It is later than now while a step with a
            time limit of its own runs.
    """

    beat = 0.0

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **{**kwargs, "daemon": True})  # type: ignore[arg-type]

    @property
    def daemon(self) -> bool:
        """Return the `EvaluationScope` under way to the thread itself, else True.

        `threading.Thread.__init__` reads it on the thread that starts another one, which so inherits
        the scope.
        """
        evaluation = EVALUATION.get() if threading.get_ident() == self.ident else None
        return True if evaluation is None else evaluation  # type: ignore[return-value]

    @daemon.setter
    def daemon(self, daemonic: bool) -> None:
        raise RuntimeError("it is a daemon for good")


def sign_of_life(within_s: float = 0.0) -> None:
    """Tell the watchdog that this thread works, and that the next step may take so long.

    For code of ours whose time is bounded by the length of what it reads, or by its own limit: a
    long text is no part that hangs, and the answer that it belongs to is not lost.
    """
    thread = threading.current_thread()
    if isinstance(thread, EvaluationThread):
        thread.beat = time.monotonic() + within_s


class _OfProcess:
    is_ours = False
    rests = True


PROCESS: Final = _OfProcess()
"""Its `is_ours` is True in a fork server and what it forks: these processes do nothing but
evaluate.

`rests` says that background threads rest between two steps, so that the application's threads come
to run. It is False, before anything is emitted, in a process that has none.
"""


def under_evaluation() -> bool:
    """Tell whether this thread is ours, or was started by an evaluator whose evaluation goes on."""
    thread = threading.current_thread()
    if isinstance(thread, EvaluationThread) or PROCESS.is_ours:
        return True
    evaluation: object = thread.daemon
    if isinstance(evaluation, EvaluationScope):
        return not evaluation.over
    THREAD.is_host = True
    return False


@functools.cache
def in_sub_interpreter() -> bool:
    try:
        interpreters = importlib.import_module(
            "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
        )
    except ImportError:
        return False
    return bool(interpreters.get_current() != interpreters.get_main())
