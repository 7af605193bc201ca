"""A history is read when something looks at it, and nobody can tell."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from agenteval_otel.capture.build import build_input, history_fields
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.capture.detached import take
from agenteval_otel.capture.messages import all_turns
from agenteval_otel.capture.reading import Reading
from agenteval_otel.models import EvaluationInput, Message
from agenteval_otel.models.value import Later, construct, copy_with, snapshot_of
from agenteval_otel.runtime.memory import kept_bytes
from tests.capture.hostile import any_text
from tests.capture.support import history_of
from tests.instrumentation.support import Seen

UNREADABLE = {"role": "user", "content": 10**5_000}
"""A message whose number has too many digits for a text."""
QUESTION = {"role": "user", "content": "And then?"}

roles = st.sampled_from(["user", "assistant", "system", "human", "ai", "developer", "judge"])
plain_messages = st.fixed_dictionaries({"role": roles, "content": any_text})
calls = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["c-1", "c-2"]),
            "name": any_text,
            "args": st.dictionaries(any_text, st.integers()),
        }
    ),
    max_size=2,
)
messages = st.lists(
    st.one_of(
        plain_messages,
        st.tuples(roles.filter(lambda role: role != "judge"), any_text),
        st.fixed_dictionaries(
            {"role": roles, "content": st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": any_text}))}
        ),
        st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none() | any_text, "tool_calls": calls}),
        st.fixed_dictionaries(
            {"role": st.just("tool"), "tool_call_id": st.sampled_from(["c-1", "c-2"]), "content": any_text}
        ),
        st.fixed_dictionaries({"type": st.just("reasoning"), "summary": st.just([])}),
    ),
    max_size=8,
)  # fmt: skip


class Holder(BaseModel):
    """A model that holds an input, as a result holds its snapshot."""

    held: EvaluationInput


LOOKS: dict[str, Callable[[EvaluationInput], Any]] = {
    "attribute": lambda value: value.message_history,
    "fields": dict,
    "dump": lambda value: value.model_dump(),
    "dump of what is set": lambda value: value.model_dump(exclude_unset=True, by_alias=True),
    "json": lambda value: value.model_dump_json(),
    "json without": lambda value: value.model_dump_json(exclude={"message_history"}),
    "json of the core": to_json,
    "json of another model": lambda value: Holder(held=value).model_dump_json(),
    "json of a list": lambda value: TypeAdapter(list[EvaluationInput]).dump_json([value]),
    "repr": repr,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
    "copy with": lambda value: copy_with(value, {"prompt": "another"}),
    "copy with a history": lambda value: copy_with(value, {"message_history": [Message(role="user")]}),
    "model copy": lambda value: value.model_copy(update={"prompt": "another"}),
    "snapshot": snapshot_of,
    "validated": EvaluationInput.model_validate,
    "read again": lambda value: EvaluationInput(**dict(value)),
    "memory": kept_bytes,
    "as a turn": lambda value: EvaluationInput(conversation=[value, value]),
}  # fmt: skip


def called(messages: Any, **fields: Any) -> CapturedCall:
    call = CapturedCall("support")
    call.prompt = call.keep(messages)
    call.answer = "Because."
    for name, value in fields.items():
        setattr(call, name, value)
    call.keep_facts()
    return call


def built(call: CapturedCall) -> EvaluationInput:
    bad: list[str] = []
    value = build_input(call, on_bad_fact=lambda name, *_: bad.append(name))
    assert bad == []
    return value


def eager(call: CapturedCall) -> EvaluationInput:
    """The same input, of values that were read before it was made."""
    read = built(call)
    return construct(EvaluationInput, {name: getattr(read, name) for name in read.model_fields_set})


@pytest.mark.parametrize("look", LOOKS)
@settings(max_examples=20)
@given(messages)
def test_an_unread_history_is_one_that_was_read_at_once(look: str, taken: list[Any]) -> None:
    """Whatever looks first sees the same, in the same order of fields, and leaves the same."""
    call = called([*taken, QUESTION])
    known = eager(call)
    unread = built(call)
    seen = LOOKS[look](unread)
    assert seen == LOOKS[look](known)
    assert unread == known
    assert list(unread.model_dump()) == list(known.model_dump())
    assert (unread.prompt, unread.response_text) == ("And then?", "Because.")


@given(messages)
def test_a_fact_is_read_as_late_as_an_argument(taken: list[Any]) -> None:
    """A history that is annotated, or passed beside the question, is that of the messages."""
    history = built(called([*taken, QUESTION])).message_history
    fields = history_of([*taken, QUESTION])
    assert history == TypeAdapter(list[Message]).validate_python(fields)
    assert (
        built(called("Why?", facts={"message_history": [*taken, QUESTION]})).message_history
        == history
    )
    beside = built(called("And then?", others={"history": take(taken).value}))
    assert (beside.message_history or [Message(role="user", content="And then?")]) == history  # fmt: skip


@given(messages, messages)
def test_an_answer_that_brings_its_conversation_is_read_alike(
    before: list[Any], after: list[Any]
) -> None:
    """Reading the messages of the answer alone gives what reading the whole conversation gives."""
    conversation = take([*before, QUESTION, *after]).value
    whole = Reading()
    whole.add_conversation(all_turns(conversation))
    late = Reading()
    late.add_messages(conversation)
    assert late.text == whole.text
    assert late.calls.finished() == whole.calls.finished()
    assert whole.read_history is not None
    assert late.read_history is not None
    assert history_fields(late.read_history()) == history_fields(whole.read_history())


def test_facts_are_laid_over_an_unread_history() -> None:
    """An input that is validated for its other facts keeps the history unread, and whole."""
    call = called([QUESTION], facts={"usage": {"input_tokens": 3}, "cost": 0.5, "tags": {"a": "b"}})
    value = built(call)
    assert (value.cost, value.message_history) == (0.5, [Message(role="user", content="And then?")])


def test_copies_read_a_history_once() -> None:
    """Copies made before anything looks share what is read then."""
    times: list[int] = []

    def read() -> list[Message]:
        times.append(1)
        return [Message(role="user")]

    first = copy_with(EvaluationInput(prompt="Why?"), {"message_history": Later(read)})
    second = copy_with(first, {"prompt": "Where?"})
    third = copy_with(second, {"message_history": None})
    assert (third.message_history, times) == (None, [])
    assert second.message_history is first.message_history
    assert (len(times), second.prompt, first.prompt) == (1, "Where?", "Why?")


def test_a_subclass_of_the_input_has_the_field_too() -> None:
    """A class of an application's own inherits the field, its default and its laziness."""

    class OwnInput(EvaluationInput):
        tenant: str = "acme"

    assert OwnInput().message_history is None
    assert [*OwnInput.model_fields][:-1] == [*EvaluationInput.model_fields]
    unread = copy_with(OwnInput(), {"message_history": Later(lambda: [Message(role="user")])})
    assert unread.model_dump()["message_history"] == [Message(role="user").model_dump()]


