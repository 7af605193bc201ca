"""What the OpenAI Agents SDK gives, captured by its shape."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest

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

MODELS = ["OpenAIChatCompletionsModel", "OpenAIResponsesModel"]
CALLED = [("weather", WEATHER["arguments"], "sunny in Kyōto")]


@pytest.fixture(autouse=True)
def _no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")


def run(
    make: Callable[[Any], Any],
    replies: Any,
    model: str = "OpenAIChatCompletionsModel",
    *,
    stream: bool = False,
) -> tuple[Any, list[Any]]:
    """The result of a run of the agent that is made for a model, and the events that it gave."""
    import agents  # not at collection: it takes a second

    async def work() -> tuple[Any, list[Any]]:
        with ModelServer(replies) as server:
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="test") as client:
                agent = make(getattr(agents, model)("gpt-x", client))
                if not stream:
                    return await agents.Runner.run(agent, "How is it?"), []
                streaming = agents.Runner.run_streamed(agent, "How is it?")
                with pytest.raises(CaptureError, match="stream for its reader"):
                    read_answer(streaming)
                return streaming, [event async for event in streaming.stream_events()]

    return asyncio.run(work())


def with_a_tool(model: Any) -> Any:
    from agents import Agent, function_tool

    @function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    return Agent(name="A", instructions="Be nice.", tools=[weather], model=model)


def with_a_handoff(model: Any) -> Any:
    from agents import Agent

    return Agent(name="triage", model=model, handoffs=[Agent(name="refunds", model=model)])


@pytest.mark.parametrize("model", MODELS)
def test_a_runs_result(model: str) -> None:
    """The result tells text, calls with results, the run's usage, the model and the last response's
    id.
    """
    result, _ = run(with_a_tool, [CALLING, ANSWER], model)
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
def test_a_runs_events(model: str) -> None:
    """The events of a run tell the answer once; raw events alone do, but for the tools' results."""
    result, events = run(with_a_tool, [CALLING, ANSWER], model, stream=True)
    responses = model == "OpenAIResponsesModel"
    usage, reason = ((27, 13), "completed") if responses else (None, None)
    captured = streamed(events)
    assert facts_of(captured) == ("It is sunny.", CALLED, usage, "gpt-x", reason)
    assert captured.response_id in ("chatcmpl-00000002", "resp_00000002")
    raw = streamed([event.data for event in events if event.type == "raw_response_event"])
    assert facts_of(raw) == ("It is sunny.", [(*CALLED[0][:2], None)], usage, "gpt-x", reason)
    assert facts_of(returned(result))[:3] == ("It is sunny.", CALLED, usage)


def test_a_handoff_is_one_answer() -> None:
    """The agent that was handed to answers; the handoff is a call, whole and streamed."""
    handoff: Any = {"name": "transfer_to_refunds", "arguments": {}}
    replies = [ModelReply(tool_calls=[handoff]), ModelReply(text="Within ten days.")]
    result, _ = run(with_a_handoff, replies)
    _, events = run(with_a_handoff, replies, stream=True)
    for captured in (returned(result), streamed(events)):
        assert captured.response == "Within ten days."
        assert [call.name for call in captured.tool_calls or ()] == ["transfer_to_refunds"]
