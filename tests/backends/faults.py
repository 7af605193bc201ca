"""Endpoints that misbehave, for the tests of what telemetry does when nobody answers. Loopback only."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """That many different ports that were free a moment ago; whoever listens first has them."""
    stack = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    try:
        return [server.getsockname()[1] for server in stack]
    finally:
        for server in stack:
            server.close()


class BlackHole:
    """A listener whose connections are made and then get no byte back, however long the other side waits."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._taken: list[socket.socket] = []
        self.port: int = server.getsockname()[1]
        self.endpoint = f"http://{LOOPBACK}:{self.port}"

    def wait_for_connection(self, timeout_s: float) -> bool:
        """Whether somebody has connected, or does so within the time; each call tells of one more connection."""
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
    """A listener that accepts and never answers, until the block ends.

    It needs no thread: the operating system completes each connection from the backlog and buffers what is sent.
    """
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


class Answering:
    """An HTTP endpoint that answers every POST with one status, after a while.

    Attributes:
        status: What it answers; may be changed while it runs.
        delay_s: How long an answer takes.
        taken: How many posts it answered, by status.
    """

    def __init__(self, status: int, delay_s: float) -> None:
        self.status = status
        self.delay_s = delay_s
        self.taken: dict[int, int] = {}
        self.server = ThreadingHTTPServer((LOOPBACK, 0), _handler(self))
        self.server.daemon_threads = True
        self.endpoint = f"http://{LOOPBACK}:{self.server.server_port}"


@contextmanager
def answering(status: int, *, delay_s: float = 0.0) -> Iterator[Answering]:
    """An endpoint that refuses, is slow or takes everything, until the block ends."""
    made = Answering(status, delay_s)
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


def _handler(endpoint: Answering) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(endpoint.delay_s)
            status = endpoint.status
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            endpoint.taken[status] = endpoint.taken.get(status, 0) + 1

        def log_message(self, format: str, *args: Any) -> None:
            """Silent: the test says what came."""

    return Handler
