"""C17: what instrumented clients write inside a handler stands below its agent span, and what they send says so."""

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

pytestmark = pytest.mark.filterwarnings("ignore")  # of the instrumentations, which other packages' versions outdate
ASKED: list[Any] = [{"role": "user", "content": "What is the weather?"}]


@pytest.fixture(scope="module")
def instrumented() -> Iterator[HostSdk]:
    """One for all tests: of two in a row, an instrumentation leaves wrappers of the first behind."""
    made = HostSdk()
    instrumentors = [HTTPXClientInstrumentor(), AnthropicInstrumentor(), OpenAIInstrumentor()]
    for instrumentor in instrumentors:
        instrumentor.instrument(
            tracer_provider=made.tracer_provider, logger_provider=made.logger_provider,
            meter_provider=made.meter_provider,
        )  # fmt: skip
    yield made
    for instrumentor in instrumentors:
        instrumentor.uninstrument()
    made.close()


@pytest.fixture
def host(instrumented: HostSdk) -> HostSdk:
    instrumented.exporter.spans.clear()
    return instrumented


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(["Rain."]) as running:
        yield running


def by_httpx(server: ModelServer) -> str:
    with httpx.Client() as client:
        return client.post(f"{server.url}/v1/messages", json={"model": "m", "messages": ASKED}).text


def by_anthropic(server: ModelServer) -> str:
    with anthropic.Anthropic(base_url=server.url, api_key="test", max_retries=0) as client:
        client.messages.create(model="claude-x", max_tokens=10, messages=ASKED)
    return "Rain."


def by_openai(server: ModelServer) -> str:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="test", max_retries=0) as client:
        client.chat.completions.create(model="gpt-x", messages=ASKED)
    return "Rain."


async def by_httpx_async(server: ModelServer) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.post(f"{server.url}/v1/messages", json={"model": "m", "messages": ASKED})).text


async def by_anthropic_async(server: ModelServer) -> str:
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="test", max_retries=0) as client:
        await client.messages.create(model="claude-x", max_tokens=10, messages=ASKED)
    return "Rain."


async def by_openai_async(server: ModelServer) -> str:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="test", max_retries=0) as client:
        await client.chat.completions.create(model="gpt-x", messages=ASKED)
    return "Rain."


def called(shape: str, ask: Callable[[ModelServer], Any], host: HostSdk, server: ModelServer) -> None:
    """Have a monitored handler of the shape ask the server, and evaluate it."""
    pipeline = host.pipeline(Free())
    if shape == "function":

        @monitor(agent="support", pipeline=pipeline)
        def function(question: str) -> str:
            return str(ask(server))

        function("q")
    elif shape == "generator":

        @monitor(agent="support", pipeline=pipeline)
        def generator(question: str) -> Iterator[str]:
            yield "It says: "
            yield str(ask(server))

        assert list(generator("q"))
    elif shape == "coroutine":

        @monitor(agent="support", pipeline=pipeline)
        async def coroutine(question: str) -> str:
            return str(await ask(server))

        asyncio.run(coroutine("q"))
    else:

        @monitor(agent="support", pipeline=pipeline)
        async def async_generator(question: str) -> AsyncIterator[str]:
            yield "It says: "
            yield str(await ask(server))

        async def consume() -> list[str]:
            return [chunk async for chunk in async_generator("q")]

        assert asyncio.run(consume())
    assert pipeline.flush(20.0)


SYNC = {"httpx": by_httpx, "Anthropic": by_anthropic, "OpenAI": by_openai}
ASYNC = {"httpx": by_httpx_async, "Anthropic": by_anthropic_async, "OpenAI": by_openai_async}


@pytest.mark.parametrize("client", SYNC)
@pytest.mark.parametrize("shape", ["function", "generator", "coroutine", "async generator"])
def test_a_client_inside_the_handler(
    shape: str, client: str, host: HostSdk, server: ModelServer, promise: Recorder
) -> None:
    """The client's span is a child of the agent span, which ends later, and the request names a span of that trace."""
    ask: Any = (SYNC if shape in ("function", "generator") else ASYNC)[client]
    called(shape, ask, host, server)
    (agent,) = host.spans()
    below = [span for span in host.spans("") if span.parent and span.parent.span_id == agent.context.span_id]
    (of_client,) = [span for span in below if not span.name.startswith("evaluation ")]
    assert {span.context.trace_id for span in host.spans("")} == {agent.context.trace_id}
    sent = [headers["traceparent"] for headers in server.headers if "traceparent" in headers]
    assert len(sent) == len(server.requests) == 1
    _, trace_id, span_id, flags = sent[0].split("-")
    assert (trace_id, int(flags, 16) & 1) == (f"{agent.context.trace_id:032x}", 1)
    # Anthropic's instrumentation does not make its span the current one: there the request names the agent span.
    parent = agent if client == "Anthropic" else of_client
    assert span_id == f"{parent.context.span_id:016x}"
    assert agent.end_time is not None
    assert of_client.end_time is not None
    assert agent.start_time <= of_client.start_time <= of_client.end_time <= agent.end_time + 1_000_000
    promise("C17", figure="instrumented clients: 1 of 1 spans below the agent span, and in the request")
