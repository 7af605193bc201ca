"""A web framework's request is never taken for the question: its headers hold cookies and keys."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from tests.instrumentation.support import Seen

SECRETS = {"authorization": "Bearer sk-verysecret", "cookie": "session=abcdef"}


async def with_body(body: dict[str, str], request: Request) -> str:
    return "on its way"


async def alone(request: Request) -> str:
    return "on its way"


@pytest.mark.parametrize(
    ("endpoint", "expected"), [(with_body, ("where is it?", "c-1")), (alone, (None, None))]
)
def test_a_request(endpoint: Any, expected: Any) -> None:
    """The body is the prompt, with its conversation; the request beside it is not read, and alone
    it is no prompt.
    """
    seen, app = Seen(), FastAPI()
    app.post("/ask")(seen.monitor(endpoint))
    with TestClient(app) as client:
        assert client.post(
            "/ask", json={"question": "where is it?", "session_id": "c-1"}, headers=SECRETS
        ).is_success
    assert (seen.last.prompt, seen.last.conversation_id) == expected
    assert not any(secret in seen.last.model_dump_json() for secret in ("verysecret", "abcdef"))


class Wrapped:
    def __init__(self, name: str) -> None:
        setattr(self, name, {"HTTP_COOKIE": "session=abcdef"})


SCOPE = {"type": "http", "headers": [(b"cookie", b"session=abcdef")]}


@pytest.mark.parametrize(
    "request_form", [SCOPE, Wrapped("environ"), Wrapped("META"), Wrapped("scope")]
)
def test_scopes_and_environments(request_form: Any) -> None:
    """The raw forms that requests are made of, and objects that keep them, are none either."""
    seen = Seen()
    seen.monitor(lambda message: "on its way")(request_form)
    assert seen.last.prompt is None
    assert "abcdef" not in seen.last.model_dump_json()
