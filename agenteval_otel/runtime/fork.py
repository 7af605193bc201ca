"""Fork handling: one hook of the process for the whole package."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

Hook = TypeVar("Hook", bound=Callable[[], Any])


_FAILED: Final = (
    "a part could not be reset in a forked child [event='fork_hook_failed' part=%r error_type=%r]"
)


class _Hooks:
    """Functions in the order of their registration.

    No lock: each change is one operation of a dictionary.
    """

    def __init__(self) -> None:
        self._hooks: dict[int, tuple[weakref.ref[Any] | None, Callable[..., Any]]] = {}
        self._numbers = itertools.count()

    def add(self, hook: Hook) -> Hook:
        number = next(self._numbers)
        hooks = self._hooks
        if isinstance(hook, types.MethodType):
            # Not `weakref.WeakMethod`: it can complain on the host's stderr while the interpreter
            # ends.
            owner = weakref.ref(hook.__self__, lambda _: hooks.pop(number, None))
            hooks[number] = (owner, hook.__func__)
        else:
            hooks[number] = (None, hook)
        return hook

    def run(self, *, backwards: bool = False) -> None:
        hooks = list(self._hooks.values())
        if backwards:
            hooks.reverse()
        for reference, function in hooks:
            arguments: tuple[Any, ...] = ()
            if reference is not None:
                owner = reference()
                if owner is None:
                    continue
                arguments = (owner,)
            try:
                function(*arguments)
            except Exception as error:  # the other parts are reset nevertheless
                # By the standard library alone, whose own locks are free in the child.
                with contextlib.suppress(Exception):
                    name = getattr(function, "__qualname__", "?")
                    error_type = type(error).__name__
                    logging.getLogger("agenteval_otel").warning(_FAILED, name, error_type)


_BEFORE = _Hooks()
_IN_PARENT = _Hooks()
_IN_CHILD = _Hooks()
# Each is a decorator as well. Bound methods are kept by weak reference.
reset_in_child: Final = _IN_CHILD.add
"""Have a function called in each forked child, in order.

It must not block, start a thread, or take locks.
"""
before_fork: Final = _BEFORE.add
"""Have a function called in the forking thread, last registered first.

It delays the host's fork: it may take milliseconds at most.
"""
after_fork_in_parent: Final = _IN_PARENT.add

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _BEFORE.run(backwards=True),
        after_in_parent=_IN_PARENT.run,
        after_in_child=_IN_CHILD.run,
    )


class ForkSafeLock:
    """Admits one thread at a time to a block that never waits.

    It is always unlocked in a freshly forked child.
    """

    def __init__(self) -> None:
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()

    def acquire_if_free(self) -> bool:
        """Acquire the lock without waiting, and return whether it was free.

        If it is taken, maybe by this thread, do not release it.
        """
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


RANDOM: Final = random.Random()
"""The package's generator. A forked child seeds it anew: it would otherwise repeat its siblings'
numbers.
"""
reset_in_child(RANDOM.seed)
