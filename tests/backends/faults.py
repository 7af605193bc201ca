"""Endpoints that misbehave, for the tests of what telemetry does when nobody answers. Loopback
only.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"
_PORTS = (10_000, 32_000)


def free_ports(count: int) -> list[int]:
    """That many different ports that were free a moment ago; whoever listens first has them.

    Below those that the system gives to clients: a connection of another test would take one before
    its server starts.
    """
    stack: list[socket.socket] = []
    try:
        while len(stack) < count:
            with contextlib.suppress(OSError):
                stack.append(
                    socket.create_server((LOOPBACK, random.SystemRandom().randrange(*_PORTS)))
                )
        return [server.getsockname()[1] for server in stack]
    finally:
        for server in stack:
            server.close()


class BlackHole:
    """A listener whose connections are made and then get no byte back, however long the other side
    waits.
    """

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._taken: list[socket.socket] = []
        self.port: int = server.getsockname()[1]
        self.endpoint = f"http://{LOOPBACK}:{self.port}"

    def wait_for_connection(self, timeout_s: float) -> bool:
        """Whether somebody has connected, or does so within the time; each call tells of one more
        connection.
        """
        self._server.settimeout(timeout_s)
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            return False
        self._taken.append(connection)
        return True

    def close(self) -> None:
        """Lets everybody go: waiting peers see their connection reset."""
        for connection in self._taken:
            connection.close()
        self._server.close()


@contextmanager
def black_hole() -> Iterator[BlackHole]:
    """A listener that accepts and never answers, until the block ends."""
    hole = BlackHole(socket.create_server((LOOPBACK, 0), backlog=128))
    try:
        yield hole
    finally:
        hole.close()


@contextmanager
def refused_port() -> Iterator[int]:
    """A port that refuses connections until the block ends: it is held, but nobody listens on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.bind((LOOPBACK, 0))
        yield holder.getsockname()[1]


class PostHandler(BaseHTTPRequestHandler):
    """Reads a POST and answers it; writes no log lines."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(
        self,
        status: int = 200,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        reason: str | None = None,
    ) -> None:
        self.send_response(status, reason)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the test says what came."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """An HTTP server on loopback, until the block ends; gives its port."""
    server = ThreadingHTTPServer((LOOPBACK, 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def grpc_server(answer: Callable[[str, bytes, Any], bytes], port: int = 0) -> Iterator[int]:
    """A gRPC server on loopback that answers every method, given its name, request and context;
    gives its port.
    """
    import grpc

    class Every(grpc.GenericRpcHandler):
        def service(self, call: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(partial(answer, call.method))

    server = grpc.server(
        ThreadPoolExecutor(4), handlers=(Every(),), options=[("grpc.so_reuseport", 0)]
    )
    port = server.add_insecure_port(f"{LOOPBACK}:{port}")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait(5.0)
