"""The endpoints that misbehave do so in the way they promise."""

from __future__ import annotations

import socket

import pytest

from .faults import LOOPBACK, black_hole, free_ports, refused_port


def test_a_black_hole_takes_connections_and_never_answers() -> None:
    """A client connects and sends, the listener tells of it, and no byte ever comes back."""
    with black_hole() as hole, socket.create_connection((LOOPBACK, hole.port), timeout=5) as client:
        client.sendall(b"hello")
        assert hole.wait_for_connection(timeout_s=5)
        assert not hole.wait_for_connection(timeout_s=0.01)
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)
    assert "taken=1" in repr(hole)


def test_a_refused_port_refuses() -> None:
    """Connecting fails at once for as long as the block lasts."""
    with refused_port() as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port), timeout=5)


def test_free_ports_are_different() -> None:
    """Ports asked for together are never the same."""
    assert len(set(free_ports(8))) == 8
