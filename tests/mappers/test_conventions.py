"""Forms of the GenAI conventions that no recording has: other messages, choices, memory, plans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenteval_otel.capture.spans.trace import Mapped
from agenteval_otel.mappers import ReadEvent, ReadSpan, TraceReading, read_trace


def text_message(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


QUESTION = [text_message("When?", "user")]
ANSWER = [text_message("At nine.")]


def span_of(
    operation: str, number: int = 1, parent: int | None = None, events: Any = (), **more: Any
) -> ReadSpan:
    """A span of the conventions; of an attribute's name each dot is two underscores."""
    attributes = {name.replace("__", "."): value for name, value in more.items()}
    attributes["gen_ai.operation.name"] = operation
    read = [ReadEvent(name, number, values) for name, values in events]
    return ReadSpan(
        1, number, parent, operation, 3, number, number + 1, attributes, read, scope="app"
    )


def chat(number: int = 1, parent: int | None = None, **more: Any) -> ReadSpan:
    """A model call that answers "At nine."."""
    fields = {"gen_ai__input__messages": QUESTION, "gen_ai__output__messages": ANSWER, **more}
    return span_of("chat", number, parent, **fields)


def read(*spans: ReadSpan) -> TraceReading:
    reading = read_trace(spans)
    assert not reading.failed
    return reading


def answer_of(*spans: ReadSpan) -> Mapped:
    [mapped] = read(*spans).answers
    return mapped


BLOCKS = [{"text": "At "}, {"text": "nine."}]


@pytest.mark.parametrize("operation", ["chat", "invoke_agent"])
@pytest.mark.parametrize(
    "message",
    [
        json.dumps(BLOCKS),
        json.dumps({"role": "assistant", "content": BLOCKS}),
        json.dumps(text_message("At nine.")),
        json.dumps({"text": "At nine."}),
        json.dumps([{"type": "text", "text": "At nine."}]),
        "At nine.",
    ],
)
def test_a_choice_is_read_in_every_form_of_its_message(operation: str, message: str) -> None:
    """A list of blocks is the content of the message, and no empty answer."""
    events = [
        ("gen_ai.user.message", {"content": json.dumps([{"text": "When?"}])}),
        ("gen_ai.choice", {"finish_reason": "end_turn", "message": message}),
    ]
    mapped = answer_of(span_of(operation, events=events))
    assert (mapped.input.prompt, mapped.input.response) == ("When?", "At nine.")


def choice(message: Any) -> ReadSpan:
    """A model call whose answer is an event."""
    events = [
        ("gen_ai.user.message", {"content": "When?"}),
        ("gen_ai.choice", {"finish_reason": "stop", "message": message}),
    ]
    return span_of("chat", events=events)


def output(messages: Any) -> ReadSpan:
    """A model call whose answer is an attribute."""
    return chat(gen_ai__output__messages=messages)


@pytest.mark.parametrize(
    "span",
    [
        choice([{"image": {"format": "png"}}]),
        choice([{"type": "image", "data": "iVBO"}]),
        choice([{"later_form": {"words": "At nine."}}]),
        choice(7),
        output([{"role": "assistant", "parts": [{"type": "blob", "content": "iVBO"}]}]),
        output("{'role': 'assistant', 'content': 'At nine.'}"),
        output([["At nine."]]),
        output("no messages"),
    ],
)
def test_an_answer_of_which_nothing_is_text_is_no_empty_answer(span: ReadSpan) -> None:
    """It says that there is an answer which cannot be read, and its question is there. The Python
    form of messages is not judged as text.
    """
    mapped = answer_of(span)
    assert mapped.is_unread
    assert (mapped.input.prompt, mapped.content_switch) == ("When?", None)


def test_an_empty_text_is_an_empty_answer() -> None:
    """A model that says nothing has answered."""
    mapped = answer_of(chat(gen_ai__output__messages=[text_message("")]))
    assert (mapped.is_unread, mapped.input.response) == (False, "")


def test_output_messages_that_are_blocks_are_one_message() -> None:
    """As some put their own content there."""
    assert answer_of(chat(gen_ai__output__messages=BLOCKS)).input.response == "At nine."


def test_messages_before_v1_28_are_read_from_events_and_attributes() -> None:
    """Two events or two attributes have them all."""
    asked = json.dumps([{"role": "user", "content": "When?"}])
    answered = json.dumps([{"role": "assistant", "content": "At nine."}])
    events = [
        ("gen_ai.content.prompt", {"gen_ai.prompt": asked}),
        ("gen_ai.content.completion", {"gen_ai.completion": answered}),
    ]
    in_events = span_of("chat", events=events)
    in_attributes = span_of("chat", gen_ai__prompt="When?", gen_ai__completion="At nine.")
    for span in (in_events, in_attributes):
        mapped = answer_of(span)
        assert (mapped.input.prompt, mapped.input.response) == ("When?", "At nine.")


def test_of_several_choices_the_first_one_counts() -> None:
    """As of a response that `@monitor` reads: by index, by their number, or as texts in a row."""
    choices = [text_message("First."), text_message("Second.")]
    assert answer_of(chat(gen_ai__output__messages=choices)).input.response == "First."
    events = [
        ("gen_ai.user.message", {"content": "When?"}),
        ("gen_ai.choice", {"index": 1, "message": "Second."}),
        ("gen_ai.choice", {"index": 0, "message": "First."}),
    ]
    assert answer_of(span_of("chat", events=events)).input.response == "First."
    call = {"type": "tool_call", "id": "a", "name": "f", "arguments": {}}
    calls = [{"role": "assistant", "parts": [call]}, text_message("Second.")]
    mapped = answer_of(chat(gen_ai__output__messages=calls, **{"gen_ai.request.choice.count": 2}))
    assert mapped.input.response == ""
    assert [made.name for made in mapped.input.tool_calls or ()] == ["f"]


