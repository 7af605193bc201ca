"""What has been evaluated is freed at once: a burst of circles would have the garbage collector
hold the host up.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from agenteval_otel.models import EvaluationInput
from agenteval_otel.testing import RecordedTelemetry
from tests.promises.bench import pipeline_of
from tests.testing.doubles import Free

CALLS = 40


class Awaiting(CriterionEvaluator, type="AwaitingFreed"):
    criterion_name: str = "awaiting"

    async def score(self, evaluation_input: EvaluationInput) -> bool:
        await asyncio.sleep(0)
        return True


class Raising(CriterionEvaluator, type="RaisingFreed"):
    criterion_name: str = "raising"
    execution: object = "inline"

    def score(self, evaluation_input: EvaluationInput) -> bool:
        raise ValueError("no score")


@pytest.mark.parametrize(
    "evaluator",
    [Free(), Free(execution="thread"), Awaiting(), Raising()],
    ids=["inline", "thread", "async", "raising"],
)
def test_an_evaluated_answer_leaves_nothing_to_the_garbage_collector(
    evaluator: Evaluator, telemetry: RecordedTelemetry
) -> None:
    """Nothing that refers to itself in a circle is left of a call, its evaluation, its results and
    its telemetry.
    """
    pipeline = pipeline_of(evaluator, storage=(telemetry.storage(),), dispatcher=PoolDispatcher())
    handler = monitor(pipeline=pipeline, agent="support")(lambda prompt: f"An answer to {prompt}.")
    handler("Warm?")
    assert pipeline.flush(30)
    flags = gc.get_debug()
    gc.collect()
    gc.disable()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        for number in range(CALLS):
            handler(f"Question {number}?")
        assert pipeline.flush(30)
        gc.collect()
        left = Counter(type(each).__name__ for each in gc.garbage)
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        gc.enable()
        pipeline.shutdown(30)
    assert pipeline.accounting.outcomes()["evaluated"] == CALLS + 1
    # Threads and loops of other parts may leave a few of theirs: what each answer leaves comes in
    # such numbers.
    assert {name: count for name, count in left.items() if count >= CALLS // 2} == {}
