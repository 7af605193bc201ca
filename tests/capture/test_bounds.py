"""Answers that are made to hurt: what unfolds without end, repeats itself, or is used up by being read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenteval_otel import annotate, monitor
from agenteval_otel.capture.build import SNAPSHOT, TRUNCATED, build_input
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.capture.text import CAP_CHARS
from agenteval_otel.errors import CaptureError
from agenteval_otel.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.sampling import RatioSampler
from tests.capture.support import read_answer, read_chunks, returned, streamed
from tests.testing.doubles import Free, Keeping


def _doubled(times: int) -> Any:
    value: Any = ()
    for _ in range(times):
        value = (value, value)
    return value


def test_a_tuple_that_unfolds_to_a_billion() -> None:
    """A tuple whose parts are shared is taken once, and a deep one to a fixed depth; both are said to be cut."""
    deep: Any = ()
    for _ in range(50_000):
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
    """Of a graph that streams its whole conversation again and again the stream's limit bounds what is read."""
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"m{n}"} for n in range(1_000)]
    states = [{"messages": [*messages, {"role": "assistant", "content": f"end {n}"}]} for n in range(1_000)]
    for chunks in (states, [("values", state) for state in states]):
        seen = streamed(chunks)
        assert seen.response.startswith("end ")
        assert seen.metadata == {SNAPSHOT: TRUNCATED}


def test_states_of_an_ordinary_conversation_are_all_read() -> None:
    """What every state says first stays: calls of a state that a later one trimmed are known."""
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "find", "args": {}}]}
    first = [{"role": "user", "content": "q"}, call]
    reading = read_chunks([{"messages": first}, {"messages": [first[0], {"role": "assistant", "content": "done"}]}])
    assert reading.text == "done"
    assert [made["name"] for made in reading.calls.finished() or ()] == ["find"]


def test_bytes_inside_of_an_answer_are_cut_before_they_are_shown() -> None:
    """Large bytes in a mapping do not become text four times as large first."""
    assert len(returned({"data": b"\0" * 100_000_000}).response) <= 3 * CAP_CHARS


class Unread:
    """A web client's response whose body is still in the line: reading `content` takes it from its reader."""

    def __init__(self) -> None:
        self._content: Any = False
        self.status_code = 200

    def __iter__(self) -> Iterator[bytes]:
        return iter([self.content])

    @property
    def content(self) -> bytes:
        self._content = b"the body"
        return b"the body"

    @property
    def text(self) -> str:
        return self.content.decode()


def test_a_response_that_was_not_read_is_left_to_its_reader() -> None:
    """No property is asked of what can be iterated: it could use it up."""
    response = Unread()
    with pytest.raises(CaptureError, match="Unread: it is a stream for its reader"):
        read_answer(response)
    assert response._content is False
    assert response.content == b"the body"
    assert read_answer(response).text == "the body"


def _kept(function: Callable[..., Any], **settings: Any) -> tuple[Any, Pipeline]:
    kept = Keeping()
    pipeline = Pipeline(
        sampler=RatioSampler(), evaluators=(Free(),), storage=(kept,), dispatcher=InlineDispatcher()
    )  # fmt: skip
    monitor(pipeline=pipeline, **settings)(function)("q")
    return kept, pipeline


def test_a_fact_whose_name_is_no_name() -> None:
    """What `capture=` names is left out and counted without its words; the call is evaluated."""
    facts = {5: 1, "said by somebody": 2, "x" * 100: 3, "prompted": 4}
    _, pipeline = _kept(str.upper, capture=lambda arguments, answer: facts)
    assert pipeline.accounting.outcomes()["evaluated"] == 1
    assert pipeline.accounting.failures == {"annotate:other": 3, "annotate:prompted": 1}


@pytest.mark.parametrize("name", ["tool_calls", "message_history"])
def test_a_list_without_one_that_can_be_read(name: str) -> None:
    """A list of other things is left out and counted."""
    call = CapturedCall(None, "agent")
    call.answer, call.ended_ns, call.facts = "answer", 1, {name: list(range(10_000))}
    call.keep_facts()
    bad: list[str] = []
    assert getattr(build_input(call, on_bad_fact=bad.append), name) is None
    assert set(bad) == {name}


def test_tool_calls_that_are_said_without_end() -> None:
    """Hundreds of them are kept, in time that grows with their number; that there were more is counted."""

    def handler(prompt: str) -> str:
        for number in range(100_000):
            annotate(tool_calls=[{"name": f"t{number}"}])
        return prompt

    seen: list[Any] = []
    _, pipeline = _kept(handler, evaluators=[Free(action=lambda captured: seen.append(captured) or 1.0)])
    names = [call.name for call in seen[0].tool_calls]
    assert len(names) > 300
    assert names == [f"t{number}" for number in range(1_001 - len(names), 1_001)]
    assert pipeline.accounting.failures == {"capture": 1}


def test_what_a_handler_annotated_stays_its_own() -> None:
    """Tool calls add up without changing the handler's list; of another fact the last value counts."""
    mine = [{"name": "a"}]

    def handler(prompt: str) -> str:
        annotate(tool_calls=mine, model="first")
        annotate(tool_calls=({"name": "b"},), model="second")
        annotate(tool_calls=[{"name": "c"}])
        return prompt

    seen: list[Any] = []
    _kept(handler, evaluators=[Free(action=lambda captured: seen.append(captured) or 1.0)])
    assert [call.name for call in seen[0].tool_calls] == ["a", "b", "c"]
    assert (mine, seen[0].model) == ([{"name": "a"}], "second")


def test_names_that_are_annotated_without_end() -> None:
    """Sixty-four facts are kept of a call, whatever they are called."""
    stack: list[CapturedCall] = []

    def handler(prompt: str) -> str:
        from agenteval_otel.capture.calls import CURRENT

        for number in range(1_000):
            annotate(**{f"fact_{number}": number})
        stack.append(CURRENT.get())  # type: ignore[arg-type]
        assert len(stack[0].facts or ()) == 64
        return prompt

    _, pipeline = _kept(handler)
    assert pipeline.accounting.outcomes()["evaluated"] == 1


@pytest.mark.parametrize("piece", ["", b"", b"x" * 65_536], ids=["empty text", "no bytes", "many bytes"])
def test_a_stream_of_nothing_or_of_bytes_is_not_kept_for_ever(piece: Any) -> None:
    """Every chunk takes a place, and bytes count for their number."""
    kept: list[int] = []

    def handler(prompt: str) -> Iterator[Any]:
        for _ in range(300_000):
            yield piece

    pipeline = Pipeline(sampler=RatioSampler(), evaluators=(Free(),), storage=(), dispatcher=InlineDispatcher())
    submit = pipeline.submit
    pipeline.submit = lambda call, size: (  # type: ignore[method-assign]
        kept.append(len(call.chunks or ())), submit(call, size)
    )[1]  # fmt: skip
    for _ in monitor(pipeline=pipeline)(handler)("q"):
        pass
    assert kept == [CAP_CHARS // max(1, len(piece))]
    assert pipeline.accounting.outcomes()["evaluated"] == 1
