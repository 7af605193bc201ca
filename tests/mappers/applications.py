"""Applications under real instrumentation, one function each: ``record.py`` runs them in environments of their own.

They ask a model on loopback for the weather, with a tool. The last line of the output says the libraries' versions.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

MODEL_URL = os.environ.get("MODEL_URL", "")
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
QUESTION = "What is the weather in Paris?"
SYSTEM = "You are a weather assistant."
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
MESSAGES: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
REPORT = {"degrees": 21, "sky": "sunny"}


def get_weather(city: str) -> str:
    """The weather in a city."""
    return json.dumps({"city": city, **REPORT})


@contextmanager
def exported() -> Iterator[Any]:
    """Providers that export to the receiver; gives the tracer provider."""
    from opentelemetry import trace
    from opentelemetry._logs import set_logger_provider
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider, loggers = TracerProvider(), LoggerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    trace.set_tracer_provider(provider)
    set_logger_provider(loggers)
    yield provider
    provider.shutdown()
    loggers.shutdown()


def openai_client() -> Any:
    import openai

    return openai.OpenAI(base_url=f"{MODEL_URL}/v1", api_key="test", max_retries=0)


def tool_loop(client: Any, run_tool: Any = None, **options: Any) -> str:
    """An agent by hand: ask, run the tool, ask again."""
    messages = list(MESSAGES)
    first = client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=[TOOL], **options)
    message = first.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls:
        result = (run_tool or (lambda call: get_weather(**json.loads(call.function.arguments))))(call)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    second = client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=[TOOL], **options)
    return second.choices[0].message.content


# --- the GenAI conventions: OpenTelemetry's own instrumentation -----------------------------------------------------


@contextmanager
def genai(capture: str) -> Iterator[Any]:
    os.environ[CAPTURE] = capture
    os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    with exported() as provider:
        from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

        OpenAIInstrumentor().instrument(tracer_provider=provider)
        yield openai_client()


def genai_chat(capture: str = "SPAN_ONLY") -> None:
    with genai(capture) as client:
        client.chat.completions.create(model="gpt-5-mini", messages=MESSAGES)


def genai_no_content() -> None:
    genai_chat("NO_CONTENT")


def genai_events() -> None:
    genai_chat("EVENT_ONLY")


def genai_stream() -> None:
    with genai("SPAN_ONLY") as client:
        for _ in client.chat.completions.create(
            model="gpt-5-mini", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        ):
            pass


def genai_responses() -> None:
    with genai("SPAN_ONLY") as client:
        client.responses.create(model="gpt-5-mini", instructions=SYSTEM, input=QUESTION)


def genai_error() -> None:
    with genai("SPAN_ONLY") as client:
        try:
            messages = [{"role": "user", "content": "fail with status 400"}]
            client.chat.completions.create(model="gpt-5-mini", messages=messages)
        except Exception as error:
            print(type(error))


def genai_agent(fails: bool = False) -> None:
    """The agent and the tool are instrumented by the application, with OpenTelemetry's own helper."""
    with genai("SPAN_ONLY") as client:
        from opentelemetry.util.genai.handler import TelemetryHandler
        from opentelemetry.util.genai.types import InputMessage, OutputMessage, TextPart

        handler = TelemetryHandler()

        def run_tool(call: Any) -> str:
            with handler.tool(call.function.name, tool_call_id=call.id) as tool:
                tool.arguments = json.loads(call.function.arguments)
                tool.tool_call_arguments = tool.arguments
                tool.tool_result = tool.tool_call_result = "" if fails else get_weather(**tool.arguments)
                if fails:
                    raise TimeoutError("the weather service does not answer")
            return tool.tool_result

        def run_tool_safely(call: Any) -> str:
            try:
                return run_tool(call)
            except TimeoutError as error:
                return f"error: {error}"

        with handler.invoke_local_agent(agent_name="weather", request_model="gpt-5-mini") as agent:
            agent.input_messages = [InputMessage("user", [TextPart(QUESTION)])]
            answer = tool_loop(client, run_tool_safely)
            agent.output_messages = [OutputMessage("assistant", [TextPart(answer)], "stop")]


def genai_failing_tool() -> None:
    genai_agent(fails=True)


