"""Answers that are made to hurt: what unfolds without end, repeats itself, or is used up by being
read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.responses import StreamingResponse
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel import annotate
from agenteval_otel.capture.build import SNAPSHOT, TRUNCATED
from agenteval_otel.capture.detached import take
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.capture.text import CAP_CHARS
from tests.capture.hostile import BrokenText, Hostile, any_text
from tests.capture.support import read_answer, returned, streamed
from tests.instrumentation.support import Seen


def _doubled(times: int) -> Any:
    value: Any = ()
    for _ in range(times):
        value = (value, value)
    return value


def test_a_tuple_that_unfolds_to_a_billion() -> None:
    """A tuple whose parts are shared is taken once, and a deep one to a fixed depth; both are said
    to be cut.
    """
    deep: Any = ()
    for _ in range(20_000):
        deep = (deep,)
    for value in (_doubled(60), deep):
        captured = returned(value)
        assert captured.response.startswith("[[")
        assert captured.metadata == {SNAPSHOT: TRUNCATED}
    assert returned((1, ("a", (2.0, None, frozenset({3}))))).metadata is None


def test_one_piece_with_millions_of_events() -> None:
    """Server-sent events beyond the cap are not read, however large the piece that holds them."""
    text = streamed(['data: {"text": "a"}\n\n' * 1_000_000]).response
    assert text == "a" * len(text)
    assert 1_000 < len(text) <= CAP_CHARS


def test_a_long_state_that_is_streamed_again_and_again() -> None:
    """Of a graph that streams its whole conversation again and again the stream's limit bounds what
    is read.
    """
    messages = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"m{n}"} for n in range(500)
    ]
    states = [
        {"messages": [*messages, {"role": "assistant", "content": f"end {n}"}]} for n in range(500)
    ]
    seen = streamed(states)
    assert seen.response.startswith("end ")
    assert seen.metadata == {SNAPSHOT: TRUNCATED}


def test_bytes_inside_of_an_answer_are_cut_before_they_are_shown() -> None:
    """Large bytes in a mapping do not become text four times as large first."""
    assert len(returned({"data": b"\0" * 20_000_000}).response) <= 3 * CAP_CHARS


def test_a_response_that_was_not_read_is_left_to_its_reader() -> None:
    """The body of a web client's response is not read from the line; one that is there already is
    the answer.
    """

    class Response:
        """As `requests` keeps it: its content is read by the property."""

        status_code = 200

        def __init__(self, content: Any) -> None:
            self._content = content

        @property
        def content(self) -> bytes:
            pytest.fail("the body was read")

    for unread in (Response(False), StreamingResponse(iter(["never read"]))):
        with pytest.raises(CaptureError, match="Response: it is a stream for its reader"):
            read_answer(unread)
    assert read_answer(Response(b"the body")).text == "the body"


def test_facts_without_end() -> None:
    """Of names that are no facts 64 are kept and counted without their words; of tool calls the
    last thousand.
    """
    seen, mine = Seen(), [{"name": "first"}]

    @seen.monitor(
        capture=lambda arguments, answer: {5: 1, "said by somebody": 2, "x" * 100: 3, "prompted": 4}
    )
    def handler(prompt: str) -> str:
        annotate(tool_calls=mine, model="first")
        for number in range(10_000):
            annotate(tool_calls=({"name": f"t{number}"},), model="last")
        for number in range(1_000):
            annotate(**{f"fact {number}": number})
        return prompt

    assert handler("q") == "q"
    names = [call.name for call in seen.last.tool_calls or ()]
    assert len(names) > 300
    assert names == [f"t{number}" for number in range(1_000 - len(names), 1_000)]
    assert (mine, seen.last.model, seen.outcomes) == ([{"name": "first"}], "last", {"evaluated": 1})
    assert seen.pipeline.accounting.failures == {
        "annotate:other": 65,
        "annotate:prompted": 1,
        "capture": 1,
    }


def test_an_agent_in_its_events_is_not_walked() -> None:
    """Its history would be taken with each event; the event itself is read as ever."""
    agent = type("Agent", (), {"__module__": "strands.agent.agent"})()
    agent.messages = [{"role": "user", "content": [{"text": "x" * 100}]}] * 400
    event = {"event": {"contentBlockDelta": {"delta": {"text": "It is due."}}}, "agent": agent}
    taken = take(event)
    assert taken.value["agent"] == "[Agent]"
    assert (taken.left_out, taken.truncated) == (0, False)
    assert taken.size_bytes < 2_000
    assert streamed([event]).response == "It is due."


texts = st.dictionaries(any_text, any_text, min_size=1, max_size=4)


@given(st.lists(texts, min_size=1, max_size=4), st.sampled_from([1, 2, 60, 400, 2_000]))
def test_plain_messages_are_taken_alike_at_once_and_one_by_one(
    messages: list[dict[str, str]], times: int
) -> None:
    """Dictionaries of texts are taken all at once. Beside another value each is walked, to the same
    end: the same parts of as many, as large.
    """
    conversation = messages * times
    at_once = take(conversation)
    first = dict.fromkeys(conversation[0], 7)
    walked = take([first, *map(dict, conversation[1:])])
    assert at_once.value[1:] == walked.value[1:]
    assert len(at_once.value) == len(walked.value)
    assert (at_once.truncated, at_once.left_out) == (walked.truncated, 0)
    assert abs(at_once.size_bytes - walked.size_bytes) <= 2_000
    assert all(copied is not own for copied, own in zip(at_once.value, conversation, strict=False))


def test_a_history_that_comes_twice_is_taken_once() -> None:
    """As any other part of a value is: it takes its room, and counts, once."""
    history = [{"role": "user", "content": "x" * 1_000 + str(number)} for number in range(100)]
    once = take({"messages": history})
    twice = take({"messages": history, "state": {"messages": history}})
    assert twice.value["state"]["messages"] is twice.value["messages"]
    assert twice.size_bytes - once.size_bytes < 1_000


@pytest.mark.parametrize(
    "make", [Hostile, lambda: BrokenText("x"), object, lambda: iter(int, 1)], ids=range(4)
)
def test_no_code_of_the_hosts_runs_for_a_message(make: Callable[[], Any]) -> None:
    """A message with a value that raises when it is touched is one without that value."""
    hostile = make()
    plain = {"role": "user", "content": "hi"}
    for message in ({**plain, "content": hostile}, {**plain, "more": hostile}):
        taken = take([plain, message, plain])
        assert [taken.value[0], taken.value[2]] == [plain, plain]
        assert type(taken.value[1].get("content", "")) is str
    taken = take([plain, {1: "number", **plain}])
    assert taken.value == [plain, {1: "number", **plain}]


def test_messages_that_hold_one_another_are_bounded() -> None:
    """Cycles end, and a list of huge dictionaries is cut as each of them is."""
    message: dict[str, Any] = {"role": "user", "content": "hi"}
    message["reply_to"] = message
    assert take([message]).value[0]["content"] == "hi"
    huge = {str(number): "x" for number in range(100_000)}
    taken = take([huge, huge, {"role": "user"}])
    assert taken.truncated
    assert sum(map(len, taken.value)) < 4_000
