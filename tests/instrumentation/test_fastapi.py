"""Under FastAPI: endpoints and dependencies work as if they were not monitored."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from pydantic import BaseModel

from tests.instrumentation.support import Seen


class Question(BaseModel):
    text: str


class Reply(BaseModel):
    """What comes back."""

    answer: str


def app_of(monitor: Callable[..., Any]) -> FastAPI:
    """The same application, with handlers decorated by whatever is given."""
    app = FastAPI()

    @app.post("/sync")
    @monitor(agent="sync")
    def sync(question: Question, loud: bool = False) -> Reply:
        """Answer at once."""
        return Reply(answer=question.text.upper() if loud else question.text)

    @app.get("/async/{name}")
    @monitor(agent="async")
    async def asynchronous(name: str, times: int = 1) -> dict[str, str]:
        if name == "nobody":
            raise HTTPException(404, "nobody there")
        return {"answer": name * times}

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


REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/sync?loud=true", {"text": "hi"}), ("POST", "/sync", {"text": 7}), ("POST", "/sync", {}),
    ("GET", "/async/ann?times=2", None), ("GET", "/async/nobody", None), ("GET", "/async/ann?times=x", None),
    ("GET", "/dependency", None),
]  # fmt: skip


def responses_of(app: FastAPI) -> list[tuple[int, str, str]]:
    with TestClient(app) as client:
        responses = [client.request(method, path, json=body) for method, path, body in REQUESTS]
    return [
        (response.status_code, response.text, response.headers["content-type"])
        for response in responses
    ]


def test_responses_and_what_is_evaluated(seen: Seen) -> None:
    """Responses and schema are those without monitoring; a request that never reached its handler
    is no call.
    """
    app, bare = app_of(seen.monitor), app_of(untouched)
    assert app.openapi() == bare.openapi()
    assert responses_of(app) == responses_of(bare)
    assert sorted(
        (made.agent, made.response, made.error_type, made.stream_end) for made in seen.inputs
    ) == [
        ("async", "", "HTTPException", None),
        ("async", "annann", None, None),
        ("session", "session", None, "completed"),
        ("sync", "HI", None, None),
    ]
    assert seen.outcomes == {"evaluated": 4}
    assert app.state.opened == ["open", "closed"]
