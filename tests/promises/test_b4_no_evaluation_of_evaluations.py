"""B4: an evaluation is never evaluated: what evaluators call is theirs, in whatever task, thread or
context.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anthropic
import pytest
from opentelemetry import context as otel_context

from agenteval_otel import EvaluationInput, EvaluationRunConfig, monitor, run_evaluation_sync
from agenteval_otel.evaluators import Func
from agenteval_otel.testing import ModelServer, RecordedTelemetry
from tests.promises.bench import pipeline_of
from tests.promises.figures import sized
from tests.promises.importable import Asking

CALLS = sized(6, 100)

Ask = Callable[[], str]


class Judging:
    """A host, its judge, and the monitored model client that the judge asks: one request for each
    judged call.
    """

    def __init__(self, telemetry: RecordedTelemetry) -> None:
        self.server = ModelServer(["1"])
        self.pipeline = pipeline_of(storage=(telemetry.storage(),))
        tracer = telemetry.tracer_provider.get_tracer("instrumented client")
        client = anthropic.Anthropic(base_url=self.server.url, api_key="test", max_retries=0)
        judge = self.judge

        @monitor(pipeline=self.pipeline, agent="model client", evaluators=[judge])
        def ask() -> str:
            with tracer.start_as_current_span("chat"):
                message = client.messages.create(
                    model="judge",
                    max_tokens=8,
                    messages=[{"role": "user", "content": "Is it good?"}],
                )
            return str(message.content[0].text)  # type: ignore[union-attr]

        self.ask: Ask = ask
        self.way: Callable[[Ask], Any] = WAYS["directly"]
        self.answer = monitor(pipeline=self.pipeline, agent="host", evaluators=[judge])(
            lambda: "an answer"
        )
        self.close = client.close

    @property
    def judge(self) -> Func:
        """The evaluator of every monitored function, the client's included: a second generation
        goes on and on.
        """

        async def judge(value: Any) -> bool:
            result = self.way(self.ask)
            if inspect.isawaitable(result):
                await result
            return True

        return Func.of(judge, timeout_s=20.0)

    def outcomes(self, agent: str) -> int:
        """How many calls of this agent were counted."""
        return sum(self.pipeline.accounting.by_agent()[agent].values())

    def run(self, calls: int) -> int:
        """Answer so often; gives the requests that came to the model."""
        for _ in range(calls):
            self.answer()
        assert self.pipeline.flush(60.0)
        return len(self.server.requests)


async def called(ask: Ask) -> str:
    return ask()


async def in_a_new_thread(work: Callable[[], Any], *, daemon: bool | None = None) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            work()
        finally:
            loop.call_soon_threadsafe(ended.set_result, None)

    threading.Thread(target=run, daemon=daemon).start()
    await ended


def in_a_host_context(ask: Ask) -> None:
    """A hostile library clears every variable that it can find."""
    context = contextvars.Context()
    context.run(otel_context.attach, otel_context.Context())
    context.run(ask)


def joined(ask: Ask) -> None:
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(20.0)


WAYS: dict[str, Callable[[Ask], Any]] = {
    "directly": lambda ask: ask(),
    "in a thread": asyncio.to_thread,
    "in an executor": lambda ask: asyncio.get_running_loop().run_in_executor(None, ask),
    "in a task": lambda ask: asyncio.ensure_future(called(ask)),
    "in a task without context": lambda ask: asyncio.get_running_loop().create_task(
        called(ask), context=contextvars.Context()
    ),
    "in an empty context": lambda ask: contextvars.Context().run(ask),
    "in a host context": in_a_host_context,
    "in a new thread": in_a_new_thread,
    "in a new thread with its context": lambda ask: in_a_new_thread(
        partial(contextvars.copy_context().run, ask)
    ),
    "in a daemon thread with its context": lambda ask: in_a_new_thread(
        partial(contextvars.copy_context().run, ask), daemon=True
    ),
    "in a thread of a thread": lambda ask: in_a_new_thread(partial(joined, ask)),
    "in a loop of its own": lambda ask: in_a_new_thread(lambda: asyncio.run(called(ask))),
}
"""How an evaluator may come to ask its model."""


@pytest.fixture
def judging(telemetry: RecordedTelemetry) -> Iterator[Judging]:
    made = Judging(telemetry)
    yield made
    made.pipeline.shutdown(5.0)
    made.close()
    made.server.close()


@pytest.mark.sized
@pytest.mark.parametrize("way", WAYS)
def test_one_model_call_for_each_judged_call(
    way: str, judging: Judging, promise: Callable[..., None]
) -> None:
    """The judge asks a monitored client, by every way around the marker: the model hears from it
    once for each call.
    """
    judging.way = WAYS[way]
    outcome = judging.run(CALLS)
    promise("B4", figure=f"{way}: {outcome} model calls for {CALLS} judged calls")
    assert outcome == CALLS
    assert judging.pipeline.accounting.by_agent()["host"]["evaluated"] == CALLS
    assert judging.outcomes("model client") == 0, "the judge's own calls are nobody's answers"


def test_blocking_evaluators(judging: Judging) -> None:
    """Blocking evaluators are known too: on their thread, in an empty context and in a thread of
    theirs.
    """
    ways = (
        judging.ask,
        partial(contextvars.Context().run, judging.ask),
        partial(joined, judging.ask),
    )
    for number, way in enumerate(ways, 1):

        def blocking(value: Any, way: Callable[[], Any] = way) -> bool:
            way()
            return True

        monitor(pipeline=judging.pipeline, agent=f"host {number}", evaluators=[Func.of(blocking)])(
            lambda: "x"
        )()
        assert judging.pipeline.flush(20.0)
        assert len(judging.server.requests) == number
    assert judging.outcomes("model client") == 0


def test_the_child_process(judging: Judging) -> None:
    """An evaluator that runs in the child process asks a client that is monitored there too."""
    answer = monitor(pipeline=judging.pipeline, agent="host", evaluators=[Asking(timeout_s=20.0)])(
        lambda prompt: "x"
    )
    for number in range(1, 4):
        answer(judging.server.url)
        assert judging.pipeline.flush(30.0)
        assert len(judging.server.requests) == number
    assert judging.pipeline.accounting.results["scored"] == 3


def test_offline_evaluations(judging: Judging) -> None:
    """What evaluators call in an offline run is not evaluated either, and the host's own calls
    after it are.
    """
    run_evaluation_sync(
        EvaluationInput(response="x"), EvaluationRunConfig(evaluators=[judging.judge])
    )
    assert judging.run(0) == 1
    assert judging.run(2) == 3


def test_streams_of_evaluators(judging: Judging) -> None:
    """A monitored stream that an evaluator reads is not evaluated."""

    @monitor(pipeline=judging.pipeline, agent="stream", evaluators=[judging.judge])
    async def stream() -> AsyncIterator[str]:
        yield "a"

    async def reads(ask: Ask) -> None:
        async for _ in stream():
            pass
        ask()

    judging.way = reads
    assert judging.run(2) == 2
    assert judging.outcomes("stream") == 0


def test_the_hosts_own_calls_are_evaluated(judging: Judging) -> None:
    """A thread of the host's that an evaluator happened to start belongs to the host again when
    that one is over.
    """
    with ThreadPoolExecutor(1) as shared:

        async def borrows(ask: Ask) -> None:
            await asyncio.get_running_loop().run_in_executor(shared, ask)

        judging.way = borrows
        assert judging.run(1) == 1
        shared.submit(judging.answer).result(20.0)
        assert judging.pipeline.flush(20.0)
    assert judging.pipeline.accounting.by_agent()["host"]["evaluated"] == 2
