"""The files of the journal: how records are written into a segment, and read from it after a crash.

A payload comes from outside, and may hold any bytes, whole records of a journal among them. So a
segment begins with a random key that never leaves the folder. Each header has a mark that is
derived from the key, and a checksum that is keyed with it: bytes of a payload are never taken for a
header. Where a header is sound its length is believed, whatever happened to the payload.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import BinaryIO, Final, NamedTuple

from agenteval_otel.capture.otlp.body import LOGS, TRACES

DONE: Final = 3
"""The kind of records that note what is done, beside those of requests."""
_KINDS: Final = frozenset({TRACES, LOGS, DONE})

_MAGIC: Final = b"agenteval journal 2\n"
_KEY_BYTES: Final = 16
# written twice, so that a damaged byte does not cost the whole segment
_HEAD: Final = struct.Struct(f">{len(_MAGIC)}s{_KEY_BYTES}sI")
_HEADS_BYTES: Final = 2 * _HEAD.size
# mark, kind, length, number, checksum of the payload; behind it the checksum of the header
_FIELDS: Final = struct.Struct(">8sBIQI")
_HEADER_CHECK_BYTES: Final = 8
_HEADER_BYTES: Final = _FIELDS.size + _HEADER_CHECK_BYTES
_PLACE: Final = struct.Struct(">Q")
_PIECE_BYTES: Final = 1024 * 1024
OVERHEAD_BYTES: Final = _HEADS_BYTES + _HEADER_BYTES
"""What a request takes at most beside its bytes."""

_OLD_MARK: Final = b"\xf7OTL"
_OLD_HEADER: Final = struct.Struct(">4sBIQI")
_OLD_CHECKED: Final = struct.Struct(">BIQ")


class Record(NamedTuple):
    """A request or a note that was read whole."""

    number: int
    kind: int
    payload: bytes


class Damage(NamedTuple):
    """A part of a segment that cannot be read: where it begins, and its size."""

    at: int
    size_bytes: int


class _Header(NamedTuple):
    """What the header of a record says. `checksum` is that of the payload."""

    kind: int
    length: int
    number: int
    checksum: int


class SegmentWriter:
    """Packs the records of one segment, which has a key of its own."""

    def __init__(self) -> None:
        self._key = os.urandom(_KEY_BYTES)
        self._mark = _mark_of(self._key)

    def head(self) -> bytes:
        """Return what the segment begins with."""
        fields = _MAGIC + self._key
        return 2 * (fields + zlib.crc32(fields).to_bytes(4))

    def packed(self, kind: int, payload: bytes, number: int, at: int) -> bytes:
        """Return a record for this place of the segment."""
        fields = _FIELDS.pack(self._mark, kind, len(payload), number, zlib.crc32(payload))
        return fields + _header_check(self._key, fields, at) + payload


def read_segment(file: BinaryIO, first: int, most: int) -> Iterator[Record | Damage]:
    """Yield the records of a segment, and its damaged parts, in their order. Raises nothing.

    Args:
        file: The segment.
        first: The number of its first request.
        most: The highest number that one of its records may have.
    """
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size
    if not size:
        return
    key = _key_of(descriptor)
    if key is None:
        yield Damage(0, size)
        return
    at = _HEADS_BYTES
    newest = first - 1
    while at < size:
        header = _sound_header(descriptor, key, at)
        if header is None or not newest <= header.number <= most:
            end = _next_header(descriptor, key, at + 1, size)
            yield Damage(at, end - at)
            at = end
            continue
        kind, length, number, checksum = header
        end = at + _HEADER_BYTES + length
        payload = _read(descriptor, at + _HEADER_BYTES, length) if end <= size else b""
        if len(payload) == length and zlib.crc32(payload) == checksum:
            newest = number
            yield Record(number, kind, payload)
        else:
            # The header is sound, so its length is: what lies inside is never read as records.
            end = min(end, size)
            yield Damage(at, end - at)
        at = end


def read_old_segment(file: BinaryIO, first: int, most: int) -> Iterator[Record | Damage]:
    """Yield the records of a segment of the format without keys, which earlier versions wrote.

    Its headers cannot be checked by themselves. So a damaged record is skipped by its length only
    where a whole record with the next number follows. Otherwise nothing behind it is read.
    """
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size
    at = 0
    newest = first - 1
    while at < size:
        record, end = _old_record(descriptor, at, newest, most)
        if record is None and end < size:
            # The damaged record may be a request, which had a number of its own.
            behind, _ = _old_record(descriptor, end, newest, min(most, newest + 2))
            if behind is None:
                end = size
        if record is None:
            yield Damage(at, min(end, size) - at)
        else:
            newest = record.number
            yield record
        at = end


def _old_record(descriptor: int, at: int, newest: int, most: int) -> tuple[Record | None, int]:
    """Return the record at a place, None without a whole one, and where the next one would begin."""
    end = at + _OLD_HEADER.size
    header = _read(descriptor, at, _OLD_HEADER.size)
    if len(header) < _OLD_HEADER.size:
        return None, end
    mark, kind, length, number, checksum = _OLD_HEADER.unpack(header)
    end += length
    if mark != _OLD_MARK or kind not in _KINDS or not newest <= number <= most:
        return None, end
    payload = _read(descriptor, at + _OLD_HEADER.size, length)
    if len(payload) < length:
        return None, end
    if zlib.crc32(payload, zlib.crc32(_OLD_CHECKED.pack(kind, length, number))) != checksum:
        return None, end
    return Record(number, kind, payload), end


def _mark_of(key: bytes) -> bytes:
    return blake2b(b"mark", key=key, digest_size=8).digest()


def _header_check(key: bytes, fields: bytes, at: int) -> bytes:
    """Return the keyed checksum of a header, which holds at one place of one segment alone."""
    return blake2b(fields + _PLACE.pack(at), key=key, digest_size=_HEADER_CHECK_BYTES).digest()


def _key_of(descriptor: int) -> bytes | None:
    """Return the key of a segment from one of the two copies, None where both are damaged."""
    for at in (0, _HEAD.size):
        head = _read(descriptor, at, _HEAD.size)
        if len(head) < _HEAD.size:
            continue
        magic, key, checksum = _HEAD.unpack(head)
        if magic == _MAGIC and zlib.crc32(magic + key) == checksum:
            return bytes(key)
    return None


def _sound_header(descriptor: int, key: bytes, at: int) -> _Header | None:
    """Return the header at a place, or None if there is no sound one."""
    header = _read(descriptor, at, _HEADER_BYTES)
    fields = header[: _FIELDS.size]
    if len(header) < _HEADER_BYTES or header[_FIELDS.size :] != _header_check(key, fields, at):
        return None
    _mark, kind, length, number, checksum = _FIELDS.unpack(fields)
    if kind not in _KINDS:
        return None
    return _Header(kind, length, number, checksum)


def _next_header(descriptor: int, key: bytes, at: int, size: int) -> int:
    """Return the place of the next sound header, or the size where none follows."""
    mark = _mark_of(key)
    while at < size:
        piece = _read(descriptor, at, _PIECE_BYTES)
        place = piece.find(mark)
        while place >= 0:
            if _sound_header(descriptor, key, at + place) is not None:
                return at + place
            place = piece.find(mark, place + 1)
        if len(piece) < _PIECE_BYTES:  # the end, or a part that the disk does not give
            return size
        at += _PIECE_BYTES - len(mark) + 1  # pieces overlap: a mark may lie across their border
    return size


def _read(descriptor: int, at: int, size: int) -> bytes:
    """Return the bytes at a place, fewer at the end or where the disk fails.

    Mapped memory would end the process with SIGBUS at a bad sector or a file that was cut.
    """
    pieces = []
    while size > 0:
        try:
            piece = os.pread(descriptor, size, at)
        except OSError:
            break
        if not piece:
            break
        pieces.append(piece)
        at += len(piece)
        size -= len(piece)
    return b"".join(pieces)
