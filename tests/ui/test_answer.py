"""The page of an answer: its run, its conversation, its scores in words, and notes on it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from agenteval_otel.components.database.target import Target
from agenteval_otel.models import EvaluationInput, EvaluationResult, Message, ToolCall
from agenteval_otel.models.inputs import Usage
from agenteval_otel.storage.read import database_of
from agenteval_otel.storage.sql_database import Database
from agenteval_otel.storage.sql_rows import rows_of
from agenteval_otel.ui.access import Access
from agenteval_otel.ui.answer_list import ListedAnswer, listed
from agenteval_otel.ui.app import Pages, UiSettings, application
from agenteval_otel.ui.columns import ResultColumns
from agenteval_otel.ui.notes import looked_rows
from agenteval_otel.ui.run_tree import run_of
from agenteval_otel.ui.scores import score_text
from agenteval_otel.ui.serve import opened
from agenteval_otel.ui.text import duration_text
from tests.promises.test_b14_pages import HOSTILE
from tests.ui.conftest import Open
from tests.ui.served import Structure
from tests.ui.stored import answer, columns_of, score, write_run

SECOND_NS = 10**9
START_NS = 1_790_000_000 * SECOND_NS
RUN = EvaluationInput(
    prompt="Where is my refund?",
    response="On its way.",
    agent="support",
    model="claude-sonnet",
    turns=3,
    usage=Usage(input_tokens=2_412, output_tokens=1, cache_read_tokens=1_800),
    cost=0.0123,
    duration_s=4.0,
    finish_reason="end_turn",
    context={"documents": [{"text": "Refunds take three days."}]},
    message_history=[
        Message(role="user", content="Hello"),
        Message(role="assistant", tool_calls=[ToolCall(name="greet", arguments={})]),
    ],
    tool_calls=[
        ToolCall(name="lookup_order", arguments={"id": 7}, result={"ok": True}, duration_s=1.0),
        ToolCall(name="pay", arguments="all", error="TimeoutError: the bank is slow", duration_s=9),
        ToolCall(name="mail", duration_s=float("nan")),
    ],
)


def page_of(client: TestClient, number: int = 0, query: str = "") -> str:
    """The page of the answer that was stored as this one."""
    ids = sorted({client.pages.columns.id_of(row) for row in range(client.pages.columns.count)})  # type: ignore[attr-defined]
    reply = client.get(f"/answer/{ids[number]}{query}")
    assert reply.status_code == 200, reply.text
    return reply.text


def words_of(page: str) -> str:
    return " ".join(Structure(page).text.split())


def test_the_run_is_a_tree_in_order(open_pages: Open) -> None:
    """What was retrieved, the model with its tokens, each tool with arguments, result, error and time."""
    page = page_of(open_pages([answer(score(), input_snapshot=RUN)]))
    words = words_of(page)
    order = [
        "agent support 4.0 s · 0.0123 USD",
        "context 1 document",
        "Refunds take three days.",
        "model claude-sonnet 3 calls · 2,412 tokens in, 1,800 from the cache · 1 token out · ended with end_turn",
        'tool lookup_order { "id": 7 } · 1.0 s',
        "Result",
        "tool pay failed all · 9.0 s",
        "TimeoutError: the bank is slow",
        "tool mail",
        "2 messages before the answer",
        "tool greet",
    ]
    places = [words.index(text) for text in order]
    assert places == sorted(places)
    bars = re.findall(r'<rect class="range( failed)?" x="([\d.]+)" width="([\d.]+)"', page)
    assert bars == [("", "0.0", "25.0"), (" failed", "0.0", "100.0")], "never beyond the whole run"
    assert "when each began is not stored" in words


def test_without_times_there_are_no_bars(open_pages: Open) -> None:
    """Order alone is shown, and nothing is said of times."""
    page = page_of(open_pages([answer(score())]))
    assert "find_order" in page
    assert 'class="time"' not in page
    assert "A bar is" not in page


def test_a_conversation_that_is_scored_whole_has_its_turns_in_the_tree() -> None:
    """Each turn has its own tools."""
    turns = [
        EvaluationInput(prompt="One?", response="1", tool_calls=[ToolCall(name="a")], duration_s=1),
        EvaluationInput(prompt="Two?", error_type="ValueError", duration_s=3),
    ]
    run = run_of(answer(score(), input_snapshot=EvaluationInput(conversation=turns)))
    assert run is not None
    assert [step.kind for step in run.steps] == ["turn", "turn"]
    assert [step.bar for step in run.steps] == [(0.0, 25.0), (25.0, 75.0)]
    assert [step.name for step in run.steps[0].steps] == ["a"]
    assert run.steps[1].error == "ValueError"


def test_an_answer_that_raised_names_its_error(open_pages: Open) -> None:
    """There is no heading over nothing: not for errors, for tools without text, or for nothing."""
    for snapshot, heading in (
        (EvaluationInput(error_type="OrderSystemError"), "No answer: OrderSystemError"),
        (EvaluationInput(response="", tool_calls=[ToolCall(name="a")]), "No text"),
        (EvaluationInput(response=""), "Empty answer"),
        (EvaluationInput(response="Half an", error_type="Reset"), "Answer"),
    ):
        page = page_of(open_pages([answer(score(), input_snapshot=snapshot)]), -1)
        headings = [words_of(text) for text in re.findall(r"<h2>.*?</h2>", page)]
        assert heading in headings
        assert ("Answer" in headings) == (heading == "Answer")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"score": 0, "normalized": 0.0, "passed": False}, "0 of 1"),
        (
            {"score": 0.345, "normalized": 0.345, "passed": False, "threshold": 0.5},
            "0.345 of 1, passes from 0.5",
        ),
        ({"score": 4, "normalized": 0.75}, "4, which is 0.75 of 1"),
        ({"score": 1_200, "passed": True}, "1,200"),
        ({"score": True, "passed": True}, ""),
        ({"score": False, "passed": None}, "false"),
        ({"score": "fail", "passed": False}, ""),
        ({"score": "unsure", "passed": None}, "unsure"),
        ({"score": 1e300, "passed": None}, "1e+300"),
        ({"score": None, "skip_reason": "-"}, ""),
    ],
)
def test_a_score_has_its_scale(fields: dict[str, Any], text: str) -> None:
    """A bare number says nothing, and a verdict says enough for true and false."""
    result = EvaluationResult(criterion_name="tone", evaluator_type="Judge", **fields)
    assert score_text(result) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 ms"), (0.0042, "4.2 ms"), (0.35, "350 ms"), (0.9996, "1.0 s"), (59.99, "1 min 0 s"),
        (75, "1 min 15 s"), (7_260, "2 h 1 min"), (1e12, "277,777,777 h 46 min"),
    ],
)  # fmt: skip
def test_a_duration_is_in_words(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_skips_for_one_reason_are_one_entry(open_pages: Open) -> None:
    """A thousand criteria that were skipped fill no page, and the failed one is the first."""
    skipped = [
        EvaluationResult(criterion_name=f"c{number}", evaluator_type="Rules", skip_reason="no text")
        for number in range(1_000)
    ]
    page = page_of(open_pages([answer(*skipped, score("tone", 0.0, passed=False))]))
    names = [words_of(text) for text in re.findall(r"<h3>.*?</h3>", page)]
    assert names[:2] == [
        "tone",
        ", ".join(f"c{number}" for number in range(20)) + " and 980 more",
    ]


def test_the_conversation_is_shown_around_the_answer(open_pages: Open) -> None:
    """Seven turns before it and seven behind it, with what people said of them left out."""
    answers = [
        answer(
            score(passed=number != 30),
            number=number,
            conversation_id="c-1",
            ended_ns=START_NS + number * SECOND_NS,
        )
        for number in range(60)
    ]
    label = score("helpfulness").model_copy(update={"evaluator_kind": "human"})
    answers.append(answer(label, number=30, conversation_id="c-1", input_snapshot=None))
    client = open_pages(answers)
    ids = client.pages.settings.place.find_turns("c-1")  # type: ignore[attr-defined]
    assert len(ids) == 60
    page = client.get(f"/answer/{ids[30]}").text
    beside = page.split('<ol class="beside"')[1].split("</ol>")[0]
    assert re.findall(r"return order (\d+)", beside) == [str(number) for number in range(23, 38)]
    assert re.findall(r'<li value="(\d+)" aria-current="true"', beside) == ["31"]
    assert beside.count('class="badge bad"') == 1
    assert "Turn 31 of 60." in words_of(page)
    whole = re.findall(r'href="(/conversation[^"]+)"', page)[-1].replace("&amp;", "&")
    assert whole == "/conversation?id=c-1#turn-31"
    last = client.get("/conversation?id=c-1&page=2").text
    assert re.findall(r'id="turn-(\d+)"', last) == [str(number) for number in range(51, 61)]
    for wrong in ("0", "3", "x", "9" * 30):
        first = client.get(f"/conversation?id=c-1&page={wrong}").text
        assert 'id="turn-1"' in first


def test_an_answer_alone_has_no_other_turns(open_pages: Open) -> None:
    page = words_of(page_of(open_pages([answer(score(), conversation_id="c-1")])))
    assert "No other turn is stored." in page
    assert "Conversation" not in words_of(page_of(open_pages([answer(score(), number=1)]), -1))


def answers_of(client: TestClient) -> list[ListedAnswer]:
    """The stored answers as the list shows them."""
    columns = client.pages.columns  # type: ignore[attr-defined]
    ids = [columns.id_of(row) for row in range(columns.count)]
    return list(listed(columns.place, dict.fromkeys(ids, 0)))


def note(client: TestClient, key: str, **fields: str) -> Any:
    csrf = client.pages.access.csrf  # type: ignore[attr-defined]
    return client.post("/note", data={"csrf": csrf, "key": key, **fields}, follow_redirects=False)


def test_an_answer_is_looked_at_and_that_is_undone(open_pages: Open) -> None:
    """The list shows and filters it; the keys to the neighbours stay on the page of the answer."""
    client = open_pages([answer(score(), number=number) for number in range(3)])
    (key,) = [item.key for item in answers_of(client) if "order 1" in item.prompt]
    here = f"/answer/{key}?looked=no"
    reply = note(client, key, looked="yes", next=here)
    assert (reply.status_code, reply.headers["location"]) == (303, here)
    page = client.get(here).text
    assert 'aria-pressed="true"' in page
    assert " of 3 " in words_of(page)
    assert client.get("/answers").text.count("✓ looked at") == 1
    for query, orders in (("looked=yes", {"1"}), ("looked=no", {"0", "2"}), ("looked=x", {*"012"})):
        listed = client.get(f"/answers?{query}").text
        assert set(re.findall(r"return order (\d)", listed)) == orders, query
        lines = client.get(f"/export/answers.jsonl?{query}").text.splitlines()
        assert len(lines) == len(orders), query
    assert note(client, key, looked="no").headers["location"] == f"/answer/{key}"
    assert "✓ looked at" not in client.get("/answers").text


def test_ids_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    """Of a hundred answers with two results each, whose ids differ in their last digits."""
    database = Database(Target(tmp_path / "a.db", ""))
    rows = [
        rows_of(answer(score(), score("tone"), number=number), f"{number:032x}")
        for number in range(100)
    ]
    assert not any(database.write(rows, may_wait=True))
    database.close()
    columns = columns_of(database_of(Target(tmp_path / "a.db", "")))
    looked = [3, 57, 99]
    assert columns.place.notes is not None
    for number in looked:
        columns.place.notes.mark(f"{number:032x}", looked=True)
    chosen = np.arange(10, columns.count, dtype=np.int32)
    kept = looked_rows(columns, chosen, "yes", f"{10:032x}")
    assert [int(columns.id_of(row), 16) for row in kept] == [10, 10, 57, 57, 99, 99]
    others = looked_rows(columns, chosen, "no", f"{57:032x}")
    assert len(others) == len(chosen) - 2


def test_a_comment_is_no_feedback(open_pages: Open, tmp_path: Path) -> None:
    """It is on the page of its answer alone: in no figure, no list of criteria, and no export."""
    client = open_pages([answer(score(), ended_ns=START_NS)])
    key = client.pages.columns.id_of(0)  # type: ignore[attr-defined]
    paths = ("/", "/health", "/export.csv", f"/answer/{key}.json", "/export/answers.jsonl")
    before = [Structure(client.get(path).text).text for path in paths]
    assert note(client, key, comment="Ask Kim <b>").status_code == 303
    client.pages.columns.refresh(at_once=True)  # type: ignore[attr-defined]
    page = client.get(f"/answer/{key}").text
    assert page.count("Ask Kim &lt;b&gt;") == 2, "as text, and in the form that changes it"
    for path, text in zip(paths, before, strict=True):
        assert Structure(client.get(path).text).text.split() == text.split(), path
    assert note(client, key, comment="").status_code == 303
    assert "Ask Kim" not in client.get(f"/answer/{key}").text


def test_comments_are_taken_only_where_content_is_kept(open_pages: Open) -> None:
    """A mark is no content, and is taken."""
    client = open_pages([answer(score(), input_snapshot=None)], keeps_comments=False)
    key = client.pages.columns.id_of(0)  # type: ignore[attr-defined]
    page = client.get(f"/answer/{key}").text
    assert "mark as looked at" in page
    assert "Comment without a verdict" not in page
    assert note(client, key, comment="secret").status_code == 400
    assert note(client, key, looked="yes").status_code == 303
    assert "secret" not in client.get(f"/answer/{key}").text


def test_wrong_notes_are_refused(open_pages: Open, tmp_path: Path) -> None:
    """Without the page's own mark, for no answer, with nothing in them, and leading elsewhere."""
    client = open_pages([answer(score())])
    key = client.pages.columns.id_of(0)  # type: ignore[attr-defined]
    assert client.post("/note", data={"key": key, "looked": "yes"}).status_code == 403
    assert note(client, "f" * 32, looked="yes").status_code == 404
    assert note(client, key).status_code == 400
    assert note(client, key, looked="perhaps").status_code == 400
    for elsewhere in ("//evil.example", "http://evil.example", f"/answer/{key}/../x", "/label?"):
        reply = note(client, key, looked="yes", next=elsewhere)
        assert reply.headers["location"] == f"/answer/{key}"
    (tmp_path / "results.db").rename(tmp_path / "elsewhere.db")
    assert note(client, key, looked="yes").status_code == 503


