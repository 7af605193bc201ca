"""Answers that were returned whole: a provider's response, a message, a framework's result or state, or plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from agenteval_otel.capture.shapes.calls import call_of
from agenteval_otel.capture.shapes.content import (
    TEXT_KEYS,
    content_text,
    is_content,
    part_calls,
    part_results,
    result_of,
    text_field,
)
from agenteval_otel.capture.shapes.fields import (
    field,
    first,
    items,
    json_object,
    kind_of,
    last_items,
    real_id,
)
from agenteval_otel.capture.shapes.reading import Reading
from agenteval_otel.capture.shapes.turns import Turn, all_turns, is_message, turns_of
from agenteval_otel.capture.shapes.usage import Tokens, usage_of
from agenteval_otel.capture.text import model_fields, to_text
from agenteval_otel.capture.values import Detached
from agenteval_otel.errors import CaptureError

__all__ = ["read_answer", "take_answer", "take_plain"]

_MAX_DEPTH: Final = 3
_IS_A_STREAM: Final = "is a stream for its reader: monitor what makes its pieces"
_OF_ONE: Final = frozenset({"message", "function_call", "reasoning", "custom_tool_call"})
"""Items that one response of a model puts out; `_ITEMS` are those of several, with what the tools gave between them."""
_ITEMS: Final = _OF_ONE | {"function_call_output", "custom_tool_call_output"}


def read_answer(answer: Any) -> Reading:
    """What an answer says.

    Raises:
        CaptureError: It is a stream, which belongs to its reader, or its own methods raised.
    """
    reading = Reading()
    if not take_answer(reading, answer):
        take_plain(reading, answer)
    return reading


def take_answer(reading: Reading, answer: Any, depth: int = _MAX_DEPTH) -> bool:
    """Take an answer of a known shape; False where it has none."""
    if answer is None or isinstance(answer, bool | int | float | bytes | bytearray):
        return False
    if isinstance(answer, str):
        return _take_json(reading, answer)
    if isinstance(answer, list | tuple):
        return _take_list(reading, answer)
    return depth > 0 and any(take(reading, answer, depth) for take in _SHAPES)


def take_plain(reading: Reading, answer: Any) -> None:
    """Take an answer of no known shape: text, a text field, or data as JSON.

    Raises:
        CaptureError: As `read_answer`.
    """
    if isinstance(answer, str):
        reading.say(to_text(answer))
        return
    if isinstance(answer, Mapping) or model_fields(answer) is not None:
        _take_beside(reading, answer)
    text = text_field(answer)
    if text is None:
        if type(answer) is Detached and not answer.type.is_data:
            raise CaptureError(f"no text from {answer.type.name}: it is no plain data and has no field of a known name")
        text = to_text(answer)
    reading.say(text)


def _take_json(reading: Reading, text: str) -> bool:
    """The dump of a response as JSON text; any other JSON is the answer itself."""
    if text[:1] != "{":
        return False
    read = json_object(text)
    kind, role = kind_of(read), kind_of(read, "role")
    dumped = (
        kind_of(read, "object").startswith(("chat.completion", "response"))
        or (kind == "message" and role == "assistant")
        or (kind == "ai" and field(read, "response_metadata") is not None)
        or (kind_of(read, "kind") == "response" and field(read, "parts") is not None)
    )
    return dumped and take_answer(reading, read)


def _take_list(reading: Reading, answer: Any) -> bool:
    found = last_items(answer)
    if found and all(kind_of(item) in _OF_ONE and kind_of(item, "role") in ("", "assistant") for item in found):
        _take_items(reading, found, Turn("assistant"))
        return True
    if found and all(is_message(item) for item in found):
        reading.conversation(all_turns(found))
        return True
    if is_content(found):
        reading.whole(Turn("assistant", content_text(found) or "", calls=part_calls(found)))
        reading.results(part_results(found))
        return True
    return False


def _take_completion(reading: Reading, answer: Any, depth: int) -> bool:
    choices = items(field(answer, "choices"))
    message = field(choices[0], "message") if choices else None
    if not choices or (message is None and not isinstance(field(choices[0], "text"), str)):
        return False
    turns = turns_of(message)
    turn = turns[0] if turns else Turn("assistant", content_text(field(message, "content")))
    if message is None:
        turn.text = content_text(field(choices[0], "text"))
    turn.text = turn.text or ""
    turn.usage = usage_of(field(answer, "usage")) or turn.usage
    turn.model = first(answer, "model")
    turn.key = turn.response_id = first(answer, "id")
    turn.finish_reason = first(choices[0], "finish_reason")
    reading.whole(turn)
    return True


def _take_response(reading: Reading, answer: Any, depth: int) -> bool:
    output = items(field(answer, "output"))
    named = kind_of(answer, "object") == "response" and isinstance(field(answer, "output"), list | tuple)
    if not named and not (output and all(kind_of(item) in _ITEMS for item in output)):
        return False
    turn = Turn("assistant", usage=_total(field(answer, "usage")), model=first(answer, "model"))
    turn.key = turn.response_id = real_id(first(answer, "id", "response_id"))
    stopped = first(field(answer, "incomplete_details"), "reason")
    turn.finish_reason = stopped or first(answer, "status")
    _take_items(reading, output, turn)
    return True


def _take_items(reading: Reading, output: list[Any], turn: Turn) -> None:
    texts: list[str] = []
    for item in output:
        kind = kind_of(item)
        if kind == "message":
            texts.append(content_text(field(item, "content")) or "")
        elif kind in ("function_call", "custom_tool_call"):
            turn.calls += [call] if (call := call_of(item)) is not None else []
        elif kind.endswith("_output"):
            turn.results.append(result_of(item))
        told = field(item, "provider_data")
        turn.model = turn.model or first(told, "model")
        turn.response_id = turn.response_id or first(told, "response_id")
    turn.text = "".join(texts)
    reading.whole(turn)


def _take_message(reading: Reading, answer: Any, depth: int) -> bool:
    turns = turns_of(answer)
    for turn in turns:
        turn.text = turn.text if turn.text is not None or turn.results else ""
        turn.role = turn.role if turn.role == "tool" else "assistant"
        reading.follow(turn)
    return bool(turns)


def _take_state(reading: Reading, answer: Any, depth: int) -> bool:
    """A graph's state: its messages."""
    messages = last_items(field(answer, "messages"))
    if not any(is_message(message) for message in messages):
        return False
    reading.conversation(all_turns(messages))
    return True


