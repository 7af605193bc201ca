"""Answers, whole and streamed, in every form that is read.

The forms are a registered format, messages, text, and data of the handler's own making.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from agenteval_otel.capture.detached import Detached, Unreadable
from agenteval_otel.capture.events import SentMessage, events_in, is_json_lines, is_text_event
from agenteval_otel.capture.fields import (
    USAGE_NAMES,
    field,
    first,
    first_value,
    is_data,
    items,
    kind_of,
    last_items,
    usage_of,
)
from agenteval_otel.capture.messages import (
    TEXT_KEYS,
    Turn,
    calls_in,
    content_text,
    has_unread_parts,
    is_content,
    is_message,
    part_calls,
    part_results,
    text_field,
    turns_of,
)
from agenteval_otel.capture.reading import ANSWER_FORMATS, CHUNK_FORMATS, Reading
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.capture.text import CAP_CHARS, cap, own_json, to_text

_MAX_DEPTH: Final = 3  # how deep answers are looked for within answers
_MAX_CHUNK_DEPTH: Final = 4
_LEAST_SNAPSHOTS: Final = 3


def read_answer(answer: object, handler: Callable[..., Any] | None = None) -> Reading:
    """Return what an answer says.

    Args:
        answer: The detached answer.
        handler: The function whose own data is read as JSON. None if none is known.

    Raises:
        CaptureError: The answer is a stream, or what it says is not understood.
    """
    reading = Reading(handler)
    if not add_answer(reading, answer):
        add_plain(reading, answer)
    return _understood(reading)


def _understood(reading: Reading) -> Reading:
    """Return the reading. Raise `CaptureError` if it has unread parts and neither text nor calls."""
    if reading.has_unread_parts and not reading.calls and not reading.text.strip():
        raise CaptureError(
            "no text from the answer: none of the parts of its messages that can be read is text",
            reason="unknown_parts",
        )
    return reading


def add_answer(reading: Reading, answer: object) -> bool:
    """Add an answer of a known form to the reading. Return False if it has none."""
    if not isinstance(answer, dict | list | tuple | Detached) or reading.depth >= _MAX_DEPTH:
        return False
    reading.depth += 1
    try:
        if any(read(reading, answer) for read in ANSWER_FORMATS.values()):
            return True
        if isinstance(answer, list | tuple):
            return _add_list(reading, answer) or _add_first(reading, answer)
        return (
            _add_message(reading, answer)
            or _add_remains(reading, answer)
            or _add_nested(reading, answer)
        )
    finally:
        reading.depth -= 1


def add_plain(reading: Reading, answer: object) -> None:
    """Add an answer of no known form: text, a text field, or the handler's own data as JSON.

    Raises:
        CaptureError: It is none of these.
    """
    if is_data(answer):
        _add_beside(reading, answer)
    text = text_field(answer)
    if text is not None:
        reading.add_text(text)
    elif isinstance(answer, dict | list | tuple | Detached):
        reading.add_text(own_json(answer, reading.handler))
        reading.is_json = True
    else:
        reading.add_text(to_text(answer))


def _add_list(reading: Reading, answer: object) -> bool:
    messages = last_items(answer)
    if messages and all(is_message(item) for item in messages):
        reading.add_messages(messages)
        return True
    if is_content(messages):
        text = content_text(messages) or ""
        turn = Turn("assistant", text, part_calls(messages), part_results(messages))
        turn.has_unread_parts = has_unread_parts(messages)
        reading.add_turn(turn)
        return True
    return False


def _add_first(reading: Reading, answer: object) -> bool:
    """Add the text of a tuple that has it first and data beside it: an answer and its sources."""
    if type(answer) is not tuple or len(answer) < 2 or not isinstance(answer[0], str):
        return False
    if not all(isinstance(item, dict | list | tuple | Detached | None) for item in answer[1:]):
        return False
    reading.add_text(answer[0])
    return True


def _add_message(reading: Reading, answer: object) -> bool:
    turns = turns_of(answer)
    for turn in turns:
        if turn.role != "tool":
            turn.role = "assistant"
            if turn.text is None and not turn.results:
                turn.text = ""
        reading.add_message(turn)
    return bool(turns)


def _add_remains(reading: Reading, answer: object) -> bool:
    """Add a provider's response without its content.

    Such a response is not to be read as the handler's own data.
    """
    object_name = kind_of(answer, "object")
    is_openai = object_name == "response" or object_name.startswith(
        ("chat.completion", "text_completion")
    )
    is_anthropic = kind_of(answer) == "message" and first(answer, "stop_reason", "role") is not None
    if not is_openai and not is_anthropic:
        return False
    id = first(answer, "id")
    usage = usage_of(field(answer, "usage"))
    reading.add_turn(
        Turn(
            "assistant",
            "",
            key=id,
            usage=usage,
            model=first(answer, "model"),
            response_id=id,
            finish_reason=first(answer, "stop_reason"),
        )
    )
    return True


def _add_nested(reading: Reading, answer: object) -> bool:
    """Add the response that a mapping or a model holds under one of the names of an answer."""
    if not is_data(answer):
        return False
    for name in TEXT_KEYS:
        inner = field(answer, name)
        is_text = isinstance(inner, str) or (name == "content" and isinstance(inner, list | tuple))
        if is_text:  # no response within the answer
            continue
        is_added = add_answer(reading, inner) or _add_text_of(reading, inner)
        if is_added:
            _add_beside(reading, answer)
            return True
    return False


def _add_text_of(reading: Reading, inner: object) -> bool:
    text = text_field(inner)
    if text is None:
        return False
    reading.add_text(text)
    return True


def _add_beside(reading: Reading, answer: object) -> None:
    """Add tool calls and usage beside the text of an answer of the handler's own making."""
    for call in calls_in(items(field(answer, "tool_calls"))):
        reading.calls.add(call)
    usage = first_value(answer, *USAGE_NAMES)
    reading.usage_total = reading.usage_total or usage_of(usage)