def genai_retrieval() -> None:
    with genai("SPAN_ONLY") as client:
        from opentelemetry.util.genai.handler import TelemetryHandler
        from opentelemetry.util.genai.types import RetrievalDocument

        handler = TelemetryHandler()
        with handler.workflow("answer_from_documents"):
            with handler.retrieval(data_source_id="guides") as retrieval:
                retrieval.query_text = QUESTION
                retrieval.documents = [RetrievalDocument("guide-1", 0.9), RetrievalDocument("guide-2", 0.7)]
            client.chat.completions.create(model="gpt-5-mini", messages=MESSAGES)


def openaiv2_tools() -> None:
    """The instrumentation before it was renamed."""
    os.environ[CAPTURE], os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "span_only", "gen_ai_latest_experimental"
    with exported() as provider:
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

        OpenAIInstrumentor().instrument(tracer_provider=provider)
        with provider.get_tracer("app").start_as_current_span("POST /ask"):
            tool_loop(openai_client())


def semconv128_tools() -> None:
    """Version 1.28 of the conventions: messages as log events, one each."""
    os.environ[CAPTURE] = "true"
    with exported() as provider:
        from opentelemetry._logs import get_logger_provider
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
        from opentelemetry.sdk._events import EventLoggerProvider

        events = EventLoggerProvider(get_logger_provider())
        OpenAIInstrumentor().instrument(tracer_provider=provider, event_logger_provider=events)
        with provider.get_tracer("app").start_as_current_span("POST /ask"):
            tool_loop(openai_client())


# --- pydantic-ai and Logfire ----------------------------------------------------------------------------------------


def _weather_agent(**options: Any) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{MODEL_URL}/v1", api_key="test")
    return Agent(OpenAIChatModel("gpt-5-mini", provider=provider), system_prompt=SYSTEM, **options)


def pydantic_ai_agent(**settings: Any) -> None:
    with exported() as provider:
        from pydantic_ai import Agent, InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider, **settings))
        agent = _weather_agent(name="weather")
        agent.tool_plain(get_weather)
        agent.run_sync(QUESTION, metadata={"tenant": "acme"})


def pydantic_ai_no_content() -> None:
    pydantic_ai_agent(include_content=False)


def pydantic_ai_stream() -> None:
    async def ask() -> None:
        async with _weather_agent(name="weather").run_stream(QUESTION) as result:
            async for _ in result.stream_text():
                pass

    with exported() as provider:
        from pydantic_ai import Agent, InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
        asyncio.run(ask())


def pydantic_ai_two_agents() -> None:
    with exported() as provider:
        from pydantic_ai import Agent, InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
        expert = _weather_agent(name="expert")
        expert.tool_plain(get_weather)
        concierge = _weather_agent(name="concierge")

        @concierge.tool_plain
        async def ask_expert(question: str) -> str:
            """Ask the expert."""
            return (await expert.run(f"Weather in {question}?")).output

        concierge.run_sync(QUESTION)


def pydantic_ai_error() -> None:
    with exported() as provider:
        from pydantic_ai import Agent, InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
        try:
            _weather_agent(name="weather").run_sync("fail with status 400")
        except Exception as error:
            print(type(error))


def _logfire() -> None:
    """It exports to the endpoint that the environment names by itself."""
    import logfire

    logfire.configure(
        send_to_logfire=False, console=False, service_name="weather", environment="staging", inspect_arguments=False
    )


def logfire_openai() -> None:
    import logfire

    _logfire()
    logfire.instrument_openai()
    with logfire.span("answer {question}", question=QUESTION, _tags=["beta", "tenant:acme"]):
        tool_loop(openai_client())
    logfire.shutdown()


def logfire_openai_stream() -> None:
    import logfire

    _logfire()
    logfire.instrument_openai()
    for _ in openai_client().chat.completions.create(model="gpt-5-mini", messages=MESSAGES, stream=True):
        pass
    logfire.shutdown()


def logfire_openai_responses() -> None:
    import logfire

    _logfire()
    logfire.instrument_openai()
    openai_client().responses.create(model="gpt-5-mini", instructions=SYSTEM, input=QUESTION)
    logfire.shutdown()


