"""D3: under load with faults the package tells of itself, and its series stay few whatever comes
from outside.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from typing import Any

from agenteval_otel import Score, annotate, monitor
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import Evaluator, Func, LLMJudge, ResponseHealth
from agenteval_otel.judges import BreakerSettings, SpendLimits
from agenteval_otel.semconv import (
    INSTRUMENTS,
    MAX_SERIES,
    METRIC_CONVERSATIONS,
    METRIC_ERRORS,
    METRIC_EVALUATE_REQUESTS,
    METRIC_PREFERRED,
    METRIC_RESULTS,
    METRIC_SPANS,
    OUTCOMES,
)
from agenteval_otel.testing import RecordedTelemetry, ScriptedJudge
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder

ORDINARY = 200
LOAD_S = 2.0
FLUSH_S = 60.0
_turn = itertools.count()


def verdict(value: Any) -> bool:
    return next(_turn) % 3 > 0


def broken(value: Any) -> bool:
    if (turn := next(_turn)) % 2 == 0:
        raise (
            ValueError("no") if turn % 4 == 0 else EvaluationError("no", error_type="rate_limited")
        )
    return True


async def judged(value: Any) -> bool:
    await asyncio.sleep(0.01)
    return True


def func(function: Any, name: str) -> Evaluator:
    return Func.of(function, criterion_name=name)


JUDGE = ScriptedJudge(
    fallback={"evidence": [], "reason": "as asked", "score": True},
    input_tokens=400,
    output_tokens=60,
    spend=SpendLimits(prices={"*": {"input": 1.0, "output": 5.0}}, usd_per_day=100.0),
    breaker=BreakerSettings(),
)
RELEVANT = LLMJudge(judge=JUDGE, criterion_name="relevant", description="Is it about the question?")
EIGHT = {
    "support": (ResponseHealth(objective=0.9), func(verdict, "polite"), func(judged, "helpful")),
    "search": (func(verdict, "grounded"), func(broken, "cites"), RELEVANT),
    "router": (func(verdict, "routed"), func(broken, "valid")),
}


def all_series(telemetry: RecordedTelemetry) -> list[tuple[str, dict[str, Any]]]:
    """Every point that is collected now: the metric and its attributes."""
    return [
        (item.name, dict(point.attributes))
        for item in INSTRUMENTS
        for point in telemetry.points(item.name)
    ]


async def load(pipeline: Pipeline) -> None:
    """Three agents that answer faster than they are evaluated, on one event loop."""

    async def answer_with_model(question: str) -> str:
        annotate(model="m")
        return "An answer."

    handlers: list[Any] = [
        monitor(pipeline=pipeline, agent=agent, evaluators=evaluators)(answer_with_model)
        for agent, evaluators in EIGHT.items()
    ]
    for answer in handlers:
        await answer("A question?")
    # Only when the first are done: a worker process takes its time to start.
    assert await asyncio.to_thread(pipeline.flush, FLUSH_S)
    began = time.monotonic()
    while time.monotonic() - began < LOAD_S:
        for answer in handlers:
            await answer("A question?")
        await asyncio.sleep(0.002)


def test_it_tells_of_itself_under_load(telemetry: RecordedTelemetry, promise: Recorder) -> None:
    """Queue, drain time, drops by reason, level, lag, last success and durations are there, in at
    most 200 series.
    """
    pipeline = pipeline_of(
        storage=(telemetry.storage(),), dispatcher=PoolDispatcher(max_items=32, concurrency=4)
    )
    asyncio.run(load(pipeline))
    result = all_series(telemetry)
    seen = {name for name, _ in result}
    of_judges = {
        attributes["gen_ai.evaluation.name"]
        for name, attributes in result
        if name == "agenteval.evaluation.duration" and attributes
    }
    promise("D3", figure=f"{len(result)} series for 3 agents and 8 criteria under load with faults")
    # No span of another library is read here, and no conversation is evaluated.
    # No judge is compared with anything here, no answer is preferred, and each is a unit of its own.
    compared = {
        f"agenteval.judge.{word}"
        for word in ("agreement", "untrusted", "drift", "length_correlation", "checks")
    }
    assert (
        seen
        == {item.name for item in INSTRUMENTS}
        - {METRIC_SPANS.name, METRIC_CONVERSATIONS.name, METRIC_EVALUATE_REQUESTS.name}
        - {METRIC_PREFERRED.name}
        - {item.name for item in INSTRUMENTS if item.name.startswith("agenteval.evaluation.unit")}
        - compared
    )
    assert of_judges == {"helpful", "relevant"}
    reported = {
        attributes["agenteval.outcome"]
        for name, attributes in result
        if name == "agenteval.responses"
    }
    assert reported == set(OUTCOMES)
    outcomes = pipeline.accounting.outcomes()
    assert outcomes["dropped_queue_full"] + outcomes["shed"] > 0
    for name, most in (("sampling.level", 3), ("host.loop_lag", 10), ("queue.drain_time", 600)):
        (point,) = telemetry.points(f"agenteval.{name}")
        assert 0 <= point.value <= most
    assert len(result) <= ORDINARY
    pipeline.shutdown(5.0)


def test_text_from_outside_makes_few_series(
    telemetry: RecordedTelemetry, promise: Recorder
) -> None:
    """With made-up models, categories and errors a criterion of an agent has at most 47 series."""
    turn = itertools.count()

    def hostile(raw: Any) -> Score:
        index = next(turn)
        if index % 3 == 0:
            raise EvaluationError("no", error_type=f"error-{index}")
        if index % 3 == 1:
            return Score(value=index % 2 == 0)
        return Score(value=f"category-{index}", label=f"category-{index}")

    dispatcher = PoolDispatcher(max_items=10_000)
    made = pipeline_of(
        func(hostile, "hostile"), storage=(telemetry.storage(),), dispatcher=dispatcher
    )

    def answer(model: str) -> str:
        annotate(model=model)
        return "An answer."

    def call(agent: str, times: int) -> None:
        handler = monitor(pipeline=made, agent=agent)(answer)
        for index in range(times):
            handler(f"model-{index}")

    call("support", 300)
    assert made.flush(30.0)
    counted = [
        point.value
        for metric in (METRIC_RESULTS, METRIC_ERRORS)
        for point in telemetry.points(metric.name)
    ]
    assert sum(counted) == 300, "what has no series of its own counts with the others"
    of_one = Counter(
        attributes["gen_ai.evaluation.name"]
        for _, attributes in all_series(telemetry)
        if "gen_ai.evaluation.name" in attributes
    )
    assert made.shutdown(30.0)
    promise(
        "D3",
        figure=f"{of_one['hostile']} series of a criterion with 300 made-up models, categories and error types",
    )
    assert 10 < of_one["hostile"] <= MAX_SERIES
