"""Rubrics of an LLMJudge: steps and cases at the edge, own needs, forms from 0 to 1, and the reply
as a bare number.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationResult
from agenteval_otel.errors import ConfigurationError, EvaluationSkipped
from agenteval_otel.evaluators import LLMJudge, Rubric
from agenteval_otel.testing import ScriptedJudge

INPUT = EvaluationInput(prompt="q", response="An answer.")


def judged(judge: Any, value: EvaluationInput = INPUT, **fields: Any) -> list[EvaluationResult]:
    evaluator = LLMJudge(judge=judge, **fields)
    return asyncio.run(evaluator.evaluate(value, evaluator.criteria()))


def answer(score: Any) -> dict[str, Any]:
    return {"evidence": [], "reason": "r", "score": score}


@pytest.mark.parametrize(
    ("levels", "message", "score"),
    [
        ({1: "bad", 5: "good"}, 4, 0.75),
        ({0: "none", 10: "all"}, 3, 0.3),
        ({"true": "yes", "false": "no"}, True, 1.0),
        ({"pass": "yes", "fail": "no"}, False, 0.0),
    ],
)
def test_levels_on_the_scale_from_0_to_1(
    levels: dict[Any, str], message: Any, score: float
) -> None:
    """The judge is asked by the levels, and the score is its place between the ends."""
    rubric = Rubric(criterion_name="c", scale="numeric", levels=levels, threshold=0.75)
    (result,) = judged(ScriptedJudge(fallback=answer(message)), rubrics=[rubric])
    assert (result.score, result.normalized, result.passed) == (score, score, score >= 0.75)


def test_steps_and_cases_at_the_edge_are_told() -> None:
    """In their order, before and behind the levels."""
    judge = ScriptedJudge(fallback=answer(5))
    judged(
        judge,
        rubrics=[
            Rubric(
                criterion_name="c",
                description="How clear?",
                scale="likert5",
                levels={1: "dark", 5: "clear"},
                steps=["Read it.", "Read it again."],
                edge_cases=["A list is clear."],
            )
        ],
    )
    prompt = judge.requests[0].prompt
    places = [
        prompt.index(part)
        for part in (
            "How clear?",
            "How to go about it:\n1. Read it.\n2. Read it again.",
            "- 1: dark",
            "at the edge:\n- A list",
            "DATA-",
        )
    ]
    assert places == sorted(places)


def test_each_rubric_has_needs_of_its_own() -> None:
    """One that lacks its needs is skipped, with its reason and in its place, and its fields are not
    shown.
    """
    judge = ScriptedJudge(fallback={"a": answer(True), "c": answer(False)})
    rubrics = [
        Rubric(criterion_name="a", takes=()),
        Rubric(criterion_name="b", needs=("ground_truth",)),
        Rubric(criterion_name="c", needs=("response", "question")),
        Rubric(criterion_name="d", needs=("context|history",)),
    ]
    result = judged(judge, rubrics=rubrics)
    assert [(item.criterion_name, item.score, item.skip_reason) for item in result] == [
        ("a", True, None),
        ("b", None, "no ground truth"),
        ("c", False, None),
        ("d", None, "no context: nor history"),
    ]
    assert list(judge.requests[0].answer_form["properties"]) == ["a", "c"]
    assert result[0].evaluator_version == result[1].evaluator_version
    empty = judged(judge, EvaluationInput(response=":", prompt="q"), rubrics=rubrics)
    assert [item.skip_reason for item in empty] == [
        "degenerate answer",
        "no ground truth",
        "degenerate answer",
        "no context: nor history",
    ]
    assert judge.calls == 1


def test_where_all_lack_the_same_it_is_one_skip() -> None:
    """As for an evaluator of one criterion."""
    rubrics = [Rubric(criterion_name="a"), Rubric(criterion_name="b")]
    with pytest.raises(EvaluationSkipped, match="no history"):
        judged(ScriptedJudge(), rubrics=rubrics, needs=["history"])


def test_no_two_criteria_have_one_name_in_the_answer() -> None:
    """A criterion that is called as we would call another keeps its name; the other gets one of its
    own.
    """
    judge = ScriptedJudge(
        fallback={"criterion_2": answer(True), "criterion_2_": answer(False), "x": answer(True)}
    )
    rubrics = [Rubric(criterion_name=name) for name in ("criterion_2", "with spaces", "x")]
    assert [item.score for item in judged(judge, rubrics=rubrics)] == [True, False, True]
    assert list(judge.requests[0].answer_form["properties"]) == ["criterion_2", "criterion_2_", "x"]


@pytest.mark.parametrize(
    ("reply", "score", "word"),
    [
        ("4", 4, None),
        (" 2\n", 2, None),
        ("+3", 3, None),
        ("6", None, "out_of_range"),
        ("0", None, "out_of_range"),
        ("five", None, "malformed_answer"),
        ("4/5", None, "malformed_answer"),
        ("4.0", None, "malformed_answer"),
        ("4 stars", None, "malformed_answer"),
        ("", None, "empty_answer"),
        ('{"score": 4}', None, "malformed_answer"),
        ("\u0664", None, "malformed_answer"),
    ],
)
def test_a_bare_number(reply: str, score: int | None, word: str | None) -> None:
    """All of the reply is one whole number of the scale, or there is no score."""
    (result,) = judged(lambda prompt: reply, rubrics=["Coherence"], reply_form="number")
    assert (result.score, result.error_type) == (score, word)


def test_a_bare_number_is_for_models_that_give_text() -> None:
    """Other judges give an object by contract; and a scale without whole numbers is refused at
    load.
    """
    (scripted,) = judged(
        ScriptedJudge(fallback=answer(4)), rubrics=["Coherence"], reply_form="number"
    )
    assert scripted.score == 4
    for fields in (
        {"description": "x", "scale": "numeric"},
        {"rubrics": ["Bias"]},
        {"rubrics": ["Truth"]},
    ):
        with pytest.raises(
            ConfigurationError, match="reply_form number is for a scale of whole numbers"
        ):
            LLMJudge(judge=ScriptedJudge(), reply_form="number", **fields)


def test_what_is_there_is_told_apart_from_what_only_looks_like_it() -> None:
    """Calls without a result give no results, and a context of nothing but tool definitions is
    none.
    """
    rubrics = [
        Rubric(criterion_name="a", needs=("tool_results",)),
        Rubric(criterion_name="b", needs=("context",)),
    ]
    bare = {"tool_calls": [{"name": "t", "arguments": {}}], "context": {"tools": [{"name": "t"}]}}
    judge = ScriptedJudge(fallback={"a": answer(True), "b": answer(True)})
    result = judged(
        judge, EvaluationInput.model_validate({"response": "An answer.", **bare}), rubrics=rubrics
    )
    assert [item.skip_reason for item in result] == ["no tool results", "no context"]
    assert judge.calls == 0
    full = {
        "tool_calls": [{"name": "t", "arguments": {}, "result": 7}],
        "context": {"tools": [], "page": "p"},
    }
    result = judged(
        judge, EvaluationInput.model_validate({"response": "An answer.", **full}), rubrics=rubrics
    )
    assert [item.score for item in result] == [True, True]
    assert '"tool_results": [{"name": "t", "result": 7}]' in judge.requests[0].prompt


@pytest.mark.parametrize(
    ("field", "stack", "reason"),
    [
        ("ground_truth", {}, "no ground truth"),
        ("ground_truth", [], "no ground truth"),
        ("ground_truth", {"answer": " "}, "no ground truth"),
        ("context", {"page": " ", "note": None}, "no context"),
        ("context", {"documents": []}, "no context"),
        ("response", {}, "no response"),
        ("response", [""], "no response"),
        ("ground_truth", 0, None),
        ("ground_truth", False, None),
        ("context", {"found": 0}, None),
    ],
)
def test_nothing_in_a_wrapping_is_nothing(field: str, stack: Any, reason: str | None) -> None:
    """Empty lists, mappings and blank texts inside of them are no material; a zero and a no are."""
    judge = ScriptedJudge(fallback=answer(True))
    value = EvaluationInput.model_validate({"prompt": "q", "response": "An answer.", field: stack})
    if reason is None:
        assert judged(judge, value, criterion_name="c", needs=[field])[0].score is True
        return
    with pytest.raises(EvaluationSkipped, match=f"^{reason}$"):
        judged(judge, value, criterion_name="c", needs=[field])
    assert judge.calls == 0


def test_levels_between_0_and_1_describe_the_scale() -> None:
    """They are told, and any number from 0 to 1 is a score."""
    judge = ScriptedJudge(fallback=answer(0.7))
    (result,) = judged(
        judge, criterion_name="c", scale="numeric", levels={0: "none", 0.5: "half", 1: "all"}
    )
    assert (result.score, result.normalized) == (0.7, 0.7)
    assert "- 0.5: half" in judge.requests[0].prompt
    assert "a number from 0 (worst) to 1 (best)" in judge.requests[0].prompt


@pytest.mark.parametrize("form", ["score", "lines"])
def test_claims_have_a_form_of_their_own(form: Any) -> None:
    """A list has no place in a bare score, and every answer would be a failure: refused at load."""
    with pytest.raises(
        ConfigurationError,
        match=f"reply_form {form} is for one criterion, and for none with claims",
    ):
        LLMJudge(judge=ScriptedJudge(), rubrics=["Truth"], reply_form=form)


def test_a_template_with_its_texts_inline_tells_the_rubric_too() -> None:
    """The template holds the author's words and the case; levels and claims would be unknown to the
    judge.
    """
    judge = ScriptedJudge(
        fallback={"claims": [{"quote": "An answer", "evidence": "e", "holds": True}], "reason": ""}
    )
    (result,) = judged(
        judge, rubrics=["Truth"], prompt_template="Is {{response}} true?", placement="inline"
    )
    assert result.score == 1.0
    assert judge.requests[0].prompt == "Is An answer. true?"
    assert 'Of "Truth": Claims: ' in judge.requests[0].system
    judge = ScriptedJudge(fallback=answer(5))
    judged(
        judge, rubrics=["Fluency"], prompt_template="Is {{response}} fluent?", placement="inline"
    )
    assert 'Levels of "Fluency":\n- 1: Hardly' in judge.requests[0].system


def test_a_template_brings_the_parts_of_its_rubric_along() -> None:
    """Own wording leads; steps, levels or claims, and cases at the edge follow, and the texts stay
    data.
    """
    judge = ScriptedJudge(
        fallback={"claims": [{"quote": "An answer", "evidence": "e", "holds": True}], "reason": ""}
    )
    (result,) = judged(judge, rubrics=["Truth"], prompt_template="Is {{response}} true?")
    prompt = judge.requests[0].prompt
    assert result.score == 1.0
    assert prompt.startswith('Is [data: "response"] true?\nHow to go about it:\n1. ')
    assert (
        prompt.index('Of "Truth": Claims: ')
        < prompt.index("Cases at the edge:")
        < prompt.index('"An answer."')
    )