def logfire_anthropic() -> None:
    import anthropic
    import logfire

    _logfire()
    logfire.instrument_anthropic()
    anthropic.Anthropic(base_url=MODEL_URL, api_key="test").messages.create(
        model="claude-sonnet-4-5", max_tokens=100, system=SYSTEM, messages=[{"role": "user", "content": QUESTION}]
    )
    logfire.shutdown()


# --- OpenInference --------------------------------------------------------------------------------------------------


def openinference_openai() -> None:
    with exported() as provider:
        from openinference.instrumentation import using_attributes
        from openinference.instrumentation.openai import OpenAIInstrumentor

        OpenAIInstrumentor().instrument(tracer_provider=provider)
        with using_attributes(
            session_id="session-1", user_id="ann@example.com", metadata={"tenant": "acme"}, tags=["beta"],
            prompt_template=SYSTEM, prompt_template_version="v7",
        ):  # fmt: skip
            tool_loop(openai_client())


def openinference_openai_stream() -> None:
    with exported() as provider:
        from openinference.instrumentation.openai import OpenAIInstrumentor

        OpenAIInstrumentor().instrument(tracer_provider=provider)
        for _ in openai_client().chat.completions.create(
            model="gpt-5-mini", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        ):
            pass


def openinference_openai_responses() -> None:
    with exported() as provider:
        from openinference.instrumentation.openai import OpenAIInstrumentor

        OpenAIInstrumentor().instrument(tracer_provider=provider)
        openai_client().responses.create(model="gpt-5-mini", instructions=SYSTEM, input=QUESTION)


def openinference_no_content() -> None:
    with exported() as provider:
        from openinference.instrumentation import TraceConfig
        from openinference.instrumentation.openai import OpenAIInstrumentor

        config = TraceConfig(hide_inputs=True, hide_outputs=True)
        OpenAIInstrumentor().instrument(tracer_provider=provider, config=config)
        openai_client().chat.completions.create(model="gpt-5-mini", messages=MESSAGES)


def openinference_anthropic() -> None:
    with exported() as provider:
        import anthropic
        from openinference.instrumentation.anthropic import AnthropicInstrumentor

        AnthropicInstrumentor().instrument(tracer_provider=provider)
        tool = {"name": "get_weather", "input_schema": TOOL["function"]["parameters"]}  # type: ignore[index]
        anthropic.Anthropic(base_url=MODEL_URL, api_key="test").messages.create(
            model="claude-sonnet-4-5", max_tokens=100, system=SYSTEM, tools=[tool],
            messages=[{"role": "user", "content": QUESTION}],
        )  # fmt: skip


def _langchain_model() -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-5-mini", base_url=f"{MODEL_URL}/v1", api_key="test", stream_usage=True)  # type: ignore[call-arg]


def _langchain_agent(name: str | None) -> Any:
    from langchain.agents import create_agent

    return create_agent(_langchain_model(), tools=[get_weather], system_prompt=SYSTEM, name=name)


def _ask_langchain(name: str | None = "weather_agent", stream: bool = False) -> None:
    agent = _langchain_agent(name)
    question = {"messages": [{"role": "user", "content": QUESTION}]}
    if stream:
        for _ in agent.stream(question, stream_mode="messages"):
            pass
    else:
        agent.invoke(question)


