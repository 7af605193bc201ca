"""JsonFileStorageProvider: one JSON line per result, appended."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from pydantic import Field

from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import without_objects
from agenteval_otel.storage.batcher import BatchedStorageProvider
from agenteval_otel.storage.erasure import ErasedPlace, Erasure, without_person
from agenteval_otel.storage.files import identity, open_locked
from agenteval_otel.storage.rows import parse_result

_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class JsonFileStorageProvider(BatchedStorageProvider, type="json_file"):
    """Appends each result as one compact JSON line, readable and writable by its owner only.

    A thread writes the lines. Processes that write one file take turns by a lock on it. A saved
    line survives the end of its process, `SIGKILL` included. Where a full disk or a killed process
    cut a line off, the next one starts on a new line: readers skip what is not JSON. Missing
    folders, and a file that was removed, are created. NaN is written as null. Line separators are
    escaped, so one result is one line for every reader.

    Attributes:
        path: The file.
        max_bytes: Size above which the file is renamed to ``<name>.1``, that one to ``<name>.2``
            and so on. None never rotates.
        keep: How many rotated files are kept. The oldest is deleted.
        fsync: ``never`` leaves syncing to the system: lines survive the process, not a failure of
            the machine. ``batch`` waits for the disk with each batch, before its lines count as
            saved.
    """

    path: Path = Field(validation_alias="filePath", serialization_alias="filePath")
    max_bytes: int | None = Field(default=None, ge=1024)
    keep: int = Field(default=5, ge=1, le=1000)
    fsync: Literal["never", "batch"] = "never"

    if TYPE_CHECKING:

        def __init__(self, *, path: str | Path, **fields: Any) -> None: ...

    @property
    def place(self) -> str:
        return str(self.path)

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Append the result and wait for the write.

        A write that is incomplete or hangs for 5 s raises `StorageError`.
        """
        line = _line_of(aggregated)
        await self.batcher.save(line, len(line))

    def erase(self, erasure: Erasure, *, dry_run: bool = False) -> ErasedPlace:
        """Rewrite the file and those that were rotated, without content where it is concerned.

        Each file is replaced at once. Results may be saved meanwhile: they wait for the last lines
        alone. Lines that cannot be read are removed.
        """
        return erase_lines(self.path, erasure, dry_run=dry_run)

    def open_sink(self) -> LineFile:
        return LineFile(
            self.path, max_bytes=self.max_bytes, keep=self.keep, durable=self.fsync == "batch"
        )


class LineFile:
    """Appends whole lines, as the sink of a `ResultBatcher`.

    The file is open, and locked, during a write alone.
    """

    def __init__(
        self, path: Path, *, max_bytes: int | None = None, keep: int = 5, durable: bool = False
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._durable = durable

    def write(self, items: Sequence[bytes], *, may_wait: bool = True) -> list[Exception | None]:
        """Append the lines, line ends included.

        Return for each None once it is in the file, else the error.
        """
        # A pipe is opened write-only: otherwise writes succeed without a reader.
        flags = os.O_APPEND | (os.O_WRONLY if self.path.is_fifo() else os.O_RDWR)
        saved = 0
        try:
            while saved < len(items):
                with open_locked(self.path, flags, wait=may_wait) as descriptor:
                    count = self._append(descriptor, items[saved:])
                    if self._durable and count:
                        os.fsync(descriptor)
                saved += count
        except Exception as error:
            return [None] * saved + [error] * (len(items) - saved)
        return [None] * len(items)

    def close(self) -> None: ...

    def _append(self, descriptor: int, lines: Sequence[bytes]) -> int:
        """Append as many of the lines as there is room for.

        Return their number, 0 if the file was renamed instead.
        """
        size = os.fstat(descriptor).st_size
        if self._max_bytes is not None:
            if size and size + len(lines[0]) > self._max_bytes:
                self._rotate()
                return 0
            # One line is written even if it alone is longer than a file may be.
            lines = lines[: max(1, _count_whole(lines, self._max_bytes - size))]
        is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        line_break = b"\n" if is_torn else b""
        text = b"".join([line_break, *lines])
        written = os.write(descriptor, text)
        whole = _count_whole(lines, written - len(line_break))
        if not whole:
            raise StorageError(f"{self.path}: only {written} of {len(text)} bytes written")
        return whole

    def _rotate(self) -> None:
        """Rename the file. Older files move up to the first gap, or the oldest is deleted."""
        file = Path(os.path.realpath(self.path))  # a link stays
        numbers = range(1, self._keep + 1)
        places = [file, *(file.with_name(f"{file.name}.{number}") for number in numbers)]
        gaps = (at for at, place in enumerate(places) if not place.exists())
        gap = next(gaps, self._keep)
        for at in range(gap, 0, -1):
            os.replace(places[at - 1], places[at])


def _count_whole(lines: Sequence[bytes], size: int) -> int:
    """Return how many of the lines, from the first on, fit whole into this many bytes."""
    return sum(end <= size for end in accumulate(map(len, lines)))


def _set_owner(descriptor: int, status: os.stat_result) -> None:
    if sys.platform != "win32":
        os.fchmod(descriptor, status.st_mode & 0o7777)
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, status.st_uid, status.st_gid)


