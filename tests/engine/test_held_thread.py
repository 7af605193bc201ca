"""A background thread that is held up: what it had under way goes on with the next thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from agenteval_otel import monitor
from agenteval_otel.ground_truth import GroundTruth, GroundTruthStore
from agenteval_otel.models import EvaluationInput
from agenteval_otel.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.sampling import RatioSampler
from tests.testing.doubles import Free, Keeping

LEAVE = threading.Event()
LOOKUPS: Counter[str] = Counter()


class Holding(GroundTruthStore):
    """A store that holds the thread for the question ``bad``, the first time or always."""

    times: int = 1

    def find(self, evaluation_input: EvaluationInput) -> GroundTruth | None:
        question = str(evaluation_input.prompt)
        LOOKUPS[question] += 1
        if question == "bad" and LOOKUPS[question] <= self.times:
            LEAVE.wait(30)
        return GroundTruth(answer=f"{question}!")


@pytest.fixture(autouse=True)
def _held_threads_leave() -> Iterator[None]:
    LEAVE.clear()
    LOOKUPS.clear()
    yield
    LEAVE.set()


@pytest.mark.parametrize(("times", "without"), [(1, 0), (1_000, 1)])
def test_a_ground_truth_store_that_holds_the_thread_costs_others_nothing(times: int, without: int) -> None:
    """Every answer is evaluated, once, with its reference answer; a look-up that holds again is left out."""
    kept = Keeping()
    pipeline = Pipeline(
        sampler=RatioSampler(), evaluators=(Free(),), storage=(kept,), ground_truth=Holding(times=times),
        dispatcher=PoolDispatcher(linger_s=0, stall_s=0.1),
    )  # fmt: skip
    handler = monitor(pipeline=pipeline, agent="support")(lambda prompt: f"An answer to {prompt}.")
    questions = ["first", "bad", *(f"q{number}" for number in range(30))]
    for question in questions:
        handler(question)
    assert pipeline.flush(30)
    LEAVE.set()
    assert pipeline.shutdown(30)
    assert pipeline.accounting.outcomes()["evaluated"] == len(questions)
    assert sorted(result.has_ground_truth for result in kept.saved) == [False] * without + [True] * (
        len(questions) - without
    )
    assert pipeline.accounting.failures.get("ground_truth", 0) == without
    assert LOOKUPS["bad"] == 2
