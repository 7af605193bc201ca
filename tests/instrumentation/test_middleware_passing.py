"""Middleware and its host: pieces and messages pass one by one, clients go away, spans and facts
are in place.
"""

from __future__ import annotations

import asyncio
import io
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import flask
import pytest
import uvicorn
import werkzeug.test
from fastapi import FastAPI
from opentelemetry import baggage, trace
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.testclient import TestClient

from agenteval_otel import annotate
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.instrumentation import asgi, wsgi
from agenteval_otel.testing import RecordedTelemetry
from tests.instrumentation.middleware import Reply, asgi_app, replies, wsgi_app
from tests.instrumentation.support import Seen

WORDS = ["It ", "is ", "due."]


def scope_of(path: str = "/chat") -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}


def captured(seen: Seen, app: Any, kind: Any = wsgi) -> Any:
    """The application behind the middleware, which captures `/chat`."""
    return kind.AgentEvalMiddleware(app, routes=["/chat"], pipeline=seen.pipeline)


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
        middleware = captured(seen, app, asgi)
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
    assert (seen.last.response, seen.last.stream_end, seen.last.error_type) == (
        "It ",
        "abandoned",
        None,
    )
    assert seen.outcomes == {"evaluated": 1}


def start_response(*_: Any) -> Any:
    """Begin a response that nobody gets."""
    return lambda _: None


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

    middleware = captured(seen, app)
    for piece in middleware(environ_of(), start_response):
        noted.append(f"sent {piece.decode()}")
    assert noted == [f"{step} {word}" for word in WORDS for step in ("made", "sent")]
    abandoned = middleware(environ_of(), start_response)
    next(iter(abandoned))
    abandoned.close()
    assert noted[-2:] == ["made It ", "closed"]
    middleware(environ_of(), start_response).close()  # before it was read
    middleware(environ_of(), start_response)  # never read, never closed
    assert [(made.response, made.stream_end) for made in seen.inputs] == [
        ("It is due.", "completed"),
        ("It ", "abandoned"),
        ("", "abandoned"),
        ("", "abandoned"),
    ]


def test_messages_pass_one_by_one(seen: Seen) -> None:
    """Every message of an ASGI application is sent as the same object, before the application goes
    on.
    """
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in (
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"Content-Type", b"text/plain")],
            },
            *(
                {"type": "http.response.body", "body": word.encode(), "more_body": True}
                for word in WORDS
            ),
            {"type": "http.response.body"},
        ):
            await send(message)
            assert sent[-1] is message
        assert seen.outcomes == {"evaluated": 1}, (
            "the response is over, and what the application does then is not ours"
        )

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(captured(seen, app, asgi)(scope_of(), no_message, send))
    assert seen.last.response == "It is due."


def test_what_a_server_sends_from_a_file_is_left_to_it(seen: Seen) -> None:
    """The file's wrapper reaches the server as it is, and the call counts as one that cannot be
    read.
    """

    class FileWrapper:
        def __init__(self, file: Any) -> None:
            self.file = file

    wrapper = FileWrapper(io.BytesIO(b"x"))

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return wrapper

    environ = environ_of() | {"wsgi.file_wrapper": FileWrapper}
    middleware = captured(seen, app)
    assert middleware(environ, start_response) is wrapper
    assert seen.outcomes == {"capture_failed": 1}
    seen.pipeline.accounting.failures.clear()


@pytest.mark.parametrize(
    "reads", ["read", "readline", "readlines", "readinto", "iteration", "write"]
)
def test_request_bodies_are_kept_however_they_are_read(seen: Seen, reads: str) -> None:
    """Every way to read that WSGI and its servers offer; and the old way to write."""

    def app(environ: Any, start_response: Any) -> Any:
        stream = environ["wsgi.input"]
        if reads == "readinto":
            room = bytearray(16)
            assert room[: stream.readinto(room)] == b"When\n?"
        else:
            data = (
                stream
                if reads == "iteration"
                else getattr(stream, "read" if reads == "write" else reads)()
            )
            assert (
                b"".join(data if reads in ("readlines", "iteration") else [data, stream.read()])
                == b"When\n?"
            )
        write = start_response("200 OK", [("Content-Type", "text/plain")])
        if reads == "write":
            write(b"Due.")
            return []
        return [b"Due."]

    environ = environ_of() | {"wsgi.input": io.BytesIO(b"When\n?"), "CONTENT_TYPE": "text/plain"}
    middleware = captured(seen, app)
    middleware(environ, start_response)
    assert (seen.last.prompt, seen.last.response) == ("When\n?", "Due.")


