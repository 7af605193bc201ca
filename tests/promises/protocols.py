"""Generators, async generators and coroutines taken through random steps, with every answer written down.

The same steps are taken with the handler and with its monitored form; what is written down must be the same.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

THROWN: tuple[type[BaseException], ...] = (
    ValueError, StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt, asyncio.CancelledError,
)  # fmt: skip
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
    """A handler of up to four yields and a consumer of up to seven moves."""
    catches = (*THROWN, Exception, BaseException)
    steps = tuple(Step(object(), dice.choice(catches), dice.choice(REACTIONS)) for _ in range(dice.randint(0, 4)))
    moves = tuple((dice.choice((*MOVES, "next", "next")), dice.choice(THROWN)) for _ in range(dice.randint(1, 7)))
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


def _generator(program: Program) -> Any:
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


async def _async_generator(program: Program) -> Any:
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


async def _coroutine(program: Program) -> Any:
    received: list[Any] = []
    for step in program.steps:
        try:
            received.append(await _Pause())
        except step.catches as error:
            # A coroutine that goes on awaiting when it is closed is an error of its own, and `await` ends differently.
            if _react(step, error, received) or isinstance(error, GeneratorExit):
                return received
    if program.error is not None:
        raise program.error("at the end")
    return received


PROTOCOLS: dict[str, Callable[[Program], Any]] = {
    "generator": _generator, "async generator": _async_generator, "coroutine": _coroutine,
}  # fmt: skip


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
    of = (
        (lambda name: getattr(running, f"a{name}"))
        if hasattr(running, "asend")
        else lambda name: getattr(running, name)
    )
    if error is GeneratorExit and inspect.iscoroutine(running):
        error = ValueError  # `await` closes what it awaits instead of throwing this one into it, in any wrapper
    if move == "throw":
        return of("throw")(error("thrown"))
    if move == "throw type":
        return of("throw")(error)
    return of("close")() if move == "close" else of("send")("sent" if move == "send" else None)


def _settled(answer: Any) -> Any:
    """What a step gave; a step of an async generator is taken to its end, and cancelled at its third pause."""
    if not hasattr(answer, "__await__") or not hasattr(answer, "throw"):
        return answer
    pauses = 0
    while True:
        try:
            answer.throw(asyncio.CancelledError("third pause")) if pauses == 3 else answer.send(None)
        except StopIteration as stop:
            return stop.value
        pauses += 1


def _described(error: BaseException | None) -> tuple[Any, ...]:
    """Type, message, and what stands behind it, however deep."""
    if error is None:
        return ()
    value = getattr(error, "value", None)
    return (type(error), error.args, value, _described(error.__cause__), _described(error.__context__))
