"""OpenLLMetry."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shared import (
    MESSAGES,
    MODEL_URL,
    QUESTION,
    SYSTEM,
    TOOL,
    ask_langchain,
    get_weather,
    langchain_chain,
    openai_client,
    tool_loop,
)


@contextmanager
def traceloop(content: bool = True) -> Iterator[Any]:
    os.environ["TRACELOOP_TRACE_CONTENT"] = str(content).lower()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from traceloop.sdk import Traceloop

    Traceloop.init(
        app_name=os.environ["OTEL_SERVICE_NAME"], disable_batch=True, exporter=OTLPSpanExporter()
    )
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
            model="gpt-5-mini",
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
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
            model="claude-sonnet-4-5",
            max_tokens=100,
            system=SYSTEM,
            tools=[tool],
            messages=[{"role": "user", "content": QUESTION}],
        )


openllmetry040_openai = openllmetry_openai  # the version before the conventions' names for messages


def openllmetry040_langchain() -> None:
    with traceloop():
        ask_langchain()


def openllmetry_langchain() -> None:
    with traceloop():
        ask_langchain()


def openllmetry_langchain_stream() -> None:
    with traceloop():
        ask_langchain(stream=True)


def openllmetry_langchain_chain() -> None:
    with traceloop():
        langchain_chain()