@pytest.mark.parametrize("shape", ["function", "stream"])
def test_a_decorated_handler_inside_is_scored_once(seen: Seen, shape: str) -> None:
    """The inner call evaluates the answer; the request counts as already monitored, and all adds
    up.
    """
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
    app.add_middleware(
        asgi.AgentEvalMiddleware, routes=["/chat"], agent="outer", pipeline=seen.pipeline
    )
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
    """`annotate` works in handlers, in threads of the framework and in streamed bodies; the next
    request has none.
    """
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
        ("sync", None),
        ("later", None),
        (None, None),
        ("flask", 2),
    ]


def test_scores_stand_on_the_servers_span_or_on_one_of_our_own(
    telemetry: RecordedTelemetry, pipeline: Pipeline
) -> None:
    """Without a server span the request gets an agent span, in which the handler runs; with one
    there is no other.
    """
    tracer = telemetry.tracer_provider.get_tracer("app")

    def reply(_: Any) -> Reply:
        with tracer.start_as_current_span("work"):
            return replies(b"Due.")(b"")

    client = werkzeug.test.Client(
        wsgi.AgentEvalMiddleware(wsgi_app(reply), routes={"/chat": "a"}, pipeline=pipeline)
    )
    client.get("/chat").close()
    with tracer.start_as_current_span("GET /chat") as server:
        client.get("/chat").close()
    assert trace.get_current_span() is trace.INVALID_SPAN
    pipeline.shutdown(5)
    spans = telemetry.spans()
    work = [span for span in spans if span.name == "work"]
    (own,) = [span for span in spans if span.name == "invoke_agent a"]
    assert [span.parent.span_id for span in work] == [
        own.context.span_id,
        server.get_span_context().span_id,
    ]
    assert [span.parent.span_id for span in spans if span.name.startswith("evaluation")] == [
        span.parent.span_id for span in work
    ]


def test_a_trace_that_began_elsewhere_goes_on(
    telemetry: RecordedTelemetry, pipeline: Pipeline
) -> None:
    """Without a server span the agent span is a child of the client's; instrumentation inside sees
    its baggage too.
    """
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(baggage.get_baggage("tenant"))
        await asgi_app(replies(b"Due."))(scope, receive, send)

    headers = {"traceparent": f"00-{7:032x}-{5:016x}-01", "baggage": "tenant=acme"}
    TestClient(asgi.AgentEvalMiddleware(app, routes={"/chat": "a"}, pipeline=pipeline)).get(
        "/chat", headers=headers
    )
    pipeline.shutdown(5)
    (own,) = [span for span in telemetry.spans() if span.name == "invoke_agent a"]
    assert (own.context.trace_id, own.parent.span_id, seen) == (7, 5, ["acme"])


def served(app: Any, *, wsgi_server: bool) -> Any:
    """A real server on a free port: what stops it, and its port."""
    if wsgi_server:
        quiet = type("Quiet", (WSGIRequestHandler,), {"log_message": lambda *_: None})
        server = make_server("127.0.0.1", 0, app, handler_class=quiet)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        return server.server_port, lambda: (server.shutdown(), thread.join(), server.server_close())
    listener = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    thread = threading.Thread(target=web.run, kwargs={"sockets": [listener]})
    thread.start()

    def stop() -> None:
        web.should_exit = True
        thread.join()

    return listener.getsockname()[1], stop


@pytest.mark.parametrize("wsgi_server", [False, True], ids=["uvicorn", "wsgiref"])
def test_a_client_leaves_a_real_server(seen: Seen, wsgi_server: bool) -> None:
    """The stream of a client that closes its connection is abandoned; the one that is read to its
    end is whole.
    """
    over = threading.Event()

    async def later() -> AsyncIterator[str]:
        try:
            for _ in range(100_000):
                yield "word " * 1_000
                await asyncio.sleep(0)
        finally:
            over.set()

    def pieces() -> Iterator[bytes]:
        try:
            yield from [b"word " * 1_000] * 100_000
        finally:
            over.set()

    def site(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return pieces() if environ["PATH_INFO"] == "/long" else [b"Due."]

    app = FastAPI()
    app.get("/long")(lambda: StreamingResponse(later(), media_type="text/plain"))
    app.get("/short")(lambda: PlainTextResponse("Due."))
    kind = wsgi if wsgi_server else asgi
    around = kind.AgentEvalMiddleware(
        site if wsgi_server else app, routes=["/*"], pipeline=seen.pipeline
    )
    port, stop = served(around, wsgi_server=wsgi_server)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(64).startswith(b"HTTP/1.")
    assert over.wait(20.0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/short") as response:
        assert response.read() == b"Due."
    stop()
    ends = {made.response[:5]: made.stream_end for made in seen.inputs}
    assert ends == {"word ": "abandoned", "Due.": None}
    assert seen.outcomes == {"evaluated": 2}
