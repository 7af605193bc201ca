"""Cache of verdicts, in memory and in a file: the same question to the same judge is paid for once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.judges.answers import Verdict
from agenteval_otel.judges.sqlite_store import IS_FILE, SqliteStore
from agenteval_otel.runtime.fork import ForkSafeLock

if TYPE_CHECKING:
    import sqlite3

KeptText = tuple[float, str]
"""When a verdict was made (Unix time), and the verdict as JSON, which a caller cannot change."""
_PATIENCE_S: Final = 0.5
_MAX_CHARS: Final = 65_536
_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS verdicts (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, made REAL, text TEXT)",
)


class CacheSettings(BaseModel, metaclass=FriendlyErrors):
    """How many verdicts are kept, and for how long.

    Attributes:
        entries: Most verdicts in memory; the least recently used makes room.
        max_bytes: Most characters of them together.
        max_age_s: Age in seconds from which on a verdict is no longer used: two weeks.
        path: SQLite file that keeps them too; None keeps them in this process only.
        max_rows: Most verdicts in the file; the oldest make room.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    entries: int = Field(default=1_000, ge=1)
    max_bytes: int = Field(default=16_777_216, ge=1)
    max_age_s: float = Field(default=1_209_600.0, gt=0)
    path: Annotated[Path | None, IS_FILE] = None
    max_rows: int = Field(default=100_000, ge=1)


class VerdictStore(Protocol):
    """What keeps verdicts beyond the process: another database fills this contract to share them. Nothing raises."""

    async def find(self, key: str) -> KeptText | None:
        """The verdict; None where there is none, or the store cannot be used. The only method that waits."""

    def keep(self, key: str, kept: KeptText) -> None: ...

    def delete(self, key: str) -> None: ...

    def close(self, timeout_s: float) -> bool: ...


class VerdictCache:
    """The verdicts by key. Only `get` waits, at most 1.5 s for the file; nothing raises.

    Args:
        settings: Bounds, and the file.
        store: Keeps verdicts beyond the process; the file of the settings when left out.
        clock: Unix time in seconds.
    """

    def __init__(
        self, settings: CacheSettings | None = None, *, store: VerdictStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._settings, self._clock = settings or CacheSettings(), clock
        self._kept: dict[str, KeptText] = {}
        self._chars, self._lock = 0, ForkSafeLock()
        if store is None and self._settings.path is not None:
            store = SqliteVerdicts(self._settings.path, self._settings)
        self.store = store
        self.hits = self.misses = 0

    def __repr__(self) -> str:
        return f"<VerdictCache {len(self._kept)} in memory, {self.hits} hits, {self.misses} misses>"

    async def get(self, key: str) -> Verdict | None:
        """The verdict, if it is there and not too old; counted as a hit or a miss."""
        kept = self._in_memory(key)
        if kept is None:
            in_store = None if self.store is None else await self.store.find(key)
            kept = self._in_memory(key)  # a call that ended meanwhile has put it there
            if kept is None and in_store is not None and not self._is_old(in_store[0]):
                kept = in_store
                self._remember(key, kept)
        verdict = None
        if kept is not None:
            try:
                verdict = Verdict.model_validate_json(kept[1])
            except ValidationError:  # of another version of this package, or of another program
                self.forget(key)
        self.hits += verdict is not None
        self.misses += verdict is None
        return verdict

    def put(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict of at most 65,536 characters."""
        kept = self._clock(), verdict.model_dump_json()
        if len(kept[1]) > _MAX_CHARS:
            return
        self._remember(key, kept)
        if self.store is not None:
            self.store.keep(key, kept)

    def forget(self, key: str) -> None:
        with self._lock:
            self._drop(key)
        if self.store is not None:
            self.store.delete(key)

    def _in_memory(self, key: str) -> KeptText | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or self._is_old(kept[0]):
                return None
            self._kept[key] = self._kept.pop(key)  # the last one from now on
            return kept

    def _remember(self, key: str, kept: KeptText) -> None:
        with self._lock:
            self._drop(key)
            self._kept[key] = kept
            self._chars += len(kept[1])
            while self._kept and (len(self._kept) > self._settings.entries or self._chars > self._settings.max_bytes):
                self._drop(next(iter(self._kept)))

    def _drop(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        self._chars -= 0 if kept is None else len(kept[1])

    def _is_old(self, made: float) -> bool:
        # A verdict of the future was made by a clock that was wrong.
        return not -60.0 <= self._clock() - made < self._settings.max_age_s


class SqliteVerdicts(SqliteStore):
    """The verdicts in a SQLite file; a `VerdictStore`."""

    def __init__(self, path: Path, settings: CacheSettings) -> None:
        super().__init__(path, _SCHEMA, event="judge_cache_file_unusable", patience_s=_PATIENCE_S)
        self._settings = settings

    async def find(self, key: str) -> KeptText | None:
        if not self.is_usable:
            return None
        query = "SELECT made, text FROM verdicts WHERE key = ?"
        try:
            row = await self.run(lambda connection: connection.execute(query, (key,)).fetchone())
            return None if row is None else (float(row[0]), str(row[1]))
        except Exception:  # the store has noted it
            return None

    def keep(self, key: str, kept: KeptText) -> None:
        if self.is_usable:
            self.submit(lambda connection: self._insert(connection, key, kept))

    def delete(self, key: str) -> None:
        self.submit(lambda connection: connection.execute("DELETE FROM verdicts WHERE key = ?", (key,)))

    def _insert(self, connection: sqlite3.Connection, key: str, kept: KeptText) -> None:
        new = connection.execute("INSERT OR REPLACE INTO verdicts (key, made, text) VALUES (?, ?, ?)", (key, *kept))
        oldest = connection.execute("SELECT coalesce(min(id), 0) FROM verdicts").fetchone()[0]
        connection.execute(
            "DELETE FROM verdicts WHERE id <= ? OR (id <= ? AND made < ?)",
            # Old ones are looked for among a few only, so that a write takes as long however many there are.
            ((new.lastrowid or 0) - self._settings.max_rows, oldest + 16, kept[0] - self._settings.max_age_s),
        )
