"""Google's Agent Development Kit, by its own spans."""

from __future__ import annotations

import asyncio
import os

from shared import CAPTURE, MODEL_URL, QUESTION, SYSTEM, exported, get_weather


def adk_agent() -> None:
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    os.environ[CAPTURE] = "SPAN_ONLY"
    adk_no_content()


def adk_no_content() -> None:
    """As it is without settings."""
    with exported():
        from google.adk.agents import LlmAgent
        from google.adk.models.lite_llm import LiteLlm
        from google.adk.runners import InMemoryRunner

        model = LiteLlm(model="openai/gpt-5-mini", api_base=f"{MODEL_URL}/v1", api_key="test")
        agent = LlmAgent(name="weather", model=model, instruction=SYSTEM, tools=[get_weather])

        async def ask() -> None:
            await InMemoryRunner(agent=agent).run_debug(QUESTION, quiet=True)

        asyncio.run(ask())
