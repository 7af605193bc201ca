"""JsonFileStorageProvider: one JSON line per result, appended."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from pydantic import Field

from agenteval_otel.capture.text import plain
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import EvaluationStorageProvider
from agenteval_otel.storage.line_file import LineFile

__all__ = ["JsonFileStorageProvider"]


class JsonFileStorageProvider(EvaluationStorageProvider, type="json_file"):
    """Appends each result as one compact JSON line, readable and writable by its owner only.

    Lines are written on a thread of their own, whole and in one write with those that wait beside them, to a descriptor
    opened for appending, so lines of several threads and processes do not mix. Where a full disk or a killed process
    cut a line off, the next one starts on a new line. Parent folders are made with the first result; a file that was
    removed or moved away is made anew. NaN is written as null; line separators are escaped, so one result is one line
    for every reader.

    Attributes:
        path: The file.
    """

    path: Path = Field(alias="filePath")

    @cached_property
    def _files(self) -> dict[int, LineFile]:
        return {}

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Append the result, and wait for it less than a second; never blocks the event loop.

        Raises:
            StorageError: The line could not be written whole, or in time.
            OSError: The file cannot be opened or written.
        """
        await self._file().append(_json_of(aggregated).translate(_LINE_BREAKS).encode("utf-8", "replace") + b"\n")

    async def close(self) -> None:
        files = list(self._files.items())
        self._files.clear()
        for pid, file in files:
            if pid == os.getpid():
                await file.close()

    def _file(self) -> LineFile:
        # By process: a forked child opens its own.
        found = self._files.get(os.getpid())
        return found or self._files.setdefault(os.getpid(), LineFile(self.path))


def _json_of(aggregated: AggregatedEvaluationResult) -> str:
    try:
        return aggregated.model_dump_json(by_alias=True, exclude_none=True)
    except ValueError:
        # Offline inputs may hold what JSON has no form for: objects, lone surrogates.
        cleaned = AggregatedEvaluationResult.model_validate(plain(aggregated.model_dump(exclude_none=True)))
        return cleaned.model_dump_json(by_alias=True, exclude_none=True)


_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
