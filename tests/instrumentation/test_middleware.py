"""Middleware: requests of captured routes are monitored calls; the application and its clients see no difference."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
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
from opentelemetry import baggage, trace
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from agenteval_otel import annotate
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import KeywordCoverage, ResponseHealth
from agenteval_otel.instrumentation import asgi, wsgi
from agenteval_otel.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.sampling import ErrorSampler, RatioSampler
from agenteval_otel.testing import RecordedTelemetry
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
        "/json": lambda: {"answer": "It is due.", "took": 3}, "/text": lambda: PlainTextResponse("It is due."),
        "/stream": lambda: StreamingResponse(words_later(), media_type="text/plain"),
        "/events": lambda: StreamingResponse(words(SSE), media_type="text/event-stream"),
        "/broken": lambda: broken(),
    }.items():  # fmt: skip
        app.get(path)(monitor(agent=path)(view))
    return app


def starlette_app(monitor: Callable[..., Any]) -> Starlette:
    async def view(request: Any) -> Any:
        responses: dict[str, Callable[[], Any]] = {
            "/json": lambda: JSONResponse({"answer": "It is due."}), "/text": lambda: PlainTextResponse("It is due."),
            "/stream": lambda: StreamingResponse(words_later()), "/broken": broken,
            "/events": lambda: StreamingResponse(words_later(SSE), media_type="text/event-stream"),
        }  # fmt: skip
        return responses[request.url.path]()

    return Starlette(routes=[Route(path, monitor(agent=path)(view)) for path in PATHS])


def flask_app(monitor: Callable[..., Any]) -> Any:
    app = flask.Flask(__name__)
    for path, view in {
        "/json": lambda: {"answer": "It is due."}, "/text": lambda: "It is due.", "/broken": broken,
        "/stream": lambda: words(), "/events": lambda: flask.Response(words(SSE), mimetype="text/event-stream"),
    }.items():  # fmt: skip
        app.get(path, endpoint=path)(monitor(agent=path)(view))
    return app


def django_urls(monitor: Callable[..., Any], *, later: bool) -> list[Any]:
    pieces = words_later if later else words
    views: dict[str, Any] = {
        "/json": lambda _: JsonResponse({"answer": "It is due."}), "/text": lambda _: HttpResponse("It is due."),
        "/stream": lambda _: StreamingHttpResponse(pieces()), "/broken": broken,
        "/events": lambda _: StreamingHttpResponse(pieces(SSE), content_type="text/event-stream"),
    }  # fmt: skip
    return [django_path(path[1:], monitor(agent=path)(view)) for path, view in views.items()]


class Urls:
    def __init__(self, patterns: list[Any]) -> None:
        self.urlpatterns = patterns


def asgi_answers(app: Any) -> dict[str, tuple[Any, ...]]:
    client = TestClient(app, raise_server_exceptions=False)
    answers = {path: client.get(path) for path in PATHS}
    return {path: (got.status_code, got.content, got.headers.get("content-type")) for path, got in answers.items()}


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
        with override_settings(ROOT_URLCONF=Urls(django_urls(monitor, later=later)), ALLOWED_HOSTS=["*"]):
            if later:
                return asgi_answers(around(ASGIHandler(), kind=asgi))
            return wsgi_answers(around(WSGIHandler(), kind=wsgi))

    return answers


FRAMEWORKS = {
    "fastapi": of_asgi(fastapi_app), "starlette": of_asgi(starlette_app), "flask": of_flask,
    "django-wsgi": of_django(later=False), "django-asgi": of_django(later=True),
}  # fmt: skip


class Scores:
    """A pipeline with real evaluators, and the scores of each agent."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        keywords = KeywordCoverage(criterion_name="due", expected_keywords=["due"], threshold=1)
        self.pipeline = Pipeline(
            sampler=RatioSampler(), evaluators=(ResponseHealth(), keywords), storage=(self,),
            dispatcher=InlineDispatcher(),
        )  # fmt: skip

    async def save_result(self, aggregated: Any) -> None:
        self.results[aggregated.agent] = (aggregated.overall_score, aggregated.stream_end, [
            (result.criterion_name, result.score, result.label, result.status) for result in aggregated.results
        ])  # fmt: skip

    async def close(self) -> None: ...


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_scores_are_those_of_the_decorated_handler(framework: str) -> None:
    """The same handlers, decorated and behind middleware: equal scores, and clients see no difference to neither."""
    from agenteval_otel import monitor

    answers, decorated, around = FRAMEWORKS[framework], Scores(), Scores()
    bare = answers()
    assert answers(lambda **arguments: monitor(pipeline=decorated.pipeline, **arguments)) == bare
    assert answers(around=lambda app, kind: kind.AgentEvalMiddleware(
        app, routes=PATHS, pipeline=around.pipeline
    )) == bare  # fmt: skip
    assert around.results == decorated.results
    assert {path: score for path, (score, *_) in around.results.items()} == dict.fromkeys(PATHS, 1.0) | {"/broken": 0.0}
    outcomes = around.pipeline.accounting.outcomes()
    assert (outcomes["evaluated"], sum(outcomes.values())) == (len(PATHS), len(PATHS))
    for scores in (decorated, around):
        scores.pipeline.shutdown(5)


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
        status, headers, pieces = reply(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        start_response(f"{status} Status", list(headers.items()))
        return iter(pieces)

    return app


class Kind:
    """One of the two interfaces: an application that replies, behind middleware, and its client."""

    def __init__(self, make: Callable[..., Any], middleware: Any, client: Callable[..., Any]) -> None:
        self.make, self.middleware, self.client = make, middleware, client

    def ask(
        self, seen: Seen, reply: Callable[[Any], Reply], method: str = "POST", path: str = "/chat", *,
        data: bytes = b"", content_type: str = "application/json", routes: Any = ("/chat",), **arguments: Any,
    ) -> bytes:  # fmt: skip
        app = self.middleware(self.make(reply), routes=routes, pipeline=seen.pipeline, **arguments)
        return self.client(app, method, path, data, {"Content-Type": content_type, "X-Tenant": "acme"})


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
    named = {"content-type": "text/plain"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: (status, named, list(pieces))


@both
@pytest.mark.parametrize(
    ("path", "content_type", "body", "prompt"),
    [
        ("/chat", "application/json", b'{"question": "When?", "other": 1}', "When?"),
        ("/chat", "application/json", b'{"messages": [{"role": "user", "content": "When?"}]}', "When?"),
        ("/chat", "application/vnd.api+json; charset=utf-8", b'{"input": "When?"}', "When?"),
        ("/chat", "application/x-www-form-urlencoded", b"prompt=When%3F&x=1", "When?"),
        ("/chat", "text/plain", b"When?", "When?"),
        ("/chat?query=When%3F", "text/plain", b"", "When?"),
        ("/chat", "application/json", b'{"question": ', '{"question": '),
        ("/chat", "text/plain", b"", None),
    ],
)
def test_prompts_are_read_from_body_or_query(
    seen: Seen, kind: Kind, path: str, content_type: str, body: bytes, prompt: str | None
) -> None:
    """JSON and forms by the usual fields, else text; without a body the query. The application gets all of it."""
    got: list[bytes] = []

    def reply(request: bytes) -> Reply:
        got.append(request)
        return replies(b"It is due.")(request)

    kind.ask(seen, reply, path=path, data=body, content_type=content_type)
    assert (seen.last.prompt, seen.last.response, got) == (prompt, "It is due.", [body])


@both
@pytest.mark.parametrize(
    ("reply", "response", "end"),
    [
        (replies(b'{"choices": [{"message": {"role": "assistant", "content": "Due."}}]}', content_type=JSON), "Due.",
         None),
        (replies(b'{"ans', b'wer": "Due."}', content_type=JSON), "Due.", None),
        (replies(b"Du", b"e.", content_length="4"), "Due.", None),
        (replies(b"Du", b"e."), "Due.", "completed"),
        (replies(b"data: D", b"ue.\n\ndata: [DONE]\n\n", content_type="text/event-stream"), "Due.", "completed"),
        (replies(status=204), "", None),
    ],
)  # fmt: skip
def test_responses_are_read_as_they_were_sent(
    seen: Seen, kind: Kind, reply: Callable[[Any], Reply], response: str, end: str | None
) -> None:
    """A known response by its format, a text or a stream as text, server-sent events by their data."""
    sent = kind.ask(seen, reply)
    assert sent == b"".join(reply(b"")[2])
    assert (seen.last.response, seen.last.stream_end, seen.last.error_type) == (response, end, None)


@both
@pytest.mark.parametrize(
    ("method", "path", "routes", "agent"),
    [
        ("POST", "/chat", ["/chat"], "/chat"), ("GET", "/chat", ["POST /chat"], None),
        ("POST", "/chat/", ["/chat"], None), ("HEAD", "/chat", ["/chat"], None), ("OPTIONS", "/chat", ["/*"], None),
        ("POST", "/v1/x/ask", {"/v1/{name}/ask": "asker", "/v1/*": "rest"}, "asker"),
        ("POST", "/v1/x/y/ask", {"/v1/{name}/ask": "asker", "/v1/*": "rest"}, "rest"),
        ("POST", "/caf%C3%A9", ["/café"], "/café"), ("POST", "/v1.0", ["/v1+0", "/v1?0"], None),
    ],
)  # fmt: skip
def test_only_requests_of_captured_routes_are_calls(
    seen: Seen, kind: Kind, method: str, path: str, routes: Any, agent: str | None
) -> None:
    """By path and method; the agent is named by the mapping, or after the route."""
    kind.ask(seen, replies(b"Due."), method, path, routes=routes)
    assert [made.agent for made in seen.inputs] == ([] if agent is None else [agent])
    assert seen.outcomes == ({} if agent is None else {"evaluated": 1})


@both
def test_every_request_ends_in_one_outcome(seen: Seen, kind: Kind) -> None:
    """Compressed and binary bodies are passed on unread and counted; what is longer than the limit is marked."""
    assert gzip.decompress(kind.ask(seen, replies(gzip.compress(b"Due."), content_encoding="gzip"))) == b"Due."
    kind.ask(seen, replies(b"\x89PNG", content_type="image/png"))
    assert seen.outcomes == {"capture_failed": 2}
    assert seen.pipeline.accounting.failures.pop("capture") == 2
    kind.ask(seen, replies(b"0123456789"), data=b"x" * 20, content_type="text/plain", max_body_bytes=8)
    assert (seen.last.response, seen.last.prompt, seen.last.metadata) == (
        "01234567", "xxxxxxxx", {"agenteval.snapshot": "truncated"},
    )  # fmt: skip
    assert seen.pipeline.accounting.failures.pop("capture") == 1, "of the request"
    kind.ask(seen, replies(b"sorry", status=503))
    assert (seen.last.response, seen.last.error_type) == ("", "503")
    kind.ask(seen, replies(b"what?", status=404))
    assert (seen.last.response, seen.last.error_type) == ("what?", None)
    assert seen.outcomes == {"capture_failed": 2, "evaluated": 3}


@both
def test_functions_pick_prompt_response_and_facts(seen: Seen, kind: Kind) -> None:
    """They see the bodies decoded; `capture` sees the request with its headers as well. What they raise is counted."""
    reply = replies(b'{"data": ["Due.", 1]}', content_type="application/json")
    question = json.dumps({"turn": {"said": "When?"}}).encode()

    def facts(request: dict[str, Any], body: Any) -> dict[str, Any]:
        assert (request["method"], request["path"], request["query"]) == ("POST", "/chat", "a=1")
        return {"tags": {"tenant": request["headers"]["x-tenant"]}, "turns": body["data"][1]}

    picks: dict[str, Any] = {"prompt": lambda body: body["turn"]["said"], "response": lambda body: body["data"][0]}
    kind.ask(seen, reply, path="/chat?a=1", data=question, capture=facts, **picks)
    assert (seen.last.prompt, seen.last.response, seen.last.turns) == ("When?", "Due.", 1)
    assert seen.last.tags == {"tenant": "acme"}
    stream = replies(b"data: 1\n\n", b'data: {"x": "Due."}\n\n', content_type="text/event-stream")
    kind.ask(seen, stream, response=lambda events: events[1]["x"])
    assert (seen.last.response, seen.last.stream_end) == ("Due.", "completed")
    kind.ask(seen, reply, response=lambda body: body["missing"])
    assert seen.outcomes == {"evaluated": 2, "capture_failed": 1}
    assert seen.pipeline.accounting.failures.pop("capture") == 1


@both
def test_sampling_is_that_of_monitor(kind: Kind) -> None:
    """Before the call by ratio; after it by rules, which see that the response is an error; off by the switch."""
    for settings, expected in (
        ({"ratio": 0.0}, {"not_sampled": 2}), ({"enabled": False}, {"disabled": 2}),
    ):  # fmt: skip
        seen = Seen(**settings)
        kind.ask(seen, replies(b"Due."))
        kind.ask(seen, replies(b"", status=500))
        assert (seen.outcomes, seen.inputs) == (expected, [])
    seen = Seen()
    kind.ask(seen, replies(b"Due."), sampler=ErrorSampler())
    kind.ask(seen, replies(b"", status=500), sampler=ErrorSampler())
    assert seen.outcomes == {"not_sampled": 1, "evaluated": 1}


def scope_of(path: str = "/chat") -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}


async def no_message() -> Any:
    return {"type": "http.disconnect"}


@pytest.mark.parametrize("how", ["cancelled", "send raises", "the application returns"])
def test_a_client_that_goes_away_abandons_the_stream(seen: Seen, how: str) -> None:
    """The application sees what it would see; the call ends with what came."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"It ", "more_body": True})
        if how == "the application returns":
            assert (await receive())["type"] == "http.disconnect"
            return
        if how == "cancelled":
            await asyncio.Event().wait()
        await send({"type": "http.response.body", "body": b"is ", "more_body": True})

    async def send(message: Any) -> None:
        if how == "send raises" and message.get("body") == b"is ":
            raise OSError("closed")

    async def run() -> None:
        middleware = asgi.AgentEvalMiddleware(app, routes=["/chat"], pipeline=seen.pipeline)
        task = asyncio.ensure_future(middleware(scope_of(), no_message, send))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await task

    if how == "the application returns":
        asyncio.run(run())
    else:
        with pytest.raises(OSError if how == "send raises" else asyncio.CancelledError):
            asyncio.run(run())
    assert (seen.last.response, seen.last.stream_end, seen.last.error_type) == ("It ", "abandoned", None)
    assert seen.outcomes == {"evaluated": 1}


def environ_of(path: str = "/chat") -> dict[str, Any]:
    return {"REQUEST_METHOD": "POST", "PATH_INFO": path, "wsgi.input": io.BytesIO()}


class Body:
    """A WSGI body that notes when it is read and closed."""

    def __init__(self, noted: list[str]) -> None:
        self._noted = noted

    def __iter__(self) -> Iterator[bytes]:
        for word in WORDS:
            self._noted.append(f"made {word}")
            yield word.encode()

    def close(self) -> None:
        self._noted.append("closed")


def test_pieces_pass_one_by_one(seen: Seen) -> None:
    """The next piece of a body is made when the one before is out; a body is closed as ever."""
    noted: list[str] = []

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return Body(noted)

    middleware = wsgi.AgentEvalMiddleware(app, routes=["/chat"], pipeline=seen.pipeline)
    for piece in middleware(environ_of(), lambda *_: lambda _: None):
        noted.append(f"sent {piece.decode()}")
    assert noted == [f"{step} {word}" for word in WORDS for step in ("made", "sent")]
    abandoned = middleware(environ_of(), lambda *_: lambda _: None)
    next(iter(abandoned))
    abandoned.close()  # type: ignore[attr-defined]
    assert noted[-2:] == ["made It ", "closed"]
    middleware(environ_of(), lambda *_: lambda _: None).close()  # type: ignore[attr-defined]  # before it was read
    middleware(environ_of(), lambda *_: lambda _: None)  # never read, never closed
    assert [(made.response, made.stream_end) for made in seen.inputs] == [
        ("It is due.", "completed"), ("It ", "abandoned"), ("", "abandoned"), ("", "abandoned"),
    ]  # fmt: skip


def test_messages_pass_one_by_one(seen: Seen) -> None:
    """Every message of an ASGI application is sent as the same object, before the application goes on."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in (
            {"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", b"text/plain")]},
            *({"type": "http.response.body", "body": word.encode(), "more_body": True} for word in WORDS),
            {"type": "http.response.body"},
        ):  # fmt: skip
            await send(message)
            assert sent[-1] is message
        assert seen.outcomes == {"evaluated": 1}, "the response is over, and what the application does then is not ours"

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asgi.AgentEvalMiddleware(app, routes=["/chat"], pipeline=seen.pipeline)(scope_of(), no_message, send))
    assert seen.last.response == "It is due."


