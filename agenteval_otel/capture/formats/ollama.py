"""Ollama: replies of its chat and generate interfaces, whole, and as streamed objects or lines."""

from __future__ import annotations

from typing import Final

from agenteval_otel.capture.fields import Tokens, field, first
from agenteval_otel.capture.messages import content_text, part_calls, turns_of
from agenteval_otel.capture.reading import Reading, response_format

_FIELDS: Final = ("done", "done_reason", "eval_count", "prompt_eval_count")


@response_format("ollama", fields=_FIELDS, libraries=("ollama",))
def read_reply(reading: Reading, answer: object) -> bool:
    """Read a whole reply: the message or the text, and the counts of tokens."""
    return _add(reading, answer, begins=True)


@response_format("ollama", stream=True)
def read_piece(reading: Reading, chunk: object) -> bool:
    """Read a piece of a reply. The last one has the counts of tokens."""
    return _add(reading, chunk, begins=False)


def _add(reading: Reading, reply: object, *, begins: bool) -> bool:
    message = field(reply, "message")
    text = field(reply, "response")
    is_reply = isinstance(field(reply, "done"), bool) and first(reply, "model") is not None
    if not is_reply or (message is None and not isinstance(text, str)):
        return False
    turn = reading.begin_turn() if begins else reading.open_turn()
    for read in turns_of(message):
        text = read.text
        for call in read.calls or part_calls(field(message, "content")):
            reading.add_call(turn, call)
    reading.extend(turn, content_text(text))
    turn.has_output = turn.has_output or begins
    reading.update(
        turn,
        usage=_usage_of(reply),
        model=first(reply, "model"),
        finish_reason=first(reply, "done_reason"),
    )
    return True


def _usage_of(reply: object) -> Tokens | None:
    counts = field(reply, "prompt_eval_count"), field(reply, "eval_count")
    tokens_in, tokens_out = (count if type(count) is int else None for count in counts)
    return None if tokens_in is None and tokens_out is None else (tokens_in, tokens_out)
