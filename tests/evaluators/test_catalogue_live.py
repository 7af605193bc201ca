"""The catalogue under `@monitor`, with a store of ground truth: what is asked of each answer, and
what is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agenteval_otel import EvaluationResult, configure, monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.testing import ScriptedJudge
from tests.evaluators.catalogue import reply_for
from tests.ground_truth.support import written
from tests.judges.test_prompt import taken_apart
from tests.testing.doubles import Keeping

QUESTION = "Where is my order?"
RUBRICS = ["Coherence", "Fluency", "Equivalence", {"type": "Groundedness", "scale": "likert5"}]
ROWS = [(QUESTION, "It is on its way.", "Orders", "shop")]


def answered(request: Any) -> dict[str, Any]:
    """What a judge says: of the criteria that it is asked for, on what it was shown."""
    answers = {
        "Coherence": reply_for("Coherence"),
        "Fluency": reply_for("Fluency"),
        "Equivalence": reply_for("Equivalence", 4),
        "Groundedness": {
            "claims": [
                {"quote": "on its way", "evidence": "It is on its way.", "holds": True},
                {"quote": "by plane", "evidence": "nothing", "holds": False},
            ],
            "reason": "r",
        },
    }
    return {name: answers[name] for name in request.answer_form["properties"]}


def judge_question(judge: Any, tmp_path: Path, question: str) -> dict[str, EvaluationResult]:
    kept = Keeping()
    configure(
        sample_rate=1.0,
        evaluators=[LLMJudge(judge=judge, rubrics=RUBRICS)],
        storage=[kept],
        ground_truth={"type": "file", "path": str(written(tmp_path / "rows.csv", ROWS))},
        dispatcher=InlineDispatcher(),
    )

    @monitor(agent="shop")
    def handler(question: str) -> str:
        return "Your order is on its way, by plane."

    handler(question)
    return {result.criterion_name: result for result in kept.saved[-1].results}


def test_with_ground_truth_there_are_four_scores_from_1_to_5(tmp_path: Path) -> None:
    """As the Partnership Agent has them, from one call: the store's answer is reference and
    material.
    """
    judge = ScriptedJudge(answer=answered)
    actual = judge_question(judge, tmp_path, QUESTION)
    assert {name: (result.score, result.passed) for name, result in actual.items()} == {
        "Coherence": (5, True),
        "Fluency": (5, True),
        "Equivalence": (4, True),
        "Groundedness": (3.0, False),
    }
    (request,) = judge.requests
    assert list(taken_apart(request.prompt)[1]) == ["input", "response", "reference"]


def test_without_ground_truth_two_are_judged_and_two_are_skipped(tmp_path: Path) -> None:
    """The judge is not asked for what cannot be said, and each skip names what was missing."""
    judge = ScriptedJudge(answer=answered)
    actual = judge_question(judge, tmp_path, "How much is a stamp for a letter?")
    assert {name: (result.status, result.skip_reason) for name, result in actual.items()} == {
        "Coherence": ("scored", None),
        "Fluency": ("scored", None),
        "Equivalence": ("skipped", "no ground truth"),
        # what stands behind the colon is content capture's
        "Groundedness": ("skipped", "no context"),
    }
    (request,) = judge.requests
    assert list(request.answer_form["properties"]) == ["Coherence", "Fluency"]
    assert actual["Coherence"].passed is True
