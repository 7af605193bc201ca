"""What the pages choose from: a range of time, criteria by name, and answers that pass or fail."""

from __future__ import annotations

import re

import pytest

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.ui.views import ListedCriteria, Window, field_text, moment_in, overview
from tests.ui.conftest import Open
from tests.ui.served import Structure
from tests.ui.stored import answer, score

START_S = 1_780_002_000
HOUR_S = 3_600


def hourly(count: int, name: str = "helpfulness") -> list[AggregatedEvaluationResult]:
    """An answer an hour: the first half passes, the second one fails."""
    return [
        answer(
            score(name, value=float(number < count / 2), passed=number < count / 2),
            number=number,
            ended_ns=(START_S + number * HOUR_S) * 10**9,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("is_of_form", [True, False])
def test_a_range_of_time_is_an_address(open_pages: Open, is_of_form: bool) -> None:
    """In seconds, or as a form sends it in UTC: the overview, a criterion and the list have the same
    answers, and links keep the range.
    """
    client = open_pages(hourly(8))
    since = START_S + 2 * HOUR_S
    until = START_S + 5 * HOUR_S
    chosen = {"since": str(since), "until": str(until)}
    if is_of_form:
        chosen = {"since": field_text(since), "until": field_text(until)[:16]}
    assert "3 results" in Structure(client.get("/", params=chosen).text).text
    listed = client.get("/answers", params={**chosen, "criterion": "helpfulness"}).text
    assert "3 answers" in Structure(listed).text
    page = client.get("/criterion", params={**chosen, "name": "helpfulness"}).text
    assert ">3</a>" in page
    assert f"since={since}&amp;until={until}" in page
    whole = re.search(r'<a href="(/criterion[^"]*window=24h[^"]*)"', page)
    assert whole is not None
    assert "since" not in whole[1]


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", "1e9", "9" * 400, "4294967296", "9999-01-01T00:00", "\u0663", "1969-12-31"],
)
def test_a_moment_that_is_none_is_passed_over(open_pages: Open, text: str) -> None:
    assert moment_in(text) is None
    client = open_pages(hourly(2))
    for path in ("/", "/criterion?name=helpfulness", "/answers", "/compare", "/label"):
        reply = client.get(path, params={"name": "helpfulness", "since": text, "until": text})
        assert reply.status_code == 200


def test_a_range_without_results_says_so(open_pages: Open) -> None:
    client = open_pages(hourly(2))
    assert "Nothing is stored here in this window" in client.get("/?since=1&until=2").text
    assert "No score in this window" in client.get("/criterion?name=helpfulness&until=2").text


def test_a_moment_of_a_form_may_have_a_zone() -> None:
    assert moment_in("1970-01-01T02:00:00+01:00") == HOUR_S
    assert moment_in("1970-01-01T01:00") == HOUR_S
    assert field_text(HOUR_S) == "1970-01-01T01:00:00"
    assert field_text(None) == ""


def test_a_thousand_criteria_are_in_pages_and_found_by_name(open_pages: Open) -> None:
    """A page has fifty, the tiles count all of them, and one is found by a part of its name."""
    results = [score(f"criterion_{number:04}") for number in range(1_000)]
    client = open_pages([answer(*results)])
    page = client.get("/").text
    assert page.count('<th scope="row">') == 50
    assert "page 1 of 20" in page
    assert "of 1,000 criteria" in Structure(page).text
    last = client.get("/?page=20").text
    assert "criterion_0999" in last
    assert "criterion_0000" not in last
    found = client.get("/?q=Criterion_012").text
    assert found.count('<th scope="row">') == 10
    assert "No criterion has this in its name" in client.get("/?q=<b>").text


@pytest.mark.parametrize("page", ["0", "-1", "x", "9" * 30, "\u0663", ""])
def test_a_page_of_criteria_that_there_is_not_is_the_nearest(open_pages: Open, page: str) -> None:
    client = open_pages([answer(*(score(f"c{number}") for number in range(60)))])
    views = overview(client.pages.columns, Window(), {})  # type: ignore[attr-defined]
    listed = ListedCriteria.of(views, "", page)
    assert 1 <= listed.page <= listed.pages == 2
    assert listed.shown


def test_a_verdict_is_one_bar_and_a_scale_a_distribution(open_pages: Open) -> None:
    """The parts of the bar lead to the answers that pass and fail."""
    answers = [*hourly(8), answer(score("scaled", value=0.4, passed=False), number=9)]
    client = open_pages(answers)
    page = client.get("/criterion?name=helpfulness").text
    assert "pass 50.0 %" in Structure(page).text
    assert "outcome=fail" in page.partition('class="verdicts"')[2]
    assert "Distribution of scores" not in page
    scaled = client.get("/criterion?name=scaled").text
    assert "Distribution of scores" in scaled
    assert 'class="verdicts"' not in scaled
