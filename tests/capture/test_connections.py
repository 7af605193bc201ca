"""A web framework's request is never taken for the question: its headers hold cookies and keys."""

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.requests import Request as WebRequest

from agenteval_otel.models import EvaluationInput
from tests.instrumentation.support import Seen

SECRETS = {"authorization": "Bearer sk-verysecret", "cookie": "session=abcdef", "x-internal-user": "jane.doe"}


def seen_of(make: Any) -> EvaluationInput:
    """What the evaluators see of one request to an endpoint."""
    seen, app = Seen(), FastAPI()
    app.post("/ask")(make(seen))

    async def ask() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            answered = await client.post(
                "/ask", json={"question": "where is it?", "session_id": "c-1"}, headers=SECRETS
            )
            assert answered.status_code == 200

    asyncio.run(ask())
    return seen.last


def nothing_of_the_connection(found: EvaluationInput) -> bool:
    text = found.model_dump_json()
    return not any(secret in text for secret in ("verysecret", "abcdef", "jane.doe"))


def test_beside_a_body() -> None:
    """The body is the prompt, with its conversation; the request that came with it is not looked at."""

    def make(seen: Seen) -> Any:
        @seen.monitor
        async def ask(body: dict[str, str], request: WebRequest) -> str:
            return "on its way"

        return ask

    found = seen_of(make)
    assert (found.prompt, found.conversation_id) == ("where is it?", "c-1")
    assert nothing_of_the_connection(found)


def test_alone() -> None:
    """A handler that takes nothing else has no prompt, unless it says one."""

    def make(seen: Seen) -> Any:
        @seen.monitor
        async def ask(request: WebRequest) -> str:
            return "on its way"

        return ask

    found = seen_of(make)
    assert found.prompt is None
    assert nothing_of_the_connection(found)


def test_scopes_and_environments() -> None:
    """The raw forms that requests are made of, and requests that keep them under another name, are none either."""

    class Wrapped:
        def __init__(self) -> None:
            self.environ = {"HTTP_COOKIE": "session=abcdef"}

    class Django:
        def __init__(self) -> None:
            self.META = {"HTTP_COOKIE": "session=abcdef"}

    scope = {"type": "http", "headers": [(b"cookie", b"session=abcdef")]}
    for request in (scope, Wrapped(), Django()):
        seen = Seen()
        seen.monitor(lambda message: "on its way")(request)
        assert seen.last.prompt is None
        assert nothing_of_the_connection(seen.last)
