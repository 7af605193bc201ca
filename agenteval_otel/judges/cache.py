"""Cache of verdicts: the same question to the same judge is paid for once.

Kept in memory, and where settings name a file also there, for other processes and later runs. Without a file that can
be used each question is asked. Verdicts hold what the judge wrote, which may quote what it judged: the file is readable
by its owner alone.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.judges.request import Verdict
from agenteval_otel.judges.sqlite_store import IS_FILE, SqliteStore
from agenteval_otel.runtime.fork import ForkSafeLock

if TYPE_CHECKING:
    import sqlite3


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


def key_of(*parts: str) -> str:
    """One key of the parts that identify a verdict."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


class KeptText(NamedTuple):
    """A verdict as JSON, which a caller cannot change, and when it was made (Unix time)."""

    made: float
    text: str


class VerdictStore(Protocol):
    """The contract of what keeps verdicts beyond the process; another database fills it to share them.

    No method raises. Only `read` and `close` wait; `read` returns None where the store cannot be used.
    """

    async def read(self, key: str) -> KeptText | None: ...

    def write(self, key: str, kept: KeptText) -> None: ...

    def delete(self, key: str) -> None: ...

    def close(self, timeout_s: float) -> bool: ...


class VerdictCache:
    """The verdicts by key. `get` waits at most 1.5 s for the file, where there is one.

    Args:
        settings: Bounds, and the file.
        store: Keeps verdicts beyond the process; the file of the settings when left out.
        clock: Unix time in seconds.

    Attributes:
        hits: How many verdicts came from the cache.
        misses: How many did not.
    """

    def __init__(
        self,
        settings: CacheSettings | None = None,
        *,
        store: VerdictStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._clock = settings or CacheSettings(), clock
        self._kept: OrderedDict[str, KeptText] = OrderedDict()
        self._chars, self._lock = 0, ForkSafeLock()
        if store is None and self._settings.path is not None:
            store = SqliteVerdicts(self._settings.path, self._settings)
        self._store = store
        self.hits = self.misses = 0

    def __repr__(self) -> str:
        return f"<VerdictCache {len(self._kept)} in memory, {self.hits} hits, {self.misses} misses>"

    async def get(self, key: str) -> Verdict | None:
        """The verdict, if it is there and not too old; counted as a hit or a miss. Never raises."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        if self._store is not None and (kept is None or self._is_old(kept)):
            read = await self._store.read(key)
            with self._lock:  # a call that ended meanwhile has put it there
                kept = self._kept.get(key)
            if read is not None and (kept is None or self._is_old(kept)):
                kept = read
                self._remember(key, kept)
        verdict = None
        if kept is not None and not self._is_old(kept):
            try:
                verdict = Verdict.model_validate_json(kept.text)
            except ValidationError:  # of another version of this package, or of another program
                self.forget(key)
        self.hits += verdict is not None
        self.misses += verdict is None
        return verdict

    def put(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict of at most 65,536 characters. Never waits, never raises."""
        kept = KeptText(self._clock(), verdict.model_dump_json())
        if len(kept.text) > _MAX_CHARS:
            return
        self._remember(key, kept)
        if self._store is not None:
            self._store.write(key, kept)

    def forget(self, key: str) -> None:
        """Drop a verdict that is of no use. Never waits, never raises."""
        with self._lock:
            self._drop(key)
        if self._store is not None:
            self._store.delete(key)

    def close(self, timeout_s: float = 1.0) -> bool:
        """Finish the waiting work and close the file, which is opened again where needed. True if done in time."""
        return self._store is None or self._store.close(timeout_s)

    def _remember(self, key: str, kept: KeptText) -> None:
        with self._lock:
            self._drop(key)
            self._kept[key] = kept
            self._chars += len(kept.text)
            while self._kept and (len(self._kept) > self._settings.entries or self._chars > self._settings.max_bytes):
                self._drop(next(iter(self._kept)))

    def _drop(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        self._chars -= 0 if kept is None else len(kept.text)

    def _is_old(self, kept: KeptText) -> bool:
        # A verdict of the future was made by a clock that was wrong.
        return not -60.0 <= self._clock() - kept.made < self._settings.max_age_s


class SqliteVerdicts:
    """The verdicts in a SQLite file; a `VerdictStore`. A file that cannot be used is left alone for ten seconds."""

    def __init__(self, path: Path, settings: CacheSettings) -> None:
        self._store = SqliteStore(path, _SCHEMA, event="judge_cache_file_unusable", patience_s=_PATIENCE_S)
        self._settings = settings

    async def read(self, key: str) -> KeptText | None:
        if not self._store.is_usable:
            return None
        try:
            row = await self._store.result(self._store.submit(lambda connection: _find(connection, key)))
        except Exception:  # the store has noted it
            return None
        return None if row is None else KeptText(float(row[0]), str(row[1]))

    def write(self, key: str, kept: KeptText) -> None:
        if self._store.is_usable:
            self._store.submit(lambda connection: self._insert(connection, key, kept))

    def delete(self, key: str) -> None:
        self._store.submit(lambda connection: connection.execute("DELETE FROM verdicts WHERE key = ?", (key,)))

    def close(self, timeout_s: float) -> bool:
        return self._store.close(timeout_s)

    def _insert(self, connection: sqlite3.Connection, key: str, kept: KeptText) -> None:
        new = connection.execute("INSERT OR REPLACE INTO verdicts (key, made, text) VALUES (?, ?, ?)", (key, *kept))
        oldest = connection.execute("SELECT coalesce(min(id), 0) FROM verdicts").fetchone()[0]
        connection.execute(
            "DELETE FROM verdicts WHERE id <= ? OR (id <= ? AND made < ?)",
            # Old ones are looked for among a few only, so that a write takes as long however many there are.
            ((new.lastrowid or 0) - self._settings.max_rows, oldest + 16, kept.made - self._settings.max_age_s),
        )


def _find(connection: sqlite3.Connection, key: str) -> Any:
    return connection.execute("SELECT made, text FROM verdicts WHERE key = ?", (key,)).fetchone()
