"""Code without an event loop gets one that stays: a client's connections belong to it."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, Suite, monitor, run_evaluation_sync
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.runtime.loop import blocking
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.testing import ModelServer
from tests.pipelines import pipeline_with

INPUT = EvaluationInput(prompt="Is it due?", response="Gladly.")
REPLY = '{"evidence": ["Gladly"], "reason": "polite", "score": true}'
TIMES = 12


@pytest.fixture
def judge() -> Iterator[LLMJudge]:
    """A judge that asks by the user's own async client, which keeps its connections open."""
    with ModelServer([REPLY]) as server:
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="test", max_retries=0)

        class Own:
            async def generate(self, prompt: str) -> str:
                asked: Any = [{"role": "user", "content": prompt}]
                reply = await client.chat.completions.create(model="m", messages=asked)
                return reply.choices[0].message.content or ""

        yield LLMJudge("Is the answer polite?", judge=Own())
        blocking(client.close)


def test_an_own_async_client_works_every_time(judge: LLMJudge) -> None:
    """In both sync entry points, and from several threads."""
    config = EvaluationRunConfig(evaluators=[judge])
    suite = Suite(name="s", evaluators=[judge])
    scores = [run_evaluation_sync(INPUT, config).overall_score for _ in range(TIMES)]
    passed = [suite.run_sync(INPUT).passed for _ in range(TIMES)]
    assert (scores, passed) == ([1.0] * TIMES, [True] * TIMES)
    of_threads: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda: of_threads.append(run_evaluation_sync(INPUT, config).overall_score)
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert of_threads == [1.0] * 4


def test_an_own_async_client_works_every_time_inline(judge: LLMJudge) -> None:
    """For handlers with and without a loop."""
    pipeline = pipeline_with(
        sampler=RatioSampler(ratio=1.0),
        evaluators=(judge,),
        storage=(),
        dispatcher=InlineDispatcher(),
    )

    @monitor(pipeline=pipeline)
    def answer(prompt: str) -> str:
        return "Gladly."

    @monitor(pipeline=pipeline)
    async def answer_later(prompt: str) -> str:
        return "Gladly."

    for _ in range(TIMES // 2):
        answer("q")
        asyncio.run(answer_later("q"))
    assert pipeline.accounting.results == {"scored": TIMES, "skipped": 0, "failed": 0}
    pipeline.shutdown(5.0)


async def _number() -> int:
    await asyncio.sleep(0)
    return 7


def _in_a_child(queue: Any) -> None:
    queue.put(blocking(_number))


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    """The parent's goes on."""
    assert blocking(_number) == 7
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_child, args=(queue,))
    child.start()
    assert queue.get(timeout=30) == 7
    child.join(30)
    assert child.exitcode == 0
    assert blocking(_number) == 7


def test_an_evaluator_may_evaluate() -> None:
    """Called on the loop itself, the sync form runs on a thread of its own."""

    async def outer() -> int:
        return blocking(_number)

    assert blocking(outer) == 7
