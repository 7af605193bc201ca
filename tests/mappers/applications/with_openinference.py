"""OpenInference."""

from __future__ import annotations

from typing import Any

from shared import (
    MESSAGES,
    MODEL_URL,
    QUESTION,
    SYSTEM,
    TOOL,
    ask_langchain,
    exported,
    get_weather,
    langchain_chain,
    openai_client,
    tool_loop,
)


def openinference_openai() -> None:
    with exported() as provider:
        from openinference.instrumentation import using_attributes
        from openinference.instrumentation.openai import OpenAIInstrumentor

        OpenAIInstrumentor().instrument(tracer_provider=provider)
        with using_attributes(
            session_id="session-1",
            user_id="ann@example.com",
            metadata={"tenant": "acme"},
            tags=["beta"],
            prompt_template=SYSTEM,
            prompt_template_version="v7",
        ):
            tool_loop(openai_client())


def openinference_openai_stream() -> None:
    with exported() as provider:
        from openinference.instrumentation.openai import OpenAIInstrumentor

        OpenAIInstrumentor().instrument(tracer_provider=provider)
        for _ in openai_client().chat.completions.create(
            model="gpt-5-mini",
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
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
            model="claude-sonnet-4-5",
            max_tokens=100,
            system=SYSTEM,
            tools=[tool],
            messages=[{"role": "user", "content": QUESTION}],
        )


def openinference_langchain(ask: Any = ask_langchain, **options: Any) -> None:
    with exported() as provider:
        from openinference.instrumentation.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument(tracer_provider=provider)
        ask(**options)


def openinference_langgraph_unnamed() -> None:
    openinference_langchain(name=None)


def openinference_langchain_stream() -> None:
    openinference_langchain(stream=True)


def openinference_langchain_chain() -> None:
    openinference_langchain(langchain_chain)


def openinference_openai_agents() -> None:
    """Two agents: the first hands over to the second."""
    with exported() as provider:
        from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool
        from openai import AsyncOpenAI
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

        OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
        client = AsyncOpenAI(base_url=f"{MODEL_URL}/v1", api_key="test")
        model = OpenAIChatCompletionsModel(model="gpt-5-mini", openai_client=client)
        expert = Agent(
            name="expert", instructions=SYSTEM, model=model, tools=[function_tool(get_weather)]
        )
        triage = Agent(
            name="triage",
            instructions="Hand over.",
            model=model,
            handoffs=[expert],
            model_settings=ModelSettings(),
        )
        Runner.run_sync(triage, QUESTION)
        Runner.run_sync(expert, QUESTION)
