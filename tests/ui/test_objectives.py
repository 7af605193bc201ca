"""Objectives of the pages: as criteria had them when they were scored, and those of settings."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agenteval_otel import (
    EvaluationCriteria,
    EvaluationInput,
    EvaluationRunConfig,
    run_evaluation_sync,
)
from agenteval_otel.components.database.target import Target
from agenteval_otel.evaluators import Contains
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.read import place_of
from agenteval_otel.storage.sql_database import Database
from agenteval_otel.storage.sql_rows import rows_of
from tests.ui.conftest import Open
from tests.ui.served import Structure
from tests.ui.stored import answer, columns_of, score, store


def scored(agent: str, objective: float | None, number: int = 0) -> AggregatedEvaluationResult:
    return answer(score(objective=objective), agent=agent, number=number)


def test_a_stored_objective_is_on_the_pages(open_pages: Open) -> None:
    """Without settings, on the overview and in the chart of the criterion."""
    client = open_pages([scored("support", 0.85)])
    for path in ("/", "/criterion?name=helpfulness"):
        assert "objective 85.0 %: met" in Structure(client.get(path).text).text


def test_settings_come_before_what_is_stored(open_pages: Open) -> None:
    client = open_pages([scored("support", 0.85)], objectives={"helpfulness": 0.6})
    assert "objective 60.0 %: met" in Structure(client.get("/").text).text


def test_the_newest_objective_of_each_agent_counts(tmp_path: Path) -> None:
    """Of several agents it is the highest. A result without one, as of a person, changes nothing."""
    answers = [scored("a", 0.95), scored("a", 0.7, 1), scored("b", 0.8, 2), scored("b", None, 3)]
    database = Database(Target(tmp_path / "a.db", ""))
    rows = [rows_of(item, f"{number:032x}") for number, item in enumerate(answers)]
    assert not any(database.write(rows, may_wait=True))
    database.close()
    columns = columns_of(place_of(str(tmp_path / "a.db")))
    assert columns.objectives == {"helpfulness": 0.8}


@pytest.mark.parametrize("has_objective", [True, False])
def test_a_run_stores_the_objective_of_its_criterion(tmp_path: Path, has_objective: bool) -> None:
    """In a database and in a file, wherever the settings stated it."""
    objective = 0.9 if has_objective else None
    config = EvaluationRunConfig(
        evaluators=[Contains(substrings=["Paris"], criterion_name="named")],
        criteria=[EvaluationCriteria(name="named", objective=objective)],
    )
    result = run_evaluation_sync(EvaluationInput(prompt="?", response="Paris."), config)
    file = tmp_path / "run.jsonl"
    file.write_text(result.model_dump_json(by_alias=True))
    expected = {"named": 0.9} if has_objective else {}
    for place in (store(tmp_path / "a.db", [result]), place_of(str(file))):
        assert columns_of(place).objectives == expected


@pytest.mark.parametrize(
    "details",
    [
        '{"objective":"high"}',
        '{"objective":1e999}',
        '{"objective":-1}',
        '{"objective":{"a":[]}}',
        '"objective":0.9,"judge":{',
        '{"metadata":{"objective":0.9}}',
    ],
)
def test_an_objective_that_is_none_is_passed_over(tmp_path: Path, details: str) -> None:
    """Details that were changed by hand cost their own objective, and no page."""
    place = store(tmp_path / "a.db", [scored("a", 0.7), scored("b", None, 1)])
    _write_details(tmp_path / "a.db", details, agent="b")
    columns = columns_of(place)
    assert columns.count == 2
    assert columns.objectives == {"helpfulness": 0.7}


def _write_details(file: Path, details: str, *, agent: str) -> None:
    connection = sqlite3.connect(file)
    with connection:
        connection.execute(
            "UPDATE agenteval_results SET details = ? WHERE agent = ?", (details, agent)
        )
    connection.close()
