"""Handlers of web frameworks: their responses are read, streamed bodies are followed, and clients
see no difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import django.conf
import flask
import pytest
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from agenteval_otel.models import EvaluationInput
from tests.instrumentation.support import Seen

WORDS = ["It ", "is ", "due."]


@pytest.fixture(autouse=True, scope="module")
def django_is_set_up() -> None:
    if not django.conf.settings.configured:
        django.conf.settings.configure()


def words() -> Iterator[str]:
    yield from WORDS


async def words_later() -> AsyncIterator[str]:
    for word in WORDS:
        yield word


def flask_app(monitor: Callable[..., Any]) -> Any:
    app = flask.Flask(__name__)

    def route(path: str) -> Callable[[Any], Any]:
        return lambda view: app.get(path, endpoint=path)(monitor(agent=path)(view))

    route("/response")(lambda: flask.Response("It is due.", status=201))
    route("/pair")(lambda: ("It is due.", 202))
    route("/pair-json")(lambda: ({"answer": "It is due."}, 202, {"X-Kind": "pair"}))
    route("/empty")(lambda: flask.Response())
    route("/iterator")(lambda: flask.Response(iter(WORDS)))
    return app.test_client()


def fastapi_app(monitor: Callable[..., Any]) -> Any:
    app = FastAPI()

    class Pieces:
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for word in WORDS:
                yield word.encode()

    def route(path: str) -> Callable[[Any], Any]:
        return lambda view: app.get(path)(monitor(agent=path)(view))

    route("/plain")(lambda: StreamingResponse(words()))
    route("/pieces")(lambda: StreamingResponse(Pieces()))
    return TestClient(app)


DUE = "It is due."
FLASK = dict.fromkeys(("/response", "/pair", "/pair-json", "/iterator"), DUE)
FASTAPI = dict.fromkeys(("/plain", "/pieces"), DUE)


@pytest.mark.parametrize(
    ("make", "answers"),
    [(flask_app, FLASK | {"/empty": ""}), (fastapi_app, FASTAPI)],
    ids=["flask", "fastapi"],
)
def test_responses_are_read_and_streams_followed(
    seen: Seen, make: Callable[..., Any], answers: dict[str, str]
) -> None:
    """What is evaluated is the text that the client gets, once its body has ended; the client sees
    no difference.
    """
    watched, bare = make(seen.monitor), make(lambda **_: lambda view: view)
    for path in answers:
        response, expected = watched.get(path), bare.get(path)
        assert (response.status_code, response.text) == (expected.status_code, expected.text)
        assert response.headers.get("content-type") == expected.headers.get("content-type")
    assert {made.agent: made.response for made in seen.inputs} == answers
    assert seen.outcomes == {"evaluated": len(answers)}


DJANGO: list[tuple[Callable[[], Any], str]] = [
    (lambda: HttpResponse("It is due.", status=404), DUE),
    (lambda: HttpResponse(["It is ", b"due."]), DUE),
    (lambda: HttpResponse(), ""),
    (lambda: StreamingHttpResponse(words()), DUE),
    (lambda: StreamingHttpResponse(WORDS), DUE),
    (lambda: StreamingHttpResponse(words_later()), DUE),
]


async def collected(pieces: Any) -> list[bytes]:
    return [piece async for piece in pieces]


@pytest.mark.parametrize(("make", "answer"), DJANGO)
def test_djangos_responses_are_read_and_followed(
    seen: Seen, make: Callable[[], Any], answer: str
) -> None:
    """An `HttpResponse` by its content, a `StreamingHttpResponse` when it has ended, sync and
    async.
    """
    response, bare = seen.monitor(make)(), make()
    if not response.streaming:
        assert response.content == bare.content
    elif response.is_async:
        assert asyncio.run(collected(response.streaming_content)) == [
            word.encode() for word in WORDS
        ]
    else:
        assert list(response.streaming_content) == [word.encode() for word in WORDS]
    response.close()
    assert [made.response for made in seen.inputs] == [answer]
    assert seen.outcomes == {"evaluated": 1}


def test_a_client_that_goes_away_abandons_the_stream(seen: Seen) -> None:
    """The body is closed as ever; the call ends with what came, and says that it was abandoned."""
    closed: list[bool] = []

    def pieces() -> Iterator[str]:
        try:
            yield from WORDS
        finally:
            closed.append(True)

    response = seen.monitor(lambda: flask.Response(pieces()))()
    assert next(iter(response.response)) == "It "
    response.close()
    (made,) = seen.inputs
    assert isinstance(made, EvaluationInput)
    assert (made.response, made.stream_end, closed) == ("It ", "abandoned", [True])


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("make", [FastAPI, partial(flask.Flask, __name__)])
def test_the_wrong_order_of_decorators_is_noticed(
    seen: Seen, caplog: pytest.LogCaptureFixture, make: Callable[[], Any], above: bool
) -> None:
    """`@monitor` above the route's decorator never sees a request: a line says so, and how to mend
    it.
    """
    app = make()

    def view() -> str:
        return "x"

    if above:
        seen.monitor(agent="view")(app.get("/")(view))
    else:
        app.get("/")(seen.monitor(agent="view")(view))
    assert ("put @monitor below" in caplog.text) is above
    assert ("monitored_too_late" in caplog.text) is above


def test_a_file_is_left_to_the_server(seen: Seen, tmp_path: Any) -> None:
    """A file's response is not followed: the server may send it without Python."""
    file = tmp_path / "answer.bin"
    file.write_bytes(b"1234")
    with file.open("rb") as opened:
        response = seen.monitor(lambda: FileResponse(opened))()
        assert b"".join(response.streaming_content) == b"1234"
        response.close()
    assert seen.outcomes == {"capture_failed": 1}
    seen.pipeline.accounting.failures.clear()
