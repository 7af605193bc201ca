"""Values of attributes: JSON text, structured, or lists spread over numbered attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeGuard

from pydantic_core import from_json

from agenteval_otel.capture.answers import read_answer
from agenteval_otel.capture.build import read_prompt
from agenteval_otel.capture.fields import MAX_ITEMS, items, last_items
from agenteval_otel.capture.messages import Call, Turn, all_turns, is_message, result_of
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.capture.text import plain

MAX_JSON_CHARS: Final = 2 * 1024 * 1024
"""Longer JSON is not read: such a message holds a file."""
_MAX_DEFINITION_CHARS: Final = 64 * 1024
_KEPT_CHARS: Final = 16 * 1024
"""Definitions of this length may take half a megabyte once they are read, and 32 are kept."""
_MAX_DEPTH: Final = 32
_MAX_WRAPPED: Final = 16


def structured(value: object) -> Any:
    """Return what an attribute holds.

    JSON text is read, also if a limit of the SDK has cut it. Other text stays as it is, and
    what is structured already is taken as it is.
    """
    if isinstance(value, str):
        return _read(value)
    # From OTLP it is plain already; the SDK has tuples and mappings of its own.
    return value if type(value) in (list, dict) else _as_plain(value, _MAX_DEPTH)


def _read(text: str) -> Any:
    if len(text) > MAX_JSON_CHARS or text[:1] not in ("[", "{", '"'):
        return text
    try:
        return from_json(text)
    except ValueError:
        pass
    try:
        return json.loads(text)  # takes lone surrogates, which are replaced later
    except (ValueError, RecursionError):
        pass
    if text.startswith(("[{", '{"')):
        try:
            return from_json(text, allow_partial="trailing-strings")
        except ValueError:
            pass
    return text


def _as_plain(value: object, depth: int) -> Any:
    if isinstance(value, Mapping):
        if depth == 0:
            return None
        return {str(key): _as_plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(item, depth - 1) for item in value] if depth else None
    return value


def without_lc(value: object) -> Any:
    """Return what an attribute holds without the wrapping of LangChain's serialization.

    The wrapping is ``{"lc": 1, "id": [...], "kwargs": {...}}``.
    """
    read = structured(value)
    is_wrapped = isinstance(value, str) and '"lc"' in value
    return _unwrapped(read, _MAX_WRAPPED) if is_wrapped else read


def _unwrapped(value: Any, depth: int) -> Any:
    if depth == 0:
        return value
    if isinstance(value, dict):
        if "lc" in value and isinstance(value.get("kwargs"), dict):
            value = value["kwargs"]
        return {name: _unwrapped(item, depth - 1) for name, item in value.items()}
    return [_unwrapped(item, depth - 1) for item in value] if isinstance(value, list) else value


def numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the items of a list whose fields are attributes of their own.

    They are read from ``<prefix>.<number>.<path>`` by number, as ``{path: value}``. Lists
    within an item stay spread.
    """
    lists: dict[int, dict[str, Any]] = {}
    prefix += "."
    start = len(prefix)
    for name, value in attributes.items():
        if name.startswith(prefix):
            number, _, path = name[start:].partition(".")
            if number.isdecimal() and len(number) < 8:
                lists.setdefault(int(number), {})[path] = value
    return [lists[number] for number in sorted(lists)[:MAX_ITEMS]]


def definitions(value: object) -> Any:
    """Return definitions of tools as plain data.

    Return None if there are none. They are the same for most answers of an agent, so what was
    read last is kept.
    """
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        texts = (item for item in items(value) if len(item) <= _MAX_DEFINITION_CHARS)
        return [_definitions_of_text(text) for text in texts] or None
    return _definitions_of_text(value) if isinstance(value, str) else _read_definitions(value)


def _definitions_of_text(text: str) -> Any:
    return _kept_definitions(text) if len(text) <= _KEPT_CHARS else _read_definitions(text)


def _read_definitions(value: object) -> Any:
    read = structured(value)
    return plain(read) if isinstance(read, list | dict) and read else None


_kept_definitions = lru_cache(maxsize=32)(_read_definitions)


