"""Handlers in every shape, with an outcome chosen by the test, and how to drive them without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple


class HostError(BaseException):
    """An exception of the host's own that is no `Exception`."""


HOST_ERRORS: tuple[type[BaseException], ...] = (
    ValueError, asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit, HostError, RecursionError,
)  # fmt: skip


class Script:
    """What the handlers do: give `answer`, or raise `error` when there is one."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.error: BaseException | None = None

    def end(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


class Ended(NamedTuple):
    value: Any
    error: BaseException | None


def _function(script: Script) -> Callable[..., Any]:
    def handler(question: Any = None) -> Any:
        return script.end()

    return handler


def _coroutine(script: Script) -> Callable[..., Any]:
    async def handler(question: Any = None) -> Any:
        return script.end()

    return handler


def _generator(script: Script) -> Callable[..., Any]:
    def handler(question: Any = None) -> Any:
        yield "chunk"
        return script.end()

    return handler


def _async_generator(script: Script) -> Callable[..., Any]:
    async def handler(question: Any = None) -> Any:
        yield "chunk"
        yield script.end()

    return handler


def _returns_generator(script: Script) -> Callable[..., Any]:
    inner = _generator(script)

    def handler(question: Any = None) -> Any:
        return inner(question)

    return handler


class _Callable:
    def __init__(self, script: Script) -> None:
        self._script = script

    async def __call__(self, question: Any = None) -> Any:
        return self._script.end()


SHAPES: dict[str, Callable[[Script], Callable[..., Any]]] = {
    "function": _function, "coroutine": _coroutine, "generator": _generator, "async generator": _async_generator,
    "returned generator": _returns_generator, "callable object": _Callable,
}  # fmt: skip


def drive(handler: Callable[..., Any], question: Any) -> Ended:
    """Call a handler of any shape and go on to its end; gives its last value, or the exception as it came out."""
    try:
        answer = handler(question)
        if hasattr(answer, "asend"):
            return Ended(_to_end_of_stream(answer), None)
        return Ended(_to_end(answer), None) if hasattr(answer, "send") else Ended(answer, None)
    except BaseException as error:
        return Ended(None, error)


def _to_end(running: Any) -> Any:
    while True:
        try:
            running.send(None)
        except StopIteration as stop:
            return stop.value


def _to_end_of_stream(stream: Any) -> Any:
    last: Any = None
    while True:
        try:
            last = _to_end(stream.asend(None))
        except StopAsyncIteration:
            return last


def end_of(ended: Ended, answer: Any, raised: BaseException | None) -> str | None:
    """What is wrong with how a call ended, compared with what its handler did; None when nothing is."""
    if raised is not None:
        if ended.error is not raised:
            return f"raised {ended.error!r} instead of {raised!r}"
        if raised.__context__ is not None or raised.__cause__ is not None:
            return f"{raised!r} came with a context of ours: {raised.__context__!r}"
        return None
    if ended.error is not None:
        return f"raised {type(ended.error).__name__}"
    return None if ended.value is answer else "gave another object"
