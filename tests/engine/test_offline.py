"""`run_evaluation`: one input, one configuration, the aggregated result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agenteval_otel import (
    EvaluationInput,
    EvaluationRunConfig,
    Score,
    run_evaluation,
    run_evaluation_sync,
)
from agenteval_otel.capture.text import CAP_CHARS
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.redaction import Redactor
from agenteval_otel.semconv import METRIC_SCORE
from agenteval_otel.testing import RecordedTelemetry
from tests.testing.doubles import Fixed, Free, Thinking, config_of

INPUT = EvaluationInput(
    response="Paris is the capital of France.",
    prompt="Capital of France?",
    session_id="s-1",
    agent_id="geo",
    timestamp=12,
)


def evaluate(
    config: EvaluationRunConfig, made: EvaluationInput = INPUT
) -> AggregatedEvaluationResult:
    return run_evaluation_sync(made, config)


def test_the_aggregated_result_is_complete() -> None:
    """It holds the input, what was run, the metadata and the times."""
    aggregated = evaluate(config_of(Free(), ResponseHealth(), metadata={"build": 7}))
    assert aggregated.input_snapshot == INPUT
    assert (aggregated.session_id, aggregated.agent_id, aggregated.run_errors) == (
        "s-1",
        "geo",
        None,
    )
    assert aggregated.evaluation_config_snapshot == {
        "evaluatorTypes": ["Free:fixed", "ResponseHealth:response_health"],
        "criteriaNames": ["fixed", "response_health"],
        "storageProviderType": "none",
        "metadataKeys": ["build"],
    }
    assert aggregated.metadata["build"] == 7
    assert aggregated.metadata["errors"] == []
    assert aggregated.started_ns is not None
    assert aggregated.ended_ns is not None
    assert aggregated.timestamp == aggregated.ended_ns // 1_000_000


def test_it_runs_inside_and_outside_of_a_loop() -> None:
    """The sync form works in a script and where a loop runs already; the async form on the running
    loop.
    """
    config = config_of(Fixed())

    async def inside() -> list[float | None]:
        return [
            run_evaluation_sync(INPUT, config).overall_score,
            (await run_evaluation(INPUT, config)).overall_score,
        ]

    assert asyncio.run(inside()) == [0.5, 0.5]
    assert run_evaluation_sync(INPUT, config).overall_score == 0.5


class Measuring(Redactor):
    def redact(self, text: str) -> str:
        REDACTED.append(len(text))
        return text


REDACTED: list[int] = []


def test_what_a_model_is_asked_about_is_cut_before_it_is_redacted() -> None:
    """As live: redactors and models see a bounded text, all other evaluators the whole of it."""
    seen: dict[str, int] = {}

    def look(name: str) -> Callable[[EvaluationInput], Score]:
        return lambda made: (seen.update({name: len(made.response)}), Score(value=1.0))[1]

    config = config_of(
        Free(action=look("all")), Thinking(action=look("model")), redactors=[Measuring()]
    )
    evaluate(
        config, EvaluationInput(response="words " * 200_000, context={"documents": ["x" * 10**6]})
    )
    assert seen["all"] == 1_200_000
    assert 0.9 * CAP_CHARS < max(REDACTED) <= 1.01 * CAP_CHARS
    assert seen["model"] <= 1.01 * CAP_CHARS


def fail(_: EvaluationInput) -> Score:
    raise ValueError("broke")


def test_the_originals_json_carries_the_filler() -> None:
    """In the original's JSON an errored result has its evaluator's filler score; a raising one is
    in runErrors only.
    """
    config = EvaluationRunConfig(
        evaluators=(
            {
                "type": "RuleBased",
                "rules": [
                    {
                        "criterion": "Quoted",
                        "sourceTextField": "context.nothing",
                        "type": "length",
                        "max": 5,
                    }
                ],
            },
            Free(criterion_name="bad", action=fail),
            Free(criterion_name="good"),
        ),
    )
    aggregated = evaluate(config)
    assert aggregated.overall_score == 0.5
    assert aggregated.metadata["errors"] == [
        {"message": "ValueError: broke", "evaluatorType": "Free:bad"}
    ]
    shape = aggregated.original_json()
    assert [result["criterionName"] for result in shape["results"]] == ["Quoted", "good"]
    quoted = shape["results"][0]
    assert (quoted["score"], quoted["evaluatorType"]) == (False, "RuleBased")
    assert "no text at context.nothing" in quoted["error"]
    assert shape["overallScore"] == 0.5
    assert shape["runErrors"] == [{"message": "ValueError: broke", "evaluatorType": "Free:bad"}]
    assert shape["inputSnapshot"]["sessionId"] == "s-1"
    assert (shape["agentId"], shape["sessionId"]) == ("geo", "s-1")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (Unreadable(), "Unreadable: (its message could not be read)"),
        (SystemExit(3), "SystemExit: 3"),
        (
            OSError("no way to http://user:word@host/?api_key=k"),
            "OSError: no way to http://***@host/?api_key=***",
        ),
    ],
    ids=["unreadable", "exit", "secrets"],
)
def test_a_storage_that_fails_is_a_run_error(raised: BaseException, text: str) -> None:
    """It costs no score, and what its text says of addresses has no keys in it."""

    class Broken:
        async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
            raise raised

    actual = evaluate(config_of(Free(), storage=Broken()))
    assert actual.overall_score == 0.5
    assert [(error.evaluator_type, error.message) for error in actual.run_errors or ()] == [
        ("StorageProvider", text)
    ]


def test_offline_results_can_be_emitted(telemetry: RecordedTelemetry) -> None:
    """`OtlpStorageProvider` takes offline results too: events and metrics without a span."""
    evaluate(config_of(Free(), storage=telemetry.storage()))
    (event,) = telemetry.events()
    assert event.attributes["gen_ai.evaluation.score.value"] == 0.5
    assert not event.trace_id
    assert len(telemetry.points(METRIC_SCORE.name)) == 1