def must_be_complete(answer: object) -> None:
    """Raise `CaptureError` for a run's result that is a stream and was not read to its end."""
    if field(answer, "is_complete") is False:
        name = answer.type_name if type(answer) is Detached else "the run"
        raise CaptureError(
            f"{name} is a stream for its reader: monitor what makes its pieces",
            reason="unread_stream",
        )


def read_chunks(chunks: Sequence[Any], handler: Callable[..., Any] | None = None) -> Reading:
    """Return what a streamed answer says, as far as it came. `handler` is that of `read_answer`.

    Raises:
        CaptureError: No chunk has text that is understood.
    """
    pieces = _pieces_of(chunks)
    if is_growing(pieces):
        pieces = pieces[-1:]
    if all(isinstance(piece, str) for piece in pieces):
        return _read_texts(pieces)
    reading = Reading(handler)
    others = _add_pieces(reading, pieces)  # those of no known form
    if _is_read(reading, pieces, others):
        return _understood(reading)
    if others and all(isinstance(piece, bool | int | float) for piece in others):
        for number in others:
            reading.add_text(to_text(number))
        return reading
    if len(others) == 1 and reading.empty and type(others[0]) is not Unreadable:
        return read_answer(others[0], handler)
    raise CaptureError(
        f"no text from the stream: none of its {len(others) or len(pieces)} chunks is understood",
        reason="unknown_chunks",
    )


