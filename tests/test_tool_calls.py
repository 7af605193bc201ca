"""Tool calls in every provider's words: what `ToolCall`, capture, spans and evaluators make of one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenteval_otel.capture.answers import read_answer
from agenteval_otel.capture.build import history_fields
from agenteval_otel.capture.messages import call_of, part_calls, part_results
from agenteval_otel.capture.spans.dialects.gen_ai import turn_of_parts
from agenteval_otel.evaluators.tools.calls import calls_of, has_failed
from agenteval_otel.models import EvaluationInput, Message, ToolCall

ARGUMENTS, RESULT = {"city": "Paris"}, {"degrees": 21}

CALLS: dict[str, dict[str, Any]] = {
    "anthropic": {"type": "tool_use", "id": "c", "name": "weather", "input": ARGUMENTS},
    "anthropic server": {"type": "server_tool_use", "id": "c", "name": "weather", "input": ARGUMENTS},
    "bedrock": {"toolUse": {"toolUseId": "c", "name": "weather", "input": ARGUMENTS}},
    "conventions": {"type": "tool_call", "id": "c", "name": "weather", "arguments": ARGUMENTS},
    "gemini": {"functionCall": {"id": "c", "name": "weather", "args": ARGUMENTS}},
    "genai objects": {"function_call": {"id": "c", "name": "weather", "args": ARGUMENTS}},
    "pydantic-ai": {"type": "tool-call", "tool_call_id": "c", "tool_name": "weather", "args": ARGUMENTS},
    "pydantic-ai built-in": {
        "type": "builtin-tool-call", "tool_call_id": "c", "tool_name": "weather", "args": ARGUMENTS,
    },
    "responses": {
        "type": "function_call", "id": "fc_1", "call_id": "c", "name": "weather", "arguments": json.dumps(ARGUMENTS),
    },
    "vercel": {"type": "tool-call", "toolCallId": "c", "toolName": "weather", "input": ARGUMENTS},
    "vercel 4": {"type": "tool-call", "toolCallId": "c", "toolName": "weather", "args": ARGUMENTS},
}  # fmt: skip
RESULTS: dict[str, dict[str, Any]] = {
    "anthropic": {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": json.dumps(RESULT)}]},
    "bedrock": {"toolResult": {"toolUseId": "c", "status": "success", "content": [{"json": RESULT}]}},
    "bedrock text": {"toolResult": {"toolUseId": "c", "content": [{"text": json.dumps(RESULT)}]}},
    "conventions": {"type": "tool_call_response", "id": "c", "response": RESULT},
    "gemini": {"functionResponse": {"id": "c", "name": "weather", "response": RESULT}},
    "pydantic-ai built-in": {"type": "builtin-tool-return", "tool_call_id": "c", "content": RESULT},
    "responses": {"type": "function_call_output", "call_id": "c", "output": json.dumps(RESULT)},
    "vercel": {"type": "tool-result", "toolCallId": "c", "output": {"type": "json", "value": RESULT}},
    "vercel 4": {"type": "tool-result", "toolCallId": "c", "result": json.dumps(RESULT)},
}  # fmt: skip
FAILURES: dict[str, dict[str, Any]] = {
    "anthropic": {"type": "tool_result", "tool_use_id": "c", "content": "no such city", "is_error": True},
    "bedrock": {"toolResult": {"toolUseId": "c", "status": "error", "content": [{"text": "no such city"}]}},
    "vercel": {"type": "tool-result", "toolCallId": "c", "output": {"type": "error-text", "value": "no such city"}},
    "vercel error": {"type": "tool-error", "toolCallId": "c", "error": "no such city"},
}  # fmt: skip


def values_of(call: Any) -> tuple[Any, Any, Any]:
    arguments = call.arguments
    return call.name, json.loads(arguments) if isinstance(arguments, str) else arguments, call.id


@pytest.mark.parametrize("form", CALLS)
def test_a_call_is_the_same_in_every_form(form: str) -> None:
    """For `ToolCall` itself, captured messages, spans and evaluators."""
    expected = ("weather", ARGUMENTS, "c")
    part = CALLS[form]
    assert values_of(ToolCall.model_validate(part)) == expected
    [captured] = part_calls([part])
    assert values_of(captured) == expected
    [in_span] = turn_of_parts("assistant", [part]).calls
    assert values_of(in_span) == expected
    message = Message(role="assistant", content_parts=[part])
    recorded = EvaluationInput(response="", message_history=[message])
    [made] = calls_of(recorded, "messageHistory")
    assert values_of(made) == expected


@pytest.mark.parametrize("form", RESULTS)
def test_a_result_is_data_in_every_form(form: str) -> None:
    """JSON text is read: a tool gives the same in every client."""
    call = CALLS["conventions"]
    turns = [turn_of_parts("assistant", [call]), turn_of_parts("user", [RESULTS[form]])]
    [answer, result] = history_fields(turns)
    assert answer["tool_calls"][0]["result"] == RESULT
    assert "error" not in answer["tool_calls"][0]
    assert (result["role"], result["tool_call_id"]) == ("tool", "c")


@pytest.mark.parametrize("form", FAILURES)
def test_a_failed_result_says_why_in_every_form(form: str) -> None:
    """Evaluators see the failure."""
    [result] = part_results([FAILURES[form]])
    assert (result.id, result.error) == ("c", "no such city")
    assert has_failed(ToolCall(name="weather", error=result.error))


def test_a_tool_that_pydantic_ai_lets_the_provider_run_is_a_call_with_its_result() -> None:
    """Both stand in the response, beside its text."""
    call = {"part_kind": "builtin-tool-call", "tool_name": "search", "args": {"q": 1}}
    returned = {"part_kind": "builtin-tool-return", "tool_name": "search", "content": RESULT}
    parts = [
        {**call, "tool_call_id": "c"},
        {**returned, "tool_call_id": "c"},
        {"part_kind": "text", "content": "Warm."},
    ]
    reading = read_answer([{"kind": "response", "parts": parts}])
    assert reading.text == "Warm."
    [made] = reading.calls.finished() or ()
    assert (made["name"], made["arguments"], made["result"]) == ("search", {"q": 1}, RESULT)


def test_what_a_tool_says_in_its_data_is_no_failure_but_its_error_is() -> None:
    """A payment that was denied was looked up with success."""
    assert not has_failed(ToolCall(name="payment", result={"status": "denied"}))
    assert has_failed(ToolCall(name="payment", result={"isError": True}))
    assert has_failed(ToolCall(name="payment", result={"error": "no such payment"}))


def test_a_tools_own_list_is_no_content() -> None:
    """Texts and mappings that a tool returned are its data."""
    for value in (
        {"text": "a", "score": 1},
        {"type": "text", "words": "a"},
        ["a", "b"],
        [{"text": "a", "score": 1}],
        [{"text": "a"}, {"score": 1}],
    ):
        part = {"type": "tool_call_response", "id": "c", "response": value}
        [result] = part_results([part])
        assert result.value == value


def test_openais_calls_are_read_with_and_without_their_function() -> None:
    """The name may stand in ``function`` itself, and a custom tool has its own field."""
    whole = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    for form in (whole, {"id": "c", "function": "weather"}, {"custom": {"name": "weather"}}):
        assert ToolCall.model_validate(form).name == "weather"
        call = call_of(form)
        assert call is not None
        assert call.name == "weather"
