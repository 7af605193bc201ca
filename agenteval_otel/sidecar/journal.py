"""Requests on disk until their answers are evaluated and exported.

So what was acknowledged survives a crash.

A folder of segments, whose records `segments` writes and reads. Requests are numbered. A "done"
record lists traces, each with its last finished request. A segment is deleted when none of its
requests is needed. Beside the segments are the notes of `attempts`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from agenteval_otel.capture.otlp.body import LOGS, TRACES
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.log import log
from agenteval_otel.sidecar.attempts import Item, RequestAttempts
from agenteval_otel.sidecar.segments import (
    DONE,
    OVERHEAD_BYTES,
    Damage,
    Record,
    SegmentWriter,
    read_old_segment,
    read_segment,
)

__all__ = ["LOGS", "TRACES", "Journal", "JournalEntry", "JournalFull", "JournalUnavailable", "Key"]

_ENTRY: Final = struct.Struct(">16s8sQ")  # of a "done" record: trace, span, number of a request
_SEGMENT_BYTES: Final = 16 * 1024 * 1024
_MOST_RECORDS: Final = 1_000_000
"""More than a segment can hold: no number of its records lies further behind its first one."""
_ERASING: Final = ".erasing"
_SUFFIX: Final = ".requests"
_OLD_SUFFIX: Final = ".otlp"
_NAME: Final = re.compile(rf"[0-7][0-9a-f]{{15}}(?:{_SUFFIX}|{_OLD_SUFFIX})")
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FAILURES: Final = (OSError, ValueError, OverflowError, struct.error)

Key = tuple[int, int]
"""What is done: a trace's id and a span's (0 for all of the trace), or 0 and the number of a
request with answers of `@monitor`.
"""


class JournalFull(Exception):
    """No room on the disk, or the limit is reached."""


class JournalUnavailable(JournalFull):
    """The disk or the folder fails: the same request may be taken once it is repaired."""


class JournalEntry(NamedTuple):
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
        problem: Why it could not be written the last time, in words. None where it could.
        damaged: How many parts of its segments could not be read at start.
        died: The process before died while something was under evaluation.

    Raises:
        ConfigurationError: Where the folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self.max_bytes = max_bytes
        self.problem: str | None = None
        self.damaged = 0
        # The segment that is written: its file, what packs its records, and its first number.
        self._file: BinaryIO | None = None
        self._writer = SegmentWriter()
        self._begun = 0
        self._is_closed = False
        self.done: dict[Key, int] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _locked(folder / "lock")
            for unfinished in folder.glob(f"*{_ERASING}"):  # an erasure that was killed
                unfinished.unlink()
            # Files and sizes of the segments, by the number of their first request.
            self._paths = _segments_in(folder)
            self._segments = {first: path.stat().st_size for first, path in self._paths.items()}
            self._left = sorted(self._segments)  # by earlier processes
            self.number = max(self._segments, default=0)
            for first in self._left:
                self._survey(first)
            if not self._segments:
                # Notes about requests that are all done say nothing about later ones.
                (folder / "attempts").unlink(missing_ok=True)
            self._attempts = RequestAttempts(folder / "attempts")
            self.died = self._attempts.died
        except BlockingIOError:
            wrong = "another process uses it: each sidecar needs a folder of its own"
            raise ConfigurationError(wrong, path="sidecar.durable") from None
        except OSError as error:
            raise ConfigurationError(f"cannot be used: {error}", path="sidecar.durable") from None
        self.size_bytes = sum(self._segments.values())

    def __repr__(self) -> str:
        return f"<Journal {self._folder} segments={len(self._segments)}>"

    def left(self) -> Iterator[JournalEntry]:
        """Yield the requests of earlier processes, oldest first. `done` says what of them is done."""
        for first in self._left:
            yield from self.requests(first)

    def fits(self, size_bytes: int) -> bool:
        """Tell whether a request of this size fits into an empty folder."""
        return size_bytes + OVERHEAD_BYTES <= self.max_bytes

    def write(self, kind: int, data: bytes) -> int:
        """Write a request, on the disk when this returns, and return its number. Blocks.

        Raises:
            JournalFull: No room, or as `JournalUnavailable` a disk or folder that fails.
        """
        if self._is_closed:
            raise JournalUnavailable("the sidecar ends")
        if self.size_bytes + len(data) + OVERHEAD_BYTES > self.max_bytes:
            raise JournalFull
        try:
            self._append(kind, data)
        except _FAILURES as error:
            self._failed(error)
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise JournalFull from None
            raise JournalUnavailable(self.problem) from None
        self.problem = None
        return self.number

    def finish(self, done: dict[Key, int], needed_from: int = 0) -> bool:
        """Note what is done, and delete the segments that are not needed.

        Each trace or request is done up to a request's number. The deleted segments have only
        requests before `needed_from`. Return False if the note was not written.
        """
        try:
            try:
                if done and self.number >= needed_from:  # else its segments are deleted
                    entries = [
                        _ENTRY.pack(trace.to_bytes(16), span.to_bytes(8), upto)
                        for (trace, span), upto in done.items()
                    ]
                    self._append(DONE, b"".join(entries))
            finally:
                self._drop(needed_from)  # on a full disk this frees space for the next try
            self._attempts.end([_item_of(key) for key in done])
        except _FAILURES as error:
            self._failed(error)
            return False
        if done:
            self.problem = None
        return True

    def probe(self) -> None:
        """Try to write again after a failure, so that `problem` is true when no request comes."""
        try:
            self._append(DONE, b"")
            if self._file is not None:
                os.fdatasync(self._file.fileno())
        except _FAILURES as error:
            self._failed(error)
            return
        self.problem = None

    def begin(self, keys: Collection[Key]) -> None:
        """Note that these traces or requests are under evaluation, until they are done."""
        with contextlib.suppress(*_FAILURES):  # without the note one more attempt is made
            self._attempts.begin([_item_of(key) for key in keys])

    def attempts(self, key: Key) -> int:
        """Return how many earlier processes died while this trace or request was under evaluation."""
        return self._attempts.count(_item_of(key))

    def segments(self) -> list[int]:
        """Return the numbers of its segments, oldest first.

        Each holds at most 16 MiB and a request.
        """
        return sorted(self._segments)

    def requests(self, segment: int) -> Iterator[JournalEntry]:
        """Yield the requests of a segment, those that are done too.

        Yields nothing if the segment is gone. May run on any thread.
        """
        for record in self._records(segment):
            if isinstance(record, Record) and record.kind != DONE:
                yield JournalEntry(record.number, record.kind, record.payload)

    def requests_numbered(self, numbers: Collection[int]) -> Iterator[JournalEntry]:
        """Yield the requests with these numbers, those that are done too. May run on any thread."""
        ordered = sorted(numbers)
        starts = sorted(self._segments)
        for start, end in zip(starts, [*starts[1:], self.number + 1], strict=False):
            place = bisect_left(ordered, start)
            if place < len(ordered) and ordered[place] < end:
                for entry in self.requests(start):
                    if entry.number in numbers:
                        yield entry

    def rewrite(self, segment: int, changed: Mapping[int, bytes]) -> None:
        """Write a segment anew, with other bytes for the requests with these numbers.

        Blocks for the disk.

        Numbers stay, so what is done stays done. Damaged parts are left out. After a crash the old
        file is there, or the new one. Raises `OSError`.
        """
        if segment not in self._segments:
            return
        if segment == self._begun:
            self._close()  # the next request begins another one
        path = self._folder / _name(segment)
        temporary = path.with_suffix(_ERASING)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        writer = SegmentWriter()
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(writer.head())
                for record in self._records(segment):
                    if isinstance(record, Damage):
                        continue
                    payload = record.payload
                    if record.kind != DONE:
                        payload = changed.get(record.number, payload)
                    file.write(writer.packed(record.kind, payload, record.number, file.tell()))
                file.flush()
                os.fsync(file.fileno())
                size_bytes = file.tell()
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        before = self._paths[segment]
        self._paths[segment] = path
        if before != path:  # of the old format
            before.unlink(missing_ok=True)
        _sync_folder(self._folder)
        self.size_bytes += size_bytes - self._segments[segment]
        self._segments[segment] = size_bytes

    def close(self) -> None:
        """Close its files, and take nothing more. What is under way counts as no attempt."""
        self._is_closed = True
        self._close()
        with contextlib.suppress(*_FAILURES):
            self._attempts.close()
        self._lock.close()

    def _failed(self, error: Exception) -> None:
        """Keep and log why the journal cannot be written."""
        strerror = error.strerror if isinstance(error, OSError) else None
        self.problem = f"the journal cannot be written: {strerror or type(error).__name__}"
        log.warning(
            "journal_failed", part="durable", error_type=type(error).__name__, error=strerror
        )

    def _drop(self, needed_from: int) -> None:
        """Delete the segments that have only requests before this one."""
        starts = sorted(self._segments)
        ends = [*starts[1:], self.number + 1]
        # ends has one more where there is no segment
        for start, end in zip(starts, ends, strict=False):
            if end > needed_from:
                break
            if start == self._begun:
                self._close()
            self._paths[start].unlink(missing_ok=True)
            del self._paths[start]
            self.size_bytes -= self._segments.pop(start)

    def _append(self, kind: int, payload: bytes) -> None:
        """Write a record, or leave the segment as it was and raise."""
        if self._file is not None and self._segments[self._begun] >= _SEGMENT_BYTES:
            self._close()
        file = self._file or self._begin_segment()
        is_request = kind != DONE
        number = self.number + 1 if is_request else self.number  # notes have no number of their own
        at = self._segments[self._begun]
        head = b"" if at else self._writer.head()
        record = head + self._writer.packed(kind, payload, number, at + len(head))
        try:
            if not os.fstat(file.fileno()).st_nlink:
                # Written to a file that was removed, a request would be gone with the process.
                self._forget(self._begun)
                raise FileNotFoundError(errno.ENOENT, "the segment was removed")
            if file.write(record) != len(record):
                raise OSError(errno.ENOSPC, "short write")
        except OSError:
            self._undo(file)
            raise
        if is_request:  # a note may be lost: what it says is then done again
            try:
                os.fdatasync(file.fileno())
            except OSError:
                # What the system did not write it may regard as written from now on.
                self._undo(file)
                self._close()
                raise
        self._segments[self._begun] += len(record)
        self.size_bytes += len(record)
        self.number = number

    def _begin_segment(self) -> BinaryIO:
        """Begin a segment, whose name is on the disk too when this returns."""
        # A segment that got only notes has this name already. No request has its number.
        if self.number + 1 in self._segments:
            self.number += 1
        begun = self.number + 1
        path = self._folder / _name(begun)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        file = os.fdopen(descriptor, "ab", buffering=0)
        self._file = file
        self._writer = SegmentWriter()
        self._begun = begun
        self._segments[begun] = 0
        self._paths[begun] = path
        _sync_folder(self._folder)
        return file

    def _undo(self, file: BinaryIO) -> None:
        """Cut off what was written in part."""
        try:
            os.ftruncate(file.fileno(), self._segments[self._begun])
        except (OSError, KeyError):
            self._close()  # the next one begins another segment

    def _forget(self, segment: int) -> None:
        """Take a segment out of the books whose file is gone."""
        del self._paths[segment]
        self.size_bytes -= self._segments.pop(segment)

    def _close(self) -> None:
        file = self._file
        self._file = None
        if file is not None:
            file.close()

    def _survey(self, first: int) -> None:
        """Take from a segment what is done, and the newest number. Damaged parts are logged."""
        damages: list[Damage] = []
        for record in self._records(first):
            if isinstance(record, Damage):
                damages.append(record)
                continue
            self.number = max(self.number, record.number)
            if record.kind == DONE:
                usable = len(record.payload) - len(record.payload) % _ENTRY.size
                for trace, span, upto in _ENTRY.iter_unpack(record.payload[:usable]):
                    key = (int.from_bytes(trace), int.from_bytes(span))
                    self.done[key] = upto
        if damages:
            self.damaged += len(damages)
            lost_bytes = sum(damage.size_bytes for damage in damages)
            log.warning(
                "journal_damaged",
                part="durable",
                segment=self._paths[first].name,
                at=damages[0].at,
                places=len(damages),
                lost_bytes=lost_bytes,
            )

    def _records(self, first: int) -> Iterator[Record | Damage]:
        """Yield a segment's records and damaged parts. Yields nothing if the segment is gone."""
        path = self._paths.get(first)
        if path is None:
            return
        read = read_segment if path.suffix == _SUFFIX else read_old_segment
        later = [other for other in list(self._segments) if other > first]
        most = min(later, default=first + _MOST_RECORDS) - 1
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            yield from read(file, first, most)


def _segments_in(folder: Path) -> dict[int, Path]:
    """Return the segments of a folder by the number of their first request, which is their name."""
    paths: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):  # .otlp comes before .requests
        if not _NAME.fullmatch(path.name) or not path.is_file():
            continue
        first = int(path.stem, 16)
        if first in paths:  # an erasure was killed after it had written the new one
            paths[first].unlink()
        paths[first] = path
    return paths


def _item_of(key: Key) -> Item:
    trace, span = key
    return trace.to_bytes(16) + span.to_bytes(8)


def _name(first: int) -> str:
    return f"{first:016x}{_SUFFIX}"


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
