"""The frozen values of the route."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agenteval_otel.evaluators import Coherence, KeywordCoverage
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    MemoryStats,
    Message,
    Score,
)
from agenteval_otel.models.value import snapshot_of

KEYS = st.sampled_from(["role", "contentParts", "type", "text", "a"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("model", "arguments", "wanted"),
    [
        (EvaluationInput, ("a",), "EvaluationInput(response=...)"),
        (Score, (1, "good"), "Score(value, label=...)"),
        (KeywordCoverage, (["a"],), "KeywordCoverage(criterion_name=...)"),
        (Coherence, ("a",), "Coherence(judge=...)"),
    ],
)
def test_a_positional_argument_is_answered_with_the_keyword(
    model: Any, arguments: Any, wanted: str
) -> None:
    """What has one obvious argument takes it by position; of other models the message shows the
    call.
    """
    assert Score(0.5) == Score(value=0.5)
    with pytest.raises(
        TypeError, match=re.escape(f"{model.__name__} takes its fields by keyword: {wanted}")
    ):
        model(*arguments)


def test_both_spellings_are_read_and_camel_case_is_written() -> None:
    """Fields may be given in snake_case or camelCase; by alias they are written in camelCase."""
    item = EvaluationInput.model_validate({"response": "r", "groundTruth": "g"})
    assert item == EvaluationInput(response="r", ground_truth="g")
    assert item.model_dump(by_alias=True, exclude_unset=True) == {
        "response": "r",
        "groundTruth": "g",
    }
    with pytest.raises(ValidationError, match="frozen"):
        item.response = "other"  # type: ignore[misc]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_criteria_take_finite_numbers_only(value: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        EvaluationCriteria(name="C", weight=value)


def test_values_are_found_by_path() -> None:
    """Segments go through mappings and lists; what is not there, and what is no text, is None. Two
    dots in a row are a key without a name."""
    item = EvaluationInput(
        response="r", context={"list": [{"a": 1}, "x"], "a": {"b": "x", "": {"b": "y"}}}
    )
    assert item.value_at("context.list.0.a") == 1
    for path in (
        "context.list.0.a",
        "context.list.2",
        "context.list[1]",
        "metadata.a",
        "context..a",
        "prompt",
    ):
        assert item.text_at(path) is None
    texts = {
        "context.list.1": "x",
        "": "r",
        "response.": "r",
        "context.a.b.": "x",
        "context.a..b": "y",
    }
    assert {path: item.text_at(path) for path in texts} == texts
    assert (EvaluationInput().text_at(), EvaluationInput().response_text) == (None, "")


@pytest.mark.parametrize("index", ["01", "-1", "+1", "\u0661", "1.", "1e0", "9" * 5000])
def test_an_index_is_written_one_way(index: str) -> None:
    """Plain decimal digits without zeros in front; a number beyond all lists is no place, and
    nothing raises.
    """
    item = EvaluationInput(context={"list": ["x", "y"]})
    assert item.text_at(f"context.list.{index}") == ("y" if index == "1." else None)


def test_a_message_answers_as_its_json_does() -> None:
    """A message that is an object of ours, or is spelt with underscores, has the text that its JSON
    has.
    """
    parts = [{"type": "image", "url": "u"}, {"type": "text", "text": "t"}]
    message = Message(role="assistant", content="whole", content_parts=parts)
    for response in (message, message.model_dump(), message.model_dump(by_alias=True)):
        assert EvaluationInput(response=response).text_at() == "t"
    item = EvaluationInput(response=message, context={"last": [message]})
    assert item.text_at("response.contentParts.1.text") == "t"
    assert item.text_at("context.last.0") == "t"


PARTS = [{"type": "text", "text": "Par"}, {"type": "image_url"}, {"type": "text", "text": "is"}]
ANSWER = {"role": "assistant", "content": "Paris"}
QUESTION = {"role": "user", "content": "q"}
CALL = {"role": "assistant", "content": None, "tool_calls": []}
MESSAGES: dict[str, tuple[Any, str | None]] = {
    "content": (ANSWER, "Paris"),
    "ours": (Message(role="assistant", content="Paris"), "Paris"),
    "parts": ({"role": "assistant", "content": PARTS}, "Paris"),
    "empty": ({"role": "assistant", "content": ""}, ""),
    "only a tool call": (CALL, None),
    "the last of a conversation": (
        [QUESTION, CALL, {"role": "tool", "content": "t"}, ANSWER],
        "Paris",
    ),
    "before a tool": ([ANSWER, {"role": "tool", "content": "t"}], "Paris"),
    "of ours": ([Message(role="assistant", content="Paris")], "Paris"),
    "before a question": ([ANSWER, QUESTION], None),
    "beside other data": ([{"id": 1}, ANSWER], None),
    "none": ([], None),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_chat_message_has_its_text(name: str) -> None:
    """A message has the text of its content, a conversation that of the assistant's last message
    after the question; where somebody else spoke last, or an item is no message, there is no text.
    """
    response, text = MESSAGES[name]
    item = EvaluationInput(response=response)
    assert (item.text_at(), item.response_text) == (text, text or "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("promt", "did you mean 'prompt'?"),
        ("groundtruth", "did you mean 'ground_truth'?"),
        ("q", "Known: response,"),
    ],
)
def test_an_unknown_field_of_an_input_is_refused(name: str, hint: str) -> None:
    """With the nearest name; a result that was stored with such an input loads without the field."""
    with pytest.raises(ValidationError, match=f"unknown field '{name}'.*{re.escape(hint)}"):
        EvaluationInput.model_validate({"response": "r", name: "x"})
    stored = AggregatedEvaluationResult.model_validate(
        {"inputSnapshot": {"response": "r", name: "x"}}
    )
    assert stored.input_snapshot == EvaluationInput(response="r")


@given(
    response=JSON,
    field=st.sampled_from(["response", "response.a", "response.0", "response.contentParts.0.text"]),
)
def test_any_answer_has_text_or_none(response: object, field: str) -> None:
    """No shape of an answer makes the text helper raise."""
    result = EvaluationInput(response=response).text_at(field)
    assert result is None or isinstance(result, str)


def test_a_failure_is_not_a_score() -> None:
    """Scored, skipped and failed are told apart; the filler shows in the original's shape only."""
    failed = EvaluationResult(criterion_name="C", evaluator_type="T", error="broke", filler=False)
    skipped = EvaluationResult(criterion_name="C", evaluator_type="T", skip_reason="nothing")
    scored = EvaluationResult(criterion_name="C", evaluator_type="T", score=0.5)
    assert [item.status for item in (failed, skipped, scored)] == ["failed", "skipped", "scored"]
    assert failed.original_json() == {
        "criterionName": "C",
        "score": False,
        "evaluatorType": "T",
        "error": "broke",
    }
    assert "filler" not in failed.model_dump()
    whole = AggregatedEvaluationResult(results=(failed, skipped, scored))
    assert [item["score"] for item in whole.original_json()["results"]] == [False, 0.5]


