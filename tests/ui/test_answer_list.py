"""The list of answers: who is in it, in which order, and what an address may say."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agenteval_otel import cli
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.ui.serve import opened
from tests.ui.conftest import Open
from tests.ui.stored import answer, score, traffic

SECOND_NS = 10**9
START_S = 1_790_000_000


def at(number: int, *results: EvaluationResult, **fields: Any) -> Any:
    """The answer of an order, an hour after the one before it."""
    ended_ns = (START_S + 3_600 * number) * SECOND_NS
    return answer(*results, number=number, ended_ns=ended_ns, **fields)


def orders(client: TestClient, address: str) -> list[int]:
    """The orders that the answers of a list are about, from the first on."""
    return [int(number) for number in re.findall(r"return order (\d+)", client.get(address).text)]


@pytest.fixture
def client(open_pages: Open) -> TestClient:
    return open_pages(
        [
            at(0, score(value=0.9), score("tone", 0.2, passed=False, reason_code="rude")),
            at(1, score(value=0.1, passed=False), agent="billing", model="gpt-mini"),
            at(2, score(value=1.0), prompt_version="2"),
            at(
                3,
                EvaluationResult(criterion_name="tone", evaluator_type="Judge", error="no key"),
                EvaluationResult(
                    criterion_name="helpfulness", evaluator_type="Judge", skip_reason="-"
                ),
            ),
        ]
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [3, 2, 1, 0]),
        ("order=oldest", [0, 1, 2, 3]),
        ("order=lowest", [1, 0, 2, 3]),
        ("order=highest", [2, 0, 1, 3]),
        ("criterion=helpfulness&order=lowest", [1, 0, 2, 3]),
        ("criterion=helpfulness&outcome=fail", [1]),
        ("outcome=fail", [1, 0]),
        ("criterion=tone&outcome=pass", []),
        ("outcome=scored&criterion=helpfulness", [2, 1, 0]),
        ("outcome=skipped", [3]),
        ("outcome=evaluator+failed", [3]),
        ("agent=billing", [1]),
        ("model=gpt-mini&agent=support", []),
        ("prompt_version=2", [2]),
        ("reason=rude", [0]),
        (f"since={START_S + 3_600}&until={START_S + 7_200}", [1]),
        ("low=0.9", [2, 0]),
        ("low=0.9&high=1", [2, 0]),
        ("low=0&high=0.9&criterion=helpfulness", [1]),
        ("agent=nobody", []),
    ],
)
def test_an_answer_is_listed_if_one_result_has_all_that_is_wanted(
    client: TestClient, query: str, expected: list[int]
) -> None:
    assert orders(client, f"/answers?{query}") == expected


@pytest.mark.parametrize(
    "query",
    [
        "since=x&until=-1&low=nan&high=inf&order=&outcome=maybe&page=0",
        "page=999999999999999999999&since=" + "9" * 400,
        "since=999999999999&until=99999999999",
        "criterion=_other&agent=_other&model=_other",
        "low=2&high=-0.1&page=one&window=never&order=random",
    ],
)
def test_what_an_address_says_wrongly_is_passed_over(client: TestClient, query: str) -> None:
    assert orders(client, f"/answers?{query}") == [3, 2, 1, 0]


def test_pages_follow_one_another(open_pages: Open) -> None:
    """Each answer stands on one page, by its order. The addresses of the pages keep the filter."""
    client = open_pages(traffic(60))
    address, seen = "/answers?agent=support&order=oldest", []
    while address:
        page = client.get(address).text
        seen += [int(number) for number in re.findall(r"return order (\d+)", page)]
        following = re.search(r'rel="next" href="([^"]+)"', page)
        address = following[1].replace("&amp;", "&") if following else ""
    assert seen == sorted(set(seen))
    assert len(seen) > 25
    assert seen == [
        int(row["prompt"].split()[-1].rstrip("?"))
        for row in csv.DictReader(
            io.StringIO(client.get("/export/answers.csv?agent=support&order=oldest").text)
        )
    ]
    assert "No answer is like this" in client.get("/answers?page=1000").text


def test_a_list_is_a_dataset(
    client: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file of JSON lines is evaluated again, and opened by the pages."""
    path = tmp_path / "failing.jsonl"
    path.write_bytes(client.get("/export/answers.jsonl?outcome=fail").content)
    settings = tmp_path / "settings.yaml"
    settings.write_text("evaluators: [ResponseHealth]")
    arguments = ["evaluate", str(path), "--settings", str(settings), "--report", "json", "--quiet"]
    assert cli.main(arguments) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["inputs"] == 2
    place, _ = opened(str(path))
    assert place.count_results() == 3


