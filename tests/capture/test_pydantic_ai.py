"""What pydantic-ai gives, captured by its shape."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.testing import ModelReply, ModelServer
from tests.capture.support import (
    ANSWER,
    CALLING,
    WEATHER,
    facts_of,
    read_answer,
    returned,
    streamed,
)
from tests.instrumentation.support import Seen

ANSWERED = (
    "It is sunny.",
    [("weather", WEATHER["arguments"], "sunny in Kyōto")],
    (27, 13),
    "gpt-x",
    "stop",
)


def with_agent(replies: Any, work: Callable[[Any], Awaitable[Any]], **settings: Any) -> Any:
    """What the work gives that is done with an agent, whose client is closed before its loop is."""
    from pydantic_ai import Agent  # not at collection: it takes a second
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def open_and_close() -> Any:
        with ModelServer(replies) as server:
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="test") as client:
                model = OpenAIChatModel("gpt-x", provider=OpenAIProvider(openai_client=client))
                agent: Any = Agent(model, system_prompt="Be nice.", **settings)

                @agent.tool_plain
                def weather(city: str) -> str:
                    return f"sunny in {city}"

                return await work(agent)

    return asyncio.run(open_and_close())


def run(replies: Any = (CALLING, ANSWER), **settings: Any) -> Any:
    return with_agent(replies, lambda agent: agent.run("How is the weather?"), **settings)


@pytest.fixture(scope="module")
def result() -> Any:
    return run(instructions="Be brief.")


def test_a_runs_result(result: Any) -> None:
    """The result, its messages and their JSON tell text, calls with results, the run's usage, model
    and reason.
    """
    messages = json.loads(result.all_messages_json())
    for answer in (result, result.all_messages(), messages, {"messages": result.all_messages()}):
        captured = returned(answer, prompt=None)
        assert facts_of(captured) == ANSWERED
        assert (captured.prompt, captured.response_id) == (
            "How is the weather?",
            "chatcmpl-00000002",
        )
        assert [item.role for item in captured.message_history or ()] == [
            "system",
            "system",
            "user",
        ]
        assert captured.conversation_id == result.conversation_id
    assert facts_of(returned(result.response)) == ("It is sunny.", None, (20, 4), "gpt-x", "stop")


def test_messages_are_a_conversation(result: Any) -> None:
    """Messages of an earlier run, given as a history, are the history: instructions once, results
    with their calls.
    """
    seen = Seen()

    @seen.monitor
    def handler(question: str, history: Any) -> str:
        return "Rain."

    handler("And tomorrow?", history=result.all_messages())
    reported = [(item.role, item.content) for item in seen.last.message_history or ()]
    assert reported == [
        ("system", "Be brief."),
        ("system", "Be nice."),
        ("user", "How is the weather?"),
        ("assistant", "Let me look."),
        ("tool", "sunny in Kyōto"),
        ("assistant", "It is sunny."),
        ("user", "And tomorrow?"),
    ]
    assert (seen.last.prompt, seen.last.tool_calls) == ("And tomorrow?", None)
    seen.pipeline.shutdown(5)


def test_a_structured_output() -> None:
    """An output that is a model is told as JSON."""

    class Weather(BaseModel):
        sky: str
        degrees: list[int]

    call: Any = {"name": "final_result", "arguments": {"sky": "clear", "degrees": [20, 24]}}
    captured = returned(run([ModelReply(tool_calls=(call,))], output_type=Weather))
    assert json.loads(captured.response) == {"sky": "clear", "degrees": [20, 24]}


def test_a_runs_events() -> None:
    """The events of a run tell the same as its result, once; without the result at the end, what
    they know.
    """

    async def collect(agent: Any) -> list[Any]:
        async with agent.run_stream_events("How is the weather?") as stream:
            return [event async for event in stream]

    events = with_agent([CALLING, ANSWER], collect)
    assert facts_of(streamed(events)) == ANSWERED
    assert facts_of(streamed(events[:-1])) == (*ANSWERED[:2], None, None, None)


def test_a_stream_of_text_and_of_responses() -> None:
    """Text deltas are text; of growing responses the last one counts; a result is read when its
    stream is complete.
    """

    async def collect(agent: Any) -> tuple[list[Any], list[Any], Any]:
        async with agent.run_stream("How is the weather?") as result:
            with pytest.raises(CaptureError, match="stream for its reader"):
                read_answer(result)
            texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
        async with agent.run_stream("How is the weather?") as result:
            return (
                texts,
                [response async for response in result.stream_response(debounce_by=None)],
                result,
            )

    texts, responses, result = with_agent([ANSWER], collect)
    assert min(len(texts), len(responses)) > 1
    assert streamed(texts).response == "It is sunny."
    for captured in (streamed(responses), returned(result)):
        assert facts_of(captured) == ("It is sunny.", None, (20, 4), "gpt-x", "stop")


def test_a_tools_data_is_its_result() -> None:
    """Whole, although it has a field that reads like a message's text."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    data = {"text": "sunny", "degrees": 20}
    messages = [
        ModelRequest([UserPromptPart("How is the weather?")]),
        ModelResponse([ToolCallPart("weather", {}, "a")]),
        ModelRequest([ToolReturnPart("weather", data, "a")]),
        ModelResponse([TextPart("Sunny.")]),
    ]
    (call,) = returned(messages, prompt=None).tool_calls or ()
    assert call.result == data
