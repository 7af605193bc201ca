"""B8: clients that send or read slowly, or not at all, are cut off, and others beside them are
served as if alone.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from tests.promises.figures import Recorder
from tests.promises.served import TRACES, Served, new_trace_id, percentile, trace_request
from tests.promises.sidecars import answer, end

CLOSED_WITHIN_S = 10.0
LIMIT_S = 90.0
EVERY_S = 0.5
HTTP_HEAD = (
    b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"  # and empty SETTINGS


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def header(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


CALL = b"".join(
    (
        header(b":method", b"POST"),
        header(b":scheme", b"http"),
        header(b":path", TRACES.encode()),
        header(b":authority", b"a"),
        header(b"te", b"trailers"),
        header(b"content-type", b"application/grpc"),
    )
)


def ends_call(data: bytes) -> bool:
    """Whether a connection has ended, or HTTP/2 has ended the call on it: HEADERS with END_STREAM
    on stream 1.
    """
    at = 0
    while at + 9 <= len(data) and not data.startswith(b"HTTP/1.1"):
        if data[at + 3] == 1 and data[at + 4] & 1 and data[at + 5 : at + 9] == b"\0\0\0\x01":
            return True
        at += 9 + int.from_bytes(data[at : at + 3])
    return not data


class Slow(NamedTuple):
    """A kind of slow client: how many, what each sends at once, and what after that, byte by byte."""

    count: int
    at_once: bytes
    trickle: bytes = b""


TO_HTTP = {
    "half-open": Slow(250, b""),
    "trickling heads": Slow(100, b"POST /v1/traces HTTP/1.1\r\n", b"X-A: b\r\n" * 100),
    "trickling bodies": Slow(100, HTTP_HEAD + b"Content-Length: 1000\r\n\r\n", b"x" * 1000),
    "trickling chunks": Slow(
        20, HTTP_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 200
    ),
    "trickling after a reply": Slow(
        20, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nG", b"ET /healthz HTTP/1.1\r\n"
    ),
    "replies that are not read": Slow(2, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 50_000),
}
TO_GRPC = {
    "half-open": Slow(250, b""),
    "trickling prefaces": Slow(50, PREFACE[:3], PREFACE[3:]),
    "trickling heads": Slow(50, PREFACE + frame(1, 4, 1, CALL)[:20], frame(1, 4, 1, CALL)[20:]),
    "no call": Slow(50, PREFACE),
    "trickling bodies": Slow(
        100,
        PREFACE + frame(1, 4, 1, CALL) + frame(0, 0, 1, b"\0\0\0\x10\0"),
        frame(0, 0, 1, b"x") * 500,
    ),
}


class SlowClients:
    """Connections of all kinds to one port, fed by one thread; `closed` says when each was cut off."""

    def __init__(self, port: int, kinds: dict[str, Slow]) -> None:
        self._kinds, self._began = kinds, time.monotonic()
        self._stop = threading.Event()
        self.closed: dict[str, list[float]] = {name: [] for name in kinds}
        self._open: dict[socket.socket, tuple[str, bytes]] = {}
        for name, slow in kinds.items():
            for _ in range(slow.count):
                client = socket.create_connection(("127.0.0.1", port), timeout=10)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                self._open[client] = name, slow.at_once + slow.trickle
                self._send(client, len(slow.at_once))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def left(self) -> dict[str, int]:
        names = [name for name, _ in list(self._open.values())]
        return {name: names.count(name) for name in set(names)}

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for client in self._open:
            client.close()

    def _send(self, client: socket.socket, count: int) -> None:
        name, waiting = self._open[client]
        try:
            with contextlib.suppress(BlockingIOError):
                sent = client.send(waiting[:count])
                self._open[client] = name, waiting[sent:]
        except OSError:
            self._end(client)

    def _end(self, client: socket.socket) -> None:
        name, _ = self._open.pop(client)
        self.closed[name].append(time.monotonic() - self._began)
        client.close()

    def _run(self) -> None:
        due = time.monotonic()
        while self._open and not self._stop.is_set():
            poll = select.poll()
            by_number = {client.fileno(): client for client in self._open}
            for client, (name, _) in self._open.items():
                # One that does not read sees only that it was cut off.
                poll.register(
                    client, select.POLLHUP if name == "replies that are not read" else select.POLLIN
                )
            for number, events in poll.poll(50):
                self._look(by_number[number], events)
            if time.monotonic() >= due:
                due = time.monotonic() + EVERY_S
                for client in list(self._open):
                    self._send(client, 1 if self._kinds[self._open[client][0]].trickle else 65_536)

    def _look(self, client: socket.socket, events: int) -> None:
        try:
            if events & (select.POLLHUP | select.POLLERR) or ends_call(client.recv(65_536)):
                self._end(client)
        except BlockingIOError:
            return
        except OSError:
            self._end(client)


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many connections as the system lets a process have."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))


@pytest.mark.parametrize("protocol", ["HTTP", "gRPC"])
def test_a_legal_client_beside_slow_ones(
    protocol: str, tmp_path: Path, promise: Recorder, many_files: None
) -> None:
    """It is answered while hundreds of others are slow; each of these is cut off, and costs no
    memory that counts.
    """
    with Served(tmp_path) as served, served.channel() as export:
        calls: dict[str, Callable[[], object]] = {
            "HTTP": lambda: answer(served),
            "gRPC": lambda: export(trace_request(new_trace_id()), timeout=10),
        }
        for call in calls.values():
            call()
        before = served.rss_bytes
        port, kinds = (
            (served.http_port, TO_HTTP) if protocol == "HTTP" else (served.grpc_port, TO_GRPC)
        )
        clients = SlowClients(port, kinds)
        count = sum(slow.count for slow in kinds.values())
        took: list[float] = []
        try:
            began = time.monotonic()
            while clients.left and time.monotonic() - began < LIMIT_S:
                for call in calls.values():
                    at = time.monotonic()
                    call()
                    took.append(time.monotonic() - at)
            left = clients.left
        finally:
            clients.close()
        read_s = max(clients.closed.pop("replies that are not read", []), default=0.0)
        last = {name: max(seconds, default=0.0) for name, seconds in clients.closed.items()}
        grown = (served.most_rss_bytes - before) / 2**20
        promise(
            "B8",
            figure=(
                f"beside {count} slow clients over {protocol}: legal p99 {percentile(took, 0.99) * 1000:.0f} ms, "
                f"the last slow one closed after {max(last.values()):.1f} s, memory +{grown:.0f} MB"
                + (f"; of 50,000 replies not read after {read_s:.1f} s" if read_s else "")
            ),
        )
        assert left == {}, last
        assert grown <= 64
        end(served)


def test_a_client_that_leaves_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    """A thousand broken uploads leave no connection, no task and no memory behind."""
    with Served(tmp_path) as served:
        answer(served)
        folder = Path(f"/proc/{served.process.pid}/fd")
        before = len(list(folder.iterdir()))
        for _ in range(500):
            for port, data in (
                (served.http_port, HTTP_HEAD + b"Content-Length: 1000000\r\n\r\n" + b"x" * 50_000),
                (
                    served.grpc_port,
                    PREFACE + frame(1, 4, 1, CALL) + frame(0, 0, 1, b"\0\0\0\x10\0x"),
                ),
            ):
                with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                    client.sendall(data)
        served.wait_for(lambda: len(list(folder.iterdir())) <= before + 2, "closed connections")
        answer(served)
        assert served.export(trace_request(new_trace_id()))[0] == grpc.StatusCode.OK
        assert "Traceback" not in served.told, served.told
