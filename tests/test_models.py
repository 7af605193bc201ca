"""The frozen values of the route."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria, EvaluationInput, EvaluationResult

KEYS = st.sampled_from(["role", "contentParts", "type", "text", "a"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)


def test_both_spellings_are_read_and_camel_case_is_written() -> None:
    """Fields may be given in snake_case or camelCase; by alias they are written in camelCase."""
    one = EvaluationInput.model_validate({"response": "r", "groundTruth": "g"})
    assert one == EvaluationInput(response="r", ground_truth="g")
    assert one.model_dump(by_alias=True, exclude_unset=True) == {"response": "r", "groundTruth": "g"}


def test_values_do_not_change() -> None:
    """A value is frozen once it is built."""
    with pytest.raises(ValidationError):
        EvaluationInput(response="r").response = "other"  # type: ignore[misc]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_criteria_take_finite_numbers_only(value: float) -> None:
    """A weight or threshold that is no finite number is refused at start."""
    with pytest.raises(ValidationError, match="finite"):
        EvaluationCriteria(name="C", weight=value)


def test_values_are_found_by_path() -> None:
    """Segments go through mappings and lists; what is not there, and what is no text, is None."""
    one = EvaluationInput(response="r", context={"list": [{"a": 1}, "x"]}, prompt="p")
    assert one.value_at("context.list.0.a") == 1
    assert one.text_at("context.list.0.a") is None
    assert one.text_at("context.list.1") == "x"
    assert one.text_at("context.list.2") is None
    assert one.text_at("context.list[1]") is None
    assert one.text_at("metadata.a") is None
    assert one.text_at("") == "r"


@given(response=JSON, field=st.sampled_from(["response", "response.a", "response.0", "response.contentParts.0.text"]))
def test_any_answer_has_text_or_none(response: object, field: str) -> None:
    """No shape of an answer makes the text helper raise."""
    found = EvaluationInput(response=response).text_at(field)
    assert found is None or isinstance(found, str)


def test_a_failure_is_not_a_score() -> None:
    """Scored, skipped and failed are told apart; the filler shows in the original's shape only."""
    failed = EvaluationResult(criterion_name="C", evaluator_type="T", error="broke", filler=False)
    skipped = EvaluationResult(criterion_name="C", evaluator_type="T", skip_reason="nothing")
    scored = EvaluationResult(criterion_name="C", evaluator_type="T", score=0.5)
    assert [item.status for item in (failed, skipped, scored)] == ["failed", "skipped", "scored"]
    assert failed.original_json() == {"criterionName": "C", "score": False, "evaluatorType": "T", "error": "broke"}
    assert "filler" not in failed.model_dump()
    whole = AggregatedEvaluationResult(results=(failed, skipped, scored))
    assert [item["score"] for item in whole.original_json()["results"]] == [False, 0.5]
