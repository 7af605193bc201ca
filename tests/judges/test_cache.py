"""VerdictCache: what was answered before, in memory and in a file, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.judges import Verdict
from agenteval_otel.judges.budget import SpendLimits
from agenteval_otel.judges.cache import CacheSettings, KeptText, VerdictCache
from agenteval_otel.testing import ManualClock
from tests.judges.doubles import verdict


def cache_of(clock: Any = None, **settings: Any) -> VerdictCache:
    return VerdictCache(CacheSettings(**settings), clock=clock or ManualClock(1e9))


@contextlib.contextmanager
def filed(path: Path, clock: Any = None, **settings: Any) -> Iterator[VerdictCache]:
    cache = cache_of(clock, path=path, **settings)
    yield cache
    assert cache.store is not None
    assert cache.store.close(5.0)


def get(cache: VerdictCache, key: str) -> Verdict | None:
    return asyncio.run(cache.get(key))


def test_a_kept_verdict_comes_back() -> None:
    """It is equal each time; hits and misses are counted."""
    cache = cache_of()
    assert get(cache, "a") is None
    cache.put("a", verdict())
    assert get(cache, "a") == get(cache, "a") == verdict()
    assert (cache.hits, cache.misses) == (2, 1)


def test_callers_cannot_change_kept_verdicts() -> None:
    """A changed answer does not reach the next caller."""
    cache = cache_of()
    value = verdict()
    cache.put("a", value)
    value.answer["score"] = 0
    result = get(cache, "a")
    assert result is not None
    result.answer["score"] = 1
    again = get(cache, "a")
    assert again is not None
    assert again.answer == {"score": 4}


def test_the_least_recently_used_makes_room() -> None:
    """The cache has no more entries than its settings allow."""
    cache = cache_of(entries=3)
    for key in "abc":
        cache.put(key, verdict())
    get(cache, "a")
    cache.put("d", verdict())
    assert [key for key in "abcd" if get(cache, key)] == ["a", "c", "d"]


def test_bytes_are_bounded() -> None:
    """The cache holds no more characters than its settings allow, and no huge verdict."""
    cache = cache_of(max_bytes=10_000)
    for number in range(100):
        cache.put(str(number), verdict().model_copy(update={"raw": "x" * 1_000}))
        assert cache._chars == sum(len(text) for _, text in cache._kept.values()) <= 10_000
    assert len(cache._kept) >= 7
    cache.put("huge", verdict().model_copy(update={"raw": "x" * 70_000}))
    assert get(cache, "huge") is None


@pytest.mark.parametrize("in_file", [False, True], ids=["memory", "file"])
def test_old_verdicts_are_misses(in_file: bool, tmp_path: Path) -> None:
    """So are verdicts from the future."""
    clock = ManualClock(1e9)
    with filed(tmp_path / "cache.db", clock, max_age_s=100) as cache:
        cache.put("a", verdict())
        clock.advance(99)
        if in_file:
            cache._kept.clear()
        assert get(cache, "a") is not None
        clock.advance(2)
        if in_file:
            cache._kept.clear()
        assert get(cache, "a") is None
        early = cache_of(ManualClock(0), path=tmp_path / "cache.db")
        assert get(early, "a") is None
        assert early.store is not None
        assert early.store.close(5.0)


def test_the_file_serves_the_next_run(tmp_path: Path) -> None:
    """Another process finds the verdicts; the file is readable by its owner alone."""
    path = tmp_path / "below" / "cache.db"
    with filed(path) as cache:
        cache.put("a", verdict())
    with filed(path) as cache:
        assert get(cache, "a") == verdict()
        assert get(cache, "b") is None
        assert (cache.hits, cache.misses) == (1, 1)
    assert path.stat().st_mode & 0o777 == 0o600


def test_rows_are_bounded(tmp_path: Path) -> None:
    """The file keeps the newest rows; a rewritten verdict counts as new, and old ones are deleted."""
    clock = ManualClock(1e9)
    with filed(tmp_path / "cache.db", clock, max_rows=10, max_age_s=1_000) as cache:
        for number in range(25):
            cache.put(str(number), verdict())
        cache.put("16", verdict())
    with contextlib.closing(sqlite3.connect(tmp_path / "cache.db")) as connection:
        kept = [row[0] for row in connection.execute("SELECT key FROM verdicts ORDER BY id")]
    assert kept == ["17", "18", "19", "20", "21", "22", "23", "24", "16"]
    clock.advance(2_000)
    with filed(tmp_path / "cache.db", clock, max_rows=10, max_age_s=1_000) as cache:
        cache.put("new", verdict())
    with contextlib.closing(sqlite3.connect(tmp_path / "cache.db")) as connection:
        assert connection.execute("SELECT key FROM verdicts").fetchall() == [("new",)]


def test_forget_reaches_memory_and_file(tmp_path: Path) -> None:
    """A useless verdict is in neither."""
    with filed(tmp_path / "cache.db") as cache:
        cache.put("a", verdict())
        cache.forget("a")
        assert get(cache, "a") is None


@pytest.mark.parametrize("text", ["", "{}", '{"answer": 1}', "nonsense"])
def test_an_invalid_row_is_a_miss(text: str, tmp_path: Path) -> None:
    """Rows of other programs or versions are deleted."""
    path = tmp_path / "cache.db"
    with filed(path) as cache:
        cache.put("a", verdict())
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE verdicts SET text = ?", (text,))
    with filed(path) as cache:
        assert get(cache, "a") is None
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM verdicts").fetchone() == (0,)


def test_a_broken_file_costs_hits_only(tmp_path: Path) -> None:
    """Memory goes on."""
    path = tmp_path / "cache.db"
    path.write_text("this is no database, and was never meant to be one\n" * 100)
    with filed(path) as cache:
        assert get(cache, "b") is None
        cache.put("a", verdict())
        assert get(cache, "a") == verdict()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A folder as `path` is refused at load."""
    for settings in (CacheSettings, SpendLimits):
        with pytest.raises(ConfigurationError, match="path: expected a file, found a folder"):
            settings(path=tmp_path)


def test_another_database_can_keep_the_verdicts() -> None:
    """A class with the four methods of `VerdictStore` shares verdicts between caches, as the file does."""

    class Shared:
        def __init__(self) -> None:
            self.kept: dict[str, KeptText] = {}

        async def find(self, key: str) -> KeptText | None:
            return self.kept.get(key)

        def keep(self, key: str, kept: KeptText) -> None:
            self.kept[key] = kept

        def delete(self, key: str) -> None:
            self.kept.pop(key, None)

        def close(self, timeout_s: float) -> bool:
            return True

    store = Shared()
    VerdictCache(store=store).put("key", verdict())
    other = VerdictCache(store=store)
    assert asyncio.run(other.get("key")) == verdict()
    other.forget("key")
    assert store.kept == {}
