"""C4 for databases: of a batch with one poison item all others are stored, and it is made safe or counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.storage import SqlStorageProvider
from tests.backends.fixtures import postgresql_binary_fixture, postgresql_fixture, postgresql_server_fixture
from tests.backends.postgresql import PostgreSQL
from tests.promises.figures import Recorder
from tests.promises.poisons import POISONS
from tests.promises.test_c4_poison import FEW, SENT, Batch

__all__ = ["postgresql_binary_fixture", "postgresql_fixture", "postgresql_server_fixture"]


def stored(name: str, storage: SqlStorageProvider, path: Path) -> int:
    """Run a batch with this poison; gives how many of the healthy ones are stored, all of them read back whole."""
    batch = Batch(POISONS[name](), storage, path, FEW)
    batch.run()
    found = [storage.read(one.evaluation_id) for one in storage.query(criterion="judged", limit=10 * FEW)]
    ids = [whole.response_id or "" for whole in found if whole is not None]
    assert {one for one in ids if one.startswith("healthy")} == batch.healthy
    assert len(found) == len(ids) <= FEW
    batch.assert_counted(len(ids) - (FEW - 1))
    assert batch.pipeline.shutdown(10.0)
    return len(batch.healthy)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SENT else pytest.mark.full) for name in POISONS]
)
def test_a_poisoned_response_costs_no_other_row(name: str, tmp_path: Path, promise: Recorder) -> None:
    """In SQLite: one or two kinds of poison for each field; every kind in the long form."""
    healthy = stored(name, SqlStorageProvider(path=tmp_path / "x.db"), tmp_path / "x.jsonl")
    promise("C4", figure=f"in SQLite: {healthy} healthy of a batch of {FEW} stored")


@pytest.mark.backend
@pytest.mark.parametrize("name", SENT)
def test_a_poisoned_response_costs_no_other_row_on_a_server(
    name: str, postgresql: PostgreSQL, tmp_path: Path, promise: Recorder
) -> None:
    """In PostgreSQL, which refuses more: one or two kinds of poison for each field."""
    options: dict[str, Any] = {"url": postgresql.url}
    healthy = stored(name, SqlStorageProvider(**options), tmp_path / "x.jsonl")
    promise("C4", figure=f"in PostgreSQL: {healthy} healthy of a batch of {FEW} stored")
