"""Every shape of a handler is monitored, and stays what it was."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import functools
import gc
import inspect
import multiprocessing
import pickle
import typing
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from agenteval_otel import annotate, monitor
from tests.instrumentation.support import Seen, in_loop
from tests.promises.hosts import SHAPES as SHAPES_OF_SCRIPTS
from tests.promises.hosts import Script, drive


def plain(question: str, times: int = 1) -> str:
    """Answers at once."""
    return question.upper() * times


async def waiting(question: str, times: int = 1) -> str:
    """Answers after a while."""
    return question.upper() * times


def stream(question: str, times: int = 1) -> Generator[str, str, int]:
    """Answers word by word."""
    yield question.upper()
    return times


async def async_stream(question: str, times: int = 1) -> AsyncGenerator[str, str]:
    """Answers word by word, after a while."""
    yield question.upper()


SHAPES = [plain, waiting, stream, async_stream]


class Answering:
    def __call__(self, question: str) -> str:
        return question.upper()


class AnsweringLater:
    async def __call__(self, question: str) -> str:
        return question.upper()


def outcome_of(actual: Any) -> Any:
    """What a handler of any shape answers in the end."""
    if inspect.isasyncgen(actual):
        return "".join(asyncio.run(_collect(actual)))
    if inspect.iscoroutine(actual):
        return asyncio.run(_await(actual))
    return "".join(actual) if inspect.isgenerator(actual) else actual


async def _collect(stream: AsyncGenerator[Any, Any]) -> list[Any]:
    return [chunk async for chunk in stream]


async def _await(actual: Any) -> Any:
    return await actual


@pytest.mark.parametrize("handler", SHAPES, ids=lambda handler: handler.__name__)
def test_to_its_caller_a_handler_stays_what_it_was(seen: Seen, handler: Callable[..., Any]) -> None:
    """Signature, kind, name, documentation and type hints are those of the undecorated handler."""
    monitored = seen.monitor(handler)
    assert inspect.signature(monitored) == inspect.signature(handler)
    for kind in ("iscoroutinefunction", "isgeneratorfunction", "isasyncgenfunction", "isfunction"):
        assert getattr(inspect, kind)(monitored) is getattr(inspect, kind)(handler)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        assert getattr(monitored, name) == getattr(handler, name)
    assert typing.get_type_hints(monitored) == typing.get_type_hints(handler)
    assert monitored.__wrapped__ is handler


@pytest.mark.parametrize(
    "handler",
    [
        *SHAPES,
        Answering(),
        AnsweringLater(),
        functools.partial(plain, times=1),
        functools.partial(waiting),
        functools.partial(async_stream),
        functools.lru_cache(plain),
        lambda q: q.upper(),
        "HI".format,
    ],
    ids=lambda handler: getattr(handler, "__name__", type(handler).__name__),
)
def test_every_shape_is_evaluated_once(seen: Seen, handler: Callable[..., Any]) -> None:
    """The caller gets the answer, and the question and the answer are evaluated, exactly once."""
    monitored = seen.monitor(agent="a")(handler)
    assert outcome_of(monitored("hi")) == "HI"
    (made,) = seen.inputs
    assert (made.prompt, made.response, made.agent) == ("hi", "HI", "a")
    assert seen.outcomes == {"evaluated": 1}


def test_methods_of_every_kind(seen: Seen) -> None:
    """Instance, class and static methods work in both orders of the decorators."""
    monitor = seen.monitor

    def of_owner(owner: Any, question: str) -> str:
        return f"{owner.name} {question}"

    class Agent:
        name = "agent"

        @monitor
        def instance(self, question: str) -> str:
            return f"{self.name} {question}"

        class_inside, class_outside = monitor(classmethod(of_owner)), classmethod(monitor(of_owner))
        static_inside = monitor(staticmethod(lambda question: f"agent {question}"))
        static_outside = staticmethod(monitor(lambda question: f"agent {question}"))

    agent, names = Agent(), ("class_inside", "class_outside", "static_inside", "static_outside")
    methods = [
        agent.instance,
        *(getattr(owner, name) for owner in (agent, Agent) for name in names),
    ]
    for count, method in enumerate(methods, start=1):
        assert outcome_of(method("hi")) == "agent hi"
        assert len(seen.inputs) == count
        assert (seen.last.prompt, seen.last.response) == ("hi", "agent hi")
    assert (seen.inputs[0].agent or "").endswith("Agent.instance")
    assert list(inspect.signature(agent.instance).parameters) == ["question"]


def test_what_a_handler_returns_instead_of_answering_is_followed(seen: Seen) -> None:
    """A plain function that returns a coroutine or a stream is evaluated when that has come to its
    end.
    """
    for handler in (waiting, stream, async_stream):
        monitored = seen.monitor(lambda question, handler=handler: handler(question))
        result = monitored("hi")
        assert seen.inputs == []
        assert outcome_of(result) == "HI"
        assert seen.inputs.pop().response == "HI"


@pytest.mark.parametrize("shape", ["function", "coroutine", "generator", "async generator"])
@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_an_exception_is_evaluated_by_its_class(
    seen: Seen, shape: str, error: BaseException
) -> None:
    """What the handler raises reaches the caller as the same object; what a stream gave before is
    its answer.
    """
    script = Script()
    script.error = error
    assert drive(seen.monitor(SHAPES_OF_SCRIPTS[shape](script)), "hi").error is error
    is_stream = "generator" in shape
    cancelled = shape == "async generator" and isinstance(error, asyncio.CancelledError)
    assert seen.last.error_type == (None if cancelled else type(error).__name__)
    assert (seen.last.response, seen.last.stream_end) == (
        ("chunk", "abandoned" if cancelled else "error") if is_stream else ("", None)
    )


@pytest.mark.parametrize("handler", SHAPES, ids=lambda handler: handler.__name__)
def test_a_wrong_call_raises_what_it_always_raised(seen: Seen, handler: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        outcome_of(seen.monitor(handler)())


def test_a_handler_that_is_decorated_twice_is_evaluated_twice(seen: Seen) -> None:
    """The inner one first."""
    assert seen.monitor(agent="b")(seen.monitor(agent="a")(plain))("x") == "X"
    assert [(made.agent, made.response) for made in seen.inputs] == [("a", "X"), ("b", "X")]


@monitor
def importable(question: str) -> str:
    """A handler of a module, as programs have them."""
    return question.upper()


def test_a_handler_is_copied_and_pickled_by_its_name() -> None:
    """As a function is, so that pools and process starts take it."""
    assert copy.deepcopy(importable) is importable
    assert pickle.loads(pickle.dumps(importable)) is importable
    copied = copy.deepcopy({"handler": importable, "bound": Answering()})
    assert copied["handler"] is importable


@pytest.mark.slow
def test_a_spawned_process_runs_a_handler() -> None:
    """It imports the module anew and answers as a plain function would."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(importable, ("hello",)) == "HELLO"


