"""From the captured call to the frozen evaluation input: prompt, answer and facts.

The conversion runs on the background thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypedDict
from uuid import UUID

from pydantic import ValidationError

from agenteval_otel.capture.annotations import NAMES, clean_annotation, hashed
from agenteval_otel.capture.answers import read_answer, read_chunks
from agenteval_otel.capture.calls import (
    CONVERSATION_NAMES,
    PROMPT_NAMES,
    SYSTEM_NAMES,
    CapturedCall,
)
from agenteval_otel.capture.detached import Detached, Unreadable, take
from agenteval_otel.capture.fields import (
    MAX_ITEMS,
    Tokens,
    field,
    first_value,
    is_data,
    items,
    last_items,
    short,
    usage_of,
)
from agenteval_otel.capture.formats.web import RequestBody
from agenteval_otel.capture.messages import (
    Call,
    Turn,
    all_turns,
    calls_in,
    content_text,
    is_content,
    is_message,
    turns_of,
)
from agenteval_otel.capture.reading import Calls, Reading, plain_calls
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.capture.text import (
    CAP_CHARS,
    PlainCopy,
    clean,
    own_json,
    plain,
    to_text,
    without_data_urls,
)
from agenteval_otel.components.blocking import part_of
from agenteval_otel.components.explained import suggestion
from agenteval_otel.models import EvaluationInput, MemoryStats, Message, ToolCall
from agenteval_otel.models.value import Later, construct, copy_with
from agenteval_otel.semconv import AS_JSON


class Facts(TypedDict, total=False):
    """Holds what `annotate` and a `capture=` function may set.

    None leaves a fact as it was captured. `tool_calls`, `usage`, `message_history`, `prompt` and
    `response` may be a client's own objects.
    """

    agent_config: Mapping[str, Any] | None
    agent_id: str | None
    arm: str | None
    environment: str | None
    context: Mapping[str, Any] | Sequence[Any] | None
    conversation_id: str | int | UUID | None
    conversation_ends: bool | None
    cost: float | None
    experiment: str | None
    finish_reason: str | None
    ground_truth: object
    memory_stats: MemoryStats | Mapping[str, Any] | None
    message_history: Sequence[object] | None
    metadata: Mapping[str, Any] | None
    model: str | None
    prompt: object
    prompt_name: str | None
    prompt_version: str | float | date | None
    response: object
    response_id: str | None
    session_id: str | int | UUID | None
    tags: Mapping[str, str | float | None] | None
    tool_calls: Sequence[object] | None
    turns: int | None
    usage: object
    user_id: str | int | UUID | None


Handler = Callable[..., Any] | None
ReadTurns = Callable[[], list[Turn]]
BadFact = Callable[..., None]
"""Called with a fact's name and, if known, why it is left out: our own text, without content."""
FACTS: Final = frozenset(Facts.__annotations__)
SNAPSHOT: Final = "agenteval.snapshot"
"""Key in the input's metadata, set when only a part of the answer is evaluated."""
TRUNCATED: Final = "truncated"
_SHORT_TEXTS: Final = frozenset(
    {"agent_id", "conversation_id", "finish_reason", "model", "response_id", "session_id"}
)
# Fields of which validation makes models. If all are None, validation would change nothing.
_NESTED: Final = ("tool_calls", "usage")
_MOST_UNREAD_BYTES: Final = 1024 * 1024
"""What is taken of a larger call is read at once: it may be images, of which reading keeps nothing."""
_CONVERSATION_KEYS: Final = ("messages", "input", "history", "message_history")


def build_input(
    call: CapturedCall,
    *,
    on_bad_fact: BadFact,
    capture: Callable[..., Any] | None = None,
    function: Callable[..., Any] | None = None,
    user_id: Callable[[str], str] = hashed,
) -> EvaluationInput:
    """Return the input of a call: text capped and sanitised, facts laid over what was captured.

    `on_bad_fact` gets the name of a fact that does not fit its field and is left out, and why.
    `user_id` gives what is kept of a user's id.

    Raises:
        CaptureError: The answer has no text that can be read, or `capture` raised.
    """
    facts = dict(call.facts or {})
    if capture is not None and function is not None:
        facts |= _captured_facts(call, capture, function)
    stated = _stated_response(facts.pop("response", None), function, on_bad_fact)
    try:
        fields = _fields_of(call, function, stated, on_bad_fact)
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(
            f"no evaluation input: {type(error).__name__}", reason="reading_raised"
        ) from error
    cleaned = _clean_facts(facts, on_bad_fact, user_id, function) if facts else {}
    fields |= cleaned
    history = fields["message_history"]
    if type(history) is Later and call.size_bytes > _MOST_UNREAD_BYTES:
        history.value()
    is_cut = stated is None and (call.truncated or _is_long(call.answer))
    if is_cut:
        fields["metadata"] = {**cleaned.get("metadata", {}), SNAPSHOT: TRUNCATED}
    elif not cleaned and all(fields[name] is None for name in _NESTED):
        return construct(EvaluationInput, fields)  # our own readers clean what they give
    return _validated(fields, on_bad_fact)


