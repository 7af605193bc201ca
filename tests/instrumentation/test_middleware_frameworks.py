"""Middleware around real frameworks: scores are those of decorated handlers, and clients see no
difference.
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

from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.evaluators import KeywordCoverage, ResponseHealth
from agenteval_otel.instrumentation import asgi, wsgi
from agenteval_otel.sampling import RatioSampler
from tests.pipelines import pipeline_with

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


class Scores:
    """A pipeline with real evaluators, and the scores of each agent."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        keywords = KeywordCoverage(criterion_name="due", expected_keywords=["due"], threshold=1)
        self.pipeline = pipeline_with(
            sampler=RatioSampler(),
            evaluators=(ResponseHealth(), keywords),
            storage=(self,),
            dispatcher=InlineDispatcher(),
        )

    async def save_result(self, aggregated: Any) -> None:
        self.results[aggregated.agent] = (
            aggregated.overall_score,
            aggregated.stream_end,
            [
                (result.criterion_name, result.score, result.label, result.status)
                for result in aggregated.results
            ],
        )

    async def close(self) -> None: ...


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_scores_are_those_of_the_decorated_handler(framework: str) -> None:
    """The same handlers, decorated and behind middleware: equal scores, and clients see no
    difference to neither.
    """
    from agenteval_otel import monitor

    answers, decorated, around = FRAMEWORKS[framework], Scores(), Scores()
    bare = answers()
    assert answers(lambda **arguments: monitor(pipeline=decorated.pipeline, **arguments)) == bare
    assert (
        answers(
            around=lambda app, kind: kind.AgentEvalMiddleware(
                app, routes=PATHS, pipeline=around.pipeline
            )
        )
        == bare
    )
    assert around.results == decorated.results
    assert {path: score for path, (score, *_) in around.results.items()} == dict.fromkeys(
        PATHS, 1.0
    ) | {"/broken": 0.0}
    outcomes = around.pipeline.accounting.outcomes()
    assert (outcomes["evaluated"], sum(outcomes.values())) == (len(PATHS), len(PATHS))
    for scores in (decorated, around):
        scores.pipeline.shutdown(5)
