"""An agent of the OpenAI Agents SDK with a tool, whole and streamed: its run goes back, and is
understood.

uv run python examples/18_openai_agents.py
"""

import asyncio
from collections.abc import AsyncIterator

import openai
from agents import (
    Agent,
    OpenAIResponsesModel,
    Runner,
    RunResult,
    StreamEvent,
    function_tool,
    set_tracing_disabled,
)

from agenteval_otel import EvaluationInput, accounting, configure, flush, monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.storage import ConsoleStorageProvider
from agenteval_otel.testing import ModelReply, ModelServer

# Stands in for the model, so that this runs anywhere: leave it and the client out, and name the
# model in Agent(...).
CALL = ModelReply(tool_calls=[{"name": "order_status", "arguments": {"order": "A-17"}}])
model_server = ModelServer(
    [CALL, "Order A-17 arrives on Tuesday.", CALL, "It arrives on Tuesday, order A-17."]
)
client = openai.AsyncOpenAI(base_url=f"{model_server.url}/v1", api_key="test")
set_tracing_disabled(True)  # the SDK's own, which sends traces to its maker


@function_tool
def order_status(order: str) -> str:
    """Where an order is."""
    return f"{order} is due on Tuesday"


agent = Agent(
    name="tracking",
    instructions="Track orders.",
    tools=[order_status],
    model=OpenAIResponsesModel("gpt-4.1-mini", client),
)


def used_what_it_found(seen: EvaluationInput) -> bool:
    """Whether the answer says what the tool said; an evaluator sees the tool calls with their
    results.
    """
    results = [str(call.result) for call in seen.tool_calls or ()]
    print(f"{seen.prompt!r} -> {results} -> {seen.response_text!r}")
    return any("Tuesday" in result for result in results) and "Tuesday" in seen.response_text


configure(
    sample_rate=1.0,
    evaluators=[ResponseHealth(), used_what_it_found],
    storage=[ConsoleStorageProvider()],
)


@monitor(agent="tracking")
async def track(question: str) -> RunResult:
    return await Runner.run(agent, question)


@monitor(agent="live")
async def track_live(question: str) -> AsyncIterator[StreamEvent]:
    async for event in Runner.run_streamed(agent, question).stream_events():
        yield event


async def main() -> None:
    print((await track("Where is A-17?")).final_output)
    print(len([event async for event in track_live("And when does it come?")]) > 0, "events passed")
    await client.close()


asyncio.run(main())
flush(5.0)
print({outcome: count for outcome, count in accounting().items() if count})
