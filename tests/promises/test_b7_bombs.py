"""B7: a request that means to fill the sidecar's memory is refused, and the next client notices
nothing.
"""

from __future__ import annotations

import gzip
import os
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from tests.promises.figures import Recorder, sized
from tests.promises.served import Served, new_trace_id, trace_request
from tests.promises.sidecars import MIB, answer

LIMIT = 16 * MIB
"""The default of `max_request_bytes`."""
MOST = 96 * MIB
"""Six times the limit: a body, its messages, and four times its bytes as text."""
CGROUP = 256 * MIB
BOMB = sized(128, 1024) * MIB
JSON = {"Content_Type": "application/json"}
GZIP = {"Content_Encoding": "gzip"}


def gzipped(size_bytes: int, block: bytes = b"\0" * MIB, window: int = 31) -> bytes:
    """A gzip stream of blocks, made without having them; with the window 15 one of deflate."""
    packer = zlib.compressobj(9, zlib.DEFLATED, window)
    return (
        b"".join(packer.compress(block) for _ in range(size_bytes // len(block))) + packer.flush()
    )


def field(number: int, data: bytes) -> bytes:
    """A field of protobuf with bytes, a text or a message."""
    length, left = bytearray(), len(data)
    while left >= 0x80:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([number << 3 | 2, *length, left]) + data


def of_spans(spans: bytes) -> bytes:
    return field(1, field(2, spans))


EMOJI = "\U0001f600".encode()
ATTRIBUTE = field(9, field(1, b"a") + field(2, field(1, b"b")))


def nested_value(depth: int, container: int) -> bytes:
    """An attribute whose value is a list in a list in a list."""
    value = b""
    for _ in range(depth):
        value = field(container, field(1, value))
    return of_spans(field(2, field(9, field(1, b"a") + field(2, value))))


class Bomb(NamedTuple):
    body: Callable[[], bytes]
    headers: dict[str, str] = {}
    statuses: tuple[int, ...] = (400, 413)


PROTOBUF = {
    "a million empty spans": Bomb(lambda: of_spans(b"\x12\x00" * 1_000_000)),
    "a million resources": Bomb(lambda: b"\x0a\x00" * 1_000_000),
    "a million attributes": Bomb(lambda: of_spans(field(2, ATTRIBUTE * 1_000_000))),
    "an array of seven million": Bomb(
        lambda: of_spans(
            field(2, field(9, field(1, b"a") + field(2, field(5, b"\x0a\x00" * 7_000_000))))
        )
    ),
    "nested lists": Bomb(lambda: nested_value(10_000, 5)),
    "eight million unknown fields": Bomb(lambda: b"\x78\x01" * 8_000_000),
    # What follows the group would look like one unknown field to a reader that does not know
    # groups.
    "messages behind a group": Bomb(
        lambda: bytes.fromhex("7b08010a057a80dac4097c") + b"\x0a\x00" * 7_000_000
    ),
    # Each text takes four times its bytes, and a mapping takes more than its texts.
    "a hundred thousand attributes with an emoji": Bomb(
        lambda: of_spans(
            field(2, field(9, field(1, b"a") + field(2, field(1, b"b" * 100 + EMOJI))) * 100_000)
        )
    ),
    "zeros": Bomb(lambda: b"\0" * (LIMIT - 1)),
    "no protobuf": Bomb(lambda: b"\xff" * 100_000),
    "more than the limit": Bomb(lambda: field(1, b"x" * LIMIT)),
}
HTTP = PROTOBUF | {
    "gzip": Bomb(lambda: gzipped(BOMB), GZIP),
    "gzip in JSON": Bomb(lambda: gzipped(BOMB, b"[" * MIB), GZIP | JSON),
    "gzip in gzip": Bomb(lambda: gzip.compress(gzipped(BOMB)), GZIP),
    "gzip twice by name": Bomb(
        lambda: gzip.compress(gzipped(BOMB)), {"Content_Encoding": "gzip, gzip"}, (415,)
    ),
    "gzip cut off": Bomb(lambda: gzipped(MIB)[:-4], GZIP),
    "no gzip": Bomb(lambda: b"x" * 1000, GZIP),
    "deflate": Bomb(lambda: gzipped(BOMB, window=15), {"Content_Encoding": "deflate"}),
    "deflate without its header": Bomb(
        lambda: gzipped(MIB, window=-15), {"Content_Encoding": "deflate"}
    ),
    "zstd": Bomb(lambda: b"\x28\xb5\x2f\xfd" * 1000, {"Content_Encoding": "zstd"}, (415,)),
    "gzipped spans": Bomb(lambda: gzip.compress(of_spans(b"\x12\x00" * 8_000_000), 1), GZIP),
    "deep JSON": Bomb(lambda: b"[" * 100_000, JSON),
    "deep JSON value": Bomb(lambda: deep_json(100_000), JSON),
    "JSON of a million objects": Bomb(
        lambda: b'{"resourceSpans":[' + b"{}," * 1_000_000 + b"{}]}", JSON
    ),
    "JSON of a million keys": Bomb(
        lambda: b"{" + b",".join(b'"%d":1' % number for number in range(1_000_000)) + b"}", JSON
    ),
    "JSON of ten million numbers": Bomb(
        lambda: b'{"resourceSpans":[' + b"1," * 10_000_000 + b"1]}", JSON
    ),
    "a long number in JSON": Bomb(lambda: b'{"resourceSpans":' + b"9" * 1_000_000 + b"}", JSON),
}


def deep_json(depth: int) -> bytes:
    value = b'{"arrayValue":{"values":[' * depth + b"]}}" * depth
    spans = b'[{"attributes":[{"key":"a","value":' + value + b"}]}]"
    return b'{"resourceSpans":[{"scopeSpans":[{"spans":' + spans + b"}]}]}"


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Callable[[int], None] | None]:
    """How a process joins a group with so much memory; None where this machine makes none for us."""
    for root, name in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        folder = root / f"agenteval-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if not (folder / name).exists():
                continue
            (folder / name).write_text(str(limit_bytes))
            yield lambda pid, procs=folder / "cgroup.procs": procs.write_text(str(pid)) and None  # type: ignore[misc]
            return
        except OSError:
            continue
        finally:
            folder.rmdir()
    yield None


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, bool]]:
    """A sidecar with the default limits, in a group of 256 MB where the system allows that."""
    with memory_cgroup(CGROUP) as join:
        with Served(tmp_path_factory.mktemp("b7"), in_cgroup=join) as served:
            answer(served)
            assert served.export(trace_request(new_trace_id()))[0] == grpc.StatusCode.OK
            yield served, join is not None
            assert "Traceback" not in served.told, served.told
        served.process.wait()


