"""A pydantic-ai agent with a tool: the run's result goes back, its messages are understood.

uv run python examples/06_pydantic_ai_agent.py
"""

import asyncio

from pydantic_ai import Agent, AgentRunResult
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from agenteval_otel import EvaluationInput, accounting, configure, flush, monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.storage import ConsoleStorageProvider
from agenteval_otel.testing import ModelReply, ModelServer

# Stands in for the model, so that this runs anywhere: leave it out, and write
# Agent("openai:gpt-4.1-mini").
model_server = ModelServer(
    [
        ModelReply(tool_calls=[{"name": "order_status", "arguments": {"order": "A-17"}}]),
        "Order A-17 arrives on Tuesday.",
    ]
)
provider = OpenAIProvider(base_url=f"{model_server.url}/v1", api_key="test")
agent = Agent(OpenAIChatModel("gpt-4.1-mini", provider=provider), instructions="Track orders.")


@agent.tool_plain
def order_status(order: str) -> str:
    """Where an order is."""
    return f"{order} is due on Tuesday"


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
async def track(question: str) -> AgentRunResult[str]:
    return await agent.run(question)


print(asyncio.run(track("Where is A-17?")).output)
flush(5.0)
print({outcome: count for outcome, count in accounting().items() if count})
