"""The providers' own clients. Each function returns the client's name in the documentation, and for
each form what a handler would give, with the facts that have to be read of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from typing import Any

from agenteval_otel.capture.detached import take
from tests.capture.wire import ARGUMENTS, NAME, TEXT

MODEL_URL, PROVIDER_URL = os.environ.get("MODEL_URL", ""), os.environ.get("PROVIDER_URL", "")
Given = tuple[str, dict[str, tuple[Any, list[Any]]]]
QUESTION = "How is the weather?"
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
CALL = [NAME, ARGUMENTS, None]
TOKENS = [7, 9]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Any = {"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}


def taken(value: Any) -> Any:
    return take(value).value


def kept(stream: Iterable[Any]) -> list[Any]:
    """Return the chunks as they are taken while they pass: a library may change them later."""
    return [taken(chunk) for chunk in stream]


async def chunks_of(stream: AsyncIterator[Any]) -> list[Any]:
    """Return the chunks of an asynchronous stream like `kept`."""
    return [taken(chunk) async for chunk in stream]


def google_genai() -> Given:
    from google import genai

    client = genai.Client(api_key="test", http_options={"base_url": PROVIDER_URL})
    models, later = client.models, client.aio.models
    asked: Any = {"model": "gemini-x", "contents": QUESTION}
    code = ["code_execution", {"code": "print(1 + 1)"}, "2\n"]
    facts = [TEXT, [CALL, code], TOKENS, "gemini-x", "STOP"]

    async def ask() -> tuple[Any, list[Any]]:
        stream = await later.generate_content_stream(**asked)
        return await later.generate_content(**asked), await chunks_of(stream)

    whole, chunks = asyncio.run(ask())
    return "Gemini", {
        "returned": (models.generate_content(**asked), facts),
        "streamed": (kept(models.generate_content_stream(**asked)), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }


def cohere() -> Given:
    import cohere as library

    client = library.ClientV2(api_key="test", base_url=PROVIDER_URL)
    later = library.AsyncClientV2(api_key="test", base_url=PROVIDER_URL)
    asked: Any = {"model": "command-x", "messages": MESSAGES, "tools": [TOOL]}
    facts = [TEXT, [CALL], TOKENS, None, "TOOL_CALL"]

    async def ask() -> tuple[Any, list[Any]]:
        return await later.chat(**asked), await chunks_of(later.chat_stream(**asked))

    whole, chunks = asyncio.run(ask())
    return "Cohere", {
        "returned": (client.chat(**asked), facts),
        "streamed": (kept(client.chat_stream(**asked)), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }


def ollama_chat() -> Given:
    return _ollama("chat", {"messages": MESSAGES}, [TEXT, [CALL], TOKENS, "m", "stop"])


def ollama_generate() -> Given:
    return _ollama("generate", {"prompt": QUESTION}, [TEXT, None, TOKENS, "m", "stop"])


def _ollama(method: str, asked: dict[str, Any], facts: list[Any]) -> Given:
    import ollama

    ask = getattr(ollama.Client(host=PROVIDER_URL), method)
    ask_later = getattr(ollama.AsyncClient(host=PROVIDER_URL), method)

    async def both() -> tuple[Any, list[Any]]:
        stream = await ask_later(model="m", stream=True, **asked)
        return await ask_later(model="m", **asked), await chunks_of(stream)

    whole, chunks = asyncio.run(both())
    return "Ollama", {
        "returned": (ask(model="m", **asked), facts),
        "streamed": (kept(ask(model="m", stream=True, **asked)), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }


def bedrock() -> Given:
    import boto3

    client = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=PROVIDER_URL,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    asked: Any = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": QUESTION}]}]}
    facts = [TEXT, [CALL], TOKENS, None, "tool_use"]
    return "Amazon Bedrock, Converse", {
        "returned": (client.converse(**asked), facts),
        "streamed": (kept(client.converse_stream(**asked)["stream"]), facts),
    }


def openai_completions() -> Given:
    import openai

    asked: Any = {"model": "gpt-x", "messages": MESSAGES}
    facts = [TEXT, [CALL], TOKENS, "gpt-x", "tool_calls"]
    counted: Any = {**asked, "stream": True, "stream_options": {"include_usage": True}}
    client = openai.OpenAI(base_url=f"{MODEL_URL}/v1")

    async def ask() -> tuple[Any, list[Any]]:
        async with openai.AsyncOpenAI(base_url=f"{MODEL_URL}/v1") as later:
            create = later.chat.completions.create
            return await create(**asked), await chunks_of(await create(**counted))

    whole, chunks = asyncio.run(ask())
    return "OpenAI, chat completions", {
        "returned": (client.chat.completions.create(**asked), facts),
        "streamed": (kept(client.chat.completions.create(**counted)), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }


def openai_responses() -> Given:
    facts = [TEXT, [CALL], TOKENS, "gpt-x", "completed"]
    return "OpenAI, Responses API", _responses(MODEL_URL, facts)


def openai_tools() -> Given:
    facts = [TEXT, PROVIDER_CALLS, TOKENS, "gpt-x", "completed"]
    return "OpenAI, Responses API", _responses(PROVIDER_URL, facts)


_FOUND = {"file_id": "f", "filename": "terms.md", "score": 0.5, "text": "Ten days."}
SEARCH = {"type": "search", "query": "hours", "queries": ["hours"]}
PROVIDER_CALLS: list[Any] = [
    ["web_search", SEARCH, None],
    ["file_search", {"queries": ["refunds"]}, [_FOUND]],
    ["code_interpreter", {"code": "print(1 + 1)"}, [{"type": "logs", "logs": "2\n"}]],
    ["stock", {"sku": 7}, "3 left"],
]


def _responses(url: str, facts: list[Any]) -> dict[str, tuple[Any, list[Any]]]:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1")
    asked: Any = {"model": "gpt-x", "input": QUESTION}

    async def ask() -> tuple[Any, list[Any]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1") as later:
            create = later.responses.create
            return await create(**asked), await chunks_of(await create(**asked, stream=True))

    whole, chunks = asyncio.run(ask())
    return {
        "returned": (client.responses.create(**asked), facts),
        "streamed": (kept(client.responses.create(**asked, stream=True)), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }


def anthropic_message() -> Given:
    return "Anthropic", _messages(MODEL_URL, [TEXT, [CALL], TOKENS, "claude-x", "tool_use"])


def anthropic_tools() -> Given:
    found = {
        "type": "web_search_result",
        "url": "https://shop.example/hours",
        "title": "Hours",
        "encrypted_content": "e",
        "page_age": None,
    }
    ran = {
        "type": "bash_code_execution_result",
        "stdout": "2\n",
        "stderr": "",
        "return_code": 0,
        "content": [],
    }
    calls = [
        ["web_search", {"query": "hours"}, [found]],
        ["bash_code_execution", {"command": "echo 2"}, ran],
    ]
    facts = [TEXT, calls, TOKENS, "claude-x", "end_turn"]
    return "Anthropic", _messages(PROVIDER_URL, facts)


def _messages(url: str, facts: list[Any]) -> dict[str, tuple[Any, list[Any]]]:
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="test")
    asked: Any = {"model": "claude-x", "max_tokens": 99, "messages": MESSAGES}

    async def ask() -> tuple[Any, list[Any]]:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="test") as later:
            create = later.messages.create
            return await create(**asked), await chunks_of(await create(**asked, stream=True))

    whole, chunks = asyncio.run(ask())
    return {
        "returned": (client.messages.create(**asked), facts),
        "streamed": (kept(client.messages.create(**asked, stream=True)), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }


def litellm() -> Given:
    import litellm as library

    asked: Any = {
        "model": "openai/gpt-x",
        "api_base": f"{MODEL_URL}/v1",
        "api_key": "test",
        "messages": MESSAGES,
    }
    counted: Any = {**asked, "stream": True, "stream_options": {"include_usage": True}}
    facts = [TEXT, [CALL], TOKENS, "gpt-x", "tool_calls"]

    async def ask() -> tuple[Any, list[Any]]:
        stream = await library.acompletion(**counted)
        return await library.acompletion(**asked), await chunks_of(stream)

    whole, chunks = asyncio.run(ask())
    return "LiteLLM", {
        "returned": (library.completion(**asked), facts),
        "streamed": (kept(library.completion(**counted)), facts),
        "async returned": (whole, facts),
        "async streamed": (chunks, facts),
    }
