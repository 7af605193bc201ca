"""What LangChain and LangGraph give, captured by its shape."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from agenteval_otel.testing import ModelServer
from tests.capture.support import (
    ANSWER,
    CALLING,
    LOOK,
    WEATHER,
    facts_of,
    history_of,
    returned,
    streamed,
)

CALL = ("weather", WEATHER["arguments"], None)
ANSWERED = (
    "It is sunny.",
    [("weather", WEATHER["arguments"], "sunny in Kyōto")],
    (27, 13),
    "gpt-x",
    "stop",
)
STATE: Any = {"messages": [("system", "Be nice."), ("user", "How is the weather?")]}


@pytest.fixture(autouse=True)
def _no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "false")


@contextlib.contextmanager
def chat(*replies: Any) -> Iterator[Callable[..., Any]]:
    """Makes chat models that ask a model server, with a client that is closed at the end."""
    from langchain_openai import ChatOpenAI  # not at collection: it takes a second

    with ModelServer(replies) as server, httpx.Client() as client:
        yield functools.partial(
            ChatOpenAI,
            model="gpt-x",
            base_url=f"{server.url}/v1",
            api_key="test",
            stream_usage=True,
            http_client=client,
        )


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    with chat(CALLING) as make:
        yield make


@pytest.fixture
def agent() -> Iterator[Any]:
    """A graph of a model and a tool."""
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    with chat(CALLING, ANSWER, CALLING, ANSWER) as make:
        model = make().bind_tools([weather])
        builder = StateGraph(MessagesState)
        builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_node("tools", ToolNode([weather]))
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", tools_condition)
        builder.add_edge("tools", "agent")
        yield builder.compile()


def test_a_history_of_dictionaries() -> None:
    """`messages_to_dict` puts a message's fields below `data`."""
    from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict

    said = [
        HumanMessage("Hello."),
        AIMessage("", tool_calls=[{"name": "weather", "args": {}, "id": "a"}]),
    ]
    messages = [
        *messages_to_dict(said),
        {"type": "tool", "data": {"content": "sunny", "tool_call_id": "a"}},
    ]
    history = history_of(messages) or []
    assert [item["role"] for item in history] == ["user", "assistant", "tool"]
    assert [item["content"] for item in history] == ["Hello.", "", "sunny"]
    assert history[1]["tool_calls"][0]["result"] == "sunny"


APIS = pytest.mark.parametrize(
    ("settings", "reason"), [({}, "tool_calls"), ({"use_responses_api": True}, "completed")]
)


@APIS
def test_a_message(made: Any, settings: dict[str, Any], reason: str) -> None:
    """The message and its dictionary tell text, calls, usage, model and reason, whichever API is
    behind it.
    """
    message = made(**settings).invoke("How is the weather?")
    for answer in (message, message.model_dump()):
        captured = returned(answer)
        assert facts_of(captured) == (LOOK, [CALL], (7, 9), "gpt-x", reason)
        assert captured.response_id == message.response_metadata["id"]


@APIS
def test_a_message_in_chunks(made: Any, settings: dict[str, Any], reason: str) -> None:
    """Chunks, their dumps and their sum tell the same; an id that the client made up is no response
    id.
    """
    chunks: list[Any] = list(made(**settings).stream("How is the weather?"))
    whole = sum(chunks[1:], start=chunks[0])
    for captured in (
        streamed(chunks),
        streamed([chunk.model_dump() for chunk in chunks]),
        returned(whole),
    ):
        assert facts_of(captured) == (LOOK, [CALL], (7, 9), "gpt-x", reason)
        assert captured.response_id == ("resp_00000001" if settings else None)


def test_a_graphs_state(agent: Any) -> None:
    """Of a state the last message is the answer; calls have their results, usage is that of the
    whole turn.
    """
    state = agent.invoke(STATE)
    for answer, prompt in ((state, STATE), (state["messages"], STATE), (state, None)):
        captured = returned(answer, prompt=prompt)
        assert facts_of(captured) == ANSWERED
        assert (captured.prompt, captured.response_id) == (
            "How is the weather?",
            "chatcmpl-00000002",
        )
        assert captured.message_history is not None
        assert [(item.role, item.content) for item in captured.message_history] == [
            ("system", "Be nice."),
            ("user", "How is the weather?"),
        ]


def test_a_second_question_has_only_its_own_calls(agent: Any) -> None:
    """Calls and usage of earlier turns belong to earlier answers; they stand in the history."""
    from langchain_core.messages import AIMessage, HumanMessage

    state = agent.invoke(STATE)
    later = [*state["messages"], HumanMessage("And tomorrow?"), AIMessage("Rain.")]
    captured = returned({"messages": later}, prompt=later[:-1])
    assert facts_of(captured) == ("Rain.", None, None, None, None)
    assert (captured.prompt, len(captured.message_history or ())) == ("And tomorrow?", 6)
    (call,) = (captured.message_history or [])[2].tool_calls or ()
    assert call.result == "sunny in Kyōto"


@pytest.mark.parametrize(
    "mode", ["updates", "values", "messages", ["messages", "updates"], ["updates", "values"]]
)
def test_a_graphs_stream(agent: Any, mode: Any) -> None:
    """Every way of streaming a graph tells the answer that its state would, once."""
    captured = streamed(agent.stream(STATE, stream_mode=mode))
    assert facts_of(captured) == ANSWERED


def test_a_stream_of_subgraphs_and_of_the_second_form(agent: Any) -> None:
    """Namespaces before the payload, and typed parts, are understood."""
    assert (
        facts_of(streamed(agent.stream(STATE, stream_mode="updates", subgraphs=True))) == ANSWERED
    )
    typed = [
        {"type": "updates", "ns": (), "data": update}
        for update in agent.stream(STATE, stream_mode="updates")
    ]
    assert facts_of(streamed(typed)) == ANSWERED
