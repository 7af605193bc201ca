"""Agent libraries: an agent that calls a tool and answers. Functions as in `providers`."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.capture.applications.providers import (
    ARGUMENTS,
    MODEL_URL,
    NAME,
    PROVIDER_URL,
    QUESTION,
    SEARCH,
    TEXT,
    TOKENS,
    Given,
    chunks_of,
    kept,
    taken,
)

URL = f"{MODEL_URL}/v1"
ANSWER = "It is sunny."
CALLED = [NAME, ARGUMENTS, "rain"]
TOTAL = [27, 13]  # of the response that calls the tool, and of the answer


def weather(city: str) -> str:
    """Return the weather in a city."""
    return "rain"


def langgraph() -> Given:
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    model = ChatOpenAI(model="gpt-x", base_url=URL, stream_usage=True)
    graph = create_react_agent(model, [weather])
    asked: Any = {"messages": [{"role": "user", "content": QUESTION}]}
    facts = [ANSWER, [CALLED], TOTAL, "gpt-x", "stop"]

    async def ask() -> tuple[Any, list[Any], list[Any]]:
        stream = await chunks_of(graph.astream(asked, stream_mode="messages"))
        events = await chunks_of(graph.astream_events(asked, version="v2"))
        return await graph.ainvoke(asked), stream, events

    whole, chunks, events = asyncio.run(ask())
    return "LangChain, LangGraph", {
        "returned": (graph.invoke(asked), facts),
        "streamed": (kept(graph.stream(asked, stream_mode="messages")), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
        "async streamed events": (events, facts),
    }


def openai_agents() -> Given:
    import agents
    import openai

    tool = agents.function_tool(weather)
    facts = [ANSWER, [CALLED], TOTAL, "gpt-x", None]

    def agent() -> Any:
        client = openai.AsyncOpenAI(base_url=URL)
        model = agents.OpenAIChatCompletionsModel("gpt-x", client)
        counted = agents.ModelSettings(include_usage=True)
        return agents.Agent(name="clerk", model=model, tools=[tool], model_settings=counted)

    async def ask() -> tuple[Any, list[Any]]:
        stream = agents.Runner.run_streamed(agent(), QUESTION).stream_events()
        return await agents.Runner.run(agent(), QUESTION), await chunks_of(stream)

    whole, chunks = asyncio.run(ask())
    return "OpenAI Agents", {
        "returned": (agents.Runner.run_sync(agent(), QUESTION), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }


def pydantic_ai() -> Given:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def agent() -> Any:
        model = OpenAIChatModel("gpt-x", provider=OpenAIProvider(base_url=URL))
        return Agent(model, tools=[weather])

    facts = [ANSWER, [CALLED], TOTAL, "gpt-x", "stop"]

    async def ask() -> tuple[Any, list[Any]]:
        async with agent().run_stream_events(QUESTION) as stream:
            chunks = await chunks_of(stream)
        return await agent().run(QUESTION), chunks

    whole, chunks = asyncio.run(ask())
    return "pydantic-ai", {
        "returned": (agent().run_sync(QUESTION), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }


def pydantic_ai_tools() -> Given:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def agent() -> Any:
        provider = OpenAIProvider(base_url=f"{PROVIDER_URL}/v1")
        return Agent(OpenAIResponsesModel("gpt-x", provider=provider))

    found = {"attributes": None, "file_id": "f", "filename": "terms.md", "score": 0.5}
    searched = {"status": "completed", "results": [found | {"text": "Ten days."}]}
    code = {"container_id": "cntr_1", "code": "print(1 + 1)"}
    stock = {"action": "call_tool", "tool_name": "stock", "tool_args": {"sku": 7}}
    calls = [
        ["web_search", SEARCH, {"status": "completed"}],
        ["file_search", {"queries": ["refunds"]}, searched],
        ["code_execution", code, {"status": "completed", "logs": ["2\n"]}],
        ["mcp_server:shop", stock, {"error": None, "output": "3 left"}],
    ]
    facts = [TEXT, calls, TOKENS, "gpt-x", "stop"]

    async def ask() -> tuple[Any, list[Any]]:
        async with agent().run_stream_events(QUESTION) as stream:
            chunks = await chunks_of(stream)
        return await agent().run(QUESTION), chunks

    whole, chunks = asyncio.run(ask())
    return "pydantic-ai", {
        "returned": (agent().run_sync(QUESTION), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }


def crewai() -> Given:
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool

    def crew(*, stream: bool = False) -> Any:
        llm = LLM(model="openai/gpt-x", base_url=URL, api_key="test", stream=stream)
        about: Any = {"goal": "answer", "backstory": "you know", "verbose": False}
        agent = Agent(role="clerk", llm=llm, tools=[tool("weather")(weather)], **about)
        task = Task(description=QUESTION, expected_output="a sentence", agent=agent)
        return Crew(agents=[agent], tasks=[task], stream=stream, verbose=False)

    facts = [ANSWER, None, TOTAL, None, None]
    pieces = [ANSWER, [[NAME, ARGUMENTS, None]], None, None, None]

    async def ask() -> tuple[Any, list[Any]]:
        stream = await crew(stream=True).akickoff()
        return await crew().akickoff(), await chunks_of(stream)

    whole, chunks = asyncio.run(ask())
    return "CrewAI", {
        "returned": (crew().kickoff(), facts),
        "streamed": (kept(crew(stream=True).kickoff()), pieces),
        "async returned": (whole, facts),
        "async streamed": (chunks, pieces),
    }


def autogen() -> Given:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    def agent(*, stream: bool = False) -> Any:
        client = OpenAIChatCompletionClient(model="gpt-4o", base_url=URL, api_key="test")
        return AssistantAgent(
            "clerk",
            client,
            tools=[weather],
            reflect_on_tool_use=True,
            model_client_stream=stream,
        )

    facts = [ANSWER, [CALLED], TOTAL, None, None]

    async def ask() -> tuple[Any, list[Any], list[Any]]:
        pieces = await chunks_of(agent(stream=True).run_stream(task=QUESTION))
        messages = await chunks_of(agent().run_stream(task=QUESTION))
        return await agent().run(task=QUESTION), messages, pieces

    whole, messages, pieces = asyncio.run(ask())
    return "AutoGen", {
        "async returned": (whole, facts),
        "async streamed": (messages, facts),
        "async streamed pieces": (pieces, [ANSWER, [CALLED], None, None, None]),
    }


def haystack() -> Given:
    from haystack import Pipeline
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret

    asked: Any = [ChatMessage.from_user(QUESTION)]

    def model() -> Any:
        counted = {"stream_options": {"include_usage": True}}
        key = Secret.from_token("test")
        return OpenAIChatGenerator(
            api_key=key, model="gpt-x", api_base_url=URL, generation_kwargs=counted
        )

    def agent() -> Any:
        return Agent(chat_generator=model(), tools=[create_tool_from_function(weather)])

    pipeline = Pipeline()
    pipeline.add_component("llm", model())
    facts = [TEXT, [[NAME, ARGUMENTS, None]], TOKENS, "gpt-x", "tool_calls"]
    chunks: list[Any] = []

    def keep(chunk: Any) -> None:
        chunks.append(taken(chunk))

    agent().run(messages=asked, streaming_callback=keep)

    async def ask() -> tuple[Any, Any]:
        return await agent().run_async(messages=asked), await model().run_async(messages=asked)

    of_agent, of_model = asyncio.run(ask())
    in_loop = [ANSWER, [CALLED], TOTAL, "gpt-x", "stop"]
    return "Haystack", {
        "returned": (pipeline.run({"llm": {"messages": asked}}), facts),
        "returned by an agent": (agent().run(messages=asked), in_loop),
        "streamed": (chunks, in_loop),
        "async returned": (of_model, facts),
        "async returned by an agent": (of_agent, in_loop),
    }


def strands() -> Given:
    import strands
    from strands.models.openai import OpenAIModel

    def agent() -> Any:
        model = OpenAIModel(client_args={"base_url": URL, "api_key": "test"}, model_id="gpt-x")
        return strands.Agent(model=model, tools=[strands.tool(weather)], callback_handler=None)

    facts = [ANSWER, None, TOTAL, None, "end_turn"]
    in_stream = [ANSWER, [CALLED], TOTAL, None, "end_turn"]

    async def ask() -> tuple[Any, list[Any]]:
        chunks = await chunks_of(agent().stream_async(QUESTION))
        return await agent().invoke_async(QUESTION), chunks

    whole, chunks = asyncio.run(ask())
    return "Strands", {
        "returned": (agent()(QUESTION), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, in_stream),
    }
