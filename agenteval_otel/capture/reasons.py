"""Why answers are not understood, in words: what is wrong, and what the user does about it."""

from __future__ import annotations

from typing import Final, NamedTuple

from agenteval_otel.errors import AgentEvalError
from agenteval_otel.semconv import CaptureReason


class CaptureError(AgentEvalError):
    """An answer could not be turned into an evaluation input.

    Args:
        message: What could not be read, without content.
        reason: Why, as it is counted. None where only a part of the answer is left out.
    """

    def __init__(self, message: str, *, reason: CaptureReason | None = None) -> None:
        self.reason = reason
        super().__init__(message)


class Explained(NamedTuple):
    """A reason in words: what such answers are, and how to have them evaluated."""

    means: str
    fix: str


REASONS: Final[dict[CaptureReason, Explained]] = {
    "foreign_object": Explained(
        "objects of another library, without a text in a field of a known name",
        "return the text, or give it with capture= or annotate(response=...)",
    ),
    "unreadable_object": Explained(
        "objects that are no plain data, such as locks, functions and cursors",
        "return the text or plain data, or give the text with capture=",
    ),
    "unreadable_body": Explained(
        "bodies that are compressed, binary, in another charset, or sent by the server itself",
        "leave the route out of the middleware's routes, or give the text with annotate(response=...)",
    ),
    "unread_stream": Explained(
        "streams for their reader to read",
        "put @monitor on the generator that yields the pieces, or give the text with capture=",
    ),
    "unknown_chunks": Explained(
        "streams of which no piece has a known form",
        "give the text of the pieces with capture=, or register a response_format",
    ),
    "unknown_parts": Explained(
        "messages without text, of parts that are no text",
        "give what the user sees with capture= or annotate(response=...)",
    ),
    "no_answer": Explained(
        "calls without an answer: a handler of a WebSocket that returns none, a message over one "
        "after which nothing was sent",
        "put @monitor on the function that makes one answer, name the route as WS /path in the "
        "middleware, or give the text with capture=. A message that asks for no answer may stay so",
    ),
    "no_content": Explained(
        "answers whose spans have no text",
        "switch the capture of content on in the application's instrumentation",
    ),
    "capture_raised": Explained(
        "answers at which the capture= function raised or gave no mapping",
        "mend the function given to capture=, or to prompt= or response= of the middleware",
    ),
    "reading_raised": Explained(
        "answers at which reading raised an exception",
        "give the text with capture=, and report the problem",
    ),
}
