"""WebSockets: each message as a call where the middleware's route says so, and none elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from starlette.testclient import TestClient

from agenteval_otel import annotate, monitor
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.instrumentation import asgi, wsgi
from tests.instrumentation.support import Seen, in_loop

Sent = Sequence[str | bytes | dict[str, Any]]

REPLIES: dict[str, Sent] = {
    "When?": ("It ", "is ", "due."),
    '{"question": "Who?"}': ({"answer": "Ann."},),
    "events": ({"type": "reasoning", "text": "hm"}, {"answer": "It is"}, {"answer": " due."}),
    "mixed": (
        "Well, ",
        {"type": "token", "text": "it is"},
        {"type": "status", "text": "busy"},
        " due.",
    ),
    "steps": ({"step": 1}, {"step": 2}),
    "lists": ('["token", "it is"]', '["token", " due"]'),
    "image": (b"\x89PNG",),
    "stop": (),
}


def application() -> FastAPI:
    """Greet, then send the reply of each message; end where a message has none."""
    app = FastAPI()

    @app.websocket("/talk")
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("Hello")
        try:
            async for question in websocket.iter_text():
                annotate(tags={"topic": "dates"})
                for piece in REPLIES[question]:
                    if isinstance(piece, dict):
                        await websocket.send_json(piece)
                    elif isinstance(piece, bytes):
                        await websocket.send_bytes(piece)
                    else:
                        await websocket.send_text(piece)
        except WebSocketDisconnect:
            return

    @app.get("/talk")
    async def page() -> str:
        return "It is a page."

    return app


def captured(seen: Seen, app: Any, route: str = "WS /talk", **settings: Any) -> Any:
    """The application behind the middleware, which captures this route."""
    return asgi.AgentEvalMiddleware(app, routes=[route], pipeline=seen.pipeline, **settings)


def converse(app: Any, *questions: str) -> list[Any]:
    """Send the questions over one connection and return the messages that came."""
    came = []
    with TestClient(app).websocket_connect("/talk") as socket:
        came.append(socket.receive())
        for question in questions:
            socket.send_text(question)
            came += [socket.receive() for _ in REPLIES.get(question, ())]
    return came


def test_each_message_of_a_route_of_websockets_is_a_call(seen: Seen) -> None:
    """Its text is the prompt, and what is sent until the next one is the answer."""
    routes = {"WS /talk": "support"}
    app = asgi.AgentEvalMiddleware(application(), routes=routes, pipeline=seen.pipeline)
    questions = ["When?", '{"question": "Who?"}', "events", "mixed"]
    assert converse(app, *questions) == converse(application(), *questions)
    made = [(made.prompt, made.response, made.agent) for made in seen.inputs]
    assert made == [
        ("When?", "It is due.", "support"),
        ("Who?", "Ann.", "support"),
        ("events", "It is due.", "support"),
        ("mixed", "Well, it is due.", "support"),
    ]
    assert [made.tags for made in seen.inputs] == [{"topic": "dates"}] * 4
    assert seen.outcomes == {"evaluated": 4}


def test_a_web_socket_beside_a_captured_route_is_no_call(seen: Seen) -> None:
    """Its messages are those without middleware."""
    app = captured(seen, application(), "/chat")
    assert converse(app, "When?") == converse(application(), "When?")
    assert seen.outcomes == {}


def test_a_message_without_an_answer_is_not_judged(seen: Seen) -> None:
    """The next message replaces it; the last of a connection, and binary answers, are counted."""
    app = captured(seen, application())
    converse(app, "stop", "When?", "image", "steps", "lists", "stop")
    assert [(made.prompt, made.response) for made in seen.inputs] == [("When?", "It is due.")]
    assert seen.outcomes == {"evaluated": 1, "capture_failed": 4}
    failures = seen.pipeline.accounting.failures
    assert failures == {
        "capture:unreadable_body": 1,
        "capture:unknown_chunks": 2,
        "capture:no_answer": 1,
    }
    failures.clear()


def test_an_exception_is_the_outcome_of_the_message(seen: Seen) -> None:
    """It reaches the server unchanged, and the call has its name."""
    app = captured(seen, application())
    with pytest.raises(KeyError, match="unknown"):
        converse(app, "When?", "unknown")
    assert [made.error_type for made in seen.inputs] == [None, "KeyError"]


async def socket_of(
    incoming: list[dict[str, Any]], send: Any, app: Any, path: str = "/talk"
) -> None:
    """Run an application on a WebSocket from which these messages come."""
    scope = {"type": "websocket", "path": path, "query_string": b"", "headers": []}

    async def receive() -> dict[str, Any]:
        return incoming.pop(0)

    await app(scope, receive, send)


async def unheard(message: dict[str, Any]) -> None:
    """Send to nobody."""


@in_loop
async def test_a_client_that_goes_away_abandons_the_answer(seen: Seen) -> None:
    """What could not be sent is no part of the answer, and the exception is the server's."""
    sent: list[str] = []

    async def send(message: dict[str, Any]) -> None:
        if len(sent) == 2:
            raise OSError("gone")
        sent.append(message["text"])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        for word in ("It ", "is ", "due."):
            await send({"type": "websocket.send", "text": word})

    middleware = captured(seen, app)
    with pytest.raises(OSError, match="gone"):
        await socket_of([{"type": "websocket.receive", "text": "When?"}], send, middleware)
    assert (seen.last.response, seen.last.stream_end) == ("It is ", "abandoned")
    assert seen.last.error_type is None