class Answered(asyncio.Task):  # type: ignore[type-arg]
    """A task of the application's own class."""


async def _later(question: str) -> str:
    await asyncio.sleep(0)
    annotate(tags={"in": "task"})
    if question == "no":
        raise ValueError(question)
    return question.upper()


@pytest.mark.parametrize("make", [asyncio.ensure_future, Answered])
@in_loop
async def test_the_result_of_a_returned_task_is_evaluated(seen: Seen, make: Any) -> None:
    """The caller gets the handler's own task, and what the task annotates is the call's."""
    made = []

    @seen.monitor
    def ask(question: str) -> Any:
        made.append(make(_later(question)))
        return made[-1]

    task = ask("hi")
    assert task is made[0]
    assert seen.inputs == []
    assert await task == "HI"
    assert (seen.last.prompt, seen.last.response, seen.last.tags) == ("hi", "HI", {"in": "task"})
    assert seen.outcomes == {"evaluated": 1}


@in_loop
async def test_a_task_that_fails_or_is_cancelled_is_an_error(seen: Seen) -> None:
    """As of a coroutine: the call has the exception's name, and the awaiter gets the exception."""

    @seen.monitor
    def ask(question: str) -> Any:
        return asyncio.ensure_future(_later(question))

    with pytest.raises(ValueError, match="no"):
        await ask("no")
    task = ask("hi")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [made.error_type for made in seen.inputs] == ["ValueError", "CancelledError"]


@in_loop
async def test_an_exception_that_nobody_reads_is_still_reported(seen: Seen) -> None:
    """The event loop's line on a task whose exception was never retrieved is not silenced."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    @seen.monitor
    def ask(question: str) -> Any:
        return asyncio.ensure_future(_later(question))

    await asyncio.wait([ask("no")])
    seen.inputs.clear()
    gc.collect()
    assert [context["message"] for context in reported] == ["Task exception was never retrieved"]


def test_the_result_of_a_thread_s_future_is_evaluated(seen: Seen) -> None:
    """That of a pool counts as a task does, done or not."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:

        @seen.monitor
        def ask(question: str) -> Any:
            return pool.submit(question.upper)

        assert ask("hi").result() == "HI"

    @seen.monitor(agent="done")
    def answered(question: str) -> Any:
        future: concurrent.futures.Future[str] = concurrent.futures.Future()
        future.set_result(question.upper())
        return future

    assert answered("ho").result() == "HO"
    assert sorted((made.prompt, made.response) for made in seen.inputs) == [
        ("hi", "HI"),
        ("ho", "HO"),
    ]
