"""Why a criterion has no score: a word of a closed list in results, and an event where it is asked
for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import Func, LexicalSimilarity, ResponseHealth
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score
from agenteval_otel.models.results import NoScoreReason, no_score_reason
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with
from tests.testing.doubles import Keeping

PAGE = Path(__file__).parents[2] / "docs/reference/events.md"
NAME, REASON = "gen_ai.evaluation.name", "agenteval.evaluation.reason_code"


def tools(evaluation_input: EvaluationInput) -> Score:
    """An evaluator that has nothing to say of an answer without tool calls."""
    raise EvaluationSkipped("no tool calls")


def silent(evaluation_input: EvaluationInput) -> None:
    """An evaluator that says nothing."""


def evaluated(telemetry: RecordedTelemetry, **settings: Any) -> Keeping:
    """Evaluate an answer, and one that the handler failed to give. Return what was stored."""
    kept = Keeping()
    pipeline = pipeline_with(
        sampler=RatioSampler(),
        evaluators=(ResponseHealth(), Func.of(tools), LexicalSimilarity(criterion_name="similar")),
        storage=(telemetry.storage(**settings), kept),
        dispatcher=InlineDispatcher(),
    )

    @monitor(pipeline=pipeline, agent="shop")
    def answer(question: str) -> str:
        if not question:
            raise ValueError("nothing asked")
        return "It comes on Tuesday."

    answer("When does it come?")
    with pytest.raises(ValueError, match="nothing asked"):
        answer("")
    assert pipeline.shutdown(10)
    return kept


def results_of(kept: Keeping) -> dict[str, EvaluationResult]:
    """The results of the first answer, by criterion."""
    return {result.criterion_name: result for result in kept.saved[0].results}


def test_results_say_why_by_a_word(telemetry: RecordedTelemetry) -> None:
    """Beside the sentence of the evaluator. A score has none, and no event says so unasked."""
    kept = evaluated(telemetry)
    found = results_of(kept)
    assert found["tools"].reason_code == "not_applicable"
    assert found["tools"].skip_reason == "no tool calls"
    assert found["similar"].reason_code == "no_ground_truth"
    of_failed_call = {result.reason_code for result in kept.saved[1].results if result.skip_reason}
    assert of_failed_call == {"no_answer"}
    assert {event.event_name for event in telemetry.events()} == {"gen_ai.evaluation.result"}


def test_an_event_each_where_it_is_asked_for(telemetry: RecordedTelemetry) -> None:
    evaluated(telemetry, no_scores=True)
    said = [
        (event.attributes[NAME], event.attributes[REASON], str(event.body))
        for event in telemetry.events()
        if event.event_name == "agenteval.evaluation.no_score" and event.attributes
    ]
    assert ("tools", "not_applicable", "tools has no score (not_applicable)") in said
    assert ("similar", "no_ground_truth", "similar has no score (no_ground_truth)") in said
    assert ("tools", "no_answer", "tools has no score (no_answer)") in said


def test_the_page_names_every_reason() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for reason in get_args(NoScoreReason):
        assert f"| `{reason}` |" in page, reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no ground truth", "no_ground_truth"),
        ("no ground truth: it comes later", "no_ground_truth"),
        ("no answer: the handler raised", "no_answer"),
        ("load_shed", "load_shed"),
        ("budget_exhausted", "budget_exhausted"),
        ("no answer: too short", "not_applicable"),
        ("its own words", "not_applicable"),
        ("", "not_applicable"),
    ],
)
def test_the_word_for_a_sentence(text: str, reason: str) -> None:
    assert no_score_reason(text) == reason