def test_what_a_server_sends_from_a_file_is_left_to_it(seen: Seen) -> None:
    """The file's wrapper reaches the server as it is, and the call counts as one that cannot be read."""

    class FileWrapper:
        def __init__(self, file: Any) -> None:
            self.file = file

    wrapper = FileWrapper(io.BytesIO(b"x"))

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return wrapper

    environ = environ_of() | {"wsgi.file_wrapper": FileWrapper}
    middleware = wsgi.AgentEvalMiddleware(app, routes=["/chat"], pipeline=seen.pipeline)
    assert middleware(environ, lambda *_: lambda _: None) is wrapper
    assert seen.outcomes == {"capture_failed": 1}
    seen.pipeline.accounting.failures.clear()


@pytest.mark.parametrize("reads", ["read", "readline", "readlines", "readinto", "iteration", "write"])
def test_request_bodies_are_kept_however_they_are_read(seen: Seen, reads: str) -> None:
    """Every way to read that WSGI and its servers offer; and the old way to write."""

    def app(environ: Any, start_response: Any) -> Any:
        stream = environ["wsgi.input"]
        if reads == "readinto":
            room = bytearray(16)
            assert room[: stream.readinto(room)] == b"When\n?"
        else:
            data = stream if reads == "iteration" else getattr(stream, "read" if reads == "write" else reads)()
            assert b"".join(data if reads in ("readlines", "iteration") else [data, stream.read()]) == b"When\n?"
        write = start_response("200 OK", [("Content-Type", "text/plain")])
        if reads == "write":
            write(b"Due.")
            return []
        return [b"Due."]

    environ = environ_of() | {"wsgi.input": io.BytesIO(b"When\n?"), "CONTENT_TYPE": "text/plain"}
    middleware = wsgi.AgentEvalMiddleware(app, routes=["/chat"], pipeline=seen.pipeline)
    middleware(environ, lambda *_: lambda _: None)
    assert (seen.last.prompt, seen.last.response) == ("When\n?", "Due.")


