"""What evaluation costs and how long it runs, as the page `cost` has it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.evaluators import LLMJudge, ResponseHealth
from agenteval_otel.judges import SpendLimits
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
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
    assert costs.total == ("", 5, 1, 1.0, 0, 0.0)
    assert costs.by["criterion"] == [
        ("polite", 3, 0, 0.75, 0, 0.0),
        ("grounded", 2, 1, 0.25, 0, 0.0),
    ]
    assert costs.by["agent"] == [("support", 4, 1, 0.75, 0, 0.0), ("billing", 1, 0, 0.25, 0, 0.0)]
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


def timed(name: str, milliseconds: int, *, version: str = "1", **fields: Any) -> EvaluationResult:
    """A score whose evaluator ran so long."""
    ended_ns = START_S * 10**9 + milliseconds * 10**6
    times = {"started_ns": START_S * 10**9, "ended_ns": ended_ns}
    return score(name, evaluator_version=version, **times, **fields)


TIMED = [
    answer(
        timed("tone", 2_000, metadata={"judge": {"model": "m", "costUsd": 0.5}}),
        timed("depth", 2_000),  # of the same run
        timed("length", 250, version="2"),
        agent="billing",
    ),
    answer(timed("tone", 1_000), timed("length", 750, version="2"), number=1),
    answer(timed("length", 1_000, version="2"), number=2),
]


def test_a_run_of_an_evaluator_counts_once_at_the_first_of_its_criteria(tmp_path: Path) -> None:
    """Also if a reader looks at another of its criteria alone. The file has the same figures."""
    place = store(tmp_path / "a.db", TIMED)
    costs = costs_in(columns_of(place), Window(), {})
    assert costs is not None
    assert costs.total == ("", 1, 0, 0.5, 5, 5.0)
    assert costs.by["criterion"] == [("tone", 1, 0, 0.5, 2, 3.0), ("length", 0, 0, 0.0, 3, 2.0)]
    assert costs.by["criterion"][1].seconds_each == pytest.approx(2 / 3)
    assert costs_in(columns_of(place), Window(), {"criterion": "depth"}) is None
    file = tmp_path / "run.jsonl"
    file.write_text("".join(f"{item.model_dump_json(by_alias=True)}\n" for item in TIMED))
    assert costs_in(columns_of(place_of(str(file))), Window(), {}) == costs


def test_groups_are_sorted_by_cost_or_by_time(open_pages: Open) -> None:
    """Two scores by code of the agent `support` ran longer than the judge's of `billing`."""
    client = open_pages(TIMED)
    by_cost = Structure(client.get("/cost").text).text
    by_time = Structure(client.get("/cost?order=time").text).text
    assert by_cost.index("billing") < by_cost.index("support")
    assert by_time.index("support") < by_time.index("billing")
    assert "5.0 s" in by_cost
    assert "2.8 s" in by_cost, "of the agent support"
    assert "55.0 %" in by_cost, "its share"
    assert "order=time" in client.get("/cost?order=time&agent=support").text, "it is kept"
    assert client.get("/cost?order=wrong").status_code == 200


def test_without_a_judge_run_times_are_shown_alone(open_pages: Open) -> None:
    page = Structure(open_pages([answer(timed("length", 250))]).get("/cost").text).text
    assert "No model was asked" in page
    assert "250 ms" in page
    assert "Verdicts" not in page


def test_costs_and_run_times_are_a_file(open_pages: Open) -> None:
    """Spreadsheets take no name for a formula."""
    hostile = answer(timed("=1+1", 500), agent=None, number=3)
    client = open_pages([*TIMED, hostile])
    lines = client.get("/export/cost.csv").text.splitlines()
    assert lines[0] == "by,name,verdicts,without_price,cost_usd,runs,seconds,seconds_each"
    assert lines[1:4] == [
        "criterion,tone,1,0,0.5,2,3.0,1.5",
        "criterion,length,0,0,0.0,3,2.0,0.6666666666666666",
        "criterion,'=1+1,0,0,0.0,1,0.5,0.5",
    ]
    assert len(client.get("/export/cost.csv?agent=billing").text.splitlines()) == 4
    assert len(client.get("/export/cost.csv?agent=nobody").text.splitlines()) == 1


@pytest.mark.parametrize(
    ("started_ns", "ended_ns"),
    [
        (5, 3),
        (-9_000_000_000_000_000_000, 9_000_000_000_000_000_000),
        (0, 5),
        (1, 9_000_000_000_000_000_000),
        ("abc", "abd"),
        (None, 5),
    ],
)
def test_a_duration_that_cannot_be_is_unknown(
    tmp_path: Path, started_ns: object, ended_ns: object
) -> None:
    place = store(tmp_path / "a.db", TIMED)
    connection = sqlite3.connect(tmp_path / "a.db")
    with connection:
        connection.execute(
            "UPDATE agenteval_results SET started_ns = ?, ended_ns = ? WHERE criterion != 'depth'",
            (started_ns, ended_ns),
        )
    connection.close()
    costs = costs_in(columns_of(place), Window(), {})
    assert costs is not None
    assert costs.total.seconds == 2.0, "of what was left as it was"


@pytest.mark.parametrize("times", [(5, 3), (0, 5), (1, 10**30), (1.5, 2.5), ("a", "b"), (True, 5)])
def test_a_duration_of_a_file_that_cannot_be_is_unknown(tmp_path: Path, times: Any) -> None:
    [started_ns, ended_ns] = times
    record = json.loads(answer(score()).model_dump_json(by_alias=True))
    record["results"][0] |= {"startedNs": started_ns, "endedNs": ended_ns}
    file = tmp_path / "run.jsonl"
    file.write_text(f"{json.dumps(record)}\n")
    columns = columns_of(place_of(str(file)))
    assert columns.count == 1
    costs = costs_in(columns, Window(), {})
    assert costs is None or costs.total.seconds < 1e-6


def test_a_real_evaluation_has_its_run_time(tmp_path: Path) -> None:
    result = run_evaluation_sync(
        EvaluationInput(prompt="?", response="Please."),
        EvaluationRunConfig(evaluators=[ResponseHealth()]),
    )
    costs = costs_in(columns_of(store(tmp_path / "a.db", [result])), Window(), {})
    assert costs is not None
    assert costs.total.runs == 1
    assert 0 < costs.total.seconds < 60
