"""VerdictCache: what was answered before, in memory or in a file, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.evaluators.judges.cache import CacheSettings, SqliteVerdicts, VerdictCache
from agenteval_otel.judges import Verdict
from agenteval_otel.testing import ManualClock
from tests.judges.doubles import verdict


def cache_of(clock: Any = None, **settings: Any) -> VerdictCache:
    return VerdictCache(CacheSettings(**settings), clock=clock or ManualClock(1e9))


@contextlib.contextmanager
def filed(path: Path, clock: Any = None, **settings: Any) -> Iterator[VerdictCache]:
    cache = cache_of(clock, path=path, **settings)
    assert isinstance(cache.store, SqliteVerdicts)
    yield cache
    assert cache.store.close(5.0)


def rows_of(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT key FROM verdicts ORDER BY id")]


def get(cache: VerdictCache, key: str) -> Verdict | None:
    return asyncio.run(cache.get(key))


def test_a_kept_verdict_comes_back() -> None:
    """It is equal each time, whatever callers do to theirs; hits and misses are counted."""
    cache = cache_of()
    assert get(cache, "a") is None
    value = verdict()
    cache.put("a", value)
    value.answer["score"] = 0
    result = get(cache, "a")
    assert result is not None
    result.answer["score"] = 1
    assert get(cache, "a") == verdict()
    assert (cache.hits, cache.misses) == (2, 1)


def test_memory_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """The least recently used verdict makes room, and a huge one is not kept, which the log says."""
    cache = cache_of(entries=3)
    for key in "abc":
        cache.put(key, verdict())
    get(cache, "a")
    cache.put("d", verdict())
    cache.put("huge", verdict().model_copy(update={"raw": "x" * 66_000, "model": "wordy"}))
    assert "verdict_not_cached" in caplog.text
    assert [key for key in ("a", "b", "c", "d", "huge") if get(cache, key)] == ["a", "c", "d"]


@pytest.mark.parametrize("in_file", [False, True], ids=["memory", "file"])
def test_old_verdicts_are_misses(in_file: bool, tmp_path: Path) -> None:
    """So are verdicts from the future."""
    now = [1e9]
    cache = cache_of(lambda: now[0], max_age_s=100, path=tmp_path / "cache.db" if in_file else None)
    cache.put("a", verdict())
    for step_s, is_there in ((99, True), (2, False), (-1_000, False)):
        now[0] += step_s
        assert (get(cache, "a") is not None) is is_there
    if isinstance(cache.store, SqliteVerdicts):
        assert cache.store.close(5.0)


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
    clock, path = ManualClock(1e9), tmp_path / "cache.db"
    with filed(path, clock, max_rows=10, max_age_s=1_000) as cache:
        for number in range(25):
            cache.put(str(number), verdict())
        cache.put("16", verdict())
    assert rows_of(path) == ["17", "18", "19", "20", "21", "22", "23", "24", "16"]
    clock.advance(2_000)
    with filed(path, clock, max_rows=10, max_age_s=1_000) as cache:
        cache.put("new", verdict())
    assert rows_of(path) == ["new"]


def test_a_useless_verdict_is_forgotten(tmp_path: Path) -> None:
    """In memory as in the file."""
    with filed(tmp_path / "cache.db") as in_file:
        for cache in (cache_of(), in_file):
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
    assert rows_of(path) == []


def test_a_broken_file_costs_hits_only(tmp_path: Path) -> None:
    """Nothing raises, and every question is a miss."""
    path = tmp_path / "cache.db"
    path.write_text("this is no database, and was never meant to be one\n" * 100)
    with filed(path) as cache:
        cache.put("a", verdict())
        assert get(cache, "a") is None
