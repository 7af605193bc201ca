"""Gemini: answers of google-genai and of its REST interface, whole and streamed.

Thoughts are left out. The names are those of the client's objects (snake_case) and of the wire form
(camelCase).
"""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.capture.fields import Tokens, field, first, first_value, items
from agenteval_otel.capture.messages import Call, Turn, content_text, has_unread_parts, part_calls
from agenteval_otel.capture.reading import Reading, response_format

_FIELDS: Final = (
    "candidates", "candidatesTokenCount", "candidates_token_count", "code", "codeExecutionResult",
    "code_execution_result", "executableCode", "executable_code", "finishReason", "functionCall", "functionResponse",
    "function_response", "modelVersion", "model_version", "promptTokenCount", "prompt_token_count", "responseId",
    "thoughtsTokenCount", "thoughts_token_count", "usageMetadata",
)  # fmt: skip
_CODE: Final = "code_execution"


@response_format("gemini", stream=True)
def read_candidates_chunk(reading: Reading, chunk: object) -> bool:
    """Read a chunk of an answer: it has the form of a whole one, with a piece of its content."""
    return _add(reading, chunk, is_piece=True)


@response_format("gemini", libraries=("google",), fields=_FIELDS)
def read_candidates(reading: Reading, answer: object) -> bool:
    """Read an answer: its first candidate's text, calls, finish reason, and the usage."""
    return _add(reading, answer, is_piece=False)


def _add(reading: Reading, answer: object, *, is_piece: bool) -> bool:
    usage = first_value(answer, "usage_metadata", "usageMetadata")
    candidates = field(answer, "candidates")
    if not isinstance(candidates, list) and (usage is None or not is_piece):
        return False
    candidate = next(iter(items(candidates)), None)
    if usage is None and candidate is not None and not _is_candidate(candidate):
        return False
    response_id = first(answer, "response_id", "responseId")
    turn = reading.open_turn(response_id) if is_piece else reading.begin_turn(response_id)
    parts = items(field(field(candidate, "content"), "parts"))
    reading.extend(turn, content_text(parts))
    reading.has_unread_parts = reading.has_unread_parts or has_unread_parts(parts)
    turn.has_output = turn.has_output or not is_piece
    _add_calls(reading, turn, parts)
    reading.update(
        turn,
        usage=_usage_of(usage),
        model=first(answer, "model_version", "modelVersion"),
        response_id=response_id,
        finish_reason=first(candidate, "finish_reason", "finishReason"),
    )
    return True


def _is_candidate(value: object) -> bool:
    """Tell whether a value is a candidate of Gemini's, and not another's."""
    return first_value(value, "content", "finish_reason", "finishReason") is not None


def _add_calls(reading: Reading, turn: Turn, parts: list[Any]) -> None:
    """Add the calls of functions, and the code that the provider runs with what it printed."""
    code_call: Call | None = None
    for part in parts:
        for call in part_calls([part]):
            reading.add_call(turn, call)
        code = first_value(part, "executable_code", "executableCode")
        if code is not None:
            code_call = Call(None, _CODE, {"code": field(code, "code")})
            reading.add_call(turn, code_call)
        outcome = first_value(part, "code_execution_result", "codeExecutionResult")
        if outcome is not None and code_call is not None:
            code_call.result = field(outcome, "output")


def _usage_of(usage: object) -> Tokens | None:
    """Return input and output tokens. Thoughts are counted beside the candidates', and are output."""
    tokens_in = first_value(usage, "prompt_token_count", "promptTokenCount")
    candidates = first_value(usage, "candidates_token_count", "candidatesTokenCount")
    thoughts = first_value(usage, "thoughts_token_count", "thoughtsTokenCount")
    counts = [count for count in (candidates, thoughts) if type(count) is int]
    if type(tokens_in) is not int and not counts:
        return None
    return tokens_in if type(tokens_in) is int else None, sum(counts) if counts else None
