"""The pages over a real PostgreSQL: the same figures and labels as over SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agenteval_otel.components.database.target import target_of
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.read import database_of
from agenteval_otel.storage.rows import PRICE_UNKNOWN
from agenteval_otel.storage.sql_database import Database
from agenteval_otel.storage.sql_rows import rows_of
from agenteval_otel.ui.labels import Labels
from agenteval_otel.ui.views import Window, overview
from tests.storage.conftest import (
    postgresql_binary_fixture,
    postgresql_fixture,
    postgresql_server_fixture,
)
from tests.ui.served import client_of, served
from tests.ui.stored import answer, columns_of, score, store, traffic
from tests.ui.test_labels import field

__all__ = ["postgresql_binary_fixture", "postgresql_fixture", "postgresql_server_fixture"]

pytestmark = [pytest.mark.backend, pytest.mark.slow]


def test_figures_and_labels_are_those_of_sqlite(postgresql: Any, tmp_path: Path) -> None:
    """Every page opens, the figures are equal, and a label is stored and joined with its answer."""
    judged = score("judged", objective=0.8, metadata={"judge": {"model": "m", "costUsd": 0.25}})
    free = score("free", metadata={"judge": {"model": "m"}})
    answers = [*traffic(90), answer(judged, free, number=90)]
    target = target_of(None, postgresql.url)
    place, database = database_of(target), Database(target)
    assert not any(database.write([rows_of(item) for item in answers], may_wait=True))
    database.close()
    views = [_views(chosen) for chosen in (place, store(tmp_path / "a.db", answers))]
    assert views[0] == views[1]
    stored = columns_of(place)
    assert stored.objectives == {"judged": 0.8}
    assert sorted(stored["cost"][~np.isnan(stored["cost"])]) == [PRICE_UNKNOWN, 0.25]
    with served(postgresql.url) as address, client_of(address) as client:
        for path in (
            "/",
            "/criterion?name=helpfulness",
            "/compare?by=prompt_version",
            "/health",
            "/export.csv",
            "/conversation?id=conversation-3",
            "/answers?text=return+order&agent=support",
            "/answers?tag=a%3Db&user=u&conversation=conversation-3",
        ):
            assert client.get(path).status_code == 200, path
        page = client.get("/label?criterion=helpfulness").text
        form = {
            name: page.split(f'name="{name}" value="')[1].split('"')[0] for name in ("csrf", "key")
        }
        reply = client.post("/label", data={**form, "criterion": "helpfulness", "verdict": "fail"})
        assert reply.status_code == 200
    columns = columns_of(place)
    (label,) = Labels(place, columns).all()
    assert (label.evaluation_id, label.passed) == (form["key"], False)


DAMAGED = [
    '"objective":0.9,"judge":{"costUsd":1.0}',
    '{"objective":0.9',
    r'{"metadata":{"judge":{"model":"\u0000"}},"label":"\u0000"}',
    '{"objective":"high","metadata":{"judge":{"costUsd":"much"}}}',
    '{"metadata":{"objective":0.9,"judge":{"costUsd":1e+-1}}}',
    "",
]


@pytest.mark.parametrize("details", DAMAGED)
def test_a_damaged_row_costs_its_own_numbers(postgresql: Any, details: str) -> None:
    """Details that were changed by hand are no JSON, or have what the server cannot read."""
    target = target_of(None, postgresql.url)
    judge = {"judge": {"model": "m", "costUsd": 0.25}}
    kept = answer(score("kept", objective=0.8, metadata=judge), number=1)
    odd = answer(score("odd"), number=2)
    database = Database(target)
    assert not any(database.write([rows_of(kept), rows_of(odd)], may_wait=True))
    database.close()
    change = "UPDATE agenteval_results SET details = $${}$$ WHERE criterion = 'odd'"
    postgresql.query(change.format(details))
    stored = columns_of(database_of(target))
    assert stored.count == 2
    assert stored.objectives["kept"] == 0.8
    assert 0.25 in stored["cost"]


def test_labels_are_taken_back_and_go_out_and_in(postgresql: Any) -> None:
    """Two people label, one takes back the last label; the files are read again without adding any."""
    target = target_of(None, postgresql.url)
    place, database = database_of(target), Database(target)
    assert not any(database.write([rows_of(item) for item in traffic(30)], may_wait=True))
    database.close()
    page = "/label?criterion=helpfulness&order=second+opinion"
    with served(postgresql.url) as address, client_of(address) as client:
        for name, path in (("Ann", "/label?criterion=helpfulness"), ("Ben", page)):
            csrf = {"csrf": field(client.get(path).text, "csrf"), "next": path}
            client.post("/label", data={**csrf, "labeller": name})
            for verdict in ("pass", "fail", "pass"):
                form = {"key": field(client.get(path).text, "key"), "criterion": "helpfulness"}
                client.post("/label", data={**csrf, **form, "verdict": verdict})
        client.post("/label", data={**csrf, "undo": field(client.get(page).text, "undo")})
        for kind in ("csv", "jsonl"):
            content = client.get(f"/export/labels.{kind}").content
            reply = client.post(
                "/label/import", data=csrf, files={"file": (f"labels.{kind}", content)}
            )
            assert "0 added, 5 there already." in reply.text
    columns = columns_of(place)
    labels = Labels(place, columns)
    assert [label.name for label in labels.all()] == ["Ann", "Ann", "Ann", "Ben", "Ben"]
    between = labels.between_people("helpfulness")
    assert between is not None
    assert (between.people, between.answers) == (2, 2)


def _views(place: Place) -> list[Any]:
    columns = columns_of(place)
    return [
        (
            view.name,
            view.scored,
            view.skipped,
            view.series.times,
            view.series.counts,
            [round(end, 6) for end in view.passes.estimate[:5]] if view.passes else None,
        )
        for view in overview(columns, Window(), {})
    ]
