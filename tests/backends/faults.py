"""Endpoints that misbehave, for the tests of what telemetry does when nobody answers. Loopback only."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["BlackHole", "black_hole", "free_ports", "refused_port"]

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """That many different ports that were free a moment ago; whoever listens first has them."""
    held = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    try:
        return [server.getsockname()[1] for server in held]
    finally:
        for server in held:
            server.close()


class BlackHole:
    """A listener whose connections are made and then get no byte back, however long the other side waits."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._taken: list[socket.socket] = []
        self.port: int = server.getsockname()[1]
        self.endpoint = f"http://{LOOPBACK}:{self.port}"

    def __repr__(self) -> str:
        return f"BlackHole(port={self.port}, taken={len(self._taken)})"

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
