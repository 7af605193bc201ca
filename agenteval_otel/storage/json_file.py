"""JsonFileStorageProvider: one JSON line per result, appended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import without_objects
from agenteval_otel.storage.batcher import BatchedStorageProvider
from agenteval_otel.storage.line_file import LineFile

__all__ = ["JsonFileStorageProvider"]


class JsonFileStorageProvider(BatchedStorageProvider, type="json_file"):
    """Appends each result as one compact JSON line, readable and writable by its owner only.

    A thread writes the lines, those that wait together in one write, to a descriptor opened for appending, so lines of
    several threads and processes do not mix. A saved line survives the end of its process, `SIGKILL` included. Where a
    full disk or a killed process cut a line off, the next one starts on a new line: readers skip what is not JSON.
    Missing folders are created with the first result, for their owner only; a file that was removed or moved away is
    created again. NaN is written as null; line separators are escaped, so one result is one line for every reader.

    Attributes:
        path: The file.
        max_bytes: Size above which the file is renamed to ``<name>.1``, that one to ``<name>.2`` and so on; None never
            rotates. Processes take turns by a lock, the file ``<name>.lock``.
        keep: How many rotated files are kept; the oldest is deleted.
        fsync: ``never`` leaves syncing to the system: lines survive the process, not a failure of the machine.
            ``batch`` syncs them, batch by batch.
        fsync_interval_s: With ``batch``: how often at most, in seconds; 0 syncs before a line counts as saved.
    """

    path: Path = Field(validation_alias="filePath", serialization_alias="filePath")
    max_bytes: int | None = Field(default=None, ge=1024)
    keep: int = Field(default=5, ge=1, le=1000)
    fsync: Literal["never", "batch"] = "never"
    fsync_interval_s: float = Field(default=1.0, ge=0.0)

    if TYPE_CHECKING:

        def __init__(self, *, path: str | Path, **fields: Any) -> None: ...

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Append the result and wait for the write; never blocks the event loop.

        Raises:
            StorageError: The line could not be written completely, or the write hangs for more than 5 s.
            OSError: The file cannot be opened or written.
        """
        text = _json_of(aggregated)
        line = (text if text.isascii() else text.translate(_LINE_BREAKS)).encode("utf-8", "replace") + b"\n"
        await self.batcher.save(line, len(line))

    @property
    def place(self) -> str:
        return str(self.path)

    def open_sink(self) -> LineFile:
        """The file, opened by its first write."""
        sync_every_s = self.fsync_interval_s if self.fsync == "batch" else None
        return LineFile(self.path, max_bytes=self.max_bytes, keep=self.keep, sync_every_s=sync_every_s)


def _json_of(aggregated: AggregatedEvaluationResult) -> str:
    try:
        return aggregated.model_dump_json(by_alias=True, exclude_none=True)
    except ValueError:
        return without_objects(aggregated).model_dump_json(by_alias=True, exclude_none=True)


_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
