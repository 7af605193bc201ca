"""Cache of verdicts, in memory or in a file: the same question to the same judge is paid for once."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agenteval_otel.components.database.sqlite_store import SqliteStore, erasing
from agenteval_otel.components.explained import IS_FILE, FriendlyErrors
from agenteval_otel.evaluators.judges.answers import Verdict
from agenteval_otel.runtime.fork import ForkSafeLock
from agenteval_otel.runtime.log import log

if TYPE_CHECKING:
    import sqlite3

KeptText = tuple[float, str]
"""When a verdict was made (Unix time), and the verdict as JSON, which a caller cannot change."""
_PATIENCE_S: Final = 0.5
_MAX_CHARS: Final = 65_536  # the answer and its text, of `LLMJudge.max_tokens` (4,096), with room
_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS verdicts (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, made REAL, text TEXT)",
)


class CacheSettings(BaseModel, metaclass=FriendlyErrors):
    """Sets how many verdicts are kept, where, and for how long.

    Attributes:
        entries: Maximum number of verdicts in memory. The least recently used is evicted.
        max_age_s: Age in seconds at which a verdict expires, two weeks by default.
        path: SQLite file that keeps them instead, for other processes and later runs.
        max_rows: Maximum number of verdicts in the file. The oldest are deleted.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    entries: int = Field(default=1_000, ge=1)
    max_age_s: float = Field(default=1_209_600.0, gt=0)
    path: Annotated[Path | None, IS_FILE] = None
    max_rows: int = Field(default=100_000, ge=1)


class VerdictCache:
    """Keeps verdicts by key.

    Only `get` waits, at most 1.5 s for the file. Nothing raises. The clock gives Unix time.
    """

    def __init__(
        self, settings: CacheSettings | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        settings = settings or CacheSettings()
        self.store: MemoryVerdicts | SqliteVerdicts
        if settings.path is None:
            self.store = MemoryVerdicts(settings.entries)
        else:
            self.store = SqliteVerdicts(settings.path, settings)
        self._max_age_s = settings.max_age_s
        self._clock = clock
        self.hits = 0
        self.misses = 0
        _CACHES.add(self)

    async def get(self, key: str) -> Verdict | None:
        """Return the verdict if it is there and not too old. Count a hit or a miss.

        A verdict from more than a minute in the future is a miss too.
        """
        kept = await self.store.find(key)
        verdict = None
        # A verdict of the future was made by a clock that was wrong.
        if kept is not None and -60.0 <= self._clock() - kept[0] < self._max_age_s:
            try:
                verdict = Verdict.model_validate_json(kept[1])
            except ValidationError:  # of another version of this package, or of another program
                self.store.delete(key)
        if verdict is None:
            self.misses += 1
        else:
            self.hits += 1
        return verdict

    def put(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict of at most 65,536 characters."""
        text = verdict.model_dump_json()
        if len(text) <= _MAX_CHARS:
            self.store.keep(key, (self._clock(), text))
        else:
            log.warning("verdict_not_cached", part=verdict.model, characters=len(text))

    def forget(self, key: str) -> None:
        self.store.delete(key)


class MemoryVerdicts:
    """Keeps the verdicts of this process, at most `entries`. Any thread may call."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._lock = ForkSafeLock()
        self._kept: dict[str, KeptText] = {}

    async def find(self, key: str) -> KeptText | None:
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is not None:
                self._kept[key] = kept  # the last one from now on
            return kept

    def keep(self, key: str, kept: KeptText) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = kept
            if len(self._kept) > self._entries:
                del self._kept[next(iter(self._kept))]

    def delete(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def erase(self, before_s: float) -> int:
        with self._lock:
            old = [key for key, (made_s, _) in self._kept.items() if made_s < before_s]
            for key in old:
                del self._kept[key]
            return len(old)


class SqliteVerdicts(SqliteStore):
    """Keeps verdicts in a SQLite file. Nothing raises, and only `find` waits."""

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
        self.submit(
            lambda connection: connection.execute("DELETE FROM verdicts WHERE key = ?", (key,))
        )

    def _insert(self, connection: sqlite3.Connection, key: str, kept: KeptText) -> None:
        new = connection.execute(
            "INSERT OR REPLACE INTO verdicts (key, made, text) VALUES (?, ?, ?)", (key, *kept)
        )
        oldest = connection.execute("SELECT coalesce(min(id), 0) FROM verdicts").fetchone()[0]
        last_surplus = (new.lastrowid or 0) - self._settings.max_rows
        expired_before = kept[0] - self._settings.max_age_s
        connection.execute(
            "DELETE FROM verdicts WHERE id <= ? OR (id <= ? AND made < ?)",
            # Only the oldest few are checked for their age, so that a write takes constant time.
            (last_surplus, oldest + 16, expired_before),
        )


_CACHES: Final[weakref.WeakSet[VerdictCache]] = weakref.WeakSet()


def erase_verdicts(before_s: float, *, dry_run: bool = False) -> int:
    """Forget the verdicts in this process's memory that were made before a moment (Unix time).

    Return how many. With `dry_run` nothing is forgotten and the number is 0.
    """
    if dry_run:
        return 0
    stores = [cache.store for cache in list(_CACHES) if isinstance(cache.store, MemoryVerdicts)]
    return sum(store.erase(before_s) for store in stores)


def erase_verdicts_of(path: Path, before_s: float, *, dry_run: bool = False) -> int:
    """Delete the verdicts of a file that were made before a moment, its free pages too.

    Return how many. With `dry_run` they are only counted. Blocks.

    Raises `OSError`, or what `sqlite3` raises, if the file cannot be used.
    """
    if not path.is_file():
        return 0
    with erasing(path, dry_run=dry_run) as connection:
        if dry_run:
            query = "SELECT count(*) FROM verdicts WHERE made < ?"
            count: int = connection.execute(query, (before_s,)).fetchone()[0]
            return count
        return connection.execute("DELETE FROM verdicts WHERE made < ?", (before_s,)).rowcount
