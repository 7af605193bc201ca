"""Shapes: what the clients of the model providers and the agent frameworks give and take, understood without them.

Objects, dictionaries, pydantic models, dataclasses and dumps of one kind have the same fields, so they are met by their
fields. Everything here was detached from the host before; a field that could not be read is not there.
Runs on the pool's thread. `answers` reads what was returned whole, `streams` what came in pieces, `prompts` what was
asked; `reading` is where an answer is put together.
"""

from agenteval_otel.capture.shapes.answers import read_answer
from agenteval_otel.capture.shapes.calls import read_calls
from agenteval_otel.capture.shapes.prompts import Asked, history_of, read_prompt
from agenteval_otel.capture.shapes.reading import Reading
from agenteval_otel.capture.shapes.streams import read_chunks
from agenteval_otel.capture.shapes.usage import usage_of

__all__ = [
    "Asked",
    "Reading",
    "history_of",
    "read_answer",
    "read_calls",
    "read_chunks",
    "read_prompt",
    "usage_of",
]
