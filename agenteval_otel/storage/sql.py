"""SqlStorageProvider: results in a database, and queries for them.

SQLAlchemy is loaded with the first result.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from agenteval_otel.components.database.target import Target, target_of
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.batcher import BatchedStorageProvider, Sink
from agenteval_otel.storage.erasure import ErasedPlace, Erasure
from agenteval_otel.storage.sql_rows import StoredResult, in_utc, name_of, rows_of, tags_of


class SqlStorageProvider(BatchedStorageProvider, type="sql"):
    """Inserts each result into a database.

    The evaluation has a row, and so has each score, skip and failure.

    A thread inserts the rows. A saved result is committed: it survives the end of its process,
    `SIGKILL` included. Tables are created with the first result. An SQLite file belongs to its
    owner only. Processes that write it take turns by the lock ``<name>.lock``. Needs the extra
    ``sql``, for PostgreSQL ``postgresql``.

    Attributes:
        path: An SQLite file. Either this or `url`.
        url: ``postgresql://user:password@host/database`` or ``sqlite:///file``. Shown with its user
            masked. Without a password the server's own ways apply (``PGPASSWORD``, ``~/.pgpass``).
        keep_days: Older evaluations are deleted, a few with each batch. None keeps all.
        fsync: For SQLite: with ``never`` commits survive the process, and a failure of the machine
            may cost the last ones. ``batch`` waits for the disk with each. A server follows its own
            settings.
    """

    path: Path | None = None
    url: str | None = None
    keep_days: float | None = Field(default=None, gt=0.0, le=36_500.0)
    fsync: Literal["never", "batch"] = "never"

    @model_validator(mode="after")
    def _names_a_database(self) -> Self:
        target_of(self.path, self.url)
        return self

    @property
    def target(self) -> Target:
        """Return the database."""
        return target_of(self.path, self.url)

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Insert the result and wait for the commit.

        A commit that fails or hangs for 5 s raises `StorageError`.
        """
        rows = rows_of(aggregated)
        await self.batcher.save(rows, rows.size)

    def query(
        self,
        *,
        criterion: str | None = None,
        agent: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_score: float | None = None,
        max_score: float | None = None,
        status: Literal["scored", "skipped", "failed"] | None = None,
        passed: bool | None = None,
        trace_id: str | None = None,
        prompt_name: str | None = None,
        prompt_version: str | None = None,
        user_id: str | None = None,
        environment: str | None = None,
        experiment: str | None = None,
        arm: str | None = None,
        service: str | None = None,
        service_version: str | None = None,
        tags: Mapping[str, str] | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[StoredResult]:
        """Return the stored results that match all filters, newest first.

        Blocks, over a separate read-only connection. On an event loop call it by
        `asyncio.to_thread`.

        Args:
            criterion: Its name.
            agent: Which agent answered.
            since: Evaluated at this moment or later. Without a zone it is in UTC.
            until: Evaluated before this moment.
            min_score: Raw score on the criterion's scale, true as 1. At least so much.
            max_score: At most so much.
            status: Scored, skipped or failed.
            passed: The verdict.
            trace_id: Of the evaluated span, 32 hexadecimal digits.
            prompt_name: As it was annotated, like those that follow.
            prompt_version: As it was annotated.
            user_id: As it is stored: hashed, unless the settings said otherwise.
            environment: As it was annotated.
            experiment: As it was annotated.
            arm: As it was annotated.
            service: Of answers that the sidecar read from spans.
            service_version: By the resource of the service.
            tags: All of these, such as ``{"tenant": "acme"}``.
            limit: How many at most, from 1.
            offset: How many of the newest are skipped, from 0.

        Raises `StorageError` where the database is not there, cannot be reached or read, or is of a
        newer version.
        """
        from agenteval_otel.storage.sql_read import StoredDatabase

        filters = {
            "criterion": name_of(criterion),
            "agent": name_of(agent),
            "trace_id": name_of(trace_id),
            "status": status,
            "passed": passed,
            "since": in_utc(since),
            "until": in_utc(until),
            "min_score": min_score,
            "max_score": max_score,
            "prompt_name": name_of(prompt_name),
            "prompt_version": name_of(prompt_version),
            "user_id": name_of(user_id),
            "environment": name_of(environment),
            "experiment": name_of(experiment),
            "arm": name_of(arm),
            "service": name_of(service),
            "service_version": name_of(service_version),
            "tags": tags_of(tags),
        }
        return StoredDatabase(self.target).find_results(filters, limit=limit, offset=offset)

    def read(self, evaluation_id: str) -> AggregatedEvaluationResult | None:
        """Return all of one evaluation as it was saved, by its id from `query`.

        None if there is none. Blocks.
        """
        from agenteval_otel.storage.sql_read import StoredDatabase

        return StoredDatabase(self.target).read_evaluation(evaluation_id)

    def erase(self, erasure: Erasure, *, dry_run: bool = False) -> ErasedPlace:
        """Remove content and ids from the rows that are concerned.

        Blocks, in transactions of 200 evaluations.

        An SQLite file is then compacted, so that nothing is left in its free pages: saves wait for
        that.
        """
        from agenteval_otel.storage.sql_erasure import erase_rows

        return erase_rows(self.target, erasure, dry_run=dry_run)

    @property
    def place(self) -> str:
        return self.target.place

    def open_sink(self) -> Sink:
        from agenteval_otel.storage.sql_database import Database

        return Database(self.target, durable=self.fsync == "batch", keep_days=self.keep_days)


class SqliteStorageProvider(SqlStorageProvider, type="sqlite"):
    """`SqlStorageProvider` of an SQLite file that needs no settings: ``storage="sqlite"``.

    Attributes:
        path: The file, by default ``agenteval.db`` in the working directory.
    """

    path: Path | None = Path("agenteval.db")
