"""Parts of the user's that run on the background thread beside evaluators.

A part that blocks the thread is named and left out.
"""

from __future__ import annotations

import contextlib
import time
import types
import weakref
from collections import deque
from collections.abc import Awaitable, Generator
from threading import get_ident
from typing import Any, Final

from agenteval_otel.errors import EvaluationError
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log

_MAX_BLOCKED: Final = 3
_FORGOTTEN_AFTER_S: Final = 600.0
_RUNNING: Final[dict[int, list[UserPart]]] = {}
# By kind and `id` of the owner. The reference removes the entry when the owner is freed.
_PARTS: Final[dict[tuple[str, int], tuple[weakref.ref[Any], UserPart]]] = {}
reset_in_child(_RUNNING.clear)


class UserPart:
    """One part. As a context manager it marks that the part runs on this thread.

    A part that blocked three times within ten minutes is quarantined until the first of these is
    ten minutes old: entering it raises `EvaluationError` (``quarantined``).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._blocked: deque[float] = deque(maxlen=_MAX_BLOCKED)

    def __repr__(self) -> str:
        return f"<UserPart {self.name}>"

    def __enter__(self) -> None:
        if self._is_quarantined():
            message = f"quarantined: {self.name} blocked the background thread too often"
            raise EvaluationError(message, error_type="quarantined")
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()

    def _is_quarantined(self) -> bool:
        if len(self._blocked) < _MAX_BLOCKED:
            return False
        return time.monotonic() - self._blocked[0] < _FORGOTTEN_AFTER_S

    def begin(self) -> None:
        """Note that it runs on this thread from now on, quarantined or not."""
        _RUNNING.setdefault(get_ident(), []).append(self)

    def end(self) -> None:
        if running := _RUNNING.get(get_ident()):
            running.pop()

    def blocked(self, seconds: float) -> None:
        """Note that it blocked the background thread for so long. Any thread."""
        self._blocked.append(time.monotonic())
        if len(self._blocked) == _MAX_BLOCKED:
            reason = f"it blocked the background thread {_MAX_BLOCKED} times within ten minutes"
            log.warning(
                "part_quarantined", part=self.name, blocked_s=round(seconds, 2), reason=reason
            )


def part_of(kind: str, owner: object) -> UserPart:
    """Return the part that an object is, the same one for the same object.

    A storage provider is a part such as ``storage:sql``.
    """
    key = (kind, id(owner))
    known = _PARTS.get(key)
    if known is not None:
        _, part = known
        return part
    names = (
        getattr(owner, "type", None),
        getattr(owner, "__qualname__", None),
        type(owner).__qualname__,
    )
    part = UserPart(f"{kind}:{next(name for name in names if isinstance(name, str))}")
    with contextlib.suppress(TypeError):  # it takes no weak reference: named, and never quarantined
        reference = weakref.ref(owner, lambda _: _PARTS.pop(key, None))
        _PARTS[key] = (reference, part)
    return part


def running_part(thread_id: int) -> UserPart | None:
    """Return the part that runs on a thread at this moment. Any thread."""
    running = tuple(_RUNNING.get(thread_id, ()))
    return running[-1] if running else None


@types.coroutine
def stepwise(part: UserPart, work: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Await a part's awaitable. The part counts as running only while its own code runs."""
    steps: Any = work.__await__()
    if not hasattr(steps, "send"):
        return (yield from steps)
    value: object = None
    error: BaseException | None = None
    while True:
        part.begin()
        try:
            awaited = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            part.end()
        value = None
        error = None
        try:
            value = yield awaited
        except GeneratorExit:  # collected before its end, maybe after what it awaits was
            steps.close()
            raise
        except BaseException as raised:
            error = raised
