"""Under FastAPI: endpoints, streams and dependencies work as if they were not monitored."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from pydantic import BaseModel

from tests.instrumentation.support import Seen


class EscalationDecider(BaseModel):
    text: str
    times: int = 1


class Reply(BaseModel):
    """What comes back."""

    answer: str


def app_of(monitor: Callable[..., Any]) -> FastAPI:  # noqa: C901 - one endpoint after another
    """The same application, with handlers decorated by whatever is given."""
    app = FastAPI()

    @app.post("/sync")
    @monitor(agent="sync")
    def sync(question: EscalationDecider, loud: bool = False) -> Reply:
        """Answer at once."""
        return Reply(answer=question.text.upper() if loud else question.text)

    @app.get("/async/{name}")
    @monitor(agent="async")
    async def asynchronous(name: str, times: int = 1) -> dict[str, str]:
        if name == "nobody":
            raise HTTPException(404, "nobody there")
        return {"answer": name * times}

    @monitor(agent="words")
    async def words(text: str) -> AsyncGenerator[str, None]:
        for word in text.split():
            yield word + " "

    @app.get("/stream")
    async def stream(text: str) -> StreamingResponse:
        return StreamingResponse(words(text), media_type="text/plain")

    @monitor(agent="sync-words")
    def sync_words(text: str) -> Generator[str, None, None]:
        yield from text.split()

    @app.get("/sync-stream")
    def sync_stream(text: str) -> StreamingResponse:
        return StreamingResponse(sync_words(text), media_type="text/plain")

    @monitor(agent="session")
    def session() -> Generator[str, None, None]:
        opened.append("open")
        try:
            yield "session"
        finally:
            opened.append("closed")

    @app.get("/dependency")
    def with_session(actual: str = Depends(session)) -> str:
        return actual

    opened: list[str] = []
    app.state.opened = opened
    return app


def untouched(*_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda function: function


def test_the_schema_is_the_same(seen: Seen) -> None:
    """OpenAPI does not show whether handlers are monitored."""
    assert app_of(seen.monitor).openapi() == app_of(untouched).openapi()


REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/sync?loud=true", {"text": "hi"}), ("POST", "/sync", {"text": 7}), ("POST", "/sync", {}),
    ("GET", "/async/ann?times=2", None), ("GET", "/async/nobody", None), ("GET", "/async/ann?times=x", None),
    ("GET", "/stream?text=a%20b", None), ("GET", "/sync-stream?text=a%20b", None), ("GET", "/dependency", None),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_the_responses_are_the_same(seen: Seen, method: str, path: str, body: Any) -> None:
    """Status, body and type of every response, errors too, are those of the application without monitoring."""
    actual = []
    for monitor in (seen.monitor, untouched):
        with TestClient(app_of(monitor)) as client:
            response = client.request(method, path, json=body)
            actual.append((response.status_code, response.text, response.headers["content-type"]))
    assert actual[0] == actual[1]


def test_what_is_evaluated(seen: Seen) -> None:
    """Endpoints, streams and dependencies are evaluated; a request that never reached its handler is no call."""
    app = app_of(seen.monitor)
    with TestClient(app) as client:
        for method, path, body in REQUESTS:
            client.request(method, path, json=body)
    assert sorted((made.agent, made.response, made.error_type, made.stream_end) for made in seen.inputs) == [
        ("async", "", "HTTPException", None), ("async", "annann", None, None),
        ("session", "session", None, "completed"),
        ("sync", "HI", None, None), ("sync-words", "ab", None, "completed"),
        ("words", "a b ", None, "completed"),
    ]  # fmt: skip
    assert seen.outcomes == {"evaluated": 6}
    assert app.state.opened == ["open", "closed"]