class Watched:
    """What a bomb took: seconds, and memory beyond what was taken before."""

    def __init__(self, served: Served) -> None:
        self._served = served
        served.forget_most()
        self._before, self._began = served.rss_bytes, time.monotonic()

    def ends(self, name: str, promise: Recorder, grouped: bool) -> None:
        took_s = time.monotonic() - self._began
        began = time.monotonic()
        answer(self._served)
        next_ms = (time.monotonic() - began) * 1000
        grown = self._served.most_rss_bytes - self._before
        where = ", under 256 MB" if grouped else ""
        promise(
            "B7",
            figure=f"refused in {took_s:.2f} s, memory +{grown / MIB:.0f} MB{where}, next in {next_ms:.0f} ms",
        )
        assert grown <= MOST, name


@pytest.mark.parametrize("name", HTTP)
def test_a_bomb_over_http_is_refused(
    name: str, sidecar: tuple[Served, bool], promise: Recorder
) -> None:
    """With 413 or 400, or 415 for an encoding that is not supported; memory stays within six times
    the limit.
    """
    served, grouped = sidecar
    bomb = HTTP[name]
    body = bomb.body()
    watched = Watched(served)
    assert served.post(body, **bomb.headers).status in bomb.statuses
    watched.ends(name, promise, grouped)