def test_a_file_takes_no_notes(open_pages: Open, tmp_path: Path) -> None:
    client = open_pages([answer(score())], can_label=False)
    key = client.pages.columns.id_of(0)  # type: ignore[attr-defined]
    assert "looked at" not in client.get(f"/answer/{key}").text
    assert "looked at" not in client.get("/answers").text
    assert note(client, key, looked="yes").status_code == 400


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


def test_what_is_hostile_stays_text_and_small(open_pages: Open) -> None:
    """Megabytes, deep nesting, thousands of calls and clocks that lie cost no page and run nothing."""
    text = " ".join(HOSTILE)
    calls = [
        ToolCall(
            name=text * 100, arguments={text: "x" * 1_000_000}, result=deep(900), duration_s=1e300
        )
    ]
    calls += [
        ToolCall(name="call", arguments={"n": number}, result="y" * 30_000, duration_s=-1.0)
        for number in range(1_000)
    ]
    snapshot = EvaluationInput(
        prompt=text,
        response=text,
        error_type=text,
        duration_s=1e-300,
        cost=float("inf"),
        tool_calls=calls,
        context={text: deep(900)},
        message_history=[Message(role=text, content=text)] * 1_000,
    )
    future_ns = 2**63 - 1
    client = open_pages(
        [
            answer(
                score(text, started_ns=0, ended_ns=future_ns),
                input_snapshot=snapshot,
                ended_ns=future_ns,
                response_ended_ns=future_ns,
                conversation_id=text,
                number=number,
            )
            for number in range(2)
        ]
    )
    page = page_of(client)
    assert len(page) < 3_000_000
    assert "and 901 more in the JSON" in page
    assert "<script>" not in page
    assert "\x1b" not in Structure(page).text
    assert len(json.loads(client.get(re.findall(r'href="(/answer/\w+\.json)"', page)[0]).text)) > 3
    plain = page_of(open_pages([answer(score("tone"), input_snapshot=RUN)]), -1)
    known = {*Structure(plain).tags, *Structure(page_of(client, 1)).tags}
    assert {tag for tag in Structure(page).tags if tag not in known} == set()