def _line_of(aggregated: AggregatedEvaluationResult) -> bytes:
    try:
        text = aggregated.model_dump_json(by_alias=True, exclude_none=True)
    except ValueError:
        text = without_objects(aggregated).model_dump_json(by_alias=True, exclude_none=True)
    if not text.isascii():
        text = text.translate(_LINE_BREAKS)
    return text.encode("utf-8", "replace") + b"\n"


def erase_lines(path: Path, erasure: Erasure, *, dry_run: bool) -> ErasedPlace:
    """Erase from a file of lines and from its rotated files.

    The returned place says how much. Blocks, minutes for gigabytes.
    """
    file = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        return ErasedPlace(
            str(path), problem="is not a file: what was written must be erased by its reader"
        )
    counts: Counter[str] = Counter()
    # Upwards: a file that is rotated meanwhile only moves to a higher number.
    for place in _rotated(file):
        rewriting = _Rewriting(file, place, erasure)
        counts += rewriting.count() if dry_run else rewriting.run()
    return ErasedPlace(str(path), counts["erased"], counts["unreadable"])


def _rotated(file: Path) -> Iterator[Path]:
    """Yield the file and its rotated ones, by their number, looked for one by one."""
    yield file
    number = 0
    while True:
        higher = [other for other in _numbers(file) if other > number]
        if not higher:
            return
        number = min(higher)
        yield file.with_name(f"{file.name}.{number}")


def _numbers(file: Path) -> list[int]:
    ends = (
        other.name.removeprefix(f"{file.name}.") for other in file.parent.glob(f"{file.name}.*")
    )
    return [int(end) for end in ends if end.isdecimal()]


class _Rewriting:
    """Rewrites one file of those that belong to `live`.

    The lock of `live` keeps writers and their rotation away.
    """

    def __init__(self, live: Path, file: Path, erasure: Erasure) -> None:
        self._live = live
        self._file = file
        self._erasure = erasure
        escaped = (needle.decode().translate(_LINE_BREAKS).encode() for needle in erasure.needles())
        # An erasure by time also matches lines that have none of the ids.
        self._needles = () if erasure.before is not None else tuple(escaped)
        self._counts: Counter[str] = Counter()

    def count(self) -> Counter[str]:
        """Count what there is to erase. The counter is empty if there is nothing."""
        self._counts.clear()
        try:
            with self._file.open("rb") as source:
                for line in source:
                    self._changed(line)
        except FileNotFoundError:
            pass  # nothing was saved yet, or it was rotated away
        return self._counts

    def run(self) -> Counter[str]:
        """Rewrite it where there is something to erase."""
        temporary = self._file.with_name(f"{self._file.name}.erasing")
        # keeps a second erasure away; one that was killed may have left it
        with open_locked(temporary) as target:
            is_done = False
            try:
                while not is_done and self.count():
                    is_done = self._rewrite(target, temporary)
            finally:
                if not is_done:
                    temporary.unlink()
        return self._counts

    def _rewrite(self, target: int, temporary: Path) -> bool:
        """Put the rewritten file in its place.

        Return False if another file, or none, is there meanwhile.
        """
        self._counts.clear()
        with contextlib.ExitStack() as stack:
            try:
                source = stack.enter_context(self._file.open("rb"))
            except FileNotFoundError:
                return False
            _set_owner(target, os.fstat(source.fileno()))
            lines = stack.enter_context(os.fdopen(os.dup(target), "wb"))
            lines.seek(0)
            lines.truncate()
            self._copy(source, lines, last=False)
            os.fsync(target)  # now, not while writers wait
            stack.enter_context(open_locked(self._live))
            if identity(source.fileno()) != identity(self._file):
                return False
            self._copy(source, lines, last=True)
            os.fsync(target)
            os.replace(temporary, self._file)
        return True

    def _copy(self, source: BinaryIO, lines: BinaryIO, *, last: bool) -> None:
        """Copy the lines that are whole, the `last` time also one that was cut off."""
        while line := source.readline():
            if not (last or line.endswith(b"\n")):
                source.seek(-len(line), os.SEEK_CUR)
                break
            lines.write(self._changed(line))
        lines.flush()

    def _changed(self, line: bytes) -> bytes:
        """Return the line as it stays. Empty for a line that cannot be read."""
        if not line.strip():
            return line
        is_whole = line.startswith(b"{") and line.rstrip().endswith(b"}")
        if is_whole and self._needles:
            has_needle = any(needle in line for needle in self._needles)
            if not has_needle:
                return line  # it cannot match, so it is not parsed
        try:
            aggregated = parse_result(line)
        except ValueError:
            self._counts["unreadable"] += 1
            return b""
        if not self._erasure.concerns(aggregated):
            return line
        self._counts["erased"] += 1
        return _line_of(without_person(aggregated))
