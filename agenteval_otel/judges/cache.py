"""Cache of verdicts: what a judge has answered before is not asked for, and not paid for, again.

Kept in memory, and where settings name a file also there, for other processes and later runs. A file that cannot be
used is no cache: everything is asked for. Verdicts hold what the judge wrote, which may quote what it judged: the file
is its owner's alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agenteval_otel.components import Explained
from agenteval_otel.judges.database import Database
from agenteval_otel.models.value import Value
from agenteval_otel.runtime.fork import ForkSafeLock
from agenteval_otel.runtime.log import log

if TYPE_CHECKING:
    import sqlite3

__all__ = ["CacheSettings", "VerdictCache", "key_of"]

V = TypeVar("V", bound=Value)
_PATIENCE_S: Final = 0.5
_AGAIN_S: Final = 10.0
_MOST_OF_ONE: Final = 65_536
_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS verdicts (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, made REAL, text TEXT)",
)


class CacheSettings(BaseModel, metaclass=Explained):
    """How many verdicts are kept, and for how long.

    Attributes:
        entries: Most verdicts in memory; the one unused for longest makes room.
        max_bytes: Most characters of them together.
        max_age_s: Age in seconds from which on a verdict is asked for anew: two weeks.
        path: SQLite file that keeps them too; None keeps them in this process only.
        max_rows: Most verdicts in the file; the oldest make room.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    entries: int = Field(default=1_000, ge=1)
    max_bytes: int = Field(default=16_777_216, ge=1)
    max_age_s: float = Field(default=1_209_600.0, gt=0)
    path: Path | None = None
    max_rows: int = Field(default=100_000, ge=1)

    @field_validator("path")
    @classmethod
    def _path_is_no_folder(cls, value: Path | None) -> Path | None:
        if value is not None and value.is_dir():
            raise ValueError("expected a file, found a folder")
        return value


def key_of(*parts: str) -> str:
    """One key of what identifies a verdict: the request's fingerprint, the model, where it is asked."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


class VerdictCache(Generic[V]):
    """The verdicts by key. `get` waits for the file where there is one, on a thread of its own, at most a second.

    Args:
        kind: The class of the verdicts.
        settings: Bounds, and the file.
        clock: Unix time in seconds.
    """

    def __init__(
        self, kind: type[V], settings: CacheSettings | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._kind, self._settings, self._clock = kind, settings or CacheSettings(), clock
        # Text, not the object: a verdict's answer could be changed by whoever got it.
        self._texts: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._chars, self._lock = 0, ForkSafeLock()
        path = self._settings.path
        self._file = None if path is None else Database(path.absolute(), _SCHEMA, patience_s=_PATIENCE_S)
        self._again_at = float("-inf")
        self.hits = self.misses = self.failures = 0

    def __repr__(self) -> str:
        return f"<VerdictCache {len(self._texts)} in memory, {self.hits} hits, {self.misses} misses>"

    async def get(self, key: str) -> V | None:
        """The verdict, if it is there and not too old; counted as a hit or a miss. Never raises."""
        text = self._remembered(key)
        if text is None and self._file is not None:
            text = await self._read(self._file, key)
        verdict = None if text is None else self._parsed(key, text)
        if verdict is None:
            self.misses += 1
        else:
            self.hits += 1
        return verdict

    def put(self, key: str, verdict: V) -> None:
        """Keep a verdict; one of more than 65,536 characters is not kept. Never waits, never raises."""
        text, made = verdict.model_dump_json(), self._clock()
        if len(text) > _MOST_OF_ONE:
            return
        self._remember(key, made, text)
        if self._file is not None and time.monotonic() >= self._again_at:
            self._file.submit(lambda connection: self._write(connection, key, made, text)).add_done_callback(
                lambda done: self._noted(done.exception())
            )

    def forget(self, key: str) -> None:
        """Forget a verdict that turned out to be of no use. Never waits, never raises."""
        with self._lock:
            self._drop(key)
        if self._file is not None:
            self._file.submit(lambda connection: _delete(connection, key)).add_done_callback(
                lambda done: self._noted(done.exception())
            )

    def close(self, timeout_s: float = 1.0) -> bool:
        """Write what waits and close the file; it is opened again where needed. True when that was done in time."""
        return self._file is None or self._file.close(timeout_s)

    def _parsed(self, key: str, text: str) -> V | None:
        try:
            return self._kind.model_validate_json(text)
        except ValidationError:  # of another version of this package, or written by somebody else
            self.forget(key)
            return None

    def _remembered(self, key: str) -> str | None:
        with self._lock:
            entry = self._texts.get(key)
            if entry is None:
                return None
            if self._is_old(entry[0]):
                self._drop(key)
                return None
            self._texts.move_to_end(key)
            return entry[1]

    def _remember(self, key: str, made: float, text: str) -> None:
        with self._lock:
            self._drop(key)
            self._texts[key] = made, text
            self._chars += len(text)
            while self._texts and (len(self._texts) > self._settings.entries or self._chars > self._settings.max_bytes):
                self._drop(next(iter(self._texts)))

    def _drop(self, key: str) -> None:
        _, text = self._texts.pop(key, (0.0, ""))
        self._chars -= len(text)

    def _is_old(self, made: float) -> bool:
        # One of the future was made by a clock that was wrong.
        return not -60.0 <= self._clock() - made < self._settings.max_age_s

    async def _read(self, file: Database, key: str) -> str | None:
        if time.monotonic() < self._again_at:
            return None
        future = file.submit(lambda connection: _find(connection, key))
        try:
            async with asyncio.timeout(2 * _PATIENCE_S):
                text = await asyncio.wrap_future(future)
        except Exception as error:
            self._noted(error)
            return None
        if text is None or self._is_old(text[0]):
            return None
        self._remember(key, *text)
        return text[1]

    def _write(self, connection: sqlite3.Connection, key: str, made: float, text: str) -> None:
        row = connection.execute(
            "INSERT OR REPLACE INTO verdicts (key, made, text) VALUES (?, ?, ?)", (key, made, text)
        )
        connection.execute(
            "DELETE FROM verdicts WHERE id <= ? OR (id <= ? AND made < ?)",
            # Old ones are looked for among a few only, so that writing one takes as long however many there are.
            ((row.lastrowid or 0) - self._settings.max_rows, _oldest(connection) + 16, made - self._settings.max_age_s),
        )

    def _noted(self, error: BaseException | None) -> None:
        if error is None:
            return
        self.failures += 1
        self._again_at = time.monotonic() + _AGAIN_S
        log.warning("judge_cache_file_unusable", part=str(self._settings.path), error=type(error).__name__)


def _find(connection: sqlite3.Connection, key: str) -> tuple[float, str] | None:
    row = connection.execute("SELECT made, text FROM verdicts WHERE key = ?", (key,)).fetchone()
    return None if row is None else (float(row[0]), str(row[1]))


def _delete(connection: sqlite3.Connection, key: str) -> None:
    connection.execute("DELETE FROM verdicts WHERE key = ?", (key,))


def _oldest(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(min(id), 0) FROM verdicts").fetchone()[0])
