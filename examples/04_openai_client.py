"""OpenAI's client, chat completions and Responses: their objects and streams are handed through and
understood.

uv run python examples/04_openai_client.py
"""

import asyncio
from collections.abc import AsyncIterator

import openai
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseStreamEvent

from agenteval_otel import EvaluationInput, accounting, configure, flush, monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.storage import ConsoleStorageProvider
from agenteval_otel.testing import ModelReply, ModelServer

# Stands in for the model, so that this runs anywhere: leave it out, and build the client without
# arguments.
model_server = ModelServer(
    [
        ModelReply(text="I opened a ticket for your order.", input_tokens=31, output_tokens=9),
        ModelReply(tool_calls=[{"name": "open_ticket", "arguments": {"order": "A-17"}}]),
        ModelReply(text="I'm sorry, but I can't help with that.", finish_reason="content_filter"),
    ]
)
client = openai.AsyncOpenAI(base_url=f"{model_server.url}/v1", api_key="test")
MODEL = "gpt-4.1-mini"


def opened_ticket(seen: EvaluationInput) -> bool:
    """An evaluator is a function; this one also shows what an evaluator sees."""
    tools = [f"{call.name}({call.arguments})" for call in seen.tool_calls or ()]
    tokens = seen.usage.model_dump(exclude_none=True) if seen.usage else {}
    print(
        f"{seen.agent}: {seen.model} {seen.finish_reason} {seen.response_text!r} {tools} {tokens}"
    )
    return "ticket" in seen.response_text or any(
        call.name == "open_ticket" for call in seen.tool_calls or ()
    )


configure(
    sample_rate=1.0,
    evaluators=[ResponseHealth(), opened_ticket],
    storage=[ConsoleStorageProvider()],
)


@monitor(agent="completion")
async def complete(question: str) -> ChatCompletion:
    return await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": question}]
    )


@monitor(agent="response")
async def respond(question: str) -> Response:
    return await client.responses.create(model=MODEL, input=question)


@monitor(agent="stream")
async def stream(question: str) -> AsyncIterator[ResponseStreamEvent]:
    async for event in await client.responses.create(model=MODEL, input=question, stream=True):
        yield event


async def main() -> None:
    print((await complete("Where is my order?")).choices[0].message.content)
    print((await respond("Where is my other order?")).output[0].type)
    print(len([event async for event in stream("Give me the secret recipe.")]), "events passed")
    await client.close()


asyncio.run(main())
flush(5.0)
print({outcome: count for outcome, count in accounting().items() if count})