def test_an_agents_snapshot_is_part_of_the_input() -> None:
    """Cost, tokens, time, turns, history and memory come in either spelling and go out in the
    originals'.
    """
    fields: dict[str, Any] = {
        "response": "r",
        "cost": 0.01,
        "usage": {"inputTokens": 7, "outputTokens": 3},
        "durationS": 1.5,
        "turns": 2,
        "steps": [
            {"kind": "agent", "name": "bank", "beganS": 0.25},
            {"kind": "model", "parent": 0, "usage": {"inputTokens": 7}, "finishReason": "stop"},
            {"kind": "tool", "toolCall": 0, "errorType": "TimeoutError"},
        ],
        "memoryStats": {
            "keys": 1,
            "totalEntries": 2,
            "totalSize": 300,
            "oldest": "2026-01-01T00:00:00Z",
            "newest": 1_767_225_600_000,
        },
        "messageHistory": [{"role": "user", "content": "q", "createdAt": 5}],
    }
    item = EvaluationInput.model_validate(fields)
    assert item.memory_stats == MemoryStats(
        keys=1,
        total_entries=2,
        total_size=300,
        oldest="2026-01-01T00:00:00Z",
        newest=1_767_225_600_000,
    )
    assert item.turns == 2
    assert item.model_dump(by_alias=True, exclude_unset=True) == fields


