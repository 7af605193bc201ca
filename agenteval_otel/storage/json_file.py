"""JsonFileStorageProvider: one JSON line per result, appended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import without_objects
from agenteval_otel.storage.batcher import BatchedStorageProvider
from agenteval_otel.storage.files import open_locked

_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class JsonFileStorageProvider(BatchedStorageProvider, type="json_file"):
    """Appends each result as one compact JSON line, readable and writable by its owner only.

    A thread writes the lines; processes that write one file take turns by a lock on it. A saved line survives the end
    of its process, `SIGKILL` included. Where a full disk or a killed process cut a line off, the next one starts on a
    new line: readers skip what is not JSON. Missing folders, and a file that was removed, are created. NaN is written
    as null; line separators are escaped, so one result is one line for every reader.

    Attributes:
        path: The file.
        max_bytes: Size above which the file is renamed to ``<name>.1``, that one to ``<name>.2`` and so on; None never
            rotates.
        keep: How many rotated files are kept; the oldest is deleted.
        fsync: ``never`` leaves syncing to the system: lines survive the process, not a failure of the machine.
            ``batch`` waits for the disk with each batch, before its lines count as saved.
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
        """Append the result and wait for the write; one that is incomplete or hangs for 5 s raises `StorageError`."""
        try:
            text = aggregated.model_dump_json(by_alias=True, exclude_none=True)
        except ValueError:
            text = without_objects(aggregated).model_dump_json(by_alias=True, exclude_none=True)
        line = (text if text.isascii() else text.translate(_LINE_BREAKS)).encode("utf-8", "replace") + b"\n"
        await self.batcher.save(line, len(line))

    def open_sink(self) -> LineFile:
        return LineFile(self.path, max_bytes=self.max_bytes, keep=self.keep, durable=self.fsync == "batch")


class LineFile:
    """Appends whole lines, as the sink of a `ResultBatcher`; open, and locked, during a write alone."""

    def __init__(self, path: Path, *, max_bytes: int | None = None, keep: int = 5, durable: bool = False) -> None:
        self.path, self._max_bytes, self._keep, self._durable = path, max_bytes, keep, durable

    def write(self, items: Sequence[bytes], *, may_wait: bool = True) -> list[Exception | None]:
        """Append the lines, line ends included; for each None once it is in the file, else the error."""
        # A pipe is opened for writing alone: it would else never miss its reader.
        flags, saved = os.O_APPEND | (os.O_WRONLY if self.path.is_fifo() else os.O_RDWR), 0
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
        """Append as many of the lines as there is room for; their number, 0 where the file was renamed instead."""
        size = os.fstat(descriptor).st_size
        if self._max_bytes is not None:
            if size and size + len(lines[0]) > self._max_bytes:
                self._rotate()
                return 0
            lines = lines[: max(1, _whole(lines, self._max_bytes - size))]
        is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        text = b"".join([b"\n", *lines] if is_torn else lines)
        written = os.write(descriptor, text)
        whole = _whole(lines, written - is_torn)
        if not whole:
            raise StorageError(f"{self.path}: only {written} of {len(text)} bytes written")
        return whole

    def _rotate(self) -> None:
        """Rename the file; older ones move up to the first gap, or the oldest is deleted."""
        file = Path(os.path.realpath(self.path))  # a link stays
        places = [file, *(file.with_name(f"{file.name}.{number}") for number in range(1, self._keep + 1))]
        gap = next((at for at, place in enumerate(places) if not place.exists()), self._keep)
        for at in range(gap, 0, -1):
            os.replace(places[at - 1], places[at])


def _whole(lines: Sequence[bytes], size: int) -> int:
    return sum(end <= size for end in accumulate(map(len, lines)))
