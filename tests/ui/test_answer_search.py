"""The list of answers searched by words, tag, user and conversation: what is listed, exported, marked
and said.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from starlette.testclient import TestClient

from agenteval_otel.components.database.target import Target
from agenteval_otel.models import EvaluationInput
from agenteval_otel.storage.sql_database import add_answer_texts, connect_reader
from agenteval_otel.storage.sql_texts import has_index
from agenteval_otel.ui.app import Pages, UiSettings, application
from agenteval_otel.ui.columns import ResultColumns
from agenteval_otel.ui.serve import index_beside, opened
from tests.pipeline.support import eventually
from tests.storage.samples import change
from tests.storage.test_answer_texts import ODD
from tests.ui.conftest import Open
from tests.ui.served import Structure
from tests.ui.stored import answer, columns_of, score, store

SECOND_NS = 10**9
START_S = 1_790_000_000
LONG = "All is said at length. " * 30


def at(number: int, prompt: str, response: Any = "It is on its way.", **fields: Any) -> Any:
    snapshot = EvaluationInput(prompt=prompt, response=response)
    passed = fields.pop("passed", True)
    given = {"input_snapshot": snapshot, "ended_ns": (START_S + 3_600 * number) * SECOND_NS}
    return answer(score(passed=passed), score("tone"), number=number, **{**given, **fields})


ANSWERS = [
    at(0, "Order 0: a refund?", tags={"tenant": "acme"}, user_id="u1", conversation_id="c 1"),
    at(1, "Order 1: refunds & <b>more</b>?", agent="billing", tags={"tenant": "other"}),
    at(2, "Order 2: where?", f"{LONG} A refund was sent.", passed=False, user_id="u1"),
    at(3, "Order 3: 退款?", tags={"tenant": "acme"}, conversation_id="c 1"),
]


@pytest.fixture(params=["database", "file"])
def client(request: pytest.FixtureRequest, open_pages: Open, tmp_path: Path) -> TestClient:
    if request.param == "database":
        return open_pages(ANSWERS)
    path = tmp_path / "results.jsonl"
    path.write_text("".join(f"{item.model_dump_json(by_alias=True)}\n" for item in ANSWERS))
    place, _ = opened(str(path))
    return TestClient(application(Pages(UiSettings(place, "a file"), columns_of(place))))


def orders(page: str) -> list[int]:
    """The orders that the answers of a list are about, from the first on."""
    text = page.replace("<mark>", "").replace("</mark>", "")
    return [int(number) for number in re.findall(r">Order (\d)", text)]


LISTED = {
    "text=refund": [2, 1, 0],
    "text=refund&order=oldest": [0, 1, 2],
    "text=Refund+ORDER": [2, 1, 0],
    "text=refund&agent=billing": [1],
    "text=refund&outcome=fail": [2],
    "text=refund&criterion=tone&outcome=fail": [],
    f"text=refund&until={START_S + 3_600}": [0],
    "text=refund&tag=tenant%3Dacme": [0],
    "text=refund&user=u1": [2, 0],
    "text=refund&conversation=c+1": [0],
    "text=%E9%80%80%E6%AC%BE": [3],
    "tag=tenant%3Dacme": [3, 0],
    "tag=+tenant+%3D+acme+": [3, 0],
    "tag=tenant": [],
    "tag=%3Dacme": [],
    "tag=tenant%3D": [],
    "user=u1": [2, 0],
    "user=u1&conversation=c+1": [0],
    "conversation=c": [],
    "text=%21%21": [],
    "text=+": [3, 2, 1, 0],
}


def test_an_answer_is_listed_if_it_has_all_that_is_chosen(client: TestClient) -> None:
    """On the page, and in both files."""
    for query, expected in LISTED.items():
        assert orders(client.get(f"/answers?{query}").text) == expected, query
        rows = csv.DictReader(io.StringIO(client.get(f"/export/answers.csv?{query}").text))
        assert [int(row["prompt"][6]) for row in rows] == expected, query
        lines = client.get(f"/export/answers.jsonl?{query}").text.splitlines()
        prompts = [json.loads(line)["inputSnapshot"]["prompt"] for line in lines]
        assert [int(prompt[6]) for prompt in prompts] == expected, query


def test_no_text_breaks_the_list(client: TestClient) -> None:
    for text in ODD:
        query = quote_plus(text, errors="surrogatepass")
        for name in ("text", "tag", "user", "conversation"):
            reply = client.get(f"/answers?{name}={query}&agent=support")
            assert reply.status_code == 200, (name, text[:40])


def test_words_are_marked_and_shown_where_they_stand(open_pages: Open) -> None:
    """In escaped text. Of a long answer the part that has the word is shown."""
    client = open_pages([*ANSWERS, at(4, "Order 4: <script>refund</script>")])
    page = client.get("/answers?text=refund").text
    assert "&lt;script&gt;<mark>refund</mark>&lt;/script&gt;" in page
    assert "<mark>refunds</mark> &amp; &lt;b&gt;" in page
    assert "A <mark>refund</mark> was sent." in page
    assert "<mark>" not in client.get("/answers?text=way&agent=nobody").text
    hostile = client.get("/answers?text=%3Cscript%3Ealert%3C%2Fscript%3E%22").text
    assert Structure(hostile).tags.count("script src defer") == 1
    assert not [tag for tag in Structure(hostile).tags if tag == "script"]


def test_filters_in_force_are_links_that_remove_them(client: TestClient) -> None:
    query = f"text=refund&agent=support&low=0.5&user=u1&since={START_S}&order=oldest"
    page = client.get(f"/answers?{query}").text
    chips = page[page.index('class="chips"') : page.index("</ul>")]
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="([^"]+)"', chips)]
    assert len(links) == 6
    for link, gone in zip(links, ("agent", "text", "user", "low", "since"), strict=False):
        left = {part.partition("=")[0] for part in link.partition("?")[2].split("&")}
        assert left == {"window", "since", "agent", "text", "user", "low", "order"} - {gone}
        assert client.get(link).status_code == 200
    assert links[-1] == "/answers"
    assert 'class="chips"' not in client.get("/answers").text


SAID = {
    "text=nowhere": "has the word <strong>nowhere</strong>",
    "text=refund+nowhere": "<strong>refund</strong>, <strong>nowhere</strong>",
    "text=%21%21": "has no letter or digit",
    "agent=nobody": "has all that was chosen",
    "page=7": "ends at page 1",
    "text=refund&page=7": "ends at page 1",
}


def test_an_empty_list_says_what_was_looked_for(client: TestClient) -> None:
    for query, words in SAID.items():
        assert words in client.get(f"/answers?{query}").text, query


def test_an_answer_keeps_its_place_in_what_was_searched(client: TestClient) -> None:
    page = client.get("/answers?text=refund").text
    address = re.findall(r'href="(/answer/[^"]+)"', page)[1].replace("&amp;", "&")
    assert "text=refund" in address
    assert "2 of 3" in client.get(address).text


def test_an_answer_leads_to_others_of_its_user_conversation_and_tag(client: TestClient) -> None:
    page = client.get("/answers?text=refund&order=oldest").text
    address = re.findall(r'href="(/answer/[^"]+)"', page)[0].replace("&amp;", "&")
    facts = client.get(address).text.partition("<h2>Facts</h2>")[2]
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/answers[^"]+)"', facts)]
    assert [orders(client.get(link).text) for link in links] == [[2, 0], [3, 0], [3, 0]]


def test_what_was_not_searched_is_said(tmp_path: Path) -> None:
    """A database that takes no index: of 2,001 answers the newest 2,000 are searched."""
    place = store(
        tmp_path / "a.db", (at(0, f"Order {number % 10}: {number}") for number in range(2_001))
    )
    change(tmp_path / "a.db", "CREATE TABLE agenteval_texts (mine TEXT)")
    pages = Pages(UiSettings(place, "a"), columns_of(place))
    page = pages.answers({"text": "order"})
    assert "1 older answer was not searched" in page
    assert "2,000 answers" in page


def test_the_pages_add_to_the_index_beside_themselves(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store(path, ANSWERS)
    target = Target(path, "")
    assert not add_answer_texts(target, now_ms=time.time_ns() // 10**6 + 120_000)
    index_beside(target)()
    columns = ResultColumns(opened(str(path))[0])
    columns.refresh()
    pages = Pages(UiSettings(columns.place, "a"), columns)
    assert orders(pages.answers({"text": "refund"})) == [2, 1, 0]


def test_adding_to_the_index_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that cannot take the index gets it once it can. That is logged once."""
    path = tmp_path / "a.db"
    store(path, ANSWERS)
    target = Target(path, "")
    change(path, "CREATE TABLE agenteval_texts (mine TEXT)")
    stop = index_beside(target, retry_s=0.02)
    assert eventually(lambda: "words_not_added" in caplog.text)
    change(path, "DROP TABLE agenteval_texts")
    assert eventually(lambda: is_indexed(target))
    stop()
    assert caplog.text.count("words_not_added") == 1


def is_indexed(target: Target) -> bool:
    with connect_reader(target) as connection:
        return has_index(connection)
