"""What LangChain and LangGraph give, captured by its shape."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")

from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, message_to_dict
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from agenteval_otel.testing import ModelServer
from tests.capture.support import ANSWER, CALLING, LOOK, WEATHER, facts_of, passed_on, returned, streamed
from tests.instrumentation.support import Seen

CALL = ("weather", WEATHER["arguments"], None)
ANSWERED = ("It is sunny.", [("weather", WEATHER["arguments"], "sunny in Kyōto")], (27, 13), "gpt-x", "stop")
STATE: Any = {"messages": [("system", "Be nice."), ("user", "How is the weather?")]}


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


class Model:
    """A model server, and a chat model with clients of its own that can be closed."""

    def __init__(self, replies: Any) -> None:
        self.server, self.client = ModelServer(replies), httpx.Client()

    def chat(self, **settings: Any) -> ChatOpenAI:
        return ChatOpenAI(
            model="gpt-x", base_url=f"{self.server.url}/v1", api_key="test", stream_usage=True,
            http_client=self.client, **settings,
        )  # fmt: skip

    def close(self) -> None:
        self.client.close()
        self.server.close()


def graph(served: Model) -> Any:
    model = served.chat().bind_tools([weather])
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([weather]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile()


@pytest.fixture
def server() -> Iterator[Model]:
    with contextlib.closing(Model([CALLING])) as running:
        yield running


@pytest.fixture
def agent() -> Iterator[Any]:
    with contextlib.closing(Model([CALLING, ANSWER] * 4)) as running:
        yield graph(running)


@pytest.mark.parametrize(("settings", "reason"), [({}, "tool_calls"), ({"use_responses_api": True}, "completed")])
def test_a_message(server: Model, settings: dict[str, Any], reason: str) -> None:
    """The message and its dumps tell text, calls, usage, model and reason, whichever API is behind it."""
    message = server.chat(**settings).invoke("How is the weather?")
    dumps = (message.model_dump(), message_to_dict(message), dumpd(message))
    for answer in (message, *dumps):
        captured = returned(answer)
        assert facts_of(captured) == (LOOK, [CALL], (7, 9), "gpt-x", reason)
        assert captured.response_id == message.response_metadata["id"]


@pytest.mark.parametrize(("settings", "reason"), [({}, "tool_calls"), ({"use_responses_api": True}, "completed")])
def test_a_message_in_chunks(server: Model, settings: dict[str, Any], reason: str) -> None:
    """Chunks, their dumps and their sum tell the same; an id that the client made up is no response id."""
    chunks = list(server.chat(**settings).stream("How is the weather?"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    for captured in (streamed(chunks), streamed([chunk.model_dump() for chunk in chunks]), returned(whole)):
        assert facts_of(captured) == (LOOK, [CALL], (7, 9), "gpt-x", reason)
        assert captured.response_id == ("resp_00000001" if settings else None)


def test_a_graphs_state(agent: Any) -> None:
    """Of a state the last message is the answer; calls have their results, usage is that of the whole turn."""
    state = agent.invoke(STATE)
    for answer in (state, state["messages"]):
        captured = returned(answer, prompt=STATE)
        assert facts_of(captured) == ANSWERED
        assert (captured.prompt, captured.response_id) == ("How is the weather?", "chatcmpl-00000002")
        assert captured.message_history is not None
        assert [(item.role, item.content) for item in captured.message_history] == [
            ("system", "Be nice."), ("user", "How is the weather?")]  # fmt: skip


def test_a_state_brings_its_own_prompt(agent: Any) -> None:
    """A handler without arguments that returns the state tells what was asked by the state."""
    captured = returned(agent.invoke(STATE), prompt=None)
    assert captured.prompt == "How is the weather?"
    assert captured.message_history is not None
    assert [message.role for message in captured.message_history] == ["system", "user"]


def test_a_second_question_has_only_its_own_calls(agent: Any) -> None:
    """Calls and usage of earlier turns belong to earlier answers; they stand in the history."""
    state = agent.invoke(STATE)
    later = [*state["messages"], HumanMessage("And tomorrow?"), AIMessage("Rain.")]
    captured = returned({"messages": later}, prompt=later[:-1])
    assert facts_of(captured) == ("Rain.", None, None, None, None)
    assert (captured.prompt, len(captured.message_history or ())) == ("And tomorrow?", 6)
    calls = (captured.message_history or [])[2].tool_calls
    assert calls is not None
    assert calls[0].result == "sunny in Kyōto"


@pytest.mark.parametrize("mode", ["updates", "values", "messages", ["messages", "updates"], ["updates", "values"]])
def test_a_graphs_stream(agent: Any, mode: Any) -> None:
    """Every way of streaming a graph tells the answer that its state would, once."""
    captured = streamed(agent.stream(STATE, stream_mode=mode))
    assert facts_of(captured) == ANSWERED


def test_a_stream_of_subgraphs_and_of_the_second_form(agent: Any) -> None:
    """Namespaces before the payload, and typed parts, are understood."""
    assert facts_of(streamed(agent.stream(STATE, stream_mode="updates", subgraphs=True))) == ANSWERED
    typed = [{"type": "updates", "ns": (), "data": update} for update in agent.stream(STATE, stream_mode="updates")]
    assert facts_of(streamed(typed)) == ANSWERED


def test_an_async_graph(agent: Any) -> None:
    """The async stream is the same."""
    assert facts_of(passed_on(lambda: agent.astream(STATE, stream_mode="messages"))) == ANSWERED
    assert facts_of(returned(asyncio.run(agent.ainvoke(STATE)))) == ANSWERED


def test_the_thread_of_the_configuration_is_the_conversation(agent: Any) -> None:
    """The graph's ``thread_id``, passed to the handler in its configuration, is the conversation's id."""
    seen = Seen()

    @seen.monitor
    def handler(state: Any, config: Any) -> Any:
        return agent.invoke(state, config)

    handler({"messages": [SystemMessage("Be nice."), HumanMessage("How?")]}, {"configurable": {"thread_id": "t-1"}})
    assert (seen.last.conversation_id, seen.last.prompt) == ("t-1", "How?")
    seen.pipeline.shutdown(5)
