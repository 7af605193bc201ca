"""Samplers that people write themselves, and conversations whose ids are no ids."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.models import EvaluationInput
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.sampling import FunctionSampler, SamplingContext, SamplingDecision
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from agenteval_otel.sampling.combined import randomness_of_conversation
from agenteval_otel.testing import InlineDispatcher, RecordedTelemetry
from tests.testing.doubles import Free

UNSETTLED = SamplingDecision(True, None, "later", settled=False)


class Late:
    """Decides on the background thread, with whatever it was given."""

    def __init__(self, decision: Any) -> None:
        self._decision = decision

    def decide(self, context: SamplingContext) -> Any:
        return UNSETTLED if context.evaluation_input is None else self._decision


@pytest.mark.parametrize("decision", [None, 5, SamplingDecision(False, None, "x", "no_such_outcome")], ids=str)
def test_a_decision_that_is_none_is_counted(decision: Any) -> None:
    """What cannot be understood on the background thread fails the call, which is not lost to the count."""
    pipeline = Pipeline(
        sampler=Late(decision),  # type: ignore[arg-type]
        evaluators=(Free(),), storage=(), dispatcher=InlineDispatcher()
    )  # fmt: skip
    assert monitor(pipeline=pipeline)(str.upper)("a") == "A"
    assert {name: count for name, count in pipeline.accounting.outcomes().items() if count} == {"pipeline_failed": 1}
    assert pipeline.accounting.failures == {"sampler": 1}


@pytest.mark.parametrize("claimed", [float("nan"), 2.5, 0.0, -1.0, "0.5"])
def test_what_is_no_probability_is_unknown(claimed: Any) -> None:
    """The answer is evaluated, and its scores have no weight: one that is no number would spoil every sum for good."""
    telemetry = RecordedTelemetry()
    pipeline = Pipeline(
        sampler=Late(SamplingDecision(True, claimed, "odd")),  # type: ignore[arg-type]
        evaluators=(Free(),), storage=[telemetry.storage()], dispatcher=InlineDispatcher(),
    )  # fmt: skip
    monitor(pipeline=pipeline)(str.upper)("a")
    (event,) = telemetry.events()
    telemetry.shutdown()
    assert "agenteval.sampling.probability" not in event.attributes
    assert pipeline.accounting.outcomes()["evaluated"] == 1


class Boxed:
    """A number of an array library: it is none of Python's, and gives one."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def item(self) -> Any:
        """What it holds."""
        return self._value


@pytest.mark.parametrize(("value", "sampled"), [(True, True), (False, False), (1.0, True), (0.0, False)])
def test_a_function_may_answer_with_an_array_librarys_number(value: Any, sampled: bool) -> None:
    """It counts as the number that it holds."""
    sampler = FunctionSampler(function=lambda given: Boxed(value))  # type: ignore[arg-type, return-value]
    decision = sampler.decide(SamplingContext("a", 0, None, EvaluationInput(response="x")))
    assert decision.sampled is sampled


def test_a_conversation_whose_id_is_a_book() -> None:
    """Of an id that is not kept whole the beginning draws: cut or not, the draw is the same one."""
    whole = "c" * 10_000_000
    assert randomness_of_conversation(whole) == randomness_of_conversation("c" * 600) < RANDOMNESS_RANGE
    assert randomness_of_conversation("c" * 512) != randomness_of_conversation("c" * 511)


def test_a_conversations_id_counts_for_the_queue() -> None:
    """What the queue holds of a call is bounded, and the id is part of it."""
    sizes: list[int] = []

    class Weighing(InlineDispatcher):
        """Tells what it is given to hold."""

        def submit(self, call: object, size_bytes: int) -> bool:
            sizes.append(size_bytes)
            return super().submit(call, size_bytes)

    def handler(prompt: str, conversation_id: str) -> str:
        return prompt

    pipeline = Pipeline(sampler=FunctionSampler(function=lambda given: True), evaluators=(Free(),), storage=(),
                        dispatcher=Weighing())  # fmt: skip
    monitored = monitor(pipeline=pipeline)(handler)
    monitored("a", "c")
    monitored("a", "c" * 1_000_000)
    assert sizes[1] - sizes[0] == 999_999