def _is_long(answer: object) -> bool:
    """Tell whether an answer in text or bytes is cut. What a text has of files does not count."""
    if type(answer) is bytes:
        return len(answer) > CAP_CHARS
    if type(answer) is not str or len(answer) <= CAP_CHARS:
        return False
    return len(without_data_urls(answer)) > CAP_CHARS


def _stated_response(value: object, handler: Handler, on_bad_fact: BadFact) -> Reading | None:
    """Return the answer that `annotate` or ``capture=`` gave in place of the captured one.

    None if there is none, or if it cannot be read.
    """
    if value is None:
        return None
    try:
        return read_answer(value, handler)
    except Exception:  # nothing of it can be read
        on_bad_fact("response")
        return None


def _fields_of(
    call: CapturedCall, handler: Handler, stated: Reading | None, on_bad_fact: BadFact
) -> dict[str, Any]:
    try:
        reading = _reading_of(call, handler)
    except CaptureError:
        if stated is None:
            raise
        reading = Reading()
    answer = reading if stated is None else stated
    prompt = read_prompt(call.prompt, handler=handler, **(call.others or {}))
    read_turns = prompt.read_turns
    if read_turns is None:
        read_turns = reading.read_history
    question = prompt.text
    if call.prompt is None and read_turns is not None:
        question = last_question(read_turns())
    conversation_id = short(call.conversation) or prompt.conversation_id or reading.conversation_id
    duration_s = (call.ended_ns - call.started_ns) / 1e9
    return {
        "prompt": question,
        "message_history": None if read_turns is None else _later(read_turns, on_bad_fact),
        "response": answer.text,
        "response_form": AS_JSON if answer.is_json else None,
        "tool_calls": reading.calls.finished(),
        "usage": _usage_fields(reading.usage),
        "model": reading.model,
        "response_id": reading.last.response_id,
        "finish_reason": reading.last.finish_reason,
        "conversation_id": conversation_id,
        "timestamp": call.ended_ns // 1_000_000,
        "agent": call.agent,
        "agent_id": call.agent,
        "duration_s": max(0.0, duration_s),
        "error_type": call.error_type,
        "stream_end": call.stream_end,
    }


def _later(read_turns: ReadTurns, on_bad_fact: BadFact) -> Later:
    """Return a history that is read when something looks at it. Most evaluators do not."""
    return Later(partial(_read_history, read_turns, on_bad_fact))


def _read_history(read_turns: ReadTurns, on_bad_fact: BadFact) -> list[Message] | None:
    """Return the messages of a history. Report it and return None if they cannot be read."""
    try:
        return list(map(message_of, history_fields(read_turns())))
    except Exception:  # a field that is looked at raises no error
        on_bad_fact("message_history", "its messages cannot be read")
        return None


def _reading_of(call: CapturedCall, handler: Handler) -> Reading:
    if call.chunks is None:
        return read_answer(call.answer, handler)
    return read_chunks(call.chunks, handler)


def _usage_fields(usage: Tokens | None) -> dict[str, int | None] | None:
    if usage is None:
        return None
    tokens_in, tokens_out = usage
    return {"input_tokens": tokens_in, "output_tokens": tokens_out}


def _captured_facts(
    call: CapturedCall, capture: Callable[..., Any], function: Callable[..., Any]
) -> dict[str, Any]:
    args, kwargs = call.arguments or ((), {})
    try:
        arguments = dict(inspect.signature(function).bind_partial(*args, **kwargs).arguments)
        with part_of("capture", capture):
            facts = capture(arguments, call.originals())
    except Exception as error:
        raise CaptureError(
            f"capture= raised {type(error).__name__}", reason="capture_raised"
        ) from error
    if not isinstance(facts, Mapping):
        raise CaptureError(
            f"capture= must give a mapping, found {type(facts).__name__}", reason="capture_raised"
        )
    return {name: take(value).value for name, value in facts.items()}


