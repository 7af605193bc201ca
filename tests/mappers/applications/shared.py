"""What the applications share: the question, the tool, providers that export, agents by hand and of
LangChain.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
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
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": QUESTION},
]
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
    first = client.chat.completions.create(
        model="gpt-5-mini", messages=messages, tools=[TOOL], **options
    )
    message = first.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls:
        result = (run_tool or (lambda call: get_weather(**json.loads(call.function.arguments))))(
            call
        )
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    second = client.chat.completions.create(
        model="gpt-5-mini", messages=messages, tools=[TOOL], **options
    )
    return second.choices[0].message.content


def langchain_model() -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        model="gpt-5-mini", base_url=f"{MODEL_URL}/v1", api_key="test", stream_usage=True
    )  # type: ignore[call-arg]


def langchain_agent(name: str | None) -> Any:
    from langchain.agents import create_agent

    return create_agent(langchain_model(), tools=[get_weather], system_prompt=SYSTEM, name=name)


def ask_langchain(name: str | None = "weather_agent", stream: bool = False) -> None:
    agent = langchain_agent(name)
    question = {"messages": [{"role": "user", "content": QUESTION}]}
    if stream:
        for _ in agent.stream(question, stream_mode="messages"):
            pass
    else:
        agent.invoke(question)


def langchain_chain() -> None:
    """Retrieval, prompt, model, parser."""
    from langchain_core.documents import Document
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnablePassthrough

    class Guides(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [
                Document("Paris is sunny in June.", metadata={"source": "guide-1"}),
                Document("Bring a hat."),
            ]

    prompt = ChatPromptTemplate.from_messages(
        [("system", SYSTEM + " {context}"), ("user", "{question}")]
    )
    chain = (
        {"context": Guides(), "question": RunnablePassthrough()}
        | prompt
        | langchain_model()
        | StrOutputParser()
    )
    chain.invoke(QUESTION)
