"""What evaluation costs, as the page `cost` has it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.judges import SpendLimits
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.read import place_of
from agenteval_otel.testing import ScriptedJudge
from agenteval_otel.ui.columns import ResultColumns
from agenteval_otel.ui.costs import costs_in
from agenteval_otel.ui.views import Window
from tests.ui.conftest import Open
from tests.ui.served import Structure
from tests.ui.stored import answer, columns_of, score, store

DAY_S = 86_400
START_S = 20_000 * DAY_S


def judged(
    usd: float | None, *, day: int = 0, agent: str = "support", name: str = "polite", **facts: Any
) -> AggregatedEvaluationResult:
    """An answer whose criterion was judged for this price."""
    judge = {"model": "m", **facts} | ({} if usd is None else {"costUsd": usd})
    moment_ns = (START_S + day * DAY_S) * 10**9
    result = score(name, metadata={"judge": judge})
    return answer(result, score("free"), agent=agent, number=day, ended_ns=moment_ns)


ANSWERS = [
    judged(0.25, agent="billing"),
    judged(0.5, day=1),
    judged(0.25, day=2, name="grounded"),
    judged(None, day=2, name="grounded"),
    judged(None, day=2, fromCache=True),
]


def test_costs_are_sums_by_criterion_by_agent_and_over_time(tmp_path: Path) -> None:
    """A verdict of the cache costs nothing. One without a price is counted apart."""
    costs = costs_in(columns_of(store(tmp_path / "a.db", ANSWERS)), Window(), {})
    assert costs is not None
    assert costs.total == ("", 5, 1, 1.0)
    assert costs.by["criterion"] == [("polite", 3, 0, 0.75), ("grounded", 2, 1, 0.25)]
    assert costs.by["agent"] == [("support", 4, 1, 0.75), ("billing", 1, 0, 0.25)]
    assert [usd for usd in costs.series.usd if usd] == [0.25, 0.5, 0.25]
    assert costs.series.end > costs.series.times[-1] >= START_S + 2 * DAY_S - 6 * 3_600


def test_files_have_the_same_costs(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text("".join(f"{item.model_dump_json(by_alias=True)}\n" for item in ANSWERS))
    of_file = costs_in(columns_of(place_of(str(file))), Window(), {})
    assert of_file == costs_in(columns_of(store(tmp_path / "a.db", ANSWERS)), Window(), {})


def test_the_price_of_a_real_verdict_is_stored(tmp_path: Path) -> None:
    """What the judge's limits know, without settings for the pages."""
    judge = ScriptedJudge(
        fallback={"score": 5, "reasoning": "It is."},
        input_tokens=1_000_000,
        output_tokens=200_000,
        spend=SpendLimits(prices={"scripted": {"input": 1.0, "output": 5.0}}),
    )
    config = EvaluationRunConfig(evaluators=[LLMJudge("Polite?", judge=judge, criterion_name="ok")])
    result = run_evaluation_sync(EvaluationInput(prompt="?", response="Please."), config)
    costs = costs_in(columns_of(store(tmp_path / "a.db", [result])), Window(), {})
    assert costs is not None
    assert costs.total.usd == pytest.approx(2.0)


def test_the_page_narrows_to_an_agent_and_a_range(open_pages: Open) -> None:
    client = open_pages(ANSWERS)
    page = client.get("/cost").text
    assert "$1.00" in page
    assert "criterion=grounded" in page
    narrowed = Structure(client.get("/cost?agent=billing").text).text
    assert "$0.25" in narrowed
    assert "grounded" not in narrowed
    assert (
        "$0.5"
        in Structure(
            client.get(f"/cost?since={START_S + DAY_S}&until={START_S + DAY_S + 1}").text
        ).text
    )
    assert "No model was asked in this window" in client.get("/cost?agent=nobody").text


def test_without_a_judge_the_page_says_so(open_pages: Open) -> None:
    assert "No model was asked" in open_pages([answer(score())]).get("/cost").text
    assert "$" not in open_pages([judged(None)]).get("/cost").text, "no price is known"


@pytest.mark.parametrize("cost", ['"free"', "-1", "1e999", "{}", "true", "[1]", "null"])
def test_a_cost_that_is_none_has_no_price(tmp_path: Path, cost: str) -> None:
    place = store(tmp_path / "a.db", [judged(0.5)])
    connection = sqlite3.connect(tmp_path / "a.db")
    details = f'{{"metadata":{{"judge":{{"model":"m","costUsd":{cost}}}}}}}'
    with connection:
        connection.execute(
            "UPDATE agenteval_results SET details = ? WHERE criterion = 'polite'", (details,)
        )
    connection.close()
    costs = costs_in(columns_of(place), Window(), {})
    assert costs is not None
    assert costs.total.calls == 1
    assert costs.total.unpriced == (0 if cost == "true" else 1)


def test_an_empty_place_has_no_costs(tmp_path: Path) -> None:
    columns: ResultColumns = columns_of(store(tmp_path / "a.db", []))
    assert costs_in(columns, Window("1h"), {}) is None
