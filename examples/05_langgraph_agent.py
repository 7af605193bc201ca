"""A LangGraph agent with a tool: the graph's final state goes back, its messages are understood.

uv run python examples/05_langgraph_agent.py
"""

import os
from typing import Any

# LangChain's own tracing, which would call home where it is on
os.environ["LANGSMITH_TRACING"] = "false"

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from agenteval_otel import EvaluationInput, accounting, configure, flush, monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.storage import ConsoleStorageProvider
from agenteval_otel.testing import ModelReply, ModelServer

# Stands in for the model, so that this runs anywhere: leave it out, with the base_url and the
# api_key below.
model_server = ModelServer(
    [
        ModelReply(tool_calls=[{"name": "order_status", "arguments": {"order": "A-17"}}]),
        "Order A-17 arrives on Tuesday.",
    ]
)


@tool
def order_status(order: str) -> str:
    """Where an order is."""
    return f"{order} is due on Tuesday"


model = ChatOpenAI(
    model="gpt-4.1-mini", base_url=f"{model_server.url}/v1", api_key="test"
).bind_tools([order_status])
builder = StateGraph(MessagesState)
builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
builder.add_node("tools", ToolNode([order_status]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = builder.compile()


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
def track(question: str) -> dict[str, Any]:
    return graph.invoke({"messages": [HumanMessage(question)]})


print(track("Where is A-17?")["messages"][-1].content)
flush(5.0)
print({outcome: count for outcome, count in accounting().items() if count})