def test_items_of_one_response_are_no_choices() -> None:
    """A text after a provider's tool, and the messages of an agent, are the same answer's."""
    call = {"type": "server_tool_call", "id": "a", "name": "search", "server_tool_call": {"q": 1}}
    response = {
        "type": "server_tool_call_response",
        "id": "a",
        "server_tool_call_response": {"found": 2},
    }
    messages = [
        text_message("I look it up."),
        {"role": "assistant", "parts": [call]},
        {"role": "assistant", "parts": [response]},
        text_message("At nine."),
    ]
    mapped = answer_of(chat(gen_ai__output__messages=messages))
    assert mapped.input.response == "At nine."
    [made] = mapped.input.tool_calls or ()
    assert (made.name, made.arguments, made.result) == ("search", {"q": 1}, {"found": 2})
    steps = [text_message("I look it up."), text_message("At nine.")]
    agent = span_of("invoke_agent", gen_ai__output__messages=steps)
    assert answer_of(agent).input.response == "At nine."


def test_a_tool_span_of_googles_kit_has_arguments_and_result() -> None:
    """It has them in attributes of its own."""
    tool = span_of(
        "execute_tool",
        2,
        1,
        gen_ai__tool__name="book",
        gcp__vertex__agent__tool_call_args='{"a": 1}',
        gcp__vertex__agent__tool_response='{"result": "booked"}',
    )
    [call] = answer_of(span_of("invoke_agent", 1), tool, chat(3, 1)).input.tool_calls or ()
    assert (call.name, call.arguments, call.result) == ("book", {"a": 1}, {"result": "booked"})


def test_a_text_that_a_tool_of_the_ai_sdk_gave_has_no_quotes() -> None:
    """The SDK writes every result as JSON, and a text is JSON in quotes."""
    attributes = {
        "ai.operationId": "ai.toolCall",
        "ai.toolCall.name": "book",
        "ai.toolCall.args": '{"a": 1}',
        "ai.toolCall.result": '"booked for \\"nine\\""',
    }
    tool = ReadSpan(1, 2, 1, "ai.toolCall", 1, 2, 3, attributes, scope="ai")
    [call] = answer_of(chat(), tool).input.tool_calls or ()
    assert (call.name, call.arguments, call.result) == ("book", {"a": 1}, 'booked for "nine"')


def test_what_a_memory_found_is_context() -> None:
    """What is written to a memory is none."""
    records = [{"id": "m-1", "score": 0.9, "content": "The user's office opens at nine."}]
    agent = span_of("invoke_agent", 1, gen_ai__agent__name="desk")
    search = span_of("search_memory", 2, 1, gen_ai__memory__records=json.dumps(records))
    written = span_of("upsert_memory", 3, 1, gen_ai__memory__records=json.dumps([{"id": "m-2"}]))
    mapped = answer_of(agent, search, written, chat(4, 1))
    assert mapped.input.context == {"documents": records}
    assert mapped.input.response == "At nine."


def test_what_is_said_in_a_plan_is_no_answer() -> None:
    """Its tokens count. A plan by itself is not evaluated, an agent below it is."""
    thought = [text_message("1. Look it up.")]
    agent = span_of("invoke_agent", 1, gen_ai__agent__name="desk")
    plan = span_of("plan", 2, 1, gen_ai__output__messages=thought)
    planning = chat(3, 2, gen_ai__output__messages=thought, gen_ai__usage__input_tokens=5)
    answering = chat(4, 1, gen_ai__usage__input_tokens=7)
    mapped = answer_of(agent, plan, planning, answering)
    assert (mapped.input.response, mapped.input.turns) == ("At nine.", 1)
    assert mapped.input.usage is not None
    assert mapped.input.usage.input_tokens == 12
    assert not read(span_of("plan", 1), chat(2, 1, gen_ai__output__messages=thought)).answers
    assert answer_of(span_of("plan", 1), span_of("invoke_agent", 2, 1), chat(3, 2)).input.response


def test_an_agents_span_needs_no_id_version_or_provider() -> None:
    """The conventions leave them out of the span of an agent in the same process."""
    agent = span_of(
        "invoke_agent",
        gen_ai__agent__name="desk",
        gen_ai__input__messages=QUESTION,
        gen_ai__output__messages=ANSWER,
    )
    mapped = answer_of(agent)
    assert (mapped.input.agent, mapped.input.agent_id) == ("desk", "desk")
    assert (mapped.input.prompt, mapped.input.response) == ("When?", "At nine.")


def test_a_function_that_a_platform_traces_is_no_answer() -> None:
    """An observation or run of an ordinary function has a result, and no model call below it."""
    for kind, value, output in (
        ("langfuse.observation.type", "span", "langfuse.observation.output"),
        ("langsmith.span.kind", "chain", "gen_ai.completion"),
        ("mlflow.spanType", '"CHAIN"', "mlflow.spanOutputs"),
    ):
        attributes = {kind: value, output: json.dumps({"plan": "pro"})}
        assert not read(ReadSpan(1, 1, None, "load_user", 1, 1, 2, attributes)).answers