def data_below(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the attributes whose name begins so, by the rest of their names."""
    return {
        name[len(prefix) :]: value for name, value in attributes.items() if name.startswith(prefix)
    }


def document_of(value: object) -> Any:
    """Return the text of a document that a retriever found, and other data as it is."""
    text = value.get("page_content") if isinstance(value, dict) else None
    return text if isinstance(text, str) and text else value


def arguments_of(value: object, *, first_alone: bool = True) -> Any:
    """Return what a decorated function was called with, of ``{args, kwargs}``.

    It is the first positional argument, unless all are asked for, else those by name. Other
    values stay as they are.
    """
    if not isinstance(value, dict) or value.keys() != {"args", "kwargs"}:
        return value
    args = value["args"]
    kwargs = value["kwargs"]
    if not isinstance(args, list) or not args:
        return kwargs
    if first_alone:
        return structured(args[0])
    return value if kwargs else args


def prompt_turns(value: object) -> list[Turn]:
    """Return what an agent or a chain was asked.

    It is text, messages, or data in which a known field holds them.
    """
    if isinstance(value, str):
        return [Turn("user", value)] if value else []
    prompt = read_prompt(value)
    turns = [] if prompt.read_turns is None else prompt.read_turns()
    return turns or ([Turn("user", prompt.text)] if prompt.text else [])


def answer_turns(value: object) -> list[Turn]:
    """Return what an agent or a chain answered.

    It is text, the messages after the user's last one, or data of its own form.
    """
    if isinstance(value, str):
        return [Turn("assistant", value)] if value else []
    if value is None or value == {} or value == []:
        return []
    if is_message(value):
        messages = [value]
    elif _has_messages(value):
        messages = last_items(value["messages"])
    else:
        messages = last_items(value)
    if messages and all(map(is_message, messages)):
        turns = all_turns(messages)
        last_user = max(
            (index for index, turn in enumerate(turns) if turn.role == "user"), default=-1
        )
        return turns[last_user + 1 :]
    try:
        reading = read_answer(value)
    except CaptureError:
        return [unread_answer()]
    return [Turn("assistant", reading.text or None, list(reading.calls), is_json=reading.is_json)]


def unread_answer() -> Turn:
    """Return the turn of an answer that is there, of which nothing can be read."""
    return Turn("assistant", has_unread_parts=True)


def set_result(call: Call, value: object) -> None:
    """Set what a tool gave. A client's message of the tool brings the call's id and error too."""
    message = value.get("data", value) if isinstance(value, dict) else None
    if not isinstance(message, dict) or "tool_call_id" not in message:
        call.result = value
        return
    result = result_of(message)
    call.id = result.id or call.id
    call.result = result.value
    call.error = result.error


def first_choice(turns: list[Turn]) -> list[Turn]:
    """Return the first choice of a model's answer, as responses are read.

    Further texts right after a text are other choices. A text after calls or results is the
    same answer's.
    """
    for index in range(1, len(turns)):
        earlier = turns[index - 1]
        turn = turns[index]
        is_next = turn.role == earlier.role == "assistant" and turn.text and earlier.text
        if is_next and not earlier.calls and not earlier.results:
            return turns[:index]
    return turns


def _has_messages(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict) and "messages" in value


def tags_of(words: object, data: Mapping[str, Any], but: Sequence[str] = ()) -> dict[str, Any]:
    """Return tags from a list of words and from data that is no container.

    The word ``tenant:acme`` has a value, others are ``true``. Names in the data that begin with
    one of `but` are the library's own.
    """
    tags: dict[str, Any] = {}
    for word in items(words):
        if isinstance(word, str):
            name, _, text = word.partition(":")
            tags[name] = text or True
    own_names = tuple(but)
    for name, value in data.items():
        if isinstance(value, str | int | float) and not name.startswith(own_names):
            tags[name] = value
    return tags


def has_text(turns: list[Turn]) -> bool:
    """Tell whether a turn says something: text, or a call with arguments."""
    return any(
        turn.text or any(call.arguments is not None for call in turn.calls) for turn in turns
    )
