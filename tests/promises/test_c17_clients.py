"""C17: what instrumented clients write inside a handler stands below its agent span, and what they
send names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.instrumentation.openai import OpenAIInstrumentor

from agenteval_otel import monitor
from agenteval_otel.testing import ModelServer
from tests.promises.figures import Recorder
from tests.promises.host_sdk import HostSdk
from tests.testing.doubles import Free

# of the instrumentations, which other packages' versions outdate
pytestmark = pytest.mark.filterwarnings("ignore")
QUESTION: list[Any] = [{"role": "user", "content": "What is the weather?"}]


@pytest.fixture(scope="module")
def instrumented() -> Iterator[HostSdk]:
    """One for all tests: of two in a row, an instrumentation leaves wrappers of the first behind."""
    made = HostSdk()
    instrumentors = [HTTPXClientInstrumentor(), AnthropicInstrumentor(), OpenAIInstrumentor()]
    for instrumentor in instrumentors:
        instrumentor.instrument(
            tracer_provider=made.tracer_provider,
            logger_provider=made.logger_provider,
            meter_provider=made.meter_provider,
        )
    yield made
    for instrumentor in instrumentors:
        instrumentor.uninstrument()
    made.close()


def client_of(name: str, url: str, kind: str) -> tuple[Any, Callable[[Any], Any]]:
    """A client and how it sends the question; the kind is "" or "Async"."""
    if name == "httpx":
        web = getattr(httpx, f"{kind}Client")()
        return web, lambda client: client.post(
            f"{url}/v1/messages", json={"model": "m", "messages": QUESTION}
        )
    if name == "Anthropic":
        made = getattr(anthropic, f"{kind}Anthropic")(base_url=url, api_key="test", max_retries=0)
        return made, lambda client: client.messages.create(
            model="claude-x", max_tokens=10, messages=QUESTION
        )
    made = getattr(openai, f"{kind}OpenAI")(base_url=f"{url}/v1", api_key="test", max_retries=0)
    return made, lambda client: client.chat.completions.create(model="gpt-x", messages=QUESTION)


def generator(name: str, url: str, monitored: Any) -> None:
    made, ask = client_of(name, url, "")

    def handler(question: str) -> Iterator[str]:
        yield "It says: "
        with made as client:
            yield str(ask(client))

    assert list(monitored(handler)("q"))


def coroutine(name: str, url: str, monitored: Any) -> None:
    made, ask = client_of(name, url, "Async")

    async def handler(question: str) -> str:
        async with made as client:
            return str(await ask(client))

    asyncio.run(monitored(handler)("q"))


def async_generator(name: str, url: str, monitored: Any) -> None:
    made, ask = client_of(name, url, "Async")

    async def handler(question: str) -> AsyncIterator[str]:
        async with made as client:
            yield str(await ask(client))

    async def consume() -> list[str]:
        return [chunk async for chunk in monitored(handler)("q")]

    assert asyncio.run(consume())


@pytest.mark.parametrize("client", ["httpx", "Anthropic", "OpenAI"])
@pytest.mark.parametrize("shape", [generator, coroutine, async_generator])
def test_a_clients_span_stands_below_the_agent_span(
    shape: Any, client: str, instrumented: HostSdk, promise: Recorder
) -> None:
    """The client's span is a child of the agent span, which ends later, and the request names a
    span of that trace.
    """
    host = instrumented
    host.exporter.spans.clear()
    pipeline = host.pipeline(Free())
    with ModelServer(["Rain."]) as server:
        shape(client, server.url, monitor(agent="support", pipeline=pipeline))
        assert pipeline.flush(20.0)
        sent = [headers["traceparent"] for headers in server.headers if "traceparent" in headers]
        assert len(sent) == len(server.requests) == 1
    (agent,) = host.spans()
    below = [
        span
        for span in host.spans("")
        if span.parent and span.parent.span_id == agent.context.span_id
    ]
    (of_client,) = [span for span in below if not span.name.startswith("evaluation ")]
    assert {span.context.trace_id for span in host.spans("")} == {agent.context.trace_id}
    _, trace_id, span_id, flags = sent[0].split("-")
    assert (trace_id, int(flags, 16) & 1) == (f"{agent.context.trace_id:032x}", 1)
    # Anthropic's instrumentation does not make its span the current one: there the request names
    # the agent span.
    parent = agent if client == "Anthropic" else of_client
    assert span_id == f"{parent.context.span_id:016x}"
    assert (
        agent.start_time <= of_client.start_time <= of_client.end_time <= agent.end_time + 1_000_000
    )
    promise(
        "C17", figure="instrumented clients: 1 of 1 spans below the agent span, and in the request"
    )
