"""Response formats of one's own: one registered function for whole answers, one for chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agenteval_otel.capture import Reading, Turn, field, response_format, usage_of
from agenteval_otel.capture.detached import READ
from agenteval_otel.capture.messages import Call
from agenteval_otel.capture.reading import ANSWER_FORMATS, CHUNK_FORMATS
from tests.capture.support import facts_of, returned, streamed


class Utterance:
    """An object of a client that no built-in format knows; it must never run its own code."""

    def __init__(self, words: str) -> None:
        self.utterance, self.tokens = words, {"input_tokens": 3}
        self.tools = [{"tool": "weather", "with": {"city": "Oslo"}}]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was looked up")


@pytest.fixture
def acme() -> Iterator[None]:
    """The format of a client, registered for one test."""
    before = dict(ANSWER_FORMATS), dict(CHUNK_FORMATS), set(READ)

    @response_format("acme", fields=("utterance", "tools", "tokens"))
    def read_acme(reading: Reading, answer: Any) -> bool:
        text = field(answer, "utterance")
        if not isinstance(text, str):
            return False
        calls = [
            Call("c", field(tool, "tool"), field(tool, "with"))
            for tool in field(answer, "tools") or ()
        ]
        reading.add_turn(
            Turn(
                "assistant",
                text,
                calls=calls,
                usage=usage_of(field(answer, "tokens")),
                model="acme-1",
            )
        )
        return True

    @response_format("acme", stream=True)
    def read_acme_chunk(reading: Reading, chunk: Any) -> bool:
        if field(chunk, "utterance") is None:
            return False
        reading.extend(reading.open_turn(), field(chunk, "utterance"))
        return True

    yield
    for formats, known in zip((ANSWER_FORMATS, CHUNK_FORMATS), before, strict=False):
        formats.clear()
        formats.update(known)
    READ.clear()
    READ.update(before[2])


@pytest.mark.usefixtures("acme")
def test_a_registered_format_reads_answers_and_chunks() -> None:
    """Text, tool calls, usage and model come from the fields that the format names; other values
    are read as before.
    """
    expected = ("It is sunny.", [("weather", {"city": "Oslo"}, None)], (3, None), "acme-1", None)
    assert facts_of(returned(Utterance("It is sunny."))) == expected
    assert (
        streamed([Utterance("It is "), "very ", Utterance("sunny.")]).response
        == "It is very sunny."
    )
    assert returned({"role": "assistant", "content": "Tomorrow."}).response == "Tomorrow."


def test_a_format_replaces_the_one_of_its_name() -> None:
    """The one registered last is tried first."""
    before = dict(ANSWER_FORMATS)
    response_format("http")(lambda reading, answer: False)
    assert next(iter(ANSWER_FORMATS)) == "http"
    assert len(ANSWER_FORMATS) == len(before)
    ANSWER_FORMATS.clear()
    ANSWER_FORMATS.update(before)