@pytest.mark.parametrize("shape", ["function", "stream"])
def test_a_decorated_handler_inside_is_scored_once(seen: Seen, shape: str) -> None:
    """The inner call evaluates the answer; the request counts as already monitored, and all adds up."""
    app = FastAPI()

    @seen.monitor(agent="inner")
    async def pieces() -> AsyncIterator[str]:
        for word in WORDS:
            yield word

    @seen.monitor(agent="inner")
    async def answer() -> dict[str, str]:
        return {"answer": "It is due."}

    async def stream() -> Any:
        return StreamingResponse(pieces())

    app.get("/chat")(answer if shape == "function" else stream)
    app.add_middleware(asgi.AgentEvalMiddleware, routes=["/chat"], agent="outer", pipeline=seen.pipeline)
    TestClient(app).get("/chat")
    assert [(made.agent, made.response) for made in seen.inputs] == [("inner", "It is due.")]
    by_agent = seen.pipeline.accounting.by_agent()
    assert by_agent["inner"]["evaluated"] == by_agent["outer"]["already_monitored"] == 1
    assert seen.outcomes == {"evaluated": 1, "already_monitored": 1}


def test_middleware_twice_scores_once(seen: Seen) -> None:
    """The inner one takes the call."""
    inner = wsgi.AgentEvalMiddleware(
        wsgi_app(replies(b"Due.")), routes=["/chat"], agent="inner", pipeline=seen.pipeline
    )
    outer = wsgi.AgentEvalMiddleware(inner, routes=["/chat"], agent="outer", pipeline=seen.pipeline)
    assert werkzeug.test.Client(outer).get("/chat").data == b"Due."
    assert [made.agent for made in seen.inputs] == ["inner"]
    assert seen.outcomes == {"evaluated": 1, "already_monitored": 1}