def test_what_the_host_changes_later_does_not_count() -> None:
    """The list, its dictionaries and their parts are those of the moment of the call."""
    seen = Seen()
    part: dict[str, Any] = {"type": "text", "text": "first"}
    conversation: list[Any] = [
        {"role": "system", "content": "Be nice."},
        {"role": "user", "content": [part]},
        {"role": "user", "content": "last"},
    ]

    @seen.monitor
    def handler(messages: list[Any]) -> str:
        return "answer"

    handler(conversation)
    handler([conversation[0], conversation[2]])
    part["text"] = "changed"
    conversation[0]["content"] = "changed"
    conversation[2]["role"] = object()
    conversation.clear()
    whole, plain = seen.inputs
    assert [message.content for message in whole.message_history or ()] == [
        "Be nice.",
        "first",
        "last",
    ]
    assert [message.content for message in plain.message_history or ()] == ["Be nice.", "last"]


def test_what_nothing_looks_at_is_not_read() -> None:
    """An evaluator that does not look has a history read of nobody: reading this one fails.

    It is then left out and counted, and the answer stays scored.
    """
    seen = Seen()

    @seen.monitor
    def handler(messages: list[Any]) -> str:
        return "answer"

    handler([UNREADABLE, QUESTION])
    assert (seen.outcomes, seen.last.prompt) == ({"evaluated": 1}, "And then?")
    assert seen.pipeline.accounting.failures == {}
    assert seen.last.message_history is None
    assert list(seen.pipeline.accounting.failures) == ["annotate:message_history"]
    seen.pipeline.shutdown(5)


def test_large_calls_are_read_at_once() -> None:
    """A picture is not kept for the text beside it: what is large is read when the input is built."""
    picture = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "A" * 2_000_000},
    }
    parts = [{"type": "text", "text": "What is it?"}, picture]
    call = called([UNREADABLE, {"role": "user", "content": parts}])
    bad: list[str] = []
    value = build_input(call, on_bad_fact=lambda name, *_: bad.append(name))
    assert (value.prompt, bad) == ("What is it?", ["message_history"])


def test_threads_that_look_at_once_see_the_same() -> None:
    """Of many threads that look first, each sees the whole history."""
    for _ in range(20):
        unread = built(called([{"role": "user", "content": str(n)} for n in range(200)]))
        gate = Barrier(8)

        def look(value: EvaluationInput = unread, gate: Barrier = gate) -> Any:
            gate.wait()
            return value.model_dump()["message_history"]

        with ThreadPoolExecutor(8) as pool:
            found = [task.result() for task in [pool.submit(look) for _ in range(8)]]
        assert all(history == found[0] for history in found)
        assert [message["content"] for message in found[0]] == [str(n) for n in range(200)]
