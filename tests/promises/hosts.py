"""Handlers in every shape, with an outcome chosen by the test, and how to drive them without an
event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class HostError(BaseException):
    """An exception of the host's own that is no `Exception`."""


HOST_ERRORS: tuple[type[BaseException], ...] = (
    ValueError,
    asyncio.CancelledError,
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
    HostError,
    RecursionError,
)


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


class _Callable:
    def __init__(self, script: Script) -> None:
        self._script = script

    async def __call__(self, question: Any = None) -> Any:
        return self._script.end()


SHAPES: dict[str, Callable[[Script], Callable[..., Any]]] = {
    "function": lambda script: lambda question=None: script.end(),
    "coroutine": _coroutine,
    "generator": _generator,
    "returned generator": lambda script: lambda question=None: _generator(script)(question),
    "async generator": _async_generator,
    "callable object": _Callable,
}


def drive(handler: Callable[..., Any], question: Any) -> Ended:
    """Call a handler of any shape and go on to its end; gives its last value, or the exception as
    it came out.
    """
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
    """What is wrong with how a call ended, compared with what its handler did; None when nothing
    is.
    """
    if ended.error is not raised:
        return f"raised {type(ended.error).__name__} instead of {raised!r}"
    if raised is None:
        return None if ended.value is answer else "gave another object"
    if raised.__context__ is not None or raised.__cause__ is not None:
        return f"{raised!r} came with a context of ours: {raised.__context__!r}"
    return None


# --- random steps
# ----------------------------------------------------------------------------------------------------

THROWN: tuple[type[BaseException], ...] = (
    ValueError,
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    KeyboardInterrupt,
    asyncio.CancelledError,
)
REACTIONS = ("pass", "swallow", "convert", "return", "again", "raise from")
MOVES = ("next", "send", "throw", "throw type", "close")


class Step(NamedTuple):
    """One yield of the handler: what it gives, what it catches there and what it does then."""

    value: object
    catches: type[BaseException]
    reaction: str


class Program(NamedTuple):
    """A handler's yields and its end, and the moves of its consumer."""

    steps: tuple[Step, ...]
    error: type[BaseException] | None
    moves: tuple[tuple[str, type[BaseException]], ...]


def random_program(dice: random.Random) -> Program:
    catches = (*THROWN, Exception, BaseException)
    steps = tuple(
        Step(object(), dice.choice(catches), dice.choice(REACTIONS))
        for _ in range(dice.randint(0, 4))
    )
    moves = tuple(
        (dice.choice((*MOVES, "next", "next")), dice.choice(THROWN))
        for _ in range(dice.randint(1, 7))
    )
    return Program(steps, dice.choice((None, None, *THROWN)), moves)


class _Pause:
    """Suspends the awaiting coroutine once, as a future would."""

    def __await__(self) -> Iterator[Any]:
        return (yield "paused")


def _react(step: Step, error: BaseException, received: list[Any]) -> bool:
    """What the handler does with what it caught; True when it returns."""
    received.append(type(error).__name__)
    if step.reaction == "pass":
        raise error
    if step.reaction == "convert":
        raise KeyError("converted")
    if step.reaction == "raise from":
        raise LookupError("from") from error
    return step.reaction == "return"


def _stepping_generator(program: Program) -> Any:
    received: list[Any] = []
    for step in program.steps:
        try:
            received.append((yield step.value))
        except step.catches as error:
            if _react(step, error, received):
                return received
        if step.reaction == "again":
            received.append((yield received))
    if program.error is not None:
        raise program.error("at the end")
    return received


async def _stepping_async_generator(program: Program) -> Any:
    received: list[Any] = []
    for step in program.steps:
        try:
            if step.reaction in ("swallow", "again"):
                await _Pause()
            received.append((yield step.value))
        except step.catches as error:
            if _react(step, error, received):
                return
        if step.reaction == "again":
            received.append((yield received))
    if program.error is not None:
        raise program.error("at the end")


async def _stepping_coroutine(program: Program) -> Any:
    received: list[Any] = []
    for step in program.steps:
        try:
            received.append(await _Pause())
        except step.catches as error:
            # A coroutine that goes on awaiting when it is closed is an error of its own, and
            # `await` ends differently.
            if _react(step, error, received) or isinstance(error, GeneratorExit):
                return received
    if program.error is not None:
        raise program.error("at the end")
    return received


PROTOCOLS: dict[str, Callable[[Program], Any]] = {
    "generator": _stepping_generator,
    "async generator": _stepping_async_generator,
    "coroutine": _stepping_coroutine,
}


def walk(handler: Callable[[Program], Any], program: Program) -> list[Any]:
    """Take the moves and write down each answer; at last the running handler is closed."""
    running = handler(program)
    seen: list[Any] = []
    for move, error in (*program.moves, ("close", ValueError), ("close", ValueError)):
        try:
            seen.append(("gave", _settled(_moved(running, move, error))))
        except BaseException as raised:
            seen.append(("raised", *_described(raised)))
    return seen


def _moved(running: Any, move: str, error: type[BaseException]) -> Any:
    prefix = "a" if hasattr(running, "asend") else ""
    if error is GeneratorExit and inspect.iscoroutine(running):
        # `await` closes what it awaits instead of throwing this one into it, in any wrapper
        error = ValueError
    if move == "close":
        return getattr(running, f"{prefix}close")()
    if move.startswith("throw"):
        thrown = error if move == "throw type" else error("thrown")
        return getattr(running, f"{prefix}throw")(thrown)
    return getattr(running, f"{prefix}send")("sent" if move == "send" else None)


def _settled(answer: Any) -> Any:
    """What a step gave; a step of an async generator is taken to its end, and cancelled at its
    third pause.
    """
    if not hasattr(answer, "__await__") or not hasattr(answer, "throw"):
        return answer
    pauses = 0
    while True:
        try:
            if pauses == 3:
                answer.throw(asyncio.CancelledError("third pause"))
            else:
                answer.send(None)
        except StopIteration as stop:
            return stop.value
        pauses += 1


def _described(error: BaseException | None) -> tuple[Any, ...]:
    """Type, message, and what stands behind it, however deep."""
    if error is None:
        return ()
    value = getattr(error, "value", None)
    return (
        type(error),
        error.args,
        value,
        _described(error.__cause__),
        _described(error.__context__),
    )