def test_facts_are_added_inside_of_handlers(seen: Seen) -> None:
    """`annotate` works in handlers, in threads of the framework and in streamed bodies; the next request has none."""
    app, site = FastAPI(), flask.Flask(__name__)

    @app.get("/sync")
    def sync() -> str:
        annotate(model="sync")
        return "Due."

    @app.get("/later")
    async def later() -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            yield "Du"
            annotate(model="later")
            yield "e."

        return StreamingResponse(pieces())

    @site.get("/flask")
    def view() -> Any:
        def pieces() -> Iterator[str]:
            yield "Due."
            annotate(turns=2)

        annotate(model="flask")
        return pieces()

    app.add_middleware(asgi.AgentEvalMiddleware, routes=["/*"], pipeline=seen.pipeline)
    site.wsgi_app = wsgi.AgentEvalMiddleware(site.wsgi_app, routes=["/*"], pipeline=seen.pipeline)  # type: ignore[method-assign]
    for path in ("/sync", "/later", "/missing"):
        TestClient(app).get(path)
    assert site.test_client().get("/flask").data == b"Due."
    assert [(made.model, made.turns) for made in seen.inputs] == [
        ("sync", None), ("later", None), (None, None), ("flask", 2),
    ]  # fmt: skip


def test_scores_stand_on_the_servers_span_or_on_one_of_our_own(
    telemetry: RecordedTelemetry, pipeline: Pipeline
) -> None:
    """Without a server span the request gets an agent span, in which the handler runs; with one there is no other."""
    tracer = telemetry.tracer_provider.get_tracer("app")

    def reply(_: Any) -> Reply:
        with tracer.start_as_current_span("work"):
            return replies(b"Due.")(b"")

    client = werkzeug.test.Client(wsgi.AgentEvalMiddleware(wsgi_app(reply), routes={"/chat": "a"}, pipeline=pipeline))
    client.get("/chat").close()
    with tracer.start_as_current_span("GET /chat") as server:
        client.get("/chat").close()
    assert trace.get_current_span() is trace.INVALID_SPAN
    pipeline.shutdown(5)
    spans = telemetry.spans()
    work = [span for span in spans if span.name == "work"]
    (own,) = [span for span in spans if span.name == "invoke_agent a"]
    assert [span.parent.span_id for span in work] == [own.context.span_id, server.get_span_context().span_id]
    assert [span.parent.span_id for span in spans if span.name.startswith("evaluation")] == [
        span.parent.span_id for span in work
    ]  # fmt: skip


