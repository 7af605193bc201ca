"""Small ASGI and WSGI applications behind middleware, and their clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import werkzeug.test
from starlette.testclient import TestClient

from agenteval_otel.instrumentation import asgi, wsgi
from tests.instrumentation.support import Seen

__all__ = ["KINDS", "Kind", "Reply", "asgi_app", "both", "replies", "wsgi_app"]

Reply = tuple[int, dict[str, str], list[bytes]]


def asgi_app(reply: Callable[[Any], Reply]) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, headers, pieces = reply(body)
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    return app


def wsgi_app(reply: Callable[[Any], Reply]) -> Any:
    def app(environ: Any, start_response: Any) -> Any:
        status, headers, pieces = reply(
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        )
        start_response(f"{status} Status", list(headers.items()))
        return iter(pieces)

    return app


class Kind:
    """One of the two interfaces: an application that replies, behind middleware, and its client."""

    def __init__(
        self, make: Callable[..., Any], middleware: Any, client: Callable[..., Any]
    ) -> None:
        self.make, self.middleware, self.client = make, middleware, client

    def ask(
        self,
        seen: Seen,
        reply: Callable[[Any], Reply],
        method: str = "POST",
        path: str = "/chat",
        *,
        data: bytes = b"",
        content_type: str = "application/json",
        routes: Any = ("/chat",),
        **arguments: Any,
    ) -> bytes:
        app = self.middleware(self.make(reply), routes=routes, pipeline=seen.pipeline, **arguments)
        return self.client(
            app, method, path, data, {"Content-Type": content_type, "X-Tenant": "acme"}
        )


def asgi_client(app: Any, method: str, path: str, data: bytes, headers: dict[str, str]) -> bytes:
    with TestClient(app).stream(method, path, content=data, headers=headers) as response:
        return b"".join(response.iter_raw())


def wsgi_client(app: Any, method: str, path: str, data: bytes, headers: dict[str, str]) -> bytes:
    return werkzeug.test.Client(app).open(path, method=method, data=data, headers=headers).data


KINDS = {
    "asgi": Kind(asgi_app, asgi.AgentEvalMiddleware, asgi_client),
    "wsgi": Kind(wsgi_app, wsgi.AgentEvalMiddleware, wsgi_client),
}
both = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def replies(*pieces: bytes, status: int = 200, **headers: str) -> Callable[[Any], Reply]:
    named = {"content-type": "text/plain"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return lambda _: (status, named, list(pieces))