def _pieces_of(chunks: Sequence[Any]) -> list[Any]:
    """Return the chunks with bytes as text, and messages as what they say."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    pieces: list[Any] = []
    for chunk in chunks:
        if isinstance(chunk, bytes):
            pieces.append(decode(chunk[: CAP_CHARS * 4]))
        elif type(chunk) is SentMessage:
            pieces.append(chunk.read())
        else:
            pieces.append(chunk)
    return pieces


def _is_read(reading: Reading, pieces: Sequence[Any], others: Sequence[Any]) -> bool:
    """Tell whether a stream says something, or is the empty answer of a model that is known.

    A stream without text is an empty answer only if all its pieces have a known form, and not all
    of them are events beside an answer.
    """
    if reading.calls or reading.text.strip():
        return True
    if others:
        return False
    return not reading.empty or all(piece in (None, "") for piece in pieces)


def _read_texts(texts: list[str]) -> Reading:
    """Read a stream of text: the events that its lines carry, or the text itself."""
    whole = "".join(texts)
    reading = Reading()
    events = events_in(whole)
    if events is not None:
        others = _add_pieces(reading, events)
        if _is_read(reading, events, others):
            return _understood(reading)
        has_known_events = len(others) < len(events)
        if has_known_events or not is_json_lines(whole):
            why = f"none of the {len(events)} events that its lines carry is understood"
            raise CaptureError(f"no text from the stream: {why}", reason="unknown_chunks")
    reading.add_text(cap(whole, 2 * CAP_CHARS))
    return reading


def _add_pieces(reading: Reading, pieces: Sequence[Any]) -> list[Any]:
    """Add the pieces of a stream and return those of no known form."""
    others = []
    for piece in pieces:
        if isinstance(piece, str):
            reading.add_text(cap(piece, 2 * CAP_CHARS))
        elif piece is not None and not add_chunk(reading, piece):
            others.append(piece)
    return others


def add_chunk(reading: Reading, chunk: object) -> bool:
    """Add one chunk, event or message of a stream.

    Return False if it has no known form and no text field.
    """
    if reading.depth >= _MAX_CHUNK_DEPTH or isinstance(chunk, bool | int | float):
        return False
    reading.depth += 1
    try:
        if any(read(reading, chunk) for read in CHUNK_FORMATS.values()):
            return True
    finally:
        reading.depth -= 1
    if not is_text_event(chunk) and not is_message(chunk):
        return False
    turns = turns_of(chunk)
    for turn in turns:
        reading.add_message(turn)  # messages of the user or the system are no answer
    if turns:
        return True
    if chunk != [] and add_answer(reading, chunk):
        return True
    # A chunk of the handler's own making: its delta, its text, or its token.
    delta = field(chunk, "delta")
    text = delta if isinstance(delta, str) else text_field(delta)
    if text is None:
        text = text_field(chunk)
    token = field(chunk, "token")
    if text is None and isinstance(token, str):
        text = token
    if text is None:
        return False
    reading.add_text(to_text(text))
    return True


def is_growing(chunks: Sequence[Any]) -> bool:
    """Tell whether each chunk repeats the one before and adds to it: the last one is the answer.

    Such streams give the text or the object as it is so far, instead of pieces. Two short texts of
    which one begins like the other are pieces.
    """
    snapshots = [chunk for chunk in chunks if chunk not in (None, "")]
    if len(snapshots) < _LEAST_SNAPSHOTS or snapshots[0] == snapshots[-1]:
        return False
    return all(_extends(later, earlier) for earlier, later in itertools.pairwise(snapshots))


def _extends(later: Any, earlier: Any, depth: int = 6) -> bool:
    """Tell whether a value is an earlier one with more at its end.

    Nested values are compared down to `depth`. Deeper ones must be equal.
    """
    if earlier is None or earlier == later:
        return True
    if type(earlier) is not type(later) or depth == 0:
        return False
    if isinstance(earlier, str):
        return bool(later.startswith(earlier))
    if type(earlier) is Detached:
        is_same = later.type_name == earlier.type_name
        return is_same and _extends(later.fields, earlier.fields, depth - 1)
    if isinstance(earlier, dict):
        return all(_extends(later.get(name), value, depth - 1) for name, value in earlier.items())
    if isinstance(earlier, list | tuple):
        if len(earlier) > len(later):
            return False
        # Each item of the earlier list may have grown. Items behind them are new.
        pairs = zip(later, earlier, strict=False)
        return all(_extends(new, old, depth - 1) for new, old in pairs)
    return False