def test_a_trace_that_began_elsewhere_goes_on(telemetry: RecordedTelemetry, pipeline: Pipeline) -> None:
    """Without a server span the agent span is a child of the client's; instrumentation inside sees its baggage too."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(baggage.get_baggage("tenant"))
        await asgi_app(replies(b"Due."))(scope, receive, send)

    headers = {"traceparent": f"00-{7:032x}-{5:016x}-01", "baggage": "tenant=acme"}
    TestClient(asgi.AgentEvalMiddleware(app, routes={"/chat": "a"}, pipeline=pipeline)).get("/chat", headers=headers)
    pipeline.shutdown(5)
    (own,) = [span for span in telemetry.spans() if span.name == "invoke_agent a"]
    assert (own.context.trace_id, own.parent.span_id, seen) == (7, 5, ["acme"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"routes": []}, "routes: expected a list of paths"), ({"routes": "/chat"}, "routes: expected a list of paths"),
        ({"routes": ["chat"]}, "routes[0]: expected a path such as"), ({"agent": " "}, "agent: expected a name"),
        ({"prompt": "text"}, "prompt: expected a function"), ({"sample_rate": 2}, "sample_rate"),
        ({"max_body_bytes": 0}, "max_body_bytes: expected a number of bytes"),
    ],
)  # fmt: skip
def test_wrong_settings_fail_at_start(seen: Seen, arguments: dict[str, Any], problem: str) -> None:
    """When the middleware is made, with the path of what is wrong."""
    with pytest.raises(ConfigurationError) as failure:
        asgi.AgentEvalMiddleware(None, **({"routes": ["/chat"], "pipeline": seen.pipeline} | arguments))
    assert problem in str(failure.value)
