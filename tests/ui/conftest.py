"""Pages over a database, as their server has them, without a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.ui.access import Access
from agenteval_otel.ui.app import Pages, UiSettings, application
from agenteval_otel.ui.columns import ResultColumns
from tests.ui.stored import store

PORT = 8629
Open = Callable[..., TestClient]


@pytest.fixture
def open_pages(tmp_path: Path) -> Open:
    """Store answers, and give a client of their pages that has the cookie; `client.pages` are the
    pages.
    """

    def open_(answers: Iterable[AggregatedEvaluationResult], **settings: Any) -> TestClient:
        target = store(tmp_path / "results.db", answers)
        columns, access = ResultColumns(target), Access(PORT)
        columns.refresh()
        pages = Pages(UiSettings(target, target.name, **settings), columns, access)
        client = TestClient(
            application(pages), base_url=f"http://127.0.0.1:{PORT}", raise_server_exceptions=True
        )
        assert client.get(f"/?token={access.token}").status_code == 200
        client.pages = pages  # type: ignore[attr-defined]
        return client

    return open_
