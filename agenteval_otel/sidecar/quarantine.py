"""Requests of a journal that a sidecar died of, or that its limits refuse.

They are kept on disk and not read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agenteval_otel.errors import StorageError
from agenteval_otel.sidecar.journal import LOGS, TRACES
from agenteval_otel.storage.erasure import Erasure

_ATTEMPT: Final = "reading"
_FOLDER: Final = "quarantine"
_KINDS: Final = {TRACES: "traces", LOGS: "logs"}
_MAX_DEATHS: Final = 2
"""A request is set aside when so many starts ended while it was read."""


class Quarantine:
    """What a journal's folder says of the request that is being read again.

    The number of the request is written before it is decoded and removed behind it, so a start
    that finds a number knows what killed the one before. Not synchronised to the disk: the number
    has to survive the end of the process, not the machine's.

    Args:
        folder: The journal's.
    """

    def __init__(self, folder: Path) -> None:
        self._attempt = folder / _ATTEMPT
        self._folder = folder / _FOLDER
        self._number, self._deaths = self._read_attempt()

    def __repr__(self) -> str:
        return f"<Quarantine {self._folder}>"

    def has_killed(self, number: int) -> bool:
        """Tell whether several starts in a row ended while this request was read."""
        return number == self._number and self._deaths >= _MAX_DEATHS

    @contextlib.contextmanager
    def reading(self, number: int) -> Iterator[None]:
        """Note on the disk, during the block, that the request is being read."""
        deaths = self._deaths if number == self._number else 0
        # Without the note a crash is not counted: a full disk must not keep requests from being read.
        with contextlib.suppress(OSError):
            # In place of the old note at once: a process that is killed here leaves one of the two.
            draft = self._attempt.with_suffix(".draft")
            draft.write_text(f"{number} {deaths + 1}")
            draft.replace(self._attempt)
        try:
            yield
        finally:
            self._forget()

    def keep(self, kind: int, data: bytes) -> Path:
        """Write the request into a file of its own and return the file.

        The file is on the disk when this returns. Raises `OSError`.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # Not by its number: an empty journal begins at 1 again.
        name = hashlib.blake2b(data, digest_size=8).hexdigest()
        path = self._folder / f"{name}-{_KINDS[kind]}.binpb"
        draft = path.with_suffix(".draft")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        self._forget()
        return path

    def erase(self, erasure: Erasure) -> int:
        """Delete the files that may match an erasure, and return how many.

        The files are not decoded, since a process died of it. Blocks. Raises `StorageError`.
        """
        ids = [id.encode() for id in erasure.ids]
        removed = 0
        try:
            for path in sorted(self._folder.glob("*")):
                data = path.read_bytes()
                if erasure.before is not None or any(id in data for id in ids):
                    path.unlink()
                    removed += 1
        except OSError as error:
            raise StorageError(f"{self._folder} could not be erased: {error.strerror}") from None
        return removed

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            self._attempt.unlink(missing_ok=True)

    def _read_attempt(self) -> tuple[int, int]:
        """Return the number of the request that the start before died of, and how many died of it.

        Return zeros if none did, or if its note cannot be read.
        """
        try:
            number, deaths = self._attempt.read_text().split()
            return int(number), int(deaths)
        except (OSError, ValueError):
            return 0, 0
