"""The files of the journal: bytes of a payload are never records, whatever happened to the file."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.capture.otlp.body import LOGS, TRACES
from agenteval_otel.sidecar.segments import (
    DONE,
    Damage,
    Record,
    SegmentWriter,
    read_old_segment,
    read_segment,
)

MOST = 1_000
FUZZ = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PAYLOADS = st.lists(st.binary(max_size=120), min_size=1, max_size=5)


def old_record(kind: int, payload: bytes, number: int) -> bytes:
    """A record of the format without keys, which anybody can make."""
    checksum = zlib.crc32(payload, zlib.crc32(struct.pack(">BIQ", kind, len(payload), number)))
    return struct.pack(">4sBIQI", b"\xf7OTL", kind, len(payload), number, checksum) + payload


def segment_of(payloads: list[bytes], writer: SegmentWriter | None = None) -> bytearray:
    writer = writer or SegmentWriter()
    data = bytearray(writer.head())
    for number, payload in enumerate(payloads, 1):
        data += writer.packed(TRACES, payload, number, len(data))
    return data


def read(folder: Path, data: bytes, *, old: bool = False) -> list[Record | Damage]:
    path = folder / "segment"
    path.write_bytes(data)
    with path.open("rb") as file:
        return list((read_old_segment if old else read_segment)(file, 1, MOST))


def records(parts: list[Record | Damage]) -> list[Record]:
    return [part for part in parts if isinstance(part, Record)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def hostile(data: bytearray, writer: SegmentWriter) -> bytes:
    """A payload of whole records: of the old format, of another segment, and copies of this one."""
    forged = old_record(TRACES, b"forged", 7) + old_record(DONE, bytes(32), 7)
    other = segment_of([b"of another segment"])
    leaping = SegmentWriter().packed(TRACES, b"leaps", 2**64 - 1, len(data))
    return bytes(forged + other + leaping + data)


@FUZZ
@given(payloads=PAYLOADS, cut=st.floats(0, 1))
def test_a_cut_inside_of_a_hostile_payload_gives_none_of_its_records(
    folder: Path, payloads: list[bytes], cut: float
) -> None:
    """The records before it are read, the rest is one damaged part, and nothing is made up."""
    writer = SegmentWriter()
    data = segment_of(payloads, writer)
    before = len(data)
    payload = hostile(data, writer)
    data += writer.packed(TRACES, payload, len(payloads) + 1, len(data))
    at = before + int(cut * (len(data) - before - 1))
    parts = read(folder, bytes(data[:at]))
    assert [part.payload for part in records(parts)] == payloads
    assert parts[len(payloads) :] == ([Damage(before, at - before)] if at > before else [])


@FUZZ
@given(payloads=PAYLOADS, place=st.floats(0, 1, exclude_max=True), value=st.integers(1, 255))
def test_a_flipped_byte_costs_one_record_and_invents_none(
    folder: Path, payloads: list[bytes], place: float, value: int
) -> None:
    """Wherever it is, beside payloads that hold whole records."""
    writer = SegmentWriter()
    data = segment_of(payloads, writer)
    written = [*payloads, hostile(data, writer), b"last"]
    data = segment_of(written, writer)
    data[int(place * len(data))] ^= value
    left = [part.payload for part in records(read(folder, bytes(data)))]
    assert len(left) >= len(written) - 1
    remaining = iter(written)
    assert all(payload in remaining for payload in left)


@FUZZ
@given(
    payloads=PAYLOADS, holes=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 60)), max_size=4)
)
def test_holes_and_noise_invent_nothing(
    folder: Path, payloads: list[bytes], holes: list[tuple[float, int]]
) -> None:
    """Zeros where a disk lost something: what is read was written, in its order."""
    data = segment_of([*payloads, hostile(bytearray(b"x"), SegmentWriter())])
    for place, size in holes:
        at = int(place * len(data))
        data[at : at + size] = bytes(len(data[at : at + size]))
    parts = read(folder, bytes(data))
    numbers = [part.number for part in records(parts)]
    assert numbers == sorted(set(numbers))
    assert all(
        part.payload == payloads[part.number - 1]
        for part in records(parts)
        if part.number <= len(payloads)
    )
    assert all(part.number <= len(payloads) + 1 for part in records(parts))


@FUZZ
@given(noise=st.binary(max_size=400))
def test_noise_is_damage(folder: Path, noise: bytes) -> None:
    """A file of anything gives no record, in either format, and its bytes are accounted for."""
    for old in (False, True):
        parts = read(folder, noise, old=old)
        assert records(parts) == []
        assert sum(part.size_bytes for part in parts if isinstance(part, Damage)) == len(noise)


def test_a_record_holds_at_one_place_of_one_segment(folder: Path) -> None:
    """Copied behind the end it is not read, nor with a number that leaps."""
    writer = SegmentWriter()
    data = segment_of([b"one", b"two"], writer)
    whole = bytes(data)
    copied = whole + whole[-60:]
    assert [part.payload for part in records(read(folder, copied))] == [b"one", b"two"]
    for number in (MOST + 1, 2**64 - 1, 1):
        again = whole + writer.packed(TRACES, b"x", number, len(whole))
        assert [part.number for part in records(read(folder, again))] == [1, 2]


def test_one_copy_of_the_head_is_enough(folder: Path) -> None:
    """The first may be lost whole, as with the start of a block; without both nothing is read."""
    data = segment_of([b"one"])
    half = len(SegmentWriter().head()) // 2
    first_lost = bytes(half) + bytes(data[half:])
    assert [part.payload for part in records(read(folder, first_lost))] == [b"one"]
    both_lost = bytes(2 * half) + bytes(data[2 * half :])
    assert read(folder, both_lost) == [Damage(0, len(data))]


def test_the_old_format_is_read_whole(folder: Path) -> None:
    """Requests and notes as earlier versions wrote them."""
    data = old_record(TRACES, b"one", 1) + old_record(DONE, b"", 1) + old_record(LOGS, b"two", 2)
    assert read(folder, data, old=True) == [
        Record(1, TRACES, b"one"),
        Record(1, DONE, b""),
        Record(2, LOGS, b"two"),
    ]


@pytest.mark.parametrize("cut", [1, 30, 55])
def test_the_old_format_believes_lengths(folder: Path, cut: int) -> None:
    """After a cut-off write no record inside of the payload is read."""
    inside = old_record(TRACES, b"forged", 2) + old_record(TRACES, b"forged too", 3)
    data = old_record(TRACES, b"one", 1) + old_record(TRACES, inside, 2)
    parts = read(folder, data[:-cut], old=True)
    assert records(parts) == [Record(1, TRACES, b"one")]


def test_the_old_format_skips_one_damaged_record(folder: Path) -> None:
    """Where a whole record with the next number follows; a length that leads elsewhere ends it."""
    parts = [old_record(TRACES, bytes([number]) * 40, number) for number in range(1, 5)]
    damaged = bytearray(b"".join(parts))
    damaged[len(parts[0]) + 30] ^= 1
    assert [part.number for part in records(read(folder, bytes(damaged), old=True))] == [1, 3, 4]
    damaged = bytearray(b"".join(parts))
    damaged[len(parts[0]) + 8] ^= 1  # of the length
    assert [part.number for part in records(read(folder, bytes(damaged), old=True))] == [1]
