"""Event streams of agents' front ends: AG-UI, the AI SDK's UI message stream, and A2A."""

from __future__ import annotations

from typing import Final

from agenteval_otel.capture.fields import field, first, items, kind_of, usage_of
from agenteval_otel.capture.messages import Result, calls_in, content_text, result_of
from agenteval_otel.capture.reading import Reading, response_format

_FIELDS: Final = (
    "artifact",
    "artifacts",
    "errorText",
    "finishReason",
    "jsonrpc",
    "messageId",
    "message_id",
    "parts",
    "state",
    "toolCallName",
    "tool_call_name",
)
_UI_KINDS: Final = frozenset(
    {
        "abort",
        "error",
        "file",
        "finish",
        "finish-step",
        "message-metadata",
        "reasoning-delta",
        "reasoning-end",
        "reasoning-start",
        "source-document",
        "source-url",
        "start",
        "start-step",
        "text-delta",
        "text-end",
        "text-start",
    }
)
_ENDED: Final = frozenset({"completed", "input-required", "auth-required"})


@response_format("ag_ui", stream=True, fields=_FIELDS)
def read_ag_ui_event(reading: Reading, event: object) -> bool:
    """Read an event of AG-UI: text of the assistant's messages, and tool calls with their results."""
    kind = kind_of(event)
    if not kind.isupper():
        return False
    turn_key = first(event, "messageId", "message_id")
    call_id = first(event, "toolCallId", "tool_call_id")
    if kind in ("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK"):
        reading.extend(reading.open_turn(turn_key), field(event, "delta"))
    elif kind in ("TOOL_CALL_START", "TOOL_CALL_CHUNK", "TOOL_CALL_ARGS"):
        name = first(event, "toolCallName", "tool_call_name")
        reading.extend_call(
            reading.open_turn(), call_id, id=call_id, name=name, piece=field(event, "delta")
        )
    elif kind == "TOOL_CALL_RESULT":
        reading.calls.set_results([result_of(event)])
    else:
        return kind.startswith(("RUN_", "STEP_", "TEXT_MESSAGE_", "TOOL_CALL_", "THINKING_")) or (
            kind in ("STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT", "RAW", "CUSTOM")
        )
    return True


@response_format("ai_sdk_ui", stream=True)
def read_ui_event(reading: Reading, event: object) -> bool:
    """Read a part of the AI SDK's UI message stream: text, tool calls with results, the end."""
    kind = kind_of(event)
    if kind == "text-delta":
        reading.extend(reading.open_turn(), field(event, "delta") or field(event, "text"))
    elif kind == "tool-input-available":
        for call in calls_in([event]):
            reading.add_call(reading.open_turn(), call)
    elif kind == "tool-output-available":
        reading.calls.set_results([result_of(event)])
    elif kind == "tool-output-error":
        error = first(event, "errorText") or "error"
        reading.calls.set_results([Result(first(event, "toolCallId"), None, error)])
    elif kind in ("finish", "finish-step"):
        reading.update(
            reading.open_turn(),
            usage=usage_of(field(event, "usage")),
            finish_reason=first(event, "finishReason"),
        )
    elif kind == "start-step":
        reading.begin_turn()
    else:
        return kind in _UI_KINDS or kind.startswith(("tool-input-", "tool-output-", "data-"))
    return True


@response_format("a2a", stream=True)
def read_a2a_event(reading: Reading, event: object) -> bool:
    """Read an event of A2A: artifacts, the agent's messages, and the message of a task's end."""
    event = field(event, "result") if field(event, "jsonrpc") is not None else event
    kind = kind_of(event, "kind")
    if kind == "artifact-update":
        reading.extend(reading.open_turn(), _text_of(field(event, "artifact")))
    elif kind == "message":
        reading.extend(reading.begin_turn(first(event, "messageId")), _text_of(event))
    elif kind == "status-update":
        _add_status(reading, field(event, "status"))
    elif kind == "task" and field(event, "status") is not None:
        _add_task(reading, event)
    else:
        return False
    return True


@response_format("a2a")
def read_a2a_answer(reading: Reading, answer: object) -> bool:
    """Read a reply of A2A: a message of the agent, or a task with its artifacts."""
    is_reply = field(answer, "jsonrpc") is not None
    known = field(answer, "result") if is_reply else answer
    if kind_of(known, "kind") not in ("message", "task"):
        return False
    return read_a2a_event(reading, known)


def _add_task(reading: Reading, task: object) -> None:
    texts = [_text_of(artifact) for artifact in items(field(task, "artifacts"))]
    if any(texts):
        reading.extend(reading.open_turn(), "\n".join(text for text in texts if text))
    else:
        _add_status(reading, field(task, "status"))


def _add_status(reading: Reading, status: object) -> None:
    """Add the message of a task that is over or waits for others. Progress is no answer."""
    text = _text_of(field(status, "message"))
    if first(status, "state") in _ENDED and text:
        reading.extend(reading.begin_turn(), text)


def _text_of(value: object) -> str | None:
    """Return the text parts of a message or an artifact. A part's kind stands in ``kind``."""
    parts = [part for part in items(field(value, "parts")) if kind_of(part, "kind") in ("", "text")]
    return content_text(parts)