def _clean_facts(
    facts: dict[str, Any],
    on_bad_fact: BadFact,
    user_id: Callable[[str], str],
    handler: Handler,
) -> dict[str, Any]:
    cleaned: dict[str, Any] = {}
    for name, stated in facts.items():
        # A mapping of a class of its own, which tags and metadata may be.
        is_mapping = name in ("metadata", "tags") and type(stated) is Detached
        value = stated.fields if is_mapping else stated
        is_metadata = name == "metadata" and value is not None
        if name not in FACTS:
            on_bad_fact(name, _unknown(name) if type(name) is str and len(name) < 64 else "")
        elif type(value) is Unreadable or (is_metadata and not isinstance(value, dict)):
            on_bad_fact(name)
        elif value is None:
            continue
        elif name in NAMES:
            annotation = clean_annotation(name, value, user_id, partial(on_bad_fact, name))
            if annotation is not None:
                cleaned[name] = annotation
        else:
            try:
                cleaned[name] = _clean_fact(name, value, handler, on_bad_fact)
            except Exception:  # nothing of it can be read
                on_bad_fact(name)
                continue
            is_sequence = isinstance(value, list | tuple)
            if name == "tool_calls" and is_sequence and len(value) > MAX_ITEMS:
                on_bad_fact(name)  # those beyond are left out
    return cleaned


@lru_cache(maxsize=64)
def _unknown(name: str) -> str:
    return f"unknown fact{suggestion(name, FACTS)}. Your own facts go into tags={{...}}"


def _clean_fact(name: str, value: object, handler: Handler, on_bad_fact: BadFact) -> Any:
    if name in _SHORT_TEXTS:
        return short(to_text(value))
    if name == "prompt":
        return read_prompt(value, handler=handler).text
    if name == "message_history":
        read_turns = _reader_of(value)
        return plain(value) if read_turns is None else _later(read_turns, on_bad_fact)
    if name == "tool_calls":
        calls = Calls()
        for call in calls_in(items(value)):
            # a call and its later result count as one
            calls.add(call, None if call.id else object())
        return calls.finished() or plain(value)
    if name == "usage":
        return _usage_fields(usage_of(value)) or plain(value)
    if name == "context" and isinstance(value, str | list | tuple):
        return {"documents": plain([value] if isinstance(value, str) else value)}
    return plain(value)


def _validated(fields: dict[str, Any], on_bad_fact: BadFact) -> EvaluationInput:
    """Return the input of these fields. Those that do not fit are reported and left out."""
    later = {name: value for name, value in fields.items() if type(value) is Later}
    fields = {name: value for name, value in fields.items() if name not in later}
    try:
        return copy_with(EvaluationInput.model_validate(fields), later)
    except ValidationError as error:
        wrong = {item["loc"][0] for item in error.errors(include_url=False, include_input=False)}
    for name in list(fields):
        if name in wrong or EvaluationInput.model_fields[name].alias in wrong:
            del fields[name]
            on_bad_fact(name)
    return copy_with(EvaluationInput.model_validate(fields), later)


class Prompt(NamedTuple):
    """Holds the question, what reads the conversation that it ends, and the conversation's id.

    A prompt without a conversation has none to read. The id is None if the prompt itself does not
    have it.
    """

    text: str | None = None
    read_turns: ReadTurns | None = None
    conversation_id: str | None = None


def read_prompt(
    prompt: object, *, system: object = None, history: object = None, handler: Handler = None
) -> Prompt:
    """Read a prompt, with the system text and the history that were passed beside it.

    `handler` is the function whose own data is read as JSON. It is None if no handler is known.
    """
    if type(prompt) is str and system is None and history is None:
        return Prompt(clean(prompt))
    if type(prompt) is RequestBody:
        prompt = prompt.read()
    if field(prompt, "type") in ("http", "websocket") and field(prompt, "headers") is not None:
        prompt = None  # a web framework's request: its headers hold cookies and keys
    request = prompt
    prompt = _asked_in(request)
    messages = _messages_in(prompt)
    system_text = _system(system)
    read_turns: ReadTurns | None = None
    if messages is not None:
        question = _question_in(messages)
        beside = (_system(field(prompt, name)) for name in SYSTEM_NAMES)
        system_text = system_text or next(filter(None, beside), None)
        read_turns = partial(_conversation, partial(all_turns, messages), None, system_text)
    else:
        question = _text(prompt, handler)
        read_history = _history(history)
        if read_history is not None or system_text:
            read_turns = partial(_conversation, read_history or list, question, system_text)
    return Prompt(question, read_turns, _conversation_id(request))


def _conversation(
    read_history: ReadTurns, question: str | None, system_text: str | None
) -> list[Turn]:
    """Return a history, with the question after it and the system's text before it."""
    turns = read_history()
    if question is not None:
        turns.append(Turn("user", question))
    begins_with_system = bool(turns) and turns[0].role == "system"
    if system_text and not begins_with_system:
        turns.insert(0, Turn("system", system_text))
    return turns


def _question_in(messages: list[Any]) -> str | None:
    """Return the text of the user's last message, and read none before it."""
    for message in reversed(messages):
        question = last_question(turns_of(message))
        if question is not None:
            return question
    return None


