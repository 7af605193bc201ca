"""An agent on Anthropic's client: a tool, a stream, and what is read from the objects that the
handlers give back.

uv run python examples/03_anthropic_client.py
"""

from collections.abc import Iterator

import anthropic
from anthropic.types import (
    Message,
    MessageParam,
    RawMessageStreamEvent,
    ToolParam,
    ToolResultBlockParam,
)

from agenteval_otel import EvaluationInput, accounting, annotate, configure, flush, monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.storage import ConsoleStorageProvider
from agenteval_otel.testing import ModelReply, ModelServer

# Stands in for the model, so that this runs anywhere: leave it out, and build the client without
# arguments.
model_server = ModelServer(
    [
        ModelReply(tool_calls=[{"name": "order_status", "arguments": {"order": "A-17"}}]),
        ModelReply(
            text="Order A-17 is on its way and arrives on Tuesday.",
            input_tokens=120,
            output_tokens=14,
        ),
        ModelReply(text="Your order is on its way and arr", finish_reason="length"),
    ]
)
client = anthropic.Anthropic(base_url=model_server.url, api_key="test")

MODEL = "claude-sonnet-5"
TOOLS: list[ToolParam] = [
    {
        "name": "order_status",
        "description": "Where an order is.",
        "input_schema": {"type": "object", "properties": {"order": {"type": "string"}}},
    }
]


def looked_it_up(seen: EvaluationInput) -> bool:
    """An evaluator is a function; this one also shows what an evaluator sees."""
    tokens = seen.usage.model_dump(exclude_none=True) if seen.usage else {}
    print(f"{seen.agent}: {seen.model} {seen.finish_reason} {seen.response_text!r} {tokens}")
    return any(call.name == "order_status" for call in seen.tool_calls or ())


configure(
    sample_rate=1.0, evaluators=[ResponseHealth(), looked_it_up], storage=[ConsoleStorageProvider()]
)


@monitor(agent="tracking")
def track(question: str) -> Message:
    messages: list[MessageParam] = [{"role": "user", "content": question}]
    while True:
        message = client.messages.create(
            model=MODEL, max_tokens=200, tools=TOOLS, messages=messages
        )
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            # its text, model, stop reason and usage are read from it, later and elsewhere
            return message
        results: list[ToolResultBlockParam] = []
        for call in calls:
            found = f"{call.input['order']}: due on Tuesday"  # the tool itself
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": found})
            # The message that is returned does not tell what happened on the way; the handler does.
            annotate(
                tool_calls=[
                    {"id": call.id, "name": call.name, "arguments": call.input, "result": found}
                ]
            )
        messages += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results},
        ]


@monitor(agent="chat")
def chat(question: str) -> Iterator[RawMessageStreamEvent]:
    messages: list[MessageParam] = [{"role": "user", "content": question}]
    yield from client.messages.create(model=MODEL, max_tokens=8, messages=messages, stream=True)


print(track("Where is A-17?").content[0].text)
print(sum(1 for event in chat("And B-2?")), "events passed")
flush(5.0)
print({outcome: count for outcome, count in accounting().items() if count})