def client_of_file(path: Path) -> TestClient:
    """A client of the pages of a file, with a place for traces."""
    place, _ = opened(str(path))
    columns = ResultColumns(place)
    columns.refresh()
    access = Access(8629)
    settings = UiSettings(
        place, place.name, can_label=False, trace_url="http://jaeger/trace/{trace_id}"
    )
    pages = Pages(settings, columns, access)
    client = TestClient(application(pages), base_url="http://127.0.0.1:8629")
    client.get(f"/?token={access.token}")
    client.pages = pages  # type: ignore[attr-defined]
    return client


def test_runs_in_files_have_pages_too(tmp_path: Path) -> None:
    """A file has the same page, without forms."""
    client = client_of_file(write_run(tmp_path / "main.jsonl", count=3))
    page = client.get(f"/answer/{client.pages.columns.id_of(0)}").text  # type: ignore[attr-defined]
    assert "Question 0?" in page
    assert "<form" not in page


@pytest.mark.parametrize("moment", [10**30, -(10**25), -5])
def test_moments_that_no_calendar_has_cost_no_page(moment: int, tmp_path: Path) -> None:
    """A file may hold any number, and any text as the id of a trace."""
    line = json.loads(answer(score(), conversation_id="c").model_dump_json(by_alias=True))
    line |= {"endedNs": moment, "responseEndedNs": moment}
    line["span"] |= {"traceId": "../../\u202e?", "spanId": "\x00"}
    line["results"][0] |= {"startedNs": -moment, "endedNs": moment}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(line)}\n")
    client = client_of_file(tmp_path / "a.jsonl")
    page = page_of(client)
    assert 'href="http://jaeger/trace/..%2F..%2F%E2%80%AE%3F"' in page
    assert client.get("/conversation?id=c").status_code == 200