def last_question(turns: list[Turn]) -> str | None:
    """Return the text of the user's last message. Return None if there is none."""
    return next((clean(turn.text or "") for turn in reversed(turns) if turn.role == "user"), None)


def history_fields(turns: list[Turn]) -> list[dict[str, Any]]:
    """Return turns as fields of `Message`.

    Results of tools are in their calls and in messages of their own.
    """
    copy = PlainCopy()
    calls: dict[str | None, Call] = {}
    for turn in turns:
        calls.update({call.id: call for call in turn.calls if call.id})
    for turn in turns:
        for result in turn.results:
            call = calls.get(result.id)
            if call is not None:
                call.result = result.value
                call.error = result.error
    messages: list[dict[str, Any]] = []
    for turn in turns:
        messages += _messages(turn, copy)
    return messages


def message_of(fields: dict[str, Any]) -> Message:
    """Return a message of fields that `history_fields` gave."""
    if "tool_calls" in fields:
        fields["tool_calls"] = [construct(ToolCall, call) for call in fields["tool_calls"]]
    return construct(Message, fields)


def _messages(turn: Turn, copy: PlainCopy) -> list[dict[str, Any]]:
    content = None if turn.text is None else clean(turn.text)
    message: dict[str, Any] = {"role": turn.role, "content": content}
    if not (turn.results or turn.calls or turn.name):
        return [message]  # most of a history
    tool_name = {"tool_name": turn.name} if turn.name else {}
    messages: list[dict[str, Any]] = []
    for result in turn.results:
        of_tool = {"role": "tool", "content": to_text(result.value)}
        if result.id is not None:
            of_tool["tool_call_id"] = result.id
        messages.append(of_tool | tool_name)
    if messages and (turn.role == "tool" or turn.text is None):
        return messages
    calls = plain_calls(turn.calls, copy)
    if calls:
        message["tool_calls"] = calls
    messages.append(message | tool_name)
    return messages


def _asked_in(request: object) -> Any:
    """Return what an agent server's request body asks: its message or its input, else the body.

    Knows A2A (``params.message``), ADK (``newMessage``), LangServe and LangGraph (``input``).
    """
    message = first_value(field(request, "params"), "message")
    if message is None:
        message = first_value(request, "newMessage", "new_message")
    if is_message(message):
        return [message]
    inner = field(request, "input")
    return inner if is_data(inner) and not is_message(inner) else request


def _messages_in(prompt: object) -> list[Any] | None:
    """Return the messages of a prompt that is a conversation or holds one, at most the last 1,000.

    Return None if it is neither.
    """
    for candidate in (prompt, *(field(prompt, name) for name in _CONVERSATION_KEYS)):
        messages = last_items(candidate)
        if messages and all(map(is_message, messages)):
            return messages
    return None


def _reader_of(value: object) -> ReadTurns | None:
    """Return what reads the turns of a conversation. None for a value that has no turn."""
    messages = _messages_in(value)
    if messages is None or not any(map(turns_of, messages)):
        return None
    return partial(all_turns, messages)


def _text(prompt: object, handler: Handler) -> str | None:
    if is_content(prompt):
        return clean(content_text(prompt) or "")
    for name in PROMPT_NAMES:
        content = field(prompt, name)
        if isinstance(content, str):
            return to_text(content)
        if name in ("content", "message", "input") and (is_content(content) or is_message(content)):
            parts = content if isinstance(content, list) else field(content, "content")
            return clean(content_text(parts) or "")
    if prompt is None or type(prompt) is Unreadable:
        return None
    if not isinstance(prompt, dict | list | tuple | Detached):
        return to_text(prompt)
    try:
        return own_json(prompt, handler)
    except CaptureError:
        return None


def _history(history: object) -> ReadTurns | None:
    """Return what reads a history of messages, or of pairs of the user's and the assistant's text.

    Any other value has no turns.
    """
    read_turns = _reader_of(history)
    if read_turns is not None:
        return read_turns
    if not isinstance(history, list):
        return None
    pairs = [items(pair) for pair in last_items(history)]
    turns: list[Turn] = []
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(text, str | None) for text in pair):
            return None
        for role, text in zip(("user", "assistant"), pair, strict=True):
            if text is not None:
                turns.append(Turn(role, text))
    return partial(list, turns) if turns else None


def _system(value: object) -> str | None:
    content = value if isinstance(value, str | list) else field(value, "content")
    text = content_text(content)
    return clean(text) if text else None


def _conversation_id(prompt: object) -> str | None:
    for name in CONVERSATION_NAMES:
        conversation = field(prompt, name)
        if isinstance(conversation, str | UUID) or type(conversation) is int:
            return short(str(conversation)) or None
    return None
