"""`run_evaluation`: one input, one configuration, the aggregated result."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, Score, run_evaluation, run_evaluation_sync
from agenteval_otel.engine.offline import run_evaluations_sync
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import KeywordCoverage, ResponseHealth
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.scoring import Aggregation
from agenteval_otel.semconv import METRIC_SCORE
from agenteval_otel.testing import RecordedTelemetry
from tests.testing.doubles import Fixed, Free, Keeping, config_of

INPUT = EvaluationInput(response="Paris is the capital of France.", prompt="Capital of France?", session_id="s-1",
                        agent_id="geo", timestamp=12)  # fmt: skip
ORIGINAL: dict[str, Any] = {
    "evaluatorConfigs": [
        {"type": "RuleBased", "rules": [
            {"criterionName": "IsShort", "config": {"type": "length", "max": 5}},
            {"criterionName": "SaysParis",
             "config": {"type": "includes", "keywords": ["Paris"], "expectedOutcome": "all"}},
        ]},
        {"type": "KeywordCoverage", "config": {"criterionName": "Coverage", "expectedKeywords": ["capital", "river"]}},
    ],
}  # fmt: skip


def evaluate(config: EvaluationRunConfig, made: EvaluationInput = INPUT) -> AggregatedEvaluationResult:
    return run_evaluation_sync(made, config)


def test_the_originals_configuration_runs_unchanged() -> None:
    """``evaluatorConfigs`` with ``RuleBased`` rules and a ``KeywordCoverage`` config gives the original's results."""
    aggregated = evaluate(EvaluationRunConfig.model_validate(ORIGINAL))
    scores = {result.criterion_name: result.score for result in aggregated.results}
    assert scores == {"IsShort": False, "SaysParis": True, "Coverage": 0.5}
    assert aggregated.overall_score == pytest.approx(0.5)


def test_the_aggregated_result_is_complete() -> None:
    """It holds the input, what was run, the metadata and the times."""
    aggregated = evaluate(config_of(Free(), ResponseHealth(), metadata={"build": 7}))
    assert aggregated.input_snapshot == INPUT
    assert (aggregated.session_id, aggregated.agent_id, aggregated.run_errors) == ("s-1", "geo", None)
    assert aggregated.evaluation_config_snapshot == {
        "evaluatorTypes": ["Free:fixed", "ResponseHealth:response_health"],
        "criteriaNames": ["fixed", "response_health"], "storageProviderType": "none", "metadataKeys": ["build"],
    }  # fmt: skip
    assert aggregated.metadata["build"] == 7
    assert aggregated.metadata["errors"] == []
    assert aggregated.started_ns is not None
    assert aggregated.ended_ns is not None
    assert aggregated.timestamp == aggregated.ended_ns // 1_000_000


def test_it_runs_inside_and_outside_of_a_loop() -> None:
    """The sync form works in a script and where a loop runs already; the async form on the running loop."""
    config = config_of(Fixed())

    async def inside() -> list[float | None]:
        return [run_evaluation_sync(INPUT, config).overall_score, (await run_evaluation(INPUT, config)).overall_score]

    assert asyncio.run(inside()) == [0.5, 0.5]
    assert run_evaluation_sync(INPUT, config).overall_score == 0.5


def test_interruptions_pass_through_the_sync_form() -> None:
    """An interrupt of the user is no failure of an evaluator: it reaches the caller."""

    def stop(_: EvaluationInput) -> Score:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_evaluation_sync(INPUT, config_of(Free(action=stop)))


def test_failures_are_told_apart_from_scores() -> None:
    """A raising evaluator stands in `run_errors` and in the metadata, and stays out of the average."""

    def fail(_: EvaluationInput) -> Score:
        raise ValueError("broke")

    aggregated = evaluate(config_of(Free(value=1.0), Free(criterion_name="bad", action=fail)))
    assert aggregated.overall_score == 1.0
    assert aggregated.run_errors is not None
    assert [error.evaluator_type for error in aggregated.run_errors] == ["Free:bad"]
    assert aggregated.metadata["errors"] == [{"message": "ValueError: broke", "evaluatorType": "Free:bad"}]


def test_nothing_to_average_is_none() -> None:
    """When every evaluator fails the overall score is None, not 0."""
    aggregated = evaluate(config_of(Free(value=float("nan"))))
    assert aggregated.overall_score is None


def test_the_originals_json_carries_the_filler() -> None:
    """In the original's JSON an errored result has its evaluator's filler score; a raising one is in runErrors only."""

    def fail(_: EvaluationInput) -> Score:
        raise ValueError("broke")

    config = EvaluationRunConfig(
        evaluators=(
            {"type": "RuleBased", "rules": [
                {"criterion": "Quoted", "sourceTextField": "context.nothing", "type": "length", "max": 5}
            ]},
            Free(criterion_name="bad", action=fail),
            Free(criterion_name="good"),
        ),
    )  # fmt: skip
    shape = evaluate(config).original_json()
    assert [result["criterionName"] for result in shape["results"]] == ["Quoted", "good"]
    quoted = shape["results"][0]
    assert (quoted["score"], quoted["evaluatorType"]) == (False, "RuleBased")
    assert "no text at context.nothing" in quoted["error"]
    assert shape["overallScore"] == 0.5
    assert shape["runErrors"] == [{"message": "ValueError: broke", "evaluatorType": "Free:bad"}]
    assert shape["inputSnapshot"]["sessionId"] == "s-1"
    assert (shape["agentId"], shape["sessionId"]) == ("geo", "s-1")


