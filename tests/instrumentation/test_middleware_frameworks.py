"""Middleware around real frameworks: what is evaluated is that of decorated handlers, and clients see
no difference.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import django.conf
import flask
import pytest
import werkzeug.test
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path as django_path
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from agenteval_otel.instrumentation import asgi, wsgi
from tests.instrumentation.support import Seen

WORDS = ["It ", "is ", "due."]
PATHS = ["/json", "/text", "/stream", "/events", "/broken"]


def words(form: str = "{}") -> Iterator[str]:
    yield from map(form.format, WORDS)


async def words_later(form: str = "{}") -> AsyncIterator[str]:
    for word in WORDS:
        yield form.format(word)


def broken(*_: Any) -> Any:
    raise ValueError("no")


JSON = "application/json"
SSE = "data: {}\n\n"


def fastapi_app(monitor: Callable[..., Any]) -> FastAPI:
    app = FastAPI()
    for path, view in {
        "/json": lambda: {"answer": "It is due.", "took": 3},
        "/text": lambda: PlainTextResponse("It is due."),
        "/stream": lambda: StreamingResponse(words_later(), media_type="text/plain"),
        "/events": lambda: StreamingResponse(words(SSE), media_type="text/event-stream"),
        "/broken": lambda: broken(),
    }.items():
        app.get(path)(monitor(agent=path)(view))
    return app


def starlette_app(monitor: Callable[..., Any]) -> Starlette:
    async def view(request: Any) -> Any:
        responses: dict[str, Callable[[], Any]] = {
            "/json": lambda: JSONResponse({"answer": "It is due."}),
            "/text": lambda: PlainTextResponse("It is due."),
            "/stream": lambda: StreamingResponse(words_later()),
            "/broken": broken,
            "/events": lambda: StreamingResponse(words_later(SSE), media_type="text/event-stream"),
        }
        return responses[request.url.path]()

    return Starlette(routes=[Route(path, monitor(agent=path)(view)) for path in PATHS])


def flask_app(monitor: Callable[..., Any]) -> Any:
    app = flask.Flask(__name__)
    for path, view in {
        "/json": lambda: {"answer": "It is due."},
        "/text": lambda: "It is due.",
        "/broken": broken,
        "/stream": lambda: words(),
        "/events": lambda: flask.Response(words(SSE), mimetype="text/event-stream"),
    }.items():
        app.get(path, endpoint=path)(monitor(agent=path)(view))
    return app


def django_urls(monitor: Callable[..., Any], *, later: bool) -> list[Any]:
    pieces = words_later if later else words
    views: dict[str, Any] = {
        "/json": lambda _: JsonResponse({"answer": "It is due."}),
        "/text": lambda _: HttpResponse("It is due."),
        "/stream": lambda _: StreamingHttpResponse(pieces()),
        "/broken": broken,
        "/events": lambda _: StreamingHttpResponse(pieces(SSE), content_type="text/event-stream"),
    }
    return [django_path(path[1:], monitor(agent=path)(view)) for path, view in views.items()]


class Urls:
    def __init__(self, patterns: list[Any]) -> None:
        self.urlpatterns = patterns


def asgi_answers(app: Any) -> dict[str, tuple[Any, ...]]:
    client = TestClient(app, raise_server_exceptions=False)
    answers = {path: client.get(path) for path in PATHS}
    return {
        path: (got.status_code, got.content, got.headers.get("content-type"))
        for path, got in answers.items()
    }


def wsgi_answers(app: Any) -> dict[str, tuple[Any, ...]]:
    client = werkzeug.test.Client(app)
    answers = {path: client.get(path) for path in PATHS}
    return {path: (got.status_code, got.data, got.content_type) for path, got in answers.items()}


def untouched(**_: Any) -> Callable[[Any], Any]:
    return lambda function: function


def of_asgi(make: Callable[..., Any]) -> Callable[..., Any]:
    def answers(monitor: Any = untouched, around: Any = lambda app, **_: app) -> Any:
        return asgi_answers(around(make(monitor), kind=asgi))

    return answers


def of_flask(monitor: Any = untouched, around: Any = lambda app, **_: app) -> Any:
    app = flask_app(monitor)
    app.wsgi_app = around(app.wsgi_app, kind=wsgi)
    return wsgi_answers(app)


def of_django(*, later: bool) -> Callable[..., Any]:
    def answers(monitor: Any = untouched, around: Any = lambda app, **_: app) -> Any:
        if not django.conf.settings.configured:
            django.conf.settings.configure()
        with override_settings(
            ROOT_URLCONF=Urls(django_urls(monitor, later=later)), ALLOWED_HOSTS=["*"]
        ):
            if later:
                return asgi_answers(around(ASGIHandler(), kind=asgi))
            return wsgi_answers(around(WSGIHandler(), kind=wsgi))

    return answers


FRAMEWORKS = {
    "fastapi": of_asgi(fastapi_app),
    "starlette": of_asgi(starlette_app),
    "flask": of_flask,
    "django-wsgi": of_django(later=False),
    "django-asgi": of_django(later=True),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_answers_are_those_of_the_decorated_handler(framework: str) -> None:
    """The same handlers, decorated and behind middleware: the same is evaluated, and clients see no
    difference to neither.
    """
    answers, decorated, around = FRAMEWORKS[framework], Seen(), Seen()
    bare = answers()
    assert answers(monitor=decorated.monitor) == bare
    assert answers(around=behind_middleware(around)) == bare
    evaluated = [
        {made.agent: (made.response, made.stream_end) for made in seen.inputs}
        for seen in (decorated, around)
    ]
    assert evaluated[0] == evaluated[1]
    whole, stream = ("It is due.", None), ("It is due.", "completed")
    assert evaluated[1] == {
        "/json": whole,
        "/text": whole,
        "/stream": stream,
        "/events": stream,
        "/broken": ("", None),
    }
    for seen in (decorated, around):
        errors = [made.agent for made in seen.inputs if made.error_type is not None]
        assert (errors, seen.outcomes) == (["/broken"], {"evaluated": len(PATHS)})
        seen.pipeline.shutdown(5)


def behind_middleware(seen: Seen) -> Callable[..., Any]:
    def around(app: Any, kind: Any) -> Any:
        return kind.AgentEvalMiddleware(app, routes=PATHS, pipeline=seen.pipeline)

    return around
