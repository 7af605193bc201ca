"""Contract checks: run them against your own parts.

Each raises AssertionError with the violated condition.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Sequence
from typing import Any

from agenteval_otel.components import Component
from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.embedders import Embedder
from agenteval_otel.evaluators.ground_truth import GroundTruth, GroundTruthStore
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, EvaluationResult
from agenteval_otel.sampling import AnswerFacts, Sampler, SamplingContext, SamplingDecision
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from agenteval_otel.semconv import OUTCOMES
from agenteval_otel.storage import EvaluationStorageProvider

_FIRST_RESULTS = (
    EvaluationResult(
        criterion_name="a",
        evaluator_type="T",
        score=0.2,
        normalized=0.2,
        passed=False,
        label="fail",
        started_ns=1,
        ended_ns=2,
    ),
    EvaluationResult(
        criterion_name="b", evaluator_type="T", score="warm", passed=True, label="pass"
    ),
    EvaluationResult(criterion_name="c", evaluator_type="T", error="x", error_type="timeout"),
)
_AWKWARD_INPUTS: tuple[EvaluationInput, ...] = (
    EvaluationInput(response=""),
    EvaluationInput(response="\ufffd\u202e\u200b e\u0301 \U0001f9d1\u200d\U0001f680"),
    EvaluationInput(response="x" * 262_144, prompt="y" * 262_144),
    EvaluationInput(response={"role": "assistant", "contentParts": []}),
    EvaluationInput(response="", error_type="TimeoutError"),
    EvaluationInput(response="half an ans", stream_end="abandoned"),
)
"""Inputs that every evaluator has to survive: with results, a skip or a clean error, never with a
made-up score.
"""
_TEXTS = (
    "",
    "a",
    "The parcel arrives on Tuesday.",
    "\ufffd\u202e\u200b e\u0301 東京 \U0001f9d1",
    "word " * 50_000,
    "a",
)
_PROMPTS = (None, "", " \n", "?", "\ufffd\u202e e\u0301", "how do i " * 50_000)


def check_component(component: Component, contract: type[Component]) -> None:
    """Check that a component fits its contract, and comes back from its own dump.

    The dump has to carry the type, which has to be registered.
    """
    assert isinstance(component, contract), f"not a {contract.__name__}"
    dump = component.model_dump(mode="json", fallback=repr)
    assert dump.get("type") == component.type, "the dump must carry the type"
    assert component.type in contract.registry, (
        f"{component.type!r} is not in the registry of {contract.__name__}"
    )
    assert resolve(contract, dump).fingerprint == component.fingerprint, (
        "its dump must build the same component"
    )


def check_evaluator(
    evaluator: Evaluator, inputs: Sequence[EvaluationInput] = _AWKWARD_INPUTS
) -> None:
    """Check that an evaluator returns results only for its own, requested criteria.

    Scores have to be finite and repeatable, and normalized scores in [0, 1].

    It has to declare its criteria. Otherwise they depend on the input.
    """
    own = {criterion.name for criterion in evaluator.criteria()}
    assert own, "an evaluator must declare its criteria"
    for evaluation_input in inputs:
        first = _evaluate(evaluator, evaluation_input)
        second = _evaluate(evaluator, evaluation_input)
        first_scores = [result.score for result in first]
        second_scores = [result.score for result in second]
        assert first_scores == second_scores, "the same input must give the same scores"
        for result in first:
            assert result.criterion_name in own, (
                f"{result.criterion_name!r} is not among its criteria"
            )
            assert not isinstance(result.score, float) or math.isfinite(result.score), (
                "a score must be finite"
            )
            assert result.normalized is None or 0.0 <= result.normalized <= 1.0, (
                "normalized lies in [0, 1]"
            )
    unasked = asyncio.run(evaluator.evaluate(inputs[0], ()))
    assert unasked == [], "criteria that are not asked for give no results"


def _evaluate(evaluator: Evaluator, evaluation_input: EvaluationInput) -> list[EvaluationResult]:
    try:
        results = asyncio.run(evaluator.evaluate(evaluation_input, evaluator.criteria()))
    except EvaluationSkipped:
        return []
    assert isinstance(results, list), "evaluate gives a list"
    return results


def check_sampler(sampler: Sampler, *, agent: str = "agent", draws: int = 1_000) -> None:
    """Check that a sampler answers every draw, however much is known.

    The decision is settled in the end: a known outcome, a reason, and a probability in [0, 1]
    or None.
    """
    step = RANDOMNESS_RANGE // draws
    for index in range(draws):
        memo: dict[int, SamplingDecision] = {}
        error_type = "TimeoutError" if index % 7 == 0 else None
        facts = AnswerFacts(0.1 * (index % 50), error_type, None, f"c-{index % 11}")
        evaluation_input = EvaluationInput(
            prompt="a",
            response="b",
            duration_s=facts.duration_s,
            error_type=facts.error_type,
            conversation_id=facts.conversation_id,
        )
        for known, content in ((None, None), (facts, None), (facts, evaluation_input)):
            decision = sampler.decide(SamplingContext(agent, index * step, known, content, memo))
            if decision.settled:
                break
        if sampler.needs_results:
            results = _FIRST_RESULTS[: index % 4]
            decision = sampler.decide(
                SamplingContext(agent, index * step, facts, evaluation_input, memo, results)
            )
        assert decision.settled, "with the evaluation input everything is known"
        assert isinstance(decision.sampled, bool), "sampled is true or false"
        assert decision.outcome in OUTCOMES, f"{decision.outcome!r} is no outcome"
        assert decision.probability is None or 0.0 <= decision.probability <= 1.0, (
            "a probability lies in [0, 1]"
        )
        assert decision.reason, "a decision has a reason"
        assert not decision.sampled or decision.applies, "what does not apply samples nothing"


def check_storage(storage: EvaluationStorageProvider) -> None:
    """Check that a storage provider takes results of every kind, many at once.

    Check also that it can be closed twice.
    """
    skipped = EvaluationResult(
        criterion_name="d", evaluator_type="T", skip_reason="no ground truth"
    )
    aggregated = AggregatedEvaluationResult(
        overall_score=0.5, results=(*_FIRST_RESULTS, skipped), agent="agent"
    )

    async def work() -> None:
        await asyncio.gather(*(storage.save_result(aggregated) for _ in range(20)))
        await storage.close()
        await storage.close()

    asyncio.run(work())


def check_embedder(embedder: Embedder, texts: Sequence[str] = _TEXTS) -> None:
    """Check that an embedder returns a row for each text, of length 1 or all zeros.

    The empty text has zeros. The other texts do not change a row.
    """
    rows = _rows(embedder, texts)
    assert len(rows) == len(texts), "one row a text"
    assert len({len(row) for row in rows}) == 1, "all rows are of one length"
    for text, row in zip(texts, rows, strict=True):
        assert all(math.isfinite(value) for value in row), "a vector is finite"
        length = math.hypot(*row)
        assert abs(length - 1.0) < 1e-3 or length == 0.0, (
            f"a row has the length 1, found {length:g}"
        )
        assert text or length == 0.0, "the empty text has zeros"
        (alone,) = _rows(embedder, [text])
        differences = [abs(value - other) for value, other in zip(row, alone, strict=True)]
        assert all(difference < 1e-3 for difference in differences), (
            "the same text has the same row, whatever stands beside it"
        )


def check_ground_truth(
    store: GroundTruthStore, inputs: Sequence[EvaluationInput] = _AWKWARD_INPUTS
) -> None:
    """Check that a store returns a `GroundTruth` or None for every input.

    It has to be the same each time, and None without a prompt.
    """
    awkward_prompts = [EvaluationInput(prompt=prompt) for prompt in _PROMPTS]
    for evaluation_input in (*inputs, *awkward_prompts):
        ground_truth = _settled(store.find(evaluation_input))
        assert ground_truth is None or isinstance(ground_truth, GroundTruth), (
            f"expected a GroundTruth or None, found {ground_truth!r:.80}"
        )
        assert ground_truth == _settled(store.find(evaluation_input)), (
            "the same input has the same ground truth"
        )
        if ground_truth is not None:
            assert evaluation_input.prompt, "without a prompt there is nothing to answer"
            assert 0.0 <= ground_truth.share <= 1.0, "a share lies in [0, 1]"
    assert all(isinstance(problem, Exception) for problem in store.problems()), (
        "problems are exceptions"
    )


def _rows(embedder: Embedder, texts: Sequence[str]) -> list[list[float]]:
    return [[float(number) for number in row] for row in _settled(embedder.embed(texts))]


def _settled(result: Any) -> Any:
    async def awaited() -> Any:
        return await result

    return asyncio.run(awaited()) if inspect.isawaitable(result) else result