def test_a_label_is_no_answer_and_missing_texts_are_named(open_pages: Open) -> None:
    label = score(passed=False).model_copy(update={"evaluator_kind": "human"})
    client = open_pages([at(0, score(), input_snapshot=None), at(1, label)])
    page = client.get("/answers").text
    assert "1 answer" in page
    assert "not stored" in page


def test_where_nothing_is_stored_the_list_says_so(open_pages: Open) -> None:
    assert "Nothing is stored here so far" in open_pages([]).get("/answers").text


def test_every_number_leads_to_its_answers(open_pages: Open) -> None:
    """Of the overview and of a criterion; an exported page has no links."""
    client = open_pages(traffic(60))
    for path in ("/", "/criterion?name=tone"):
        links = re.findall(r'href="(/answers\?[^"]+)"', client.get(path).text)
        assert links, path
        for link in links:
            assert client.get(link.replace("&amp;", "&")).status_code == 200, link
    assert "/answers" not in client.get("/export/criterion.html?name=tone").text


def test_an_answer_leads_to_its_neighbours_in_the_list(client: TestClient) -> None:
    """From an answer of a list one walks through the list, and back to the page that has it."""
    page = client.get("/answers?order=oldest").text
    address = re.findall(r'href="(/answer/[^"]+)"', page)[1].replace("&amp;", "&")
    text = client.get(address).text
    assert "2 of 4" in text
    assert "/answers?window=all&amp;order=oldest&amp;page=1" in text
    links = re.findall(r'data-key="([jk])" href="([^"]+)"', text)
    walked = {key: client.get(link.replace("&amp;", "&")).text for key, link in links}
    assert "return order 0" in walked["k"]
    assert "return order 2" in walked["j"]
    assert 'data-key="k"' not in walked["k"], "the first one"


def key_of_oldest(client: TestClient) -> str:
    found = re.search(r'href="/answer/(\w+)', client.get("/answers?order=oldest").text)
    assert found
    return found[1]


@pytest.mark.parametrize("query", ["", "?agent=nobody", "?order=oldest&since=x"])
def test_an_answer_opens_whatever_its_address_says_of_a_list(
    client: TestClient, query: str
) -> None:
    key = key_of_oldest(client)
    reply = client.get(f"/answer/{key}{query}")
    assert reply.status_code == 200
    assert ("1 of 4" in reply.text) is ("oldest" in query)
    assert client.get(f"/answer/{'0' * 31}x{query}").status_code == 404


def test_failures_stand_before_what_passed(client: TestClient) -> None:
    key = key_of_oldest(client)
    text = client.get(f"/answer/{key}").text
    assert text.index("<h3>tone</h3>") < text.index("<h3>helpfulness</h3>")


def test_what_was_raised_in_place_of_an_answer_is_named(open_pages: Open) -> None:
    snapshot = EvaluationInput(prompt="Where is it?", response=None, error_type="OrderSystemError")
    client = open_pages([at(0, score(passed=False), input_snapshot=snapshot)])
    key = client.pages.columns.id_of(0)  # type: ignore[attr-defined]
    assert "OrderSystemError" in client.get(f"/answer/{key}").text
    assert "OrderSystemError" in client.get("/answers").text
