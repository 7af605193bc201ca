"""Values of attributes: JSON text or structured, and lists that are spread over numbered
attributes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from pydantic_core import from_json

from agenteval_otel.capture.answers import read_answer
from agenteval_otel.capture.build import read_prompt
from agenteval_otel.capture.fields import MAX_ITEMS, items, last_items
from agenteval_otel.capture.messages import Turn, all_turns, is_message
from agenteval_otel.capture.text import plain

MAX_JSON_CHARS: Final = 2 * 1024 * 1024
"""Longer JSON is not read: such a message holds a file."""
_MAX_DEFINITION_CHARS: Final = 64 * 1024
_KEPT_CHARS: Final = 16 * 1024
"""Definitions of this length may take half a megabyte once they are read, and 32 are kept."""
_MAX_DEPTH: Final = 32


def structured(value: Any) -> Any:
    """What an attribute holds: JSON text is read, also where a limit of the SDK has cut it; other
    text stays as it is, and what is structured already is taken as it is."""
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


def _as_plain(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return (
            {str(key): _as_plain(item, depth - 1) for key, item in value.items()} if depth else None
        )
    if isinstance(value, list | tuple):
        return [_as_plain(item, depth - 1) for item in value] if depth else None
    return value


def numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """The items of a list whose fields are attributes of their own: from
    ``<prefix>.<number>.<path>`` by number, as ``{path: value}``. Lists within an item stay spread.
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


def definitions(value: Any) -> Any:
    """Definitions of tools as plain data; None where there are none. They are the same for most
    answers of an agent, so what was read last is kept."""
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        texts = (item for item in items(value) if len(item) <= _MAX_DEFINITION_CHARS)
        return [_definitions_of_text(text) for text in texts] or None
    return _definitions_of_text(value) if isinstance(value, str) else _read_definitions(value)


def _definitions_of_text(text: str) -> Any:
    return _kept_definitions(text) if len(text) <= _KEPT_CHARS else _read_definitions(text)


def _read_definitions(value: Any) -> Any:
    read = structured(value)
    return plain(read) if isinstance(read, list | dict) and read else None


_kept_definitions = lru_cache(maxsize=32)(_read_definitions)


def prompt_turns(value: Any) -> list[Turn]:
    """What an agent or a chain was asked: text, messages, or data in which a known field holds
    them.
    """
    if isinstance(value, str):
        return [Turn("user", value)] if value else []
    prompt = read_prompt(value)
    return prompt.turns or ([Turn("user", prompt.text)] if prompt.text else [])


def answer_turns(value: Any) -> list[Turn]:
    """What an agent or a chain answered: text, the messages after the user's last one, or data of
    its own form.
    """
    if isinstance(value, str):
        return [Turn("assistant", value)] if value else []
    messages = (
        [value]
        if is_message(value)
        else last_items(value["messages"] if _has_messages(value) else value)
    )
    if messages and all(map(is_message, messages)):
        turns = all_turns(messages)
        last_user = max(
            (index for index, turn in enumerate(turns) if turn.role == "user"), default=-1
        )
        return turns[last_user + 1 :]
    return [] if value is None else [Turn("assistant", read_answer(value).text)]


def _has_messages(value: Any) -> bool:
    return isinstance(value, dict) and "messages" in value


def tags_of(words: Any, data: Mapping[str, Any], but: Sequence[str] = ()) -> dict[str, Any]:
    """Tags from a list of words (``tenant:acme`` has a value, others are ``true``) and from data
    that is no container; names that begin with one of `but` are the library's own."""
    listed = (word.partition(":") for word in items(words) if isinstance(word, str))
    return {name: value or True for name, _, value in listed} | {
        name: value
        for name, value in data.items()
        if isinstance(value, str | int | float) and not name.startswith(tuple(but))
    }


def has_text(turns: list[Turn]) -> bool:
    """Whether a turn says something: text, or a call with arguments."""
    return any(
        turn.text or any(call.arguments is not None for call in turn.calls) for turn in turns
    )
