"""Middleware for WSGI applications: Flask, Django and others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from agenteval_otel.instrumentation.exchange import Exchange, Middleware

__all__ = ["AgentEvalMiddleware"]


class AgentEvalMiddleware(Middleware):
    """Evaluates a sample of the responses of some routes in the background.

    See `Middleware` for the arguments.

    ``app.wsgi_app = AgentEvalMiddleware(app.wsgi_app, routes=["/chat"])``, or around any WSGI
    application. Every piece of a body passes at once and unchanged. A response counts when its body
    has ended. A response whose body the server closes before is abandoned.
    """

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        if not path.isascii():  # the bytes of a path stand as if they were Latin-1
            path = path.encode("latin-1", "replace").decode("utf-8", "replace")
        exchange, reference = self.begin(
            method, path, environ.get("QUERY_STRING", ""), _request_headers(environ)
        )
        if reference is not None:
            start_response = self._with_header(start_response, reference)
        if exchange is None:
            body: Iterable[bytes] = self.app(environ, start_response)
            return body
        if exchange.wanted:
            environ["wsgi.input"] = _Input(environ.get("wsgi.input"), exchange)

        def start(
            status: str, headers: list[tuple[str, str]], *exc_info: Any
        ) -> Callable[[bytes], object]:
            write = start_response(status, headers, *exc_info)
            code = int(status[:3]) if status[:3].isdecimal() else 0
            exchange.begin_response(code, ((name.lower(), value) for name, value in headers))
            return _writer(write, exchange)

        exchange.open()
        try:
            body = self.app(environ, start)
        except BaseException as error:
            exchange.end("error", error)
            raise
        finally:
            exchange.close()
        wrapper = environ.get("wsgi.file_wrapper")
        if isinstance(wrapper, type) and isinstance(body, wrapper):
            exchange.end(unread="the server sends it from a file")
        elif isinstance(body, list | tuple):
            for piece in body:
                exchange.add(piece)
            exchange.end()
        else:
            return _Pieces(body, exchange)
        return body

    def _with_header(self, start_response: StartResponse, reference: str) -> StartResponse:
        def start(
            status: str, headers: list[tuple[str, str]], *exc_info: Any
        ) -> Callable[[bytes], object]:
            return start_response(
                status, [*headers, (str(self.reference_header), reference)], *exc_info
            )

        return start


class _Pieces:
    """Passes a response's body to the server, which reads it piece by piece."""

    def __init__(self, body: Iterable[bytes], exchange: Exchange) -> None:
        self._body = body
        self._exchange = exchange
        self._pieces: Iterator[bytes] | None = None

    def __iter__(self) -> _Pieces:
        return self

    def __next__(self) -> bytes:
        exchange = self._exchange
        exchange.open()  # a generator's code runs now
        try:
            if self._pieces is None:
                self._pieces = iter(self._body)
            piece = next(self._pieces)
        except StopIteration:
            exchange.end()
            raise
        except BaseException as error:
            exchange.end("error", error)
            raise
        finally:
            exchange.close()
        exchange.add(piece)
        return piece

    def close(self) -> None:
        """Close the body. The server does so in the end, whether it has read everything or not."""
        try:
            close = getattr(self._body, "close", None)
            if callable(close):
                close()
        finally:
            self._exchange.end("abandoned")

    def __del__(self) -> None:
        self._exchange.end("abandoned")  # a server that forgot to close it


class _Input:
    """Passes a request's body to the application, and keeps what it reads."""

    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._keep = exchange.request.add

    def __getattr__(self, name: str) -> Any:
        read = getattr(self._stream, name)  # AttributeError where the server's own has none
        if name not in ("read", "read1", "readline", "readlines", "readinto"):
            return read

        def kept(*arguments: Any) -> Any:
            data = read(*arguments)
            if name == "readlines":
                for line in data:
                    self._keep(line)
            elif name == "readinto":
                # `data` is the number of bytes that were read.
                buffer = memoryview(arguments[0]).cast("B")
                self._keep(buffer[: data or 0])
            else:
                self._keep(data)
            return data

        return kept

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            self._keep(line)
            yield line


def _request_headers(environ: WSGIEnvironment) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-").lower(), value
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            yield name.replace("_", "-").lower(), value


def _writer(write: Callable[[bytes], object], exchange: Exchange) -> Callable[[bytes], object]:
    def kept(piece: bytes) -> object:
        result = write(piece)
        exchange.add(piece)
        return result

    return kept
