"""Below 20 conversations, traces or inputs a side no page calls anything better or worse."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agenteval_otel.ui.app import Pages, UiSettings
from agenteval_otel.ui.runs import opened_runs
from tests.ui.conftest import Open
from tests.ui.stored import DAY_NS, answer, columns_of, score, write_run

MARKS = ("▲", "▼")
TOO_FEW = "too few to tell"
PATHS = (
    "/",
    "/criterion?name=helpfulness",
    "/compare?by=prompt_version",
    "/export/overview.html",
    "/export/criterion.html?name=helpfulness",
    "/export/compare.html?by=prompt_version",
)


@pytest.mark.parametrize(("a_side", "is_claimed"), [(19, False), (20, True)])
@pytest.mark.parametrize("turns", [1, 5])
def test_a_total_loss_of_few_conversations_is_not_called_worse(
    open_pages: Open, a_side: int, is_claimed: bool, turns: int
) -> None:
    """However many turns they have, on every page and in every file that is taken away."""
    now = time.time_ns()
    count = 2 * a_side * turns
    answers = [
        answer(
            score(passed=number < count / 2),
            number=number,
            conversation_id=f"c{number // turns}",
            ended_ns=now - (count - number) * DAY_NS,
            prompt_version="1" if number < count / 2 else "2",
        )
        for number in range(count)
    ]
    client = open_pages(answers)
    for path in PATHS:
        page = client.get(path).text
        assert any(mark in page for mark in MARKS) is is_claimed, path
        assert (TOO_FEW in page) is not is_claimed, path


@pytest.mark.parametrize(("count", "is_claimed"), [(19, False), (20, True)])
def test_runs_of_few_inputs_are_not_called_worse(
    tmp_path: Path, count: int, is_claimed: bool
) -> None:
    """The command line names the drop of 19 inputs, by its p-value. The page shows that beside it."""
    files = [write_run(tmp_path / f"{rate}.jsonl", rate=rate, count=count) for rate in (1.0, 0.0)]
    runs = opened_runs([str(file) for file in files])
    columns = columns_of(runs.place, runs=runs)
    pages = Pages(UiSettings(runs.place, "runs", runs=runs), columns)
    (item,) = (
        item
        for item in runs.compare(*runs.names, pass_rate=False).criteria
        if item.name == "contains"
    )
    assert (item.outcome, item.a.units, item.b.units) == ("drop", count, count)
    page = pages.compare({"by": "run"}, is_static=True)
    (row,) = (row for row in page.split("<tr") if 'scope="row">contains<' in row)
    assert ("▼ worse" in row, TOO_FEW in row) == (is_claimed, not is_claimed)
    assert "p &lt; 0.001" in row or "p < 0.001" in row
