"""C15: what is evaluated is what was returned, whatever the host does with it; the input says where
it is not whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.capture.build import SNAPSHOT, TRUNCATED
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.models import EvaluationInput
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder
from tests.testing.doubles import Fixed

RETURNED, CHANGED = "as it was returned", "as it was changed"


class Waiting:
    """A pipeline whose thread waits until the host has done what it does to its answers."""

    def __init__(self) -> None:
        self.inputs: list[EvaluationInput] = []
        self._released = threading.Event()
        self.pipeline = pipeline_of(
            Fixed(action=self._judge), dispatcher=PoolDispatcher(linger_s=0.0)
        )

        @monitor(pipeline=self.pipeline, capture=self._wait)
        def first() -> str:
            return "the first call holds the pool's thread"

        first()

    def _wait(self, arguments: Any, answer: Any) -> dict[str, Any]:
        assert self._released.wait(20.0)
        return {}

    def _judge(self, value: EvaluationInput) -> float:
        self.inputs.append(value)
        return 1.0

    def judged(self) -> list[EvaluationInput]:
        """Let the thread go, and give what was judged after the first call."""
        self._released.set()
        assert self.pipeline.flush(20.0)
        return self.inputs[1:]

    def close(self) -> None:
        self._released.set()
        assert self.pipeline.shutdown(20.0)


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    made = Waiting()
    yield made
    made.close()


@dataclasses.dataclass
class Reply:
    content: str
    parts: list[str] = dataclasses.field(default_factory=list)


def state_of(value: EvaluationInput) -> Any:
    return (value.metadata or {}).get(SNAPSHOT)


CHANGES: list[Any] = [
    (lambda: RETURNED, lambda answer: None),
    (lambda: {"content": RETURNED}, lambda answer: answer.update(content=CHANGED)),
    (lambda: {"content": RETURNED}, lambda answer: answer.clear()),
    (lambda: Reply(RETURNED), lambda answer: setattr(answer, "content", CHANGED)),
    (
        lambda: {"role": "assistant", "content": [{"type": "text", "text": RETURNED}]},
        lambda answer: answer["content"][0].update(text=CHANGED),
    ),
    (
        lambda: [{"role": "assistant", "content": RETURNED}],
        lambda answer: answer[0].update(content=CHANGED),
    ),
    (lambda: bytearray(RETURNED.encode()), lambda answer: answer.reverse()),
    (
        lambda: {"choices": [{"message": {"role": "assistant", "content": RETURNED}}]},
        lambda answer: answer["choices"][0]["message"].update(content=CHANGED),
    ),
]


@pytest.mark.parametrize(("make", "change"), CHANGES)
@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_an_answer_that_the_host_changes(
    waiting: Waiting, make: Any, change: Any, kind: str, promise: Recorder
) -> None:
    """Every answer is evaluated as it was returned, however deep the host changes it afterwards."""
    answer = make()

    async def coroutine(prompt: str) -> Any:
        return answer

    if kind == "function":
        monitor(pipeline=waiting.pipeline)(lambda prompt: answer)("asked")
    else:
        asyncio.run(monitor(pipeline=waiting.pipeline)(coroutine)("asked"))
    change(answer)
    (value,) = waiting.judged()
    assert (value.response, state_of(value)) == (RETURNED, None)
    promise(
        "C15", figure="answers that the host changes afterwards: evaluated as they were returned"
    )


def pieces(kind: str) -> Iterator[Any]:
    """A stream whose maker uses one object again and again."""
    again: dict[str, Any] = {}
    for word in ("as ", "it ", "was ", "returned"):
        if kind == "flat":
            again["content"] = word
        else:
            again.setdefault("delta", {})["content"] = word
        yield word if kind == "text" else again


@pytest.mark.parametrize("kind", ["text", "flat", "nested"])
@pytest.mark.parametrize("sync", [True, False])
def test_a_stream_whose_chunks_are_one_object(waiting: Waiting, kind: str, sync: bool) -> None:
    """Chunks are kept as they passed, however deep their maker or reader changes them."""

    async def asynchronous(kind: str) -> Any:
        for piece in pieces(kind):
            yield piece

    async def consume() -> None:
        async for chunk in monitor(pipeline=waiting.pipeline)(asynchronous)(kind):
            changed(chunk)

    def changed(chunk: Any) -> None:
        if kind == "flat":
            chunk["content"] = CHANGED

    if sync:
        for chunk in monitor(pipeline=waiting.pipeline)(pieces)(kind):
            changed(chunk)
    else:
        asyncio.run(consume())
    (value,) = waiting.judged()
    assert (value.response, state_of(value)) == (RETURNED, None)


def test_calls_that_are_tried_again(waiting: Waiting) -> None:
    """Each try is judged by what it gave itself, though one list is filled again and again, and so
    is each prompt.
    """
    shared: list[str] = []
    conversation: list[Any] = []

    @monitor(pipeline=waiting.pipeline)
    def handler(messages: list[Any], number: int) -> Any:
        shared[:] = [f"try {number}"]
        if number == 1:
            raise ConnectionError("again")
        return shared

    for number in range(3):
        conversation.append({"role": "user", "content": f"question {number}"})
        with contextlib.suppress(ConnectionError):
            handler(conversation, number)
    shared.clear()
    conversation.clear()
    first, last = waiting.judged()  # an error is not judged by this evaluator
    assert (first.response, last.response) == ('["try 0"]', '["try 2"]')
    assert [len(item.message_history or ()) for item in (first, last)] == [1, 3]
    assert (first.prompt, last.prompt) == ("question 0", "question 2")
    assert [state_of(first), state_of(last)] == [None, None]


@pytest.mark.parametrize(
    ("chunk", "count"),
    [("x" * 300_000, 0), (b"x" * 300_000, 0), ("x" * 1_000, 400), ({"content": "x"}, 2_000)],
)
def test_what_is_not_whole_says_so(waiting: Waiting, chunk: Any, count: int) -> None:
    """An answer above the cap, or a longer stream than is kept, is judged by what was kept, and
    said to be so.
    """

    def stream(prompt: str) -> Iterator[Any]:
        for _ in range(count):
            yield chunk

    if count:
        assert sum(1 for _ in monitor(pipeline=waiting.pipeline)(stream)("asked")) == count
    else:
        monitor(pipeline=waiting.pipeline)(lambda prompt: chunk)("asked")
    (value,) = waiting.judged()
    assert (len(value.response) < 300_000, state_of(value)) == (True, TRUNCATED)