def _take_run_result(reading: Reading, answer: Any, depth: int) -> bool:
    """The result of an agent's run that lists its items and its model's raw responses."""
    found, output = field(answer, "new_items"), field(answer, "final_output")
    if not isinstance(found, list) or not isinstance(raw := field(answer, "raw_responses"), list):
        return False
    _must_be_complete(answer)
    for item in items(raw):
        _take_response(reading, item, depth)
    for item in items(found):
        take_item(reading, field(item, "raw_item"))
    if output is not None:
        turn = reading.whole(Turn("assistant", output if isinstance(output, str) else to_text(output)))
        last_agent = field(answer, "last_agent") or field(answer, "_last_agent")
        agent_model = field(last_agent, "model")
        turn.model = turn.model or first({"model": agent_model}, "model") or first(agent_model, "model")
    reading.usage_total = _total(field(field(answer, "context_wrapper"), "usage"))
    return True


def take_item(reading: Reading, item: Any) -> None:
    """One item of a run: a tool call, or what the tool gave. Messages are the responses' own."""
    for turn in turns_of(item) if kind_of(item) != "message" else ():
        for call in turn.calls:
            reading.calls.add(call)
        reading.results(turn.results)


def _take_agent_result(reading: Reading, answer: Any, depth: int) -> bool:
    """The result of an agent's run that holds its messages in its state, or the event that brings it."""
    if kind_of(answer, "event_kind") == "agent_run_result":
        return take_answer(reading, field(answer, "result"), depth - 1)
    state = field(answer, "_state")
    listed = field(state, "message_history")
    if listed is None:
        listed = field(answer, "_all_messages")
    turns = all_turns(listed)
    if not turns:
        return False
    _must_be_complete(answer)
    reading.conversation(turns)
    output, text = field(answer, "output"), reading.text
    if output is not None and (said := output if isinstance(output, str) else to_text(output)) != text:
        reading.whole(Turn("assistant", said, response_id=reading.response_id))
    reading.usage_total = _total(field(state, "usage")) or _total(field(answer, "usage"))
    return True


def _take_http(reading: Reading, answer: Any, depth: int) -> bool:
    """A web framework's response whose body is at hand."""
    body = field(answer, "body") or field(answer, "_content")
    if not isinstance(body, bytes) or not isinstance(field(answer, "status_code"), int):
        return False
    text = to_text(body)
    read = json_object(text)
    if not isinstance(read, Mapping) or not take_answer(reading, read, depth - 1):
        take_plain(reading, text if read is None else read)
    return True


def _take_remains(reading: Reading, answer: Any, depth: int) -> bool:
    """A provider's response that has lost what it said: it is no answer of the handler's own making."""
    kind, of = kind_of(answer), kind_of(answer, "object")
    lost = kind == "message" and (field(answer, "stop_reason") or field(answer, "role")) is not None
    if not lost and not of.startswith(("chat.completion", "text_completion")) and of != "response":
        return False
    turn = Turn("assistant", "", usage=usage_of(field(answer, "usage")), model=first(answer, "model"))
    turn.key = turn.response_id = first(answer, "id")
    turn.finish_reason = first(answer, "stop_reason")
    reading.whole(turn)
    return True


def _take_nested(reading: Reading, answer: Any, depth: int) -> bool:
    """A mapping or a model that holds a response under one of the names of an answer."""
    if not isinstance(answer, Mapping) and model_fields(answer) is None:
        return False
    for name in TEXT_KEYS:
        inner = field(answer, name)
        if inner is None or inner is answer:
            continue
        known = not isinstance(inner, str | list | tuple) and take_answer(reading, inner, depth - 1)
        if known or (isinstance(inner, list | tuple) and name != "content" and _take_list(reading, inner)):
            _take_beside(reading, answer)
            return True
    return False


_SHAPES: Final[tuple[Callable[[Reading, Any, int], bool], ...]] = (
    _take_completion, _take_response, _take_message, _take_run_result, _take_agent_result, _take_state, _take_http,
    _take_remains, _take_nested,
)  # fmt: skip


def _take_beside(reading: Reading, answer: Any) -> None:
    """What stands beside the text in an answer of the handler's own making: only what cannot be meant otherwise."""
    for one in items(field(answer, "tool_calls")):
        call = call_of(one)
        if call is not None:
            reading.calls.add(call)
    reading.usage_total = reading.usage_total or usage_of(field(answer, "usage"))


def _total(usage: Any) -> Tokens | None:
    """The usage of a run; a run that counted nothing was told nothing."""
    found = usage_of(usage)
    return found if found != (0, 0) else None


def _must_be_complete(answer: Any) -> None:
    if field(answer, "is_complete") is False:
        name = answer.type.name if type(answer) is Detached else type(answer).__name__
        raise CaptureError(f"{name} {_IS_A_STREAM}")
