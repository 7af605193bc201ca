"""C6: a result that was saved is in the database after any process is killed, whole, and the file
is in order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agenteval_otel.storage import SqlStorageProvider
from tests.promises.figures import sized
from tests.promises.killed import killed_writers
from tests.storage.samples import run_saving


@pytest.mark.sized
def test_no_saved_row_is_lost(tmp_path: Path, promise: Callable[..., None]) -> None:
    """Every result that was reported as saved is there, once and with all of its rows, and SQLite
    finds no fault.
    """
    path = tmp_path / "results.db"
    options = {"type": "sql", "path": str(path)}
    report = killed_writers(options, kills=sized(20, 100), longest=20_000)
    with closing(sqlite3.connect(path)) as connection:
        integrity = connection.execute("PRAGMA integrity_check").fetchall()
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        rows = connection.execute(
            "SELECT e.response_id, count(r.position) FROM agenteval_evaluations e "
            "LEFT JOIN agenteval_results r ON r.evaluation_id = e.id GROUP BY e.id"
        ).fetchall()
        alone = connection.execute(
            "SELECT count(*) FROM agenteval_results WHERE evaluation_id NOT IN (SELECT id FROM agenteval_evaluations)"
        ).fetchone()[0]
    names = [name for name, _ in rows]
    lost = set(report.saved) - set(names)
    partly = [name for name, count in rows if count != 2]
    promise(
        "C6",
        figure=(
            f"{report.killed} kills of 4 writers, {len(report.saved)} results saved: "
            f"{len(lost)} lost, {len(partly)} in "
            f"part, {len(names) - len(set(names))} double, integrity {integrity[0][0]}"
        ),
    )
    assert len(report.saved) > report.killed
    assert lost == set()
    assert (partly, alone) == ([], 0)
    assert len(names) == len(set(names))
    assert (integrity, mode) == ([("ok",)], "wal")
    assert SqlStorageProvider(path=path).query(criterion="c", limit=1)


ONE_AT_A_TIME = """
    import fcntl
    tried = sql_database.Database._tried

    def within(self, items):
        # Whoever is between the beginning and the end of a transaction holds this; a second one would not get it.
        mine = os.open(path + ".inside", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.write(1, b"overlap %d\\n" % os.getpid())
        try:
            return tried(self, items)
        finally:
            os.close(mine)

    sql_database.Database._tried = within

    async def work():
        saved = 0
        for _ in range(50):
            outcomes = await asyncio.gather(*(storage.save_result(AggregatedEvaluationResult()) for _ in range(4)),
                                            return_exceptions=True)
            saved += sum(outcome is None for outcome in outcomes)
        await storage.close()
        os.write(1, b"saved %d\\n" % saved)  # in one piece: four processes write there

    children = []
    for _ in range(4):
        if (child := os.fork()) == 0:
            asyncio.run(work())
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
"""


def test_one_writes_at_a_time(tmp_path: Path, promise: Callable[..., None]) -> None:
    """Of four processes no two are within a transaction, or its checkpoint, at once, whatever
    SQLite's version.
    """
    path = tmp_path / "results.db"
    finished = run_saving(ONE_AT_A_TIME, path)
    assert finished.code == 0, finished.stderr
    saved = sum(map(int, finished.lines("saved")))
    overlaps = len(finished.lines("overlap"))
    promise("C6", figure=f"{saved} results of 4 processes: {overlaps} times two wrote at once")
    assert saved > 100, finished.stderr
    assert overlaps == 0
    with closing(sqlite3.connect(path)) as connection:
        assert (
            connection.execute("SELECT count(*) FROM agenteval_evaluations").fetchone()[0] >= saved
        )
