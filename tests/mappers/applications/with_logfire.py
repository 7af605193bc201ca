"""Pydantic AI and Logfire."""

from __future__ import annotations

import asyncio
from typing import Any

from shared import (
    MESSAGES,
    MODEL_URL,
    QUESTION,
    SYSTEM,
    exported,
    get_weather,
    openai_client,
    tool_loop,
)


def _weather_agent(**options: Any) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models import openai
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{MODEL_URL}/v1", api_key="test")
    model = getattr(openai, "OpenAIChatModel", None) or openai.OpenAIModel  # the older name
    return Agent(model("gpt-5-mini", provider=provider), system_prompt=SYSTEM, **options)


def pydantic_ai_agent(metadata: bool = True, **settings: Any) -> None:
    with exported() as provider:
        from pydantic_ai import Agent
        from pydantic_ai.models.instrumented import InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider, **settings))
        agent = _weather_agent(name="weather")
        agent.tool_plain(get_weather)
        agent.run_sync(QUESTION, **({"metadata": {"tenant": "acme"}} if metadata else {}))


def pydantic04_agent() -> None:
    """The version before the conventions' attributes: messages as events, in one attribute."""
    pydantic_ai_agent(metadata=False)


def pydantic_ai_no_content() -> None:
    pydantic_ai_agent(include_content=False)


def pydantic_ai_stream() -> None:
    async def ask() -> None:
        async with _weather_agent(name="weather").run_stream(QUESTION) as result:
            async for _ in result.stream_text():
                pass

    with exported() as provider:
        from pydantic_ai import Agent
        from pydantic_ai.models.instrumented import InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
        asyncio.run(ask())


def pydantic_ai_two_agents() -> None:
    with exported() as provider:
        from pydantic_ai import Agent
        from pydantic_ai.models.instrumented import InstrumentationSettings

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
        from pydantic_ai import Agent
        from pydantic_ai.models.instrumented import InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
        try:
            _weather_agent(name="weather").run_sync("fail with status 400")
        except Exception as error:
            print(type(error))


def _logfire() -> None:
    """It exports to the endpoint that the environment names by itself."""
    import logfire

    logfire.configure(
        send_to_logfire=False,
        console=False,
        service_name="weather",
        environment="staging",
        inspect_arguments=False,
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
    for _ in openai_client().chat.completions.create(
        model="gpt-5-mini", messages=MESSAGES, stream=True
    ):
        pass
    logfire.shutdown()


# Before the conventions' attributes: request and response as they are.
logfire3_openai, logfire3_openai_stream = logfire_openai, logfire_openai_stream


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
        model="claude-sonnet-4-5",
        max_tokens=100,
        system=SYSTEM,
        messages=[{"role": "user", "content": QUESTION}],
    )
    logfire.shutdown()