ORIGINAL_RESULT: dict[str, Any] = {
    "overallScore": 0.75,
    "results": [
        {"criterionName": "A", "score": True, "evaluatorType": "RuleBased", "reasoning": "passed"},
        {"criterionName": "B", "score": 0, "evaluatorType": "LexicalSimilarity", "error": "no text"},
        {"criterionName": "C", "score": "error", "evaluatorType": "LLMJudge", "error": "no reply"},
        {"criterionName": "D", "score": 0.5, "evaluatorType": "Sentiment", "metadata": {"rawScore": 0}, "error": ""},
    ],
    "timestamp": 1_715_000_000_000,
    "agentId": "a",
    "sessionId": "s",
    "inputSnapshot": {
        "response": {"id": "m", "role": "assistant", "content": "x", "contentParts": [{"type": "text", "text": "x"}]},
        "criteria": [{"name": "A", "description": "d", "scale": "binary", "weight": None}],
        "groundTruth": {"answer": "x"}, "context": {"k": [1, None]}, "timestamp": 5, "metadata": {},
        "messageHistory": [{"id": "1", "role": "data", "content": "c", "createdAt": 7, "isStreaming": False}],
    },
    "evaluationConfigSnapshot": {"evaluatorTypes": ["RuleBased"], "criteriaNames": ["A"],
                                 "storageProviderType": "none", "metadataKeys": []},
    "metadata": {"errors": [], "durationMs": 3},
    "runErrors": [{"evaluatorType": "StorageProvider", "message": "full", "stack": "at save"}],
}  # fmt: skip


def test_the_originals_results_load_and_dump_unchanged() -> None:
    """A result in the originals' JSON comes back as it was: fillers, empty errors, stacks and
    messages too.
    """
    actual = AggregatedEvaluationResult.model_validate(ORIGINAL_RESULT)
    assert [result.status for result in actual.results] == ["scored", "failed", "failed", "scored"]
    assert [result.score for result in actual.results] == [True, None, None, 0.5]
    assert json.loads(json.dumps(actual.original_json())) == ORIGINAL_RESULT


def test_a_snapshot_keeps_what_was() -> None:
    """Lists, mappings and sets that change afterwards, at any depth, do not change it; text is
    shared.
    """
    text = "x" * 1000
    context: dict[str, Any] = {
        "a": {"b": [1]},
        "t": (text, [2]),
        "d": defaultdict(list, a=[1]),
        "s": {1},
    }
    parts = [{"type": "text", "text": text}]
    given = EvaluationInput(
        response=text, context=context, message_history=[Message(role="u", content_parts=parts)]
    )
    kept = snapshot_of(given)
    assert given.context is not None
    assert given.message_history is not None
    given.context["a"]["b"].append(2)
    given.context["t"][1].clear()
    given.context["d"]["b"].append(3)
    given.context["s"].add(2)
    (given.message_history[0].content_parts or [])[0]["text"] = "changed"
    assert kept.context == {"a": {"b": [1]}, "t": (text, [2]), "d": {"a": [1]}, "s": {1}}
    assert (kept.message_history or [])[0].content_parts == [{"type": "text", "text": text}]
    assert kept.response is text


def test_a_snapshot_shares_what_cannot_be_copied_and_nothing_else() -> None:
    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    lock, value = threading.Lock(), [1]
    copied = snapshot_of({"lock": lock, "list": value, "deep": deep, "again": value})
    value.append(2)
    assert (copied["lock"], copied["list"], copied["again"]) == (lock, [1], [1])
    assert copied["deep"] is not deep
    while deep:
        deep = deep[0]
