"""Every way in which a hosted judge fails, through the real clients: each has its own word, and
none is an answer.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agenteval_otel.evaluators.judges.base import ERROR_TYPES
from agenteval_otel.judges import AnthropicJudge, Judge, OpenAICompatibleJudge
from agenteval_otel.testing import ModelReply, ModelServer
from tests.judges.asking import GOOD, QUESTION, ask, failure, hosted

BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])

ONE_TRY: dict[str, tuple[ModelReply, str]] = {
    "refusal": (ModelReply(text="I will not.", finish_reason="content_filter"), "refusal"),
    "truncated": (ModelReply(text=GOOD, finish_reason="length"), "truncated"),
    "truncated in the middle": (ModelReply(text=GOOD[:20], finish_reason="length"), "truncated"),
    "empty": (ModelReply(text=""), "empty_answer"),
    "only space": (ModelReply(text=" \n\t"), "empty_answer"),
    "prose": (ModelReply(text=f"Here you are: {GOOD}"), "malformed_answer"),
    "cut JSON": (ModelReply(text=GOOD[:-3]), "malformed_answer"),
    "wrong type": (ModelReply(text='{"reason": "x", "score": "8/10"}'), "malformed_answer"),
    "context overflow by status": (
        ModelReply(status=400, text="prompt is too long: 3 tokens"),
        "context_overflow",
    ),
    "request too large": (ModelReply(status=413), "context_overflow"),
    "bad request": (ModelReply(status=400, text="unknown field"), "bad_request"),
    "unprocessable": (ModelReply(status=422), "bad_request"),
    "no such path": (ModelReply(status=405), "bad_request"),
    "unauthenticated": (ModelReply(status=401), "authentication"),
    "unpaid": (ModelReply(status=402), "authentication"),
    "forbidden": (ModelReply(status=403), "authentication"),
    "no such model": (ModelReply(status=404), "not_found"),
    "redirect": (
        ModelReply(status=302, headers={"Location": "http://127.0.0.1:9/"}),
        "bad_request",
    ),
    "page instead of an answer": (
        ModelReply(headers={"Content-Type": "text/html"}, body="<html>Log in</html>"),
        "malformed_answer",
    ),
    "no content type that is known": (
        ModelReply(text=GOOD, headers={"Content-Type": "?"}),
        "malformed_answer",
    ),
    "no JSON": (ModelReply(body="{"), "malformed_answer"),
    "a list": (ModelReply(body=[1]), "malformed_answer"),
    "another form": (ModelReply(body={"score": 5}), "malformed_answer"),
    "huge, and says so": (ModelReply(text=GOOD, padding=2_000_000), "malformed_answer"),
    "huge, and does not say so": (
        ModelReply(text=GOOD, padding=2_000_000, chunked=True),
        "malformed_answer",
    ),
    "compressed": (ModelReply(text=GOOD, headers={"Content-Encoding": "gzip"}), "malformed_answer"),
    "error in a success": (
        ModelReply(body={"error": {"code": 404, "message": "no model"}}),
        "not_found",
    ),
}

RETRIED: dict[str, tuple[ModelReply, str]] = {
    "rate limited": (ModelReply(status=429), "rate_limited"),
    "overloaded": (ModelReply(status=529), "overloaded"),
    "server error": (ModelReply(status=500), "server_error"),
    "unavailable": (ModelReply(status=503), "server_error"),
    "huge page of an error": (ModelReply(status=502, body="x" * 3_000_000), "server_error"),
    "conflict": (ModelReply(status=409), "server_error"),
    "request timed out there": (ModelReply(status=408), "timeout"),
    "cut connection": (ModelReply(text=GOOD, cut_after=1), "connection_error"),
    "reset connection": (ModelReply(resets=True), "connection_error"),
}


@BOTH
def test_a_permanent_failure_is_not_retried(kind: type[Judge]) -> None:
    """It has its error type of the closed list, after one request, which is counted."""
    with ModelServer([reply for reply, _ in ONE_TRY.values()]) as server:
        judge = hosted(kind, server)
        for number, (case, (_, error_type)) in enumerate(ONE_TRY.items(), 1):
            result = failure(judge)
            assert (result.error_type, result.retryable) == (error_type, False), case
            assert error_type in ERROR_TYPES
            assert result.usage is not None
            assert result.usage.calls == 1
            assert len(server.requests) == number, case


@BOTH
def test_a_temporary_failure_is_retried(kind: type[Judge]) -> None:
    """The judge retries it twice, then fails with its error type; each attempt is counted, also
    before an answer.
    """
    for case, (reply, error_type) in RETRIED.items():
        with ModelServer([reply, reply, reply, reply, GOOD]) as server:
            result = failure(hosted(kind, server))
            assert (result.error_type, result.retryable) == (error_type, True), case
            assert result.usage is not None
            assert result.usage.calls == len(server.requests) == 3, case
            verdict = ask(hosted(kind, server))
            assert (verdict.answer["score"], verdict.usage.calls) == (4, 2), case


@pytest.mark.parametrize(
    ("kind", "reply", "error_type"),
    [
        (
            AnthropicJudge,
            ModelReply(text=GOOD, finish_reason="model_context_window_exceeded"),
            "context_overflow",
        ),
        (OpenAICompatibleJudge, ModelReply(text=GOOD, refusal="I cannot."), "refusal"),
        (
            OpenAICompatibleJudge,
            ModelReply(status=429, body={"error": {"code": "insufficient_quota"}}),
            "rate_limited",
        ),
    ],
)
def test_failures_of_one_provider(kind: type[Judge], reply: ModelReply, error_type: str) -> None:
    """A full window, a refusal beside the content, and a quota that is spent, which no retry helps."""
    with ModelServer([reply]) as server:
        result = failure(hosted(kind, server))
        assert len(server.requests) == 1
    assert (result.error_type, result.retryable) == (error_type, False)


@pytest.mark.parametrize(
    "choice",
    [
        {"finish_reason": reason, "message": {"role": "assistant", "content": GOOD}}
        for reason in ("eos", "eos_token", "stop_sequence", None)
    ]
    + [
        {
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": None, "reasoning_content": GOOD},
        }
    ],
)
def test_answers_of_other_servers_are_read(choice: dict[str, Any]) -> None:
    """llama.cpp and TGI name the end of an answer otherwise; some leave all of it among the thoughts."""
    with ModelServer([ModelReply(body={"choices": [choice]})]) as server:
        verdict = ask(hosted(OpenAICompatibleJudge, server))
    assert verdict.answer["score"] == json.loads(GOOD)["score"]


@BOTH
def test_two_text_parts_are_no_single_object(kind: type[Judge]) -> None:
    """They are joined and refused."""
    parts = [{"type": "text", "text": GOOD}, {"type": "text", "text": GOOD}]
    body: dict[str, Any] = {"type": "message", "content": parts, "stop_reason": "end_turn"}
    if kind is OpenAICompatibleJudge:
        body = {
            "choices": [
                {"finish_reason": "stop", "message": {"role": "assistant", "content": parts}}
            ]
        }
    with ModelServer([ModelReply(body=body)]) as server:
        assert failure(hosted(kind, server)).error_type == "malformed_answer"


SILENT = [
    ModelReply(hangs="before"),
    ModelReply(text=GOOD, hangs="headers"),
    ModelReply(text=GOOD, hangs="body"),
    ModelReply(text=GOOD, trickle_s=0.05),
    ModelReply(text=GOOD, delay_s=30.0),
]


@BOTH
def test_the_deadline_ends_a_call_in_any_state(kind: type[Judge]) -> None:
    """A silent, late or trickling provider costs the deadline, after one request."""
    with ModelServer([GOOD, *SILENT]) as server:
        judge = hosted(kind, server, deadline_s=1.5)

        async def asked_at_once() -> list[Any]:
            questions = [judge.judge(QUESTION) for _ in SILENT]
            return await asyncio.gather(*questions, return_exceptions=True)

        ask(judge.model_copy(update={"deadline_s": 20.0}))
        failures = asyncio.run(asked_at_once())
        assert len(server.requests) == 1 + len(SILENT)
    for failed in failures:
        assert (failed.error_type, failed.retryable) == ("timeout", False)
        assert failed.usage.calls == 1
