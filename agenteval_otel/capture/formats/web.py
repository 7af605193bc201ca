"""Responses of web frameworks and HTTP clients.

A body is read where it is at hand, and a streamed one by its pieces.

Supports Starlette and FastAPI, Flask (Werkzeug), Django, httpx and requests, and the tuples
``(body, status)`` that Flask takes.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from agenteval_otel.capture.answers import add_answer, add_plain
from agenteval_otel.capture.classes import bases_of, module_of, name_of
from agenteval_otel.capture.events import events_in
from agenteval_otel.capture.fields import field, json_object
from agenteval_otel.capture.reading import Reading, response_format
from agenteval_otel.capture.text import to_text

# The attribute that has a response's streamed body, and the one that sets another body; None for a
# file's response.
_STREAMED: Final[dict[tuple[str, str], tuple[str, str] | None]] = {
    ("starlette", "StreamingResponse"): ("body_iterator", "body_iterator"),
    ("werkzeug", "Response"): ("response", "response"),
    ("django", "FileResponse"): None,
    ("django", "StreamingHttpResponse"): ("_iterator", "streaming_content"),
}
_MOST_FIELDS: Final = 1_000
_WHOLE: Final = (str, bytes, bytearray, list, tuple)


@response_format(
    "http",
    libraries=("httpx", "requests", "starlette", "werkzeug"),
    fields=("_container", "_content", "_status_code", "body", "status_code"),
)
def _add_http_response(reading: Reading, answer: object) -> bool:
    if isinstance(answer, tuple):
        if len(answer) not in (2, 3) or type(answer[1]) is not int or not 100 <= answer[1] <= 599:
            return False
        if not add_answer(reading, answer[0]):
            add_plain(reading, answer[0])
        return True
    if not isinstance(field(answer, "status_code"), int) and not isinstance(
        field(answer, "_status_code"), int
    ):
        return False
    body = _body_in(answer)
    if body is None:
        return False
    read = json_object(body)
    if not isinstance(read, dict) or not add_answer(reading, read):
        add_plain(reading, body if read is None else read)
    return True


def _body_in(answer: object) -> str | None:
    for name in ("body", "_content", "_container", "response"):
        body = field(answer, name)
        if isinstance(body, bytes):
            return to_text(body)
        if isinstance(body, list | tuple) and all(isinstance(piece, bytes | str) for piece in body):
            pieces = [piece if isinstance(piece, bytes) else piece.encode() for piece in body]
            return to_text(b"".join(pieces))
    return None


FORM: Final = "application/x-www-form-urlencoded"


@dataclass(slots=True, eq=False, repr=False)
class RequestBody:
    """Holds a prompt that is a request: what middleware kept of the body, and the query.

    Both are as they were sent.
    """

    body: bytes
    query: str
    content_type: str

    def read(self) -> Any:
        """Return the value of a body, or the fields of a form or (without a body) of the query.

        Background thread only.
        """
        if self.body and self.content_type != FORM:
            return body_value(self.body)
        return _fields_of(self.body.decode("utf-8", "replace") if self.body else self.query)


def body_value(body: bytes) -> Any:
    """Return the value of a body: JSON, the list of what server-sent events carry, else text."""
    text = to_text(body)
    value = json_object(text)
    if value is None:
        value = events_in(text)
    return text if value is None else value


def _fields_of(query: str) -> dict[str, str] | None:
    try:
        return dict(parse_qsl(query, max_num_fields=_MOST_FIELDS)) or None
    except ValueError:
        return None


_SOCKET_MODULES: Final = ("starlette", "fastapi", "litestar", "quart")


def sockets_among(function: object) -> list[str]:
    """Return the names of a function's parameters whose annotation is a WebSocket."""
    try:
        annotations = get_type_hints(function, include_extras=True)
    except Exception:  # a name that only type checkers know
        annotations = getattr(function, "__annotations__", {})
    return [name for name, kind in annotations.items() if name != "return" and _is_socket(kind)]


def _is_socket(annotation: object) -> bool:
    """Tell whether an annotation is a web framework's WebSocket, ``Annotated`` or in a union too."""
    if isinstance(annotation, type):
        return any(
            base.__name__ == "WebSocket" and base.__module__.partition(".")[0] in _SOCKET_MODULES
            for base in annotation.__mro__
        )
    origin = get_origin(annotation)
    if origin in (Annotated, Union, UnionType):
        return any(_is_socket(part) for part in get_args(annotation))
    return isinstance(origin, type) and _is_socket(origin)


def streamed_body(answer: object) -> tuple[str, Any] | None:
    """Return the name by which another body is set, and the pieces of the streamed body.

    Return None for every other object.
    """
    for base in bases_of(type(answer)):
        place = module_of(base).partition(".")[0], name_of(base)
        if place in _STREAMED:
            names = _STREAMED[place]
            if names is None:
                return None
            read_name, set_name = names
            pieces = getattr(answer, read_name)
            # a server may send it without Python
            is_file = getattr(answer, "direct_passthrough", False)
            if is_file or isinstance(pieces, _WHOLE):
                return None
            return set_name, pieces
    return None


def app_with(function: object, frame: FrameType | None) -> str | None:
    """Return the application that already has the function as a route, or None.

    It is looked for in the decorating code's namespace. The decorating frame is the first one
    outside this package.
    """
    package = __name__.partition(".")[0]
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame = frame.f_back
    if frame is None or not any(name in sys.modules for name in ("flask", "starlette")):
        return None
    for name, value in [*frame.f_globals.items(), *frame.f_locals.items()]:
        if type(value).__module__.partition(".")[0] in ("fastapi", "flask", "starlette"):
            routes = getattr(value, "routes", None) or ()
            known = [getattr(route, "endpoint", None) for route in routes]
            views = getattr(value, "view_functions", None)
            if isinstance(views, dict):
                known += views.values()
            if any(endpoint is function for endpoint in known):
                return f"{type(value).__name__} {name!r}"
    return None


def pieces_of(body: Iterable[Any]) -> Iterator[Any]:
    """Yield the pieces of a streamed body, which is closed with them."""
    try:
        yield from body
    finally:
        close = getattr(body, "close", None)
        if callable(close):
            close()


async def pieces_later(body: AsyncIterable[Any]) -> AsyncIterator[Any]:
    """Yield the pieces of a body that is iterated asynchronously. It is not closed here."""
    async for piece in body:
        yield piece