def test_results_are_saved() -> None:
    """The storage provider gets the aggregated result."""
    storage = Keeping()
    aggregated = evaluate(config_of(Free(), storage=storage))
    assert storage.saved == [aggregated]
    assert (aggregated.evaluation_config_snapshot or {})["storageProviderType"] == "external"


def test_a_storage_that_fails_is_a_run_error() -> None:
    """A storage provider that raises does not lose the result: it is told in `run_errors`."""

    class Full:
        async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
            raise OSError("disk full")

    actual = evaluate(config_of(Free(), storage=Full()))
    assert actual.overall_score == 0.5
    assert actual.run_errors is not None
    (error,) = actual.run_errors
    assert (error.evaluator_type, error.message) == ("StorageProvider", "OSError: disk full")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Breaking(Aggregation, type="breaking_of_test_offline"):
    def combine(self, scored: Any) -> float | None:
        raise Unreadable


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (Unreadable(), "Unreadable: (its message could not be read)"),
        (SystemExit(3), "SystemExit: 3"),
        (OSError("no way to http://user:word@host/?api_key=k"), "OSError: no way to http://***@host/?api_key=***"),
    ],
    ids=["unreadable", "exit", "secrets"],
)
def test_whatever_a_storage_raises_is_told_without_its_secrets(raised: BaseException, text: str) -> None:
    """No error of a storage provider costs the scores, and what its text says of addresses has no keys in it."""

    class Broken:
        async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
            raise raised

    for (actual,) in ([evaluate(config_of(Free(), storage=Broken()))],
                     run_evaluations_sync([INPUT], config_of(Free(), storage=Broken()))):  # fmt: skip
        assert actual.overall_score == 0.5
        assert [(error.evaluator_type, error.message) for error in actual.run_errors or ()] == [
            ("StorageProvider", text)
        ]


def test_an_aggregation_without_words_costs_the_overall_score_only() -> None:
    """What it raised has no text that could be read; the results stand all the same."""
    aggregated = evaluate(config_of(Free(), aggregation=Breaking()))
    assert (aggregated.overall_score, aggregated.results[0].score) == (None, 0.5)
    assert [error.message for error in aggregated.run_errors or ()] == ["Unreadable: (its message could not be read)"]


def test_offline_results_can_be_emitted(telemetry: RecordedTelemetry) -> None:
    """`OtlpStorageProvider` takes offline results too: events and metrics without a span."""
    evaluate(config_of(Free(), storage=telemetry.storage()))
    (event,) = telemetry.events()
    assert event.attributes["gen_ai.evaluation.score.value"] == 0.5
    assert not event.trace_id
    assert len(telemetry.points(METRIC_SCORE.name)) == 1


def test_no_thread_is_left_by_a_run() -> None:
    """The thread of an offline run's evaluators ends with the run."""
    threads: list[threading.Thread] = []

    def note(_: EvaluationInput) -> Score:
        threads.append(threading.current_thread())
        return Score(value=1.0)

    evaluate(config_of(Fixed(action=note)))
    threads[0].join(10)
    assert not threads[0].is_alive()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"evaluators": []}, "evaluators"), ({}, "evaluators"), ({"evaluators": "ResponseHealth"}, "evaluators"),
        ({"evaluators": [ResponseHealth(), {"type": "Nope"}]}, "evaluators[1]"),
        ({"evaluators": [{"type": "KeywordCoverage"}]}, "evaluators[0].criterion_name"),
        ({"evaluatorConfigs": [{"type": "Nope", "config": {}}]}, "evaluatorConfigs[0]"),
        ({"evaluatorConfigs": [{"type": "KeywordCoverage", "config": 7}]}, "evaluatorConfigs[0].config"),
        ({"evaluatorConfigs": [{"type": "RuleBased"}]}, "evaluatorConfigs[0].rules"),
        ({"evaluators": [7]}, "evaluators[0]"),
    ],
)  # fmt: skip
def test_wrong_configurations_are_refused_with_their_path(fields: dict[str, Any], path: str) -> None:
    """What is wrong is told before anything runs, with the place where it stands."""
    with pytest.raises(ConfigurationError) as caught:
        EvaluationRunConfig(**fields)
    assert caught.value.path == path


def test_all_forms_of_evaluators_are_taken() -> None:
    """Instances, mappings, names of types and functions stand side by side."""

    def short(evaluation_input: EvaluationInput) -> bool:
        return len(evaluation_input.response_text) < 100

    mapping = {"type": "KeywordCoverage", "criterion_name": "kw", "expected_keywords": ["paris"]}
    aggregated = evaluate(EvaluationRunConfig(evaluators=[Free(), mapping, "ResponseHealth", short]))  # type: ignore[arg-type]
    assert [result.criterion_name for result in aggregated.results] == ["fixed", "kw", "response_health", "short"]
    assert isinstance(EvaluationRunConfig(evaluators=[mapping]).evaluators[0], KeywordCoverage)  # type: ignore[arg-type]


def test_a_configuration_that_is_none_is_told() -> None:
    """Whoever gives a mapping in the place of a configuration hears what makes one of it."""
    value: Any = {"evaluators": ["ResponseHealth"]}
    with pytest.raises(ConfigurationError, match=r"expected an EvaluationRunConfig, found dict; .*model_validate"):
        run_evaluation_sync(EvaluationInput(response="x"), value)