@in_loop
async def test_an_exception_after_the_client_has_gone_is_no_error(seen: Seen) -> None:
    """An application learns of the end by an exception where it reads: the answer was complete."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"].upper()})
        raise WebSocketDisconnect

    incoming = [{"type": "websocket.receive", "text": "a"}, {"type": "websocket.disconnect"}]
    middleware = captured(seen, app)
    with pytest.raises(WebSocketDisconnect):
        await socket_of(incoming, unheard, middleware)
    assert (seen.last.response, seen.last.error_type, seen.last.stream_end) == ("A", None, None)


@pytest.mark.parametrize("text", [None, "", 7, b"x", "\ud800", "{" * 5_000])
@in_loop
async def test_odd_messages_pass_unchanged(seen: Seen, text: Any) -> None:
    """No message of a client's or an application's makes the middleware raise or hold it back."""
    came: list[Any] = []

    async def send(message: dict[str, Any]) -> None:
        came.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        came.append(await receive())
        await send({"type": "websocket.send", "text": text})
        await send({"type": "websocket.close"})

    message = {"type": "websocket.receive", "text": text}
    middleware = captured(seen, app)
    await socket_of([message], send, middleware)
    assert came[0] is message
    assert came[1:] == [{"type": "websocket.send", "text": text}, {"type": "websocket.close"}]


@in_loop
async def test_what_is_kept_of_a_connection_is_bounded(seen: Seen) -> None:
    """Each side of a message is cut at the limit, and the answer is marked as truncated."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        for _ in range(100):
            await send({"type": "websocket.send", "text": "x" * 100})

    middleware = captured(seen, app, max_body_bytes=500)
    await socket_of([{"type": "websocket.receive", "text": "y" * 10_000}], unheard, middleware)
    assert len(seen.last.prompt or "") == 500
    assert 200 <= len(seen.last.response_text) <= 500, "messages take room beside their text"
    assert seen.last.metadata == {"agenteval.snapshot": "truncated"}
    assert seen.pipeline.accounting.failures == {"capture": 1}  # the cut of the prompt
    seen.pipeline.accounting.failures.clear()


def test_a_route_of_requests_to_which_websockets_come_is_logged_once(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    """The line says what to write; a route to which requests come as well is not meant."""
    app = captured(seen, application(), "/talk")
    converse(app)
    converse(app)
    assert caplog.text.count("websocket_not_captured") == 1
    assert seen.outcomes == {}
    caplog.clear()
    app = captured(seen, application(), "/talk")
    TestClient(app).get("/talk")
    converse(app)
    assert caplog.text.count("websocket_not_captured") == 0


def test_a_route_of_websockets_takes_no_requests(seen: Seen) -> None:
    """Neither those of a usual method nor those that call their method WS."""
    app = captured(seen, application())
    for method in ("GET", "WS"):
        TestClient(app).request(method, "/talk")
    assert seen.outcomes == {}


def test_wsgi_has_no_websockets() -> None:
    """Such a route is refused at start."""
    with pytest.raises(ConfigurationError, match=r"routes: WS /talk: .* the middleware for ASGI"):
        wsgi.AgentEvalMiddleware(None, routes=["WS /talk"])


class OwnSocket(WebSocket):
    """A socket of the application's."""


async def sends(websocket: WebSocket) -> None: ...
async def sends_without_saying(session: str, socket: WebSocket): ...  # type: ignore[no-untyped-def]
async def sends_by_its_own(socket: OwnSocket) -> None: ...
async def sends_annotated(socket: Annotated[WebSocket, "open"]) -> None: ...
async def sends_perhaps(socket: WebSocket | None = None) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [sends, sends_without_saying, sends_by_its_own, sends_annotated, sends_perhaps],
    ids=lambda handler: handler.__name__,
)
def test_the_handler_of_a_websocket_is_refused(handler: Any) -> None:
    """The message says what to decorate instead, and the route that evaluates each message."""
    with pytest.raises(ConfigurationError, match=r'one answer.*"WS /chat".*return type') as raised:
        monitor(handler)
    assert raised.value.path == "handler"


class WebSocketPool:
    """Something else with a name like it."""


async def answers(question: str, websocket: WebSocket) -> str:
    return f"You asked: {question}"


async def streams(question: str, websocket: WebSocket) -> Any:
    yield f"You asked: {question}"


async def broadcasts(question: str, sockets: list[WebSocket], pool: WebSocketPool) -> None: ...


@pytest.mark.parametrize("handler", [answers, streams, broadcasts], ids=lambda each: each.__name__)
def test_a_handler_that_answers_beside_its_websocket_is_taken(seen: Seen, handler: Any) -> None:
    """Its return type or a yield says so, and other types are no sockets."""
    assert seen.monitor(handler).__wrapped__ is handler


@in_loop
async def test_what_a_socket_without_annotation_sends_is_not_judged_as_empty(seen: Seen) -> None:
    """A handler that cannot be refused at start counts as not understood; its error is an error."""

    @seen.monitor
    async def talk(websocket, breaks=False):  # type: ignore[no-untyped-def]
        if breaks:
            raise KeyError

    await talk(object())
    assert seen.outcomes == {"capture_failed": 1}
    with pytest.raises(KeyError):
        await talk(object(), breaks=True)
    assert seen.last.error_type == "KeyError"
    assert seen.pipeline.accounting.failures == {"capture:no_answer": 1}
    seen.pipeline.accounting.failures.clear()
