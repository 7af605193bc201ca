"""Receivers that refuse everything and quote, in every place an answer has, what they were given: loopback only."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc


class Echo:
    """Where a receiver listens, and the headers and bodies that it was given."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.headers: list[dict[str, str]] = []
        self.bodies = b""

    def given(self, name: str) -> set[str]:
        return {headers[name] for headers in self.headers if name in headers}


@contextmanager
def http_echo(status: int = 401) -> Iterator[Echo]:
    """OTLP over HTTP that answers 401 unless told otherwise; reason and body quote the request's headers."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            echo.headers.append(headers)
            echo.bodies += body
            said = f"not authorized: {headers}"
            self.send_response(status, said.replace("\n", " "))
            self.send_header("content-length", str(len(said)))
            self.send_header("x-said", said)
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    echo = Echo(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield echo
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10.0)


@contextmanager
def grpc_echo() -> Iterator[Echo]:
    """OTLP over gRPC that answers UNAUTHENTICATED, its details quoting the request's metadata."""

    def refuse(request: bytes, context: Any) -> bytes:
        headers = {name: str(value) for name, value in context.invocation_metadata()}
        echo.headers.append(headers)
        echo.bodies += request
        context.abort(grpc.StatusCode.UNAUTHENTICATED, f"not authorized: {headers}")
        return b""

    class Every(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(refuse)

    with ThreadPoolExecutor(max_workers=4) as pool:
        server = grpc.server(pool, handlers=(Every(),))
        echo = Echo(server.add_insecure_port("127.0.0.1:0"))
        server.start()
        try:
            yield echo
        finally:
            server.stop(0).wait(10.0)