COMPRESSION = {"plain": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip}
# Of a large message that is not compressed gRPC itself keeps three copies.
LARGE = (
    "an array of seven million",
    "eight million unknown fields",
    "zeros",
    "more than the limit",
)
OVER_GRPC = [
    (name, how)
    for name in (*PROTOBUF, "gzip in gzip")
    for how in COMPRESSION
    if (name, how) not in {(large, "plain") for large in LARGE}
]


@pytest.mark.parametrize(("name", "compression"), OVER_GRPC)
def test_a_bomb_over_grpc_is_refused(
    name: str, compression: str, sidecar: tuple[Served, bool], promise: Recorder
) -> None:
    """Its limit holds for what is decompressed: RESOURCE_EXHAUSTED without `RetryInfo`, or
    INVALID_ARGUMENT.
    """
    served, grouped = sidecar
    body = HTTP[name].body()
    watched = Watched(served)
    code, error = served.export(body, compression=COMPRESSION[compression])
    assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
    assert "grpc-status-details-bin" not in dict(error.trailing_metadata())
    watched.ends(name, promise, grouped)


def test_what_was_refused_is_not_kept(sidecar: tuple[Served, bool], promise: Recorder) -> None:
    """Large requests in a row, over either protocol, take no more memory than one of them."""
    served, grouped = sidecar
    body = HTTP["zeros"].body()
    watched = Watched(served)
    for _ in range(sized(2, 10)):
        assert served.post(gzip.compress(body, 1), **GZIP).status == 413
        assert (
            served.export(body, compression=grpc.Compression.Gzip)[0]
            == grpc.StatusCode.RESOURCE_EXHAUSTED
        )
    watched.ends("zeros", promise, grouped)


HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
WRONG = {
    "longer than what comes": (b"Content-Length: 100\r\n\r\nabc", (b"400", b"408", b"")),
    "shorter than what comes": (b"Content-Length: 0\r\n\r\n" + b"x" * 1000, (b"200",)),
    "above the limit": (b"Content-Length: 99999999999\r\n\r\n", (b"413",)),
    "of five thousand digits": (
        b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        (b"400", b"413", b""),
    ),
    "negative": (b"Content-Length: -1\r\n\r\n", (b"400",)),
    "no number": (b"Content-Length: many\r\n\r\n", (b"400",)),
    "twice": (b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", (b"400",)),
    "beside chunks": (
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        (b"200", b"400"),
    ),
    "a chunk of wrong size": (b"Transfer-Encoding: chunked\r\n\r\nzzzz\r\n\r\n", (b"400",)),
    "a head without an end": (b"X: " + b"x" * 200_000, (b"400", b"431")),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_length_harms_nobody_else(name: str, sidecar: tuple[Served, bool]) -> None:
    """The client is answered or cut off, and the next one is served."""
    served, _ = sidecar
    rest, expected = WRONG[name]
    with socket.create_connection(("127.0.0.1", served.http_port), timeout=20) as client:
        client.sendall(HEAD + rest)
        if name == "longer than what comes":
            client.shutdown(socket.SHUT_WR)
        reply = client.makefile("rb").readline().split()
    assert (reply[1] if reply else b"") in expected
    answer(served)


def test_chunks_without_an_end_are_refused(sidecar: tuple[Served, bool], promise: Recorder) -> None:
    """The client reads 413 while it sends, instead of a reset connection."""
    served, grouped = sidecar
    watched = Watched(served)
    chunk = b"%x\r\n%s\r\n" % (MIB, b"x" * MIB)
    with socket.create_connection(("127.0.0.1", served.http_port), timeout=20) as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(sized(100, 2000)):
                client.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it went on for longer than the sidecar listens
        else:
            assert client.makefile("rb").readline().split()[1] == b"413"
    watched.ends("chunks", promise, grouped)
