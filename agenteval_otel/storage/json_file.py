"""JsonFileStorageProvider: one JSON line per result, appended."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import EvaluationStorageProvider
from agenteval_otel.storage.batches import Batches
from agenteval_otel.storage.json_form import without_objects
from agenteval_otel.storage.line_file import LineFile

__all__ = ["JsonFileStorageProvider"]


class JsonFileStorageProvider(EvaluationStorageProvider, type="json_file"):
    """Appends each result as one compact JSON line, readable and writable by its owner only.

    Lines are written on a thread of their own, whole and in one write with those that wait beside them, to a descriptor
    opened for appending, so lines of several threads and processes do not mix. A line that was saved outlives the end
    of its process, `SIGKILL` included. Where a full disk or a killed process cut a line off, the next one starts on a
    new line: a reader leaves out the line that is no JSON. Parent folders are made with the first result, for their
    owner only; a file that was removed or moved away is made anew. NaN is written as null; line separators are escaped,
    so one result is one line for every reader.

    Attributes:
        path: The file.
        max_bytes: Size above which the file is moved away to ``<name>.1``, what stood there to ``<name>.2`` and so on;
            None: it grows. Several processes take turns by a lock, the file ``<name>.lock``.
        keep: How many of the moved files are kept; the oldest is deleted.
        fsync: ``never`` leaves it to the system when lines reach the disk: they outlive the process, not a failure of
            the machine. ``batch`` brings them there, batch by batch.
        fsync_interval_s: With ``batch``: how often at most, in seconds. What a failure of the machine may cost; 0 means
            that nothing counts as saved before it is on the disk.
    """

    path: Path = Field(validation_alias="filePath", serialization_alias="filePath")
    max_bytes: int | None = Field(default=None, ge=1024)
    keep: int = Field(default=5, ge=1, le=1000)
    fsync: Literal["never", "batch"] = "never"
    fsync_interval_s: float = Field(default=1.0, ge=0.0)

    if TYPE_CHECKING:

        def __init__(self, *, path: str | Path, **fields: Any) -> None: ...

    @cached_property
    def _files(self) -> dict[int, Batches[bytes]]:
        return {}

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Append the result; waits less than a second for the write, five for its turn; never blocks the event loop.

        Raises:
            StorageError: The line could not be written whole, or in time.
            OSError: The file cannot be opened or written.
        """
        text = _json_of(aggregated)
        line = (text if text.isascii() else text.translate(_LINE_BREAKS)).encode("utf-8", "replace") + b"\n"
        await self._file().save(line, len(line))

    async def close(self) -> None:
        """Close the file after the lines that wait."""
        files = list(self._files.items())
        self._files.clear()
        for pid, file in files:
            if pid == os.getpid():
                await file.close()

    def _file(self) -> Batches[bytes]:
        # By process: a forked child opens its own.
        found = self._files.get(os.getpid())
        return found or self._files.setdefault(os.getpid(), self._opened())

    def _opened(self) -> Batches[bytes]:
        sync_every_s = self.fsync_interval_s if self.fsync == "batch" else None
        return Batches(LineFile(self.path, max_bytes=self.max_bytes, keep=self.keep, sync_every_s=sync_every_s))


def _json_of(aggregated: AggregatedEvaluationResult) -> str:
    try:
        return aggregated.model_dump_json(by_alias=True, exclude_none=True)
    except ValueError:
        return without_objects(aggregated).model_dump_json(by_alias=True, exclude_none=True)


_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