def _langchain_chain() -> None:
    """Retrieval, prompt, model, parser."""
    from langchain_core.documents import Document
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnablePassthrough

    class Guides(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [Document("Paris is sunny in June.", metadata={"source": "guide-1"}), Document("Bring a hat.")]

    prompt = ChatPromptTemplate.from_messages([("system", SYSTEM + " {context}"), ("user", "{question}")])
    chain = {"context": Guides(), "question": RunnablePassthrough()} | prompt | _langchain_model() | StrOutputParser()
    chain.invoke(QUESTION)


def openinference_langchain(ask: Any = _ask_langchain, **options: Any) -> None:
    with exported() as provider:
        from openinference.instrumentation.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument(tracer_provider=provider)
        ask(**options)


def openinference_langgraph_unnamed() -> None:
    openinference_langchain(name=None)


def openinference_langchain_stream() -> None:
    openinference_langchain(stream=True)


def openinference_langchain_chain() -> None:
    openinference_langchain(_langchain_chain)


def openinference_openai_agents() -> None:
    """Two agents: the first hands over to the second."""
    with exported() as provider:
        from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool
        from openai import AsyncOpenAI
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

        OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
        client = AsyncOpenAI(base_url=f"{MODEL_URL}/v1", api_key="test")
        model = OpenAIChatCompletionsModel(model="gpt-5-mini", openai_client=client)
        expert = Agent(name="expert", instructions=SYSTEM, model=model, tools=[function_tool(get_weather)])
        triage = Agent(
            name="triage", instructions="Hand over.", model=model, handoffs=[expert], model_settings=ModelSettings()
        )
        Runner.run_sync(triage, QUESTION)
        Runner.run_sync(expert, QUESTION)


# --- OpenLLMetry ----------------------------------------------------------------------------------------------------


@contextmanager
def traceloop(content: bool = True) -> Iterator[Any]:
    os.environ["TRACELOOP_TRACE_CONTENT"] = str(content).lower()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from traceloop.sdk import Traceloop

    Traceloop.init(app_name="weather", disable_batch=True, exporter=OTLPSpanExporter())
    yield openai_client()


def openllmetry_openai(content: bool = True) -> None:
    with traceloop(content) as client:
        from traceloop.sdk import Traceloop
        from traceloop.sdk.decorators import agent, tool

        Traceloop.set_association_properties(
            {"user_id": "ann@example.com", "session_id": "session-1", "tenant": "acme"}
        )

        @tool(name="get_weather")
        def run_tool(call: Any) -> str:
            return get_weather(**json.loads(call.function.arguments))

        @agent(name="weather")
        def ask(question: str) -> str:
            return tool_loop(client, run_tool)

        ask(QUESTION)


def openllmetry_no_content() -> None:
    openllmetry_openai(content=False)


def openllmetry_openai_stream() -> None:
    with traceloop() as client:
        for _ in client.chat.completions.create(
            model="gpt-5-mini", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        ):
            pass


def openllmetry_openai_responses() -> None:
    with traceloop() as client:
        client.responses.create(model="gpt-5-mini", instructions=SYSTEM, input=QUESTION)


def openllmetry_anthropic() -> None:
    with traceloop():
        import anthropic

        tool = {"name": "get_weather", "input_schema": TOOL["function"]["parameters"]}  # type: ignore[index]
        anthropic.Anthropic(base_url=MODEL_URL, api_key="test").messages.create(
            model="claude-sonnet-4-5", max_tokens=100, system=SYSTEM, tools=[tool],
            messages=[{"role": "user", "content": QUESTION}],
        )  # fmt: skip


openllmetry040_openai = openllmetry_openai  # the version before the conventions' names for messages


def openllmetry040_langchain() -> None:
    with traceloop():
        _ask_langchain()


def openllmetry_langchain() -> None:
    with traceloop():
        _ask_langchain()


def openllmetry_langchain_stream() -> None:
    with traceloop():
        _ask_langchain(stream=True)


def openllmetry_langchain_chain() -> None:
    with traceloop():
        _langchain_chain()


LIBRARIES = {
    "genai": ("opentelemetry-instrumentation-genai-openai", "opentelemetry-util-genai", "openai"),
    "openaiv2": ("opentelemetry-instrumentation-openai-v2", "opentelemetry-util-genai", "openai"),
    "semconv128": ("opentelemetry-instrumentation-openai-v2", "openai"),
    "pydantic": ("pydantic-ai-slim",),
    "logfire": ("logfire", "openai"),
    "openinference": (
        "openinference-instrumentation", "openinference-instrumentation-openai",
        "openinference-instrumentation-langchain", "openinference-instrumentation-openai-agents",
        "openinference-instrumentation-anthropic",
    ),
    "openllmetry040": ("traceloop-sdk", "opentelemetry-instrumentation-openai"),
    "openllmetry": (
        "traceloop-sdk", "opentelemetry-instrumentation-openai", "opentelemetry-instrumentation-langchain",
        "opentelemetry-instrumentation-anthropic",
    ),
}  # fmt: skip

if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(json.dumps({name: version(name) for name in LIBRARIES[sys.argv[1].partition("_")[0]]}))
