"""A storage provider of your own: results into SQLite, in batches, without holding up the
evaluations.

uv run python examples/11_custom_storage.py
"""

import asyncio
import queue
import sqlite3
import threading
from concurrent.futures import Future
from contextlib import closing
from functools import cached_property
from typing import Any

from agenteval_otel import AggregatedEvaluationResult, configure, flush, monitor
from agenteval_otel.storage import EvaluationStorageProvider
from agenteval_otel.testing import check_storage

TABLE = "CREATE TABLE IF NOT EXISTS scores (agent, criterion, normalized REAL, label)"


class SqliteStorage(EvaluationStorageProvider, type="own_sqlite"):
    """One row for each criterion; rows that come together are one transaction."""

    path: str

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        # This runs on the event loop that all evaluations share. A database may block, so a thread
        # of our own writes.
        rows = [
            (aggregated.agent, one.criterion_name, one.normalized, one.label)
            for one in aggregated.results
        ]
        written: Future[None] = Future()
        self._jobs.put((rows, written))
        # so that flush() waits for the rows, and an error of the database counts
        await asyncio.wrap_future(written)

    async def close(self) -> None:
        self._jobs.put(None)

    @cached_property
    def _jobs(self) -> queue.SimpleQueue[Any]:
        # A thread of its own: a SQLite connection belongs to one thread, and rows are cheaper in
        # batches.
        jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(jobs,), daemon=True).start()
        return jobs

    def _work(self, jobs: queue.SimpleQueue[Any]) -> None:
        batch: list[Any] = []
        while None not in batch:
            batch = [jobs.get()]
            while not jobs.empty() and len(batch) < 100:
                batch.append(jobs.get())
            self._write([job for job in batch if job and job[1].set_running_or_notify_cancel()])

    def _write(self, jobs: list[Any]) -> None:
        try:
            with closing(sqlite3.connect(self.path)) as database, database:
                database.execute(TABLE)
                database.executemany(
                    "INSERT INTO scores VALUES (?,?,?,?)", [row for rows, _ in jobs for row in rows]
                )
        except sqlite3.Error as error:
            for _, written in jobs:
                written.set_exception(error)
        else:
            for _, written in jobs:
                written.set_result(None)


# saves many at once, results of every kind, and closes twice
check_storage(SqliteStorage(path="checked.db"))
configure(sample_rate=1.0, storage=[SqliteStorage(path="scores.db")])


@monitor(agent="support")
def support(question: str) -> str:
    return "I opened a ticket." if "order" in question else ""


for number in range(50):
    support("Where is my order?" if number % 5 else "")
print("delivered:", flush(5.0))

with closing(sqlite3.connect("scores.db")) as database:
    print(
        database.execute(
            "SELECT criterion, label, count(*), avg(normalized) FROM scores GROUP BY 1, 2"
        ).fetchall()
    )
