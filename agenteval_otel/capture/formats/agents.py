"""Results and streams of agent libraries: CrewAI, AutoGen and Haystack."""

from __future__ import annotations

from itertools import islice
from typing import Final

from agenteval_otel.capture.answers import add_answer
from agenteval_otel.capture.fields import field, first, items, kind_of, total_usage, usage_of
from agenteval_otel.capture.messages import Call, Turn, calls_in, content_text, result_of
from agenteval_otel.capture.reading import Reading, response_format

_CREW_FIELDS: Final = (
    "chunk_type",
    "json_dict",
    "raw",
    "task_index",
    "tasks_output",
    "token_usage",
    "tool_id",
)
_AUTOGEN_FIELDS: Final = ("chat_message", "inner_messages", "models_usage", "source")
_HAYSTACK_FIELDS: Final = (
    "component_info",
    "last_message",
    "meta",
    "origin",
    "reasoning",
    "reasoning_text",
    "replies",
    "start",
    "tool_call",
    "tool_call_result",
    "_content",
    "_meta",
    "_name",
    "_role",
)
_AUTOGEN_RESULT: Final = "ToolCallExecutionEvent"
_AUTOGEN_TEXTS: Final = frozenset(
    {
        "HandoffMessage",
        "MultiModalMessage",
        "StopMessage",
        "StructuredMessage",
        "TextMessage",
        "ToolCallSummaryMessage",
    }
)
_AUTOGEN_OTHERS: Final = frozenset(
    {
        "CodeExecutionEvent",
        "CodeGenerationEvent",
        "MemoryQueryEvent",
        "SelectSpeakerEvent",
        "SelectorEvent",
        "ThoughtEvent",
        "ToolCallRequestEvent",
        "UserInputRequestedEvent",
        _AUTOGEN_RESULT,
    }
)
_MAX_COMPONENTS: Final = 64


@response_format("crewai", fields=_CREW_FIELDS)
def read_crew_output(reading: Reading, answer: object) -> bool:
    """Read what a crew or one of its agents gives: its raw text and the usage."""
    text = field(answer, "raw")
    is_output = any(field(answer, name) is not None for name in ("tasks_output", "token_usage"))
    if not isinstance(text, str) or not is_output:
        return False
    usage = total_usage(field(answer, "token_usage"))
    reading.add_turn(Turn("assistant", content_text(text), usage=usage))
    return True


@response_format("crewai", stream=True)
def read_crew_chunk(reading: Reading, chunk: object) -> bool:
    """Read a chunk of a crew's stream: a piece of text, or a call as far as it came."""
    kind = kind_of(chunk, "chunk_type")
    call = field(chunk, "tool_call")
    if kind not in ("text", "tool_call"):
        return False
    if kind == "tool_call":
        id = first(call, "tool_id")
        name = first(call, "tool_name")
        # The arguments are repeated from their beginning in each chunk.
        known = Call(id, name or "", field(call, "arguments"))
        reading.add_call(reading.open_turn(), known, field(call, "index"))
        return True
    # Text after a call, or of another task, belongs to another response of a model.
    turn_key = f"{field(chunk, 'task_index')}:{len(reading.calls)}"
    reading.extend(reading.open_turn(turn_key), field(chunk, "content"))
    return True


@response_format("autogen", fields=_AUTOGEN_FIELDS)
def read_task_result(reading: Reading, answer: object) -> bool:
    """Read a team's or an agent's result: what came after the user's last message."""
    message = field(answer, "chat_message")
    if message is not None:
        messages = [*items(field(answer, "inner_messages")), message]
    else:
        messages = items(field(answer, "messages"))
    if not messages or not all(_is_autogen(message) for message in messages):
        return False
    turns = [turn for message in messages if (turn := _autogen_turn(message)) is not None]
    reading.add_conversation(turns)
    return True


@response_format("autogen", stream=True)
def read_task_event(reading: Reading, event: object) -> bool:
    """Read an event of a streamed run: pieces, messages, and the result that repeats them."""
    kind = kind_of(event)
    if kind == "ModelClientStreamingChunkEvent":
        reading.echo(field(event, "content"))
        return True
    if not _is_autogen(event):
        return read_task_result(reading, event)
    turn = _autogen_turn(event)
    if turn is not None:
        reading.add_message(turn)
    return True


def _is_autogen(message: object) -> bool:
    is_kind = kind_of(message) in _AUTOGEN_TEXTS or kind_of(message) in _AUTOGEN_OTHERS
    return is_kind and isinstance(field(message, "source"), str)


def _autogen_turn(message: object) -> Turn | None:
    """Return a message as a turn: text, calls, or results. Return None for thoughts."""
    kind = kind_of(message)
    content = field(message, "content")
    usage = total_usage(field(message, "models_usage"))
    if kind == "ToolCallRequestEvent":
        # The id keeps the result at the stream's end from adding the request again.
        key = first(message, "id")
        return Turn("assistant", calls=calls_in(items(content)), key=key, usage=usage)
    if kind == _AUTOGEN_RESULT:
        return Turn("tool", results=[result_of(result) for result in items(content)])
    if kind not in _AUTOGEN_TEXTS:
        return None
    role = "user" if first(message, "source") == "user" else "assistant"
    return Turn(role, content_text(content), key=first(message, "id"), usage=usage)


@response_format("haystack", libraries=("haystack",), fields=_HAYSTACK_FIELDS)
def read_pipeline_output(reading: Reading, answer: object) -> bool:
    """Read a pipeline's output: the first reply of its component, a text or a chat message."""
    if type(answer) is not dict:
        return False
    for output in (answer, *islice(answer.values(), _MAX_COMPONENTS)):
        replies = items(field(output, "replies"))
        if replies and _add_reply(
            reading, replies[0], next(iter(items(field(output, "meta"))), None)
        ):
            return True
    return False


def _add_reply(reading: Reading, reply: object, meta: object) -> bool:
    if isinstance(reply, str):
        turn = Turn("assistant", content_text(reply), usage=usage_of(field(meta, "usage")))
        turn.model = first(meta, "model")
        turn.finish_reason = first(meta, "finish_reason")
        reading.add_turn(turn)
        return True
    return add_answer(reading, reply)


@response_format("haystack", stream=True)
def read_streaming_chunk(reading: Reading, chunk: object) -> bool:
    """Read a chunk of a generator's or an agent's stream: text, pieces of calls, results."""
    meta = field(chunk, "meta")
    result = field(chunk, "tool_call_result")
    if field(result, "origin") is not None:
        reading.calls.set_results([result_of(result)])
        reading.begin_turn()
        return True
    if field(chunk, "finish_reason") == "tool_call_results":
        return True  # the end of the results
    if not kind_of(field(chunk, "component_info")):
        return False  # it is no chunk of a component's
    turn = reading.open_turn()
    reading.extend(turn, field(chunk, "content"))
    for call in items(field(chunk, "tool_calls")):
        reading.extend_call(
            turn,
            field(call, "index"),
            id=first(call, "id"),
            name=first(call, "tool_name"),
            piece=field(call, "arguments"),
        )
    reading.update(
        turn,
        usage=usage_of(field(meta, "usage")),
        model=first(meta, "model"),
        finish_reason=first(chunk, "finish_reason") or first(meta, "finish_reason"),
    )
    return True
