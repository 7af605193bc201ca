"""JsonFileStorageProvider: one JSON line per result, appended."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from pydantic import Field

from agenteval_otel.capture.text import plain
from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import EvaluationStorageProvider

__all__ = ["JsonFileStorageProvider"]


class JsonFileStorageProvider(EvaluationStorageProvider, type="json_file"):
    """Appends each result as one compact JSON line, readable and writable by its owner only.

    A line is one write to a descriptor opened for appending, so lines of several threads and processes do not mix.
    Parent folders are made with the first result. NaN is written as null; line separators are escaped, so one result
    is one line for every reader.

    Attributes:
        path: The file.
    """

    path: Path = Field(alias="filePath")

    @cached_property
    def _descriptors(self) -> dict[int, int]:
        return {}

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Append the result.

        Raises:
            StorageError: The line could not be written whole.
        """
        line = _json_of(aggregated).translate(_LINE_BREAKS).encode("utf-8", "replace") + b"\n"
        written = os.write(self._descriptor(), line)
        if written < len(line):
            # What stands there now is a torn line; ending it keeps the next one whole.
            os.write(self._descriptor(), b"\n")
            raise StorageError(f"{self.path}: only {written} of {len(line)} bytes written")

    async def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _descriptor(self) -> int:
        # By process: a forked child opens its own.
        found = self._descriptors.get(os.getpid())
        if found is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            found = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._descriptors[os.getpid()] = found
        return found


def _json_of(aggregated: AggregatedEvaluationResult) -> str:
    try:
        return aggregated.model_dump_json(by_alias=True, exclude_none=True)
    except ValueError:
        # Offline inputs may hold what JSON has no form for: objects, lone surrogates.
        cleaned = AggregatedEvaluationResult.model_validate(plain(aggregated.model_dump(exclude_none=True)))
        return cleaned.model_dump_json(by_alias=True, exclude_none=True)


_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
