"""Results to save, and saving them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from tests.promises.programs import Finished, run_program

__all__ = ["aggregated", "change", "failed", "lines_of", "run_saving", "save", "scored", "skipped"]

_SAVING = """
    import asyncio, contextlib, os, subprocess, sys, threading
    from agenteval_otel.errors import StorageError
    from agenteval_otel.models import AggregatedEvaluationResult
    from agenteval_otel.storage import SqlStorageProvider, sql_database
    address = sys.argv[1]
    path = address.removeprefix("sqlite:///")
    storage = SqlStorageProvider(url=address)

    def save(agent="support", provider=storage):
        asyncio.run(provider.save_result(AggregatedEvaluationResult(agent=agent)))
"""

_TIMES: dict[str, Any] = {"started_ns": 1_000, "ended_ns": 2_000}


def scored(name: str = "tone", **fields: Any) -> EvaluationResult:
    value: dict[str, Any] = {
        "score": 0.5,
        "normalized": 0.5,
        "label": "pass",
        "passed": True,
        **_TIMES,
        **fields,
    }
    return EvaluationResult(criterion_name=name, evaluator_type="T", **value)


def failed(name: str = "length", **fields: Any) -> EvaluationResult:
    value: dict[str, Any] = {"error": "broke", "error_type": "timeout", **_TIMES, **fields}
    return EvaluationResult(criterion_name=name, evaluator_type="T", **value)


def skipped(name: str = "facts", **fields: Any) -> EvaluationResult:
    return EvaluationResult(
        criterion_name=name, evaluator_type="T", skip_reason="no ground truth", **fields
    )


def aggregated(*results: EvaluationResult, **fields: Any) -> AggregatedEvaluationResult:
    value: dict[str, Any] = {
        "agent": "support",
        "overall_score": 0.5,
        "started_ns": 1_000,
        "ended_ns": 3_000,
        **fields,
    }
    return AggregatedEvaluationResult(results=results or (scored(), failed(), skipped()), **value)


def save(storage: Any, *results: AggregatedEvaluationResult) -> None:
    """Save the results one after the other, and close the provider."""

    async def work() -> None:
        for result in results:
            await storage.save_result(result)
        await storage.close()

    asyncio.run(work())


def run_saving(source: str, database: Path | str) -> Finished:
    """Run a program with a `storage` of the database, and `save`."""
    address = database if isinstance(database, str) else f"sqlite:///{database}"
    return run_program(textwrap.dedent(_SAVING) + textwrap.dedent(source), address)


def change(path: Path, *statements: str) -> None:
    """Run statements on an SQLite file, past the package."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
