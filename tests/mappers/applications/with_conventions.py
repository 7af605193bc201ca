"""The GenAI conventions: OpenTelemetry's own instrumentation, now and before."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shared import (
    CAPTURE,
    MESSAGES,
    QUESTION,
    SYSTEM,
    exported,
    get_weather,
    openai_client,
    tool_loop,
)


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
            model="gpt-5-mini",
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
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
                tool.tool_result = tool.tool_call_result = (
                    "" if fails else get_weather(**tool.arguments)
                )
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
                retrieval.documents = [
                    RetrievalDocument("guide-1", 0.9),
                    RetrievalDocument("guide-2", 0.7),
                ]
            client.chat.completions.create(model="gpt-5-mini", messages=MESSAGES)


def openaiv2_tools() -> None:
    """The instrumentation before it was renamed."""
    os.environ[CAPTURE], os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = (
        "span_only",
        "gen_ai_latest_experimental",
    )
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
