"""What the OpenAI Agents SDK gives, captured by its shape."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import openai
import pytest

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool

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

MODELS: Any = [OpenAIChatCompletionsModel, OpenAIResponsesModel]
CALLED = [("weather", WEATHER["arguments"], "sunny in Kyōto")]


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def run(model: Any, *, stream: bool = False) -> tuple[Any, list[Any]]:
    """The result of a run, and the events that it gave."""

    async def work() -> tuple[Any, list[Any]]:
        with ModelServer([CALLING, ANSWER]) as server:
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="test") as client:
                agent = Agent(
                    name="A", instructions="Be nice.", tools=[weather], model=model("gpt-x", client)
                )
                if not stream:
                    return await Runner.run(agent, "How is it?"), []
                streaming = Runner.run_streamed(agent, "How is it?")
                with pytest.raises(CaptureError, match="stream for its reader"):
                    read_answer(streaming)
                return streaming, [event async for event in streaming.stream_events()]

    return asyncio.run(work())


@pytest.mark.parametrize("model", MODELS)
def test_a_runs_result(model: Any) -> None:
    """The result tells text, calls with results, the run's usage, the model and the last response's
    id.
    """
    result, _ = run(model)
    captured = returned(result)
    assert facts_of(captured) == ("It is sunny.", CALLED, (27, 13), "gpt-x", None)
    assert captured.response_id in ("chatcmpl-00000002", "resp_00000002")
    assert facts_of(returned(result.to_input_list()))[:2] == ("It is sunny.", CALLED)
    history = returned(
        "Rain.", prompt=[*result.to_input_list(), {"role": "user", "content": "And tomorrow?"}]
    )
    assert history.prompt == "And tomorrow?"
    assert [item.role for item in history.message_history or ()] == [
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize("model", MODELS)
def test_a_runs_events(model: Any) -> None:
    """The events of a run tell the answer once; raw events alone do, but for the tools' results."""
    result, events = run(model, stream=True)
    responses = model is OpenAIResponsesModel
    usage, reason = ((27, 13), "completed") if responses else (None, None)
    captured = streamed(events)
    assert facts_of(captured) == ("It is sunny.", CALLED, usage, "gpt-x", reason)
    assert captured.response_id in ("chatcmpl-00000002", "resp_00000002")
    raw = streamed([event.data for event in events if event.type == "raw_response_event"])
    assert facts_of(raw) == ("It is sunny.", [(*CALLED[0][:2], None)], usage, "gpt-x", reason)
    assert facts_of(returned(result))[:3] == ("It is sunny.", CALLED, usage)


def test_a_handoff_is_one_answer() -> None:
    """The agent that was handed to answers; the handoff is a call, whole and streamed."""

    async def work() -> tuple[Any, list[Any]]:
        handoff = {"name": "transfer_to_refunds", "arguments": {}}
        replies = [ModelReply(tool_calls=[handoff]), ModelReply(text="Within ten days.")]
        found = []
        for stream in (False, True):
            with ModelServer(replies) as server:
                async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="t") as client:
                    model = OpenAIChatCompletionsModel("gpt-x", client)
                    refunds = Agent(name="refunds", model=model)
                    triage = Agent(name="triage", model=model, handoffs=[refunds])
                    if stream:
                        run = Runner.run_streamed(triage, "Refund?")
                        found.append([event async for event in run.stream_events()])
                    else:
                        found.append(await Runner.run(triage, "Refund?"))
        return found[0], found[1]

    result, events = asyncio.run(work())
    for captured in (returned(result), streamed(events)):
        assert captured.response == "Within ten days."
        assert [call.name for call in captured.tool_calls or ()] == ["transfer_to_refunds"]
