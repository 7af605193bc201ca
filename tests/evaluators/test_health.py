"""ResponseHealth and the phrases of refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import EvaluationInput
from tests.golden import lines

LONG = "Paris is the capital of France and has been the seat of its government for a long time. " * 3


def reason(response: Any = "Paris.", **fields: Any) -> str | None:
    score = ResponseHealth().score(EvaluationInput(response=response, **fields))
    assert score.value is (score.reason_code is None)
    return score.reason_code


HEALTHY = [
    "Paris.", "0", "\U0001f44d", "東京です。", '{"answer": 42}', '{"error": null, "data": [1]}',
    "```python\nprint(1)\n```",
    "I'm sorry to hear that. Here is what you can do: rest.", "I can't help but admire this painting.",
    "Error handling in Go: return the error and let the caller decide.", LONG, LONG + "\n\nBest regards,",
    "I cannot give you an exact number, but about five million people live there.", {"city": "Paris"}, 0, [1],
    {"role": "assistant", "content": "Paris."}, {"role": "assistant", "toolCalls": [{"name": "search"}]},
    "<p>Paris</p>", "<html><head><title>Paris</title></head></html>", LONG + " The `code` is `x`.",
    "It's not safe to eat raw chicken.", "A Traceback (most recent call last) shows where a program failed.",
]  # fmt: skip

UNHEALTHY = [
    ("", "empty"), (" \n\t", "empty"), ("\u200b\ufeff\u2060", "empty"), (None, "empty"), ({}, "empty"), ([], "empty"),
    ({"role": "assistant", "content": " "}, "empty"),
    ("Traceback (most recent call last):\n  File", "error_text"), ("ValueError: bad value", "error_text"),
    ("Internal Server Error", "error_text"), ("503 Service Unavailable", "error_text"),
    ("Error: timeout", "error_text"),
    ("An unexpected error occurred while processing.", "error_text"), ('{"error": {"code": 1}}', "error_text"),
    ({"error": "boom"}, "error_text"),
    ("<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head></html>", "error_text"),
    ("I\u2019m sorry, but I can\u2019t assist with that.", "refusal"), ("I must decline this request.", "refusal"),
    ("**I cannot provide advice on that.**", "refusal"), ("It's not appropriate to share this.", "refusal"),
    ("That goes against my guidelines.", "refusal"), ("Stealing is not something I can help with.", "refusal"),
    ("```python\nprint(1)", "truncated"), (LONG + "It is known for its museums, its food, and", "truncated"),
    (LONG + "It is known for its museums, its food,", "truncated"),
]  # fmt: skip


@pytest.mark.parametrize("response", HEALTHY, ids=lambda response: repr(response)[:30])
def test_answers_are_healthy(response: Any) -> None:
    """An answer in any form, even about errors or with regrets, is an answer."""
    assert reason(response) is None


@pytest.mark.parametrize(("response", "code"), UNHEALTHY, ids=lambda item: repr(item)[:30])
def test_what_is_no_answer_says_why(response: Any, code: str) -> None:
    """Empty, broken-off, declining and error texts fail with their own word."""
    assert reason(response) == code


def test_what_the_call_itself_says_comes_first() -> None:
    """Exceptions, broken streams and the model's own finish reason need no reading of the text."""
    assert reason("", error_type="TimeoutError") == "handler_error"
    assert reason("Paris.", error_type="TimeoutError") is None
    assert reason("Paris.", stream_end="error") == "unfinished_stream"
    assert reason("", stream_end="abandoned") == "unfinished_stream"
    assert reason("Paris.", stream_end="completed", finish_reason="stop") is None
    assert reason("Paris", finish_reason="LENGTH") == "truncated"
    assert reason("", finish_reason="max_tokens") == "truncated"
    assert reason("Paris", finish_reason="content_filter") == "refusal"


def test_the_result_is_a_boolean_without_content() -> None:
    """Healthy is true and labelled pass; the reasoning quotes nothing of the answer."""
    health = ResponseHealth()
    assert health.resolved_execution == "inline"
    assert health.evaluates_errors
    (well,) = asyncio.run(health.evaluate(EvaluationInput(response="Paris."), health.criteria()))
    assert (well.criterion_name, well.score, well.label, well.normalized) == ("response_health", True, "pass", 1.0)
    (ill,) = asyncio.run(health.evaluate(EvaluationInput(response="Error: secret"), health.criteria()))
    assert (ill.score, ill.label, ill.normalized) == (False, "fail", 0.0)
    assert "secret" not in (ill.reasoning or "")


@pytest.mark.shared
def test_refusals_are_told_from_answers() -> None:
    """On recorded answers at least 95 of 100 reported refusals are ones, and at least 85 of 100 are reported."""
    actual = {"1_full_compliance": [0, 0], "2_full_refusal": [0, 0], "3_partial_refusal": [0, 0]}
    for record in lines("xstest_refusal_sample.jsonl"):
        actual[record["label"]][reason(record["completion"]) == "refusal"] += 1
    false, true = actual["1_full_compliance"][1], actual["2_full_refusal"][1]
    assert true / (true + false) >= 0.95
    assert true / sum(actual["2_full_refusal"]) >= 0.85
