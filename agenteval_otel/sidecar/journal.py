"""Requests on disk until their answers are evaluated and exported: what was acknowledged survives a
crash.

A folder of segments. A segment is a sequence of records: mark, kind, length, number, checksum,
payload. Requests are numbered; a "done" record lists traces, each with its last finished request. A
segment is deleted when none of its requests is needed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.log import log

TRACES: Final = 1
LOGS: Final = 2
_DONE: Final = 3
_MARK: Final = b"\xf7OTL"
"""Starts each record, and locates the next one after a damaged record; it cannot occur in UTF-8."""
_HEADER: Final = struct.Struct(">4sBIQI")
# of the header, what the checksum covers beside the payload
_CHECKED: Final = struct.Struct(">BIQ")
_ENTRY: Final = struct.Struct(">16s8sQ")
_SEGMENT_BYTES: Final = 16 * 1024 * 1024
_ERASING: Final = ".erasing"
_NAME: Final = re.compile(r"[0-7][0-9a-f]{15}\.otlp")

Key = tuple[int, int]
"""What is done: a trace's id, and a span's, 0 for all of the trace; or 0, and a request with
answers of `@monitor`.
"""


class JournalFull(Exception):
    """No room on the disk, or the limit is reached."""


class Entry(NamedTuple):
    """A request that was read again."""

    number: int
    kind: int
    data: bytes


class Journal:
    """The requests in a folder, which one process uses. Not thread-safe.

    Args:
        folder: Made where it is missing, for its owner alone.
        max_bytes: Disk that it may take.

    Attributes:
        number: Of the newest request.
        done: What earlier processes have done, up to which request.
        size_bytes: What its segments take.

    Raises:
        ConfigurationError: Where the folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder, self.max_bytes = folder, max_bytes
        self._file: BinaryIO | None = None
        self._begun = 0
        self.done: dict[Key, int] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _locked(folder / "lock")
            for unfinished in folder.glob(f"*{_ERASING}"):  # an erasure that was killed
                unfinished.unlink()
            # A segment's name is the number of its first request.
            files = [
                file for file in folder.iterdir() if _NAME.fullmatch(file.name) and file.is_file()
            ]
            self._segments = {int(file.stem, 16): file.stat().st_size for file in files}
            self._left = sorted(self._segments)
            self.number = max(self._segments, default=0)
            for first in self._left:
                self._survey(first)
        except BlockingIOError:
            wrong = "another process uses it: each sidecar needs a folder of its own"
            raise ConfigurationError(wrong, path="sidecar.durable") from None
        except OSError as error:
            raise ConfigurationError(f"cannot be used: {error}", path="sidecar.durable") from None
        self.size_bytes = sum(self._segments.values())

    def __repr__(self) -> str:
        return f"<Journal {self._folder} segments={len(self._segments)}>"

    def left(self) -> Iterator[Entry]:
        """The requests of earlier processes, oldest first; `done` says what of them is."""
        for first in self._left:
            for number, kind, payload in self._records(first):
                if kind != _DONE:
                    yield Entry(number, kind, payload)

    def fits(self, size_bytes: int) -> bool:
        """Whether a request of this size fits into an empty folder."""
        return size_bytes + _HEADER.size <= self.max_bytes

    def write(self, kind: int, data: bytes) -> int:
        """Write a request, on the disk when this returns; gives its number. Raises `JournalFull`;
        blocks.
        """
        if self.size_bytes + len(data) + _HEADER.size > self.max_bytes:
            raise JournalFull
        try:
            self._append(kind, data)
        except OSError as error:
            log.warning(
                "journal_failed",
                part="durable",
                error_type=type(error).__name__,
                error=error.strerror,
            )
            raise JournalFull from None
        return self.number

    def finish(self, done: dict[Key, int], needed_from: int) -> bool:
        """Note what is done, each up to a request's number, and delete segments with only requests
        before `needed_from`; False if the note was not written."""
        try:
            try:
                if done and self.number >= needed_from:  # else its segments are deleted
                    at = (
                        (trace.to_bytes(16), span.to_bytes(8), upto)
                        for (trace, span), upto in done.items()
                    )
                    self._append(_DONE, b"".join(_ENTRY.pack(*entry) for entry in at))
            finally:
                self._drop(needed_from)  # on a full disk this frees space for the next try
        except OSError as error:
            log.warning(
                "journal_failed",
                part="durable",
                error_type=type(error).__name__,
                error=error.strerror,
            )
            return False
        return True

    def segments(self) -> list[int]:
        """The numbers of its segments, oldest first; each holds at most 16 MiB and a request."""
        return sorted(self._segments)

    def requests(self, segment: int) -> Iterator[Entry]:
        """The requests of a segment, those that are done too; none where it is gone. On any thread."""
        with contextlib.suppress(FileNotFoundError):
            for number, kind, payload in self._records(segment):
                if kind != _DONE:
                    yield Entry(number, kind, payload)

    def rewrite(self, segment: int, changed: Mapping[int, bytes]) -> None:
        """Write a segment anew, with other bytes for the requests with these numbers; blocks for
        the disk.

        Numbers stay, so what is done stays done; damaged parts are left out. After a crash the old
        file is there, or the new one. Raises `OSError`.
        """
        if segment not in self._segments:
            return
        if segment == self._begun:
            self._close()  # the next request begins another one
        path = self._folder / _name(segment)
        temporary = path.with_suffix(_ERASING)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for number, kind, payload in self._records(segment):
                    file.write(
                        _packed(
                            kind, payload if kind == _DONE else changed.get(number, payload), number
                        )
                    )
                file.flush()
                os.fsync(file.fileno())
                size_bytes = file.tell()
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(self._folder)
        self.size_bytes += size_bytes - self._segments[segment]
        self._segments[segment] = size_bytes

    def close(self) -> None:
        self._close()
        self._lock.close()

    def _drop(self, needed_from: int) -> None:
        starts = sorted(self._segments)
        ends = [*starts[1:], self.number + 1]
        # ends has one more where there is no segment
        for start, end in zip(starts, ends, strict=False):
            if end > needed_from:
                break
            if start == self._begun:
                self._close()
            (self._folder / _name(start)).unlink(missing_ok=True)
            self.size_bytes -= self._segments.pop(start)

    def _append(self, kind: int, payload: bytes) -> None:
        """Write a record, or leave the segment as it was and raise."""
        if self._file is not None and self._segments[self._begun] >= _SEGMENT_BYTES:
            self._close()
        file = self._file or self._next()
        number = self.number + (kind != _DONE)
        record = _packed(kind, payload, number)
        try:
            if file.write(record) != len(record):
                raise OSError(28, "short write")
            if kind != _DONE:  # without a note something is done again
                os.fdatasync(file.fileno())
        except OSError:
            self._undo(file)
            raise
        self._segments[self._begun] += len(record)
        self.size_bytes += len(record)
        self.number = number

    def _next(self) -> BinaryIO:
        """Begin a segment, whose name is on the disk too when this returns."""
        if self.number + 1 in self._segments:  # it has notes alone
            self.number += 1
        begun = self.number + 1
        descriptor = os.open(
            self._folder / _name(begun), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600
        )
        file = self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._begun, self._segments[begun] = begun, 0
        _sync_folder(self._folder)
        return file

    def _undo(self, file: BinaryIO) -> None:
        """Cut off what was written in part."""
        try:
            os.ftruncate(file.fileno(), self._segments[self._begun])
        except OSError:
            self._close()  # the next one begins another segment

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _survey(self, first: int) -> None:
        """Take from a segment what is done, and the newest number."""
        for number, kind, payload in self._records(first, complain=True):
            self.number = max(self.number, number)
            if kind == _DONE:
                usable = len(payload) - len(payload) % _ENTRY.size
                self.done.update(
                    {
                        (int.from_bytes(trace), int.from_bytes(span)): upto
                        for trace, span, upto in _ENTRY.iter_unpack(payload[:usable])
                    }
                )

    def _records(self, first: int, *, complain: bool = False) -> Iterator[tuple[int, int, bytes]]:
        """Number, kind and payload of a segment's records; damaged ones are left out, and what a
        crash cut off.
        """
        lost_bytes = at = 0
        with (self._folder / _name(first)).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                while at < size:
                    record, end = _record(data, at)
                    if record is None:
                        end = data.find(_MARK, at + 1)
                        end = size if end < 0 else end
                        lost_bytes += end - at
                    else:
                        yield record
                    at = end
        if lost_bytes and complain:
            log.warning(
                "journal_damaged", part="durable", segment=_name(first), lost_bytes=lost_bytes
            )


def _record(data: mmap.mmap, at: int) -> tuple[tuple[int, int, bytes] | None, int]:
    """The record at a place, None where there is no whole one; and where the next begins."""
    end = at + _HEADER.size
    if end > len(data):
        return None, at
    mark, kind, length, number, checksum = _HEADER.unpack_from(data, at)
    if mark != _MARK or end + length > len(data):
        return None, at
    payload = data[end : end + length]
    if zlib.crc32(payload, zlib.crc32(_CHECKED.pack(kind, length, number))) != checksum:
        return None, at
    return (number, kind, payload), end + length


def _packed(kind: int, payload: bytes, number: int) -> bytes:
    checksum = zlib.crc32(payload, zlib.crc32(_CHECKED.pack(kind, len(payload), number)))
    return _HEADER.pack(_MARK, kind, len(payload), number, checksum) + payload


def _name(first: int) -> str:
    return f"{first:016x}.otlp"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locked(path: Path) -> BinaryIO:
    import fcntl  # not on Windows

    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file
