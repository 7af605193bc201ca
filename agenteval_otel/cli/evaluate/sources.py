"""Sources: the bytes of a dataset, line by line, as often as they are asked for.

A file is opened anew each time. What can be read only once (standard input, a pipe) is copied to a temporary file,
without a name, while it is read for the first time.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Self

from agenteval_otel.errors import ConfigurationError

__all__ = ["MAX_LINE_BYTES", "Source"]

MAX_LINE_BYTES = 64 * 1024 * 1024
STDIN = "-"


class Source:
    """One file, or standard input, of a dataset.

    Args:
        path: The file; ``-`` for standard input.

    Attributes:
        name: What messages and reports call it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._copy: IO[bytes] | None = None
        self.name = "stdin" if path == STDIN else os.path.basename(path) or path

    def __repr__(self) -> str:
        return f"<Source {self._path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._copy is not None:
            self._copy.close()

    def lines(self) -> Iterator[bytes]:
        """The lines with their ends, from the first one on; blocks for as long as the file system or the pipe takes.

        Raises:
            ConfigurationError: It cannot be read, or a line is longer than `MAX_LINE_BYTES`.
        """
        try:
            if self._copy is not None:
                self._copy.seek(0)
                yield from self._read(self._copy, None)
            elif self._path == STDIN and sys.stdin is None:
                raise ConfigurationError("standard input is closed", path=self.name)
            elif self._path == STDIN:
                self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the source
                yield from self._read(sys.stdin.buffer, self._copy)
            else:
                yield from self._lines_of_file()
        except OSError as error:
            raise ConfigurationError(f"cannot be read: {error.strerror or error}", path=self._path) from None
        except ValueError:  # a NUL in the path
            raise ConfigurationError("is no path", path=repr(self._path)) from None

    def _lines_of_file(self) -> Iterator[bytes]:
        with open(self._path, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the source
            yield from self._read(file, self._copy)

    def _read(self, file: IO[bytes], copy: IO[bytes] | None) -> Iterator[bytes]:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                size = MAX_LINE_BYTES // 1024 // 1024
                raise ConfigurationError(f"a line of more than {size} MiB", path=f"{self.name}:{number}")
            if copy is not None:
                copy.write(line)
            yield line
