"""The pages: what they show, what they say where there is nothing, and what can be taken away from
them.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sqlite3
import time
from pathlib import Path

import pytest

from agenteval_otel import cli
from agenteval_otel.components.database.target import Target
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationResult
from agenteval_otel.ui.serve import opened, prepare
from agenteval_otel.ui.text import MAX_SHOWN, brief, shown, visible
from tests.storage.samples import change
from tests.ui.conftest import PORT, Open
from tests.ui.served import Structure
from tests.ui.stored import DAY_NS, answer, score, store, traffic


def test_every_figure_says_how_it_was_estimated(open_pages: Open) -> None:
    """The overview and the criterion show pass rate and interval, and from how many answers they
    come.
    """
    client = open_pages(traffic(), objectives={"tone": 0.9})
    page = Structure(client.get("/").text)
    for words in (
        "helpfulness",
        "weighted share of passing answers",
        "95 % interval",
        "1 / probability",
        "objective 90.0 %: met",
        "worse",
        "taken together",
    ):
        assert words in page.text, words
    page = Structure(client.get("/criterion?name=helpfulness").text)
    for words in ("By prompt version", "Lowest scores", "incomplete", "Over time", "By model"):
        assert words in page.text, words
    narrower = Structure(client.get("/criterion?name=helpfulness&prompt_version=2").text)
    assert "prompt version: 2" in narrower.text


def test_new_versions_are_named_where_they_begin(open_pages: Open) -> None:
    """The second version of the prompt, and not the first one, which was there before."""
    client = open_pages(traffic(60))
    page = Structure(client.get("/criterion?name=helpfulness").text)
    assert "1 new version" in page.text
    assert re.search(r"prompt version 2 from 20\d\d-", page.text)
    assert "prompt version 1 from" not in page.text
    assert "new version" not in client.get("/criterion?name=helpfulness&prompt_version=2").text


TWELVE = [score(passed=number % 4 > 0) for number in range(12)]
PREFERRED = [
    *[score(value=0.0, passed=False, probability=1.0, least_probability=0.05) for _ in range(30)],
    *[score(probability=0.05) for _ in range(4)],
]


@pytest.mark.parametrize(
    ("scores", "number", "objective", "is_drawn"),
    [(TWELVE, "(of 12)", "missed", True), (PREFERRED, "(4 baseline)", "unknown", False)],
    ids=["twelve answers", "four baseline answers"],
)
def test_of_few_units_no_interval_is_drawn(
    open_pages: Open, scores: list[EvaluationResult], number: str, objective: str, is_drawn: bool
) -> None:
    """The pass rate of twelve answers is a point without ends, and it misses the objective. Of thirty
    preferred answers and four others there is no rate: whether the objective is met is unknown.
    """
    answers = [answer(each, number=at) for at, each in enumerate(scores)]
    client = open_pages(answers, objectives={"helpfulness": 0.95})
    for path in ("/", "/criterion?name=helpfulness"):
        page = client.get(path).text
        text = Structure(page).text
        assert number in text
        assert f"{number} 95 % interval" not in text
        assert f"objective 95.0 %: {objective}" in text
        assert ('class="mean"' in page) is is_drawn
        assert 'class="range"' not in page


def test_another_evaluator_is_no_change_of_the_agent(open_pages: Open) -> None:
    """A criterion that another version scores since is not called worse; one that the same version
    scores is.
    """
    answers = [
        answer(
            score("kept", float(is_good), passed=is_good, evaluator_version="1"),
            score(
                "changed",
                float(is_good),
                passed=is_good,
                evaluator_version="1" if number < 100 else "2",
            ),
            number=number,
            ended_ns=time.time_ns() - (200 - number) * DAY_NS,
            prompt_version=str(number // 100),
        )
        for number in range(200)
        for is_good in [number < 100]
    ]
    client = open_pages(answers)
    shown = {"kept": "▼ worse", "changed": "evaluator changed"}
    for path in ("/", "/compare?by=prompt_version", "/export/compare.html?by=prompt_version"):
        rows = client.get(path).text.partition("<tbody>")[2].split("<tr")
        for name, words in shown.items():
            (row,) = (row for row in rows if f">{name}<" in row or f">{name} " in row)
            assert [other for other in (*shown.values(), "▲ better") if other in row] == [words], (
                path,
                name,
            )
    by_evaluator = client.get("/compare?by=evaluator_version").text
    assert "evaluator changed" not in by_evaluator, "there the evaluators are what is compared"
    assert "▼ worse" in by_evaluator


def test_an_answer_shows_its_content_scores_and_trace(open_pages: Open) -> None:
    """Prompt, answer, tool calls and reasoning, with the link to its trace and to its conversation."""
    client = open_pages(traffic(6), trace_url="http://jaeger/trace/{trace_id}")
    first = client.get("/conversation?id=conversation-0").text
    key = first.split('href="/answer/')[1].split('"')[0]
    page = client.get(f"/answer/{key}").text
    for words in ("How do I return order 0?", "find_order", "It names the period.", "helpfulness"):
        assert words in page, words
    assert f'href="http://jaeger/trace/{1:032x}"' in page
    assert json.loads(client.get(f"/answer/{key}.json").text)["conversationId"] == "conversation-0"


def test_without_content_the_page_says_so(open_pages: Open) -> None:
    """Scores are shown, and what keeps texts from then on."""
    client = open_pages([answer(score(), input_snapshot=None)])
    key = client.pages.columns.id_of(0)  # type: ignore[attr-defined]
    assert "No content is stored" in client.get(f"/answer/{key}").text
    assert "No answer is left here" in client.get("/label").text


def test_an_empty_database_says_what_to_do(open_pages: Open) -> None:
    """Every page opens, and the overview shows how results get there."""
    client = open_pages([])
    assert "configure(storage=" in client.get("/").text
    for path in ("/label", "/compare", "/health", "/?window=1h", "/?window=nonsense"):
        assert client.get(path).status_code == 200, path


@pytest.mark.parametrize(
    "path",
    [
        "/criterion?name=nothing",
        "/answer/0",
        "/answer/..%2f..",
        "/conversation?id=x",
        "/none",
        "/export/x.html",
    ],
)
def test_what_is_not_stored_is_named(open_pages: Open, path: str) -> None:
    """It is not found, in a page like all others."""
    reply = open_pages([answer(score())]).get(path)
    assert reply.status_code == 404
    assert "agenteval" in reply.text


def test_a_database_that_goes_away_is_named(open_pages: Open, tmp_path: Path) -> None:
    """The page says so, without a stack; it is there again with the database."""
    client = open_pages([answer(score())])
    key = client.pages.columns.id_of(0)  # type: ignore[attr-defined]
    moved = (tmp_path / "results.db").rename(tmp_path / "elsewhere.db")
    reply = client.get(f"/answer/{key}")
    assert reply.status_code == 503
    assert "there is no such database" in reply.text
    moved.rename(tmp_path / "results.db")
    assert client.get(f"/answer/{key}").status_code == 200


def test_a_label_is_feedback_and_counts_in_the_agreement(
    open_pages: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Answers with and without a span are labelled, changed labels count last, and `calibrate`
    measures by them.
    """
    from agenteval_otel import configure

    client = open_pages(
        [
            answer(score(), number=0),
            answer(score(value=0.2, passed=False), number=1, with_span=False),
            answer(score(), number=2, with_span=False),
        ]
    )
    configure(
        storage=[{"type": "sql", "path": str(tmp_path / "results.db")}],
        telemetry={"signals": [], "content": "span_and_event"},
    )
    pages = client.pages  # type: ignore[attr-defined]
    csrf = pages.access.csrf
    for verdict in ("fail", "pass", "fail", "pass"):  # the first answer is changed once
        page = client.get("/label?criterion=helpfulness&order=newest").text
        if "No answer is left here" in page:
            break
        key = page.split('name="key" value="')[1].split('"')[0]
        form = {
            "csrf": csrf,
            "key": key,
            "criterion": "helpfulness",
            "verdict": verdict,
            "comment": "because",
        }
        reply = client.post("/label", data=form, follow_redirects=False)
        assert (reply.status_code, reply.headers["location"]) == (303, f"/answer/{key}")
    agreement = pages.labels.agreement("helpfulness")
    assert agreement.labels == 3
    assert agreement.measured is not None
    assert agreement.measured.rows == 3
    other = client.post("/label", data={**form, "verdict": "fail"})
    assert other.status_code == 200
    assert "because" in other.text
    assert pages.labels.agreement("helpfulness").labels == 3
    assert "people" in client.get("/").text
    monkeypatch.chdir(tmp_path)
    assert cli.main(["calibrate", "results.db", "--report", "json"]) == 0
    (measured,) = json.loads(capsys.readouterr().out)
    assert (measured["record"]["criterion"], measured["record"]["rows"]) == ("helpfulness", 3)


def test_forms_of_other_pages_are_refused(open_pages: Open) -> None:
    """Without the page's own mark, from another site, of another method, or too long."""
    client = open_pages([answer(score())])
    access, key = client.pages.access, client.pages.columns.id_of(0)  # type: ignore[attr-defined]
    form = {"csrf": access.csrf, "key": key, "criterion": "helpfulness", "verdict": "pass"}
    assert client.post("/label", data={**form, "csrf": "0"}).status_code == 403
    for headers in (
        {"origin": "http://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "null"},
    ):
        assert client.post("/label", data=form, headers=headers).status_code == 403, headers
    assert client.post("/label", content=b"x" * 70_000).status_code == 413
    assert client.put("/label", data=form).status_code == 405


def test_nothing_is_shown_without_the_token(open_pages: Open) -> None:
    """Not to other names of this machine, not without the cookie, and not for scripts and styles."""
    client = open_pages([answer(score())])
    assert client.get("/", headers={"host": f"evil.example:{PORT}"}).status_code == 421
    client.cookies.clear()
    for path in ("/", "/static/ui.css", "/export.csv", "/?token=wrong"):
        reply = client.get(path)
        assert reply.status_code == 403
        assert "helpfulness" not in reply.text
    access = client.pages.access  # type: ignore[attr-defined]
    reply = client.get(f"/?window=24h&token={access.token}", follow_redirects=False)
    assert reply.headers["location"] == "/?window=24h"
    several = "/label?criterion=tone&criterion=helpfulness"
    reply = client.get(f"{several}&token={access.token}", follow_redirects=False)
    assert reply.headers["location"] == several
    for path in ("//evil.example/", "///evil.example/", "/%09/evil.example/", "/%5Cevil.example/"):
        reply = client.get(
            f"http://127.0.0.1:{PORT}{path}?token={access.token}", follow_redirects=False
        )
        assert re.fullmatch(r"/[^/\\\t].*", reply.headers["location"]), path
    assert "HttpOnly" in reply.headers["set-cookie"]
    assert "SameSite=Lax" in reply.headers["set-cookie"]
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_page_is_not_sent_again_while_nothing_is_new(open_pages: Open, tmp_path: Path) -> None:
    """A request for what changed gets no content until a result is stored."""
    client = open_pages([answer(score())])
    asks = {"x-update": "true"}
    seen = client.pages.columns.version  # type: ignore[attr-defined]
    assert client.get(f"/?seen={seen}", headers=asks).status_code == 204
    store(tmp_path / "results.db", [answer(score("tone"), number=1)])
    client.pages.columns.refresh(at_once=True)  # type: ignore[attr-defined]
    assert "tone" in client.get(f"/?seen={seen}", headers=asks).text


def test_tables_can_be_taken_away(open_pages: Open) -> None:
    """CSV of the overview and of a criterion; what a spreadsheet would run is text there."""
    split = answer(score("tone"), number=77, agent="x;=1+1", prompt_version="y;\uff1d1|-1")
    client = open_pages([answer(score("=cmd|' /C calc'!A0"), agent="@SUM(1)"), split, *traffic(9)])
    rows = list(csv.reader(io.StringIO(client.get("/export.csv").text)))
    assert rows[0][0] == "criterion"
    assert "'=cmd|' /C calc'!A0" in [row[0] for row in rows]
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "@"))]
    rows = list(csv.reader(io.StringIO(client.get("/export.csv?name=helpfulness").text)))
    assert len(rows) == 10
    # Where a spreadsheet splits at semicolons, tabs or bars, no piece of a name is a formula.
    text = client.get("/export.csv?name=tone").text
    assert "x;'=1+1" in text
    assert not [
        piece for piece in re.split("[;|\t\n]", text) if re.match(r"\s*[=+@\uff1d-]", piece)
    ]


def test_a_view_is_one_file_that_reaches_nothing(open_pages: Open) -> None:
    """It has no script, its styles are within and allowed by their hash; no address of the server is
    left.
    """
    client = open_pages(traffic(30))
    for page in ("overview.html", "criterion.html?name=tone", "compare.html?by=prompt_version"):
        text = client.get(f"/export/{page}").text
        structure = Structure(text)
        assert {"style", "svg"} <= {tag.split()[0] for tag in structure.tags}
        assert not [tag for tag in structure.tags if tag.startswith(("script", "link", "form"))], (
            page
        )
        assert "sha256-" in text
        assert client.pages.access.csrf not in text  # type: ignore[attr-defined]


def test_a_file_of_json_lines_is_read(tmp_path: Path) -> None:
    """Cut-off lines are passed over; another file is refused by name."""
    lines = [item.model_dump_json(by_alias=True) for item in traffic(4)]
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join([*lines, lines[0][:40]]))
    place, database = opened(str(path))
    assert database is None
    assert len({row[0] for part in place.columns(after="") for row in part}) == 4
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ConfigurationError, match="is no file of results"):
        opened(str(tmp_path / "notes.txt"))


def test_nothing_is_created_in_another_database(tmp_path: Path) -> None:
    """An application's own database is refused; one that is not there yet is made."""
    path = tmp_path / "application.db"
    change(path, "CREATE TABLE orders (id INTEGER)")
    with pytest.raises(ConfigurationError, match="nothing of agenteval-otel was ever stored there"):
        prepare(Target(path, ""))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("orders",)]
    assert prepare(Target(tmp_path / "new.db", "")) == []
    assert (tmp_path / "new.db").is_file()


def test_the_command_exports_and_refuses_a_wrong_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One HTML file without a server; a wrong address of traces is refused."""
    path = tmp_path / "results.db"
    store(path, traffic(9))
    assert cli.main(["ui", str(path), "--export", str(tmp_path / "report.html")]) == 0
    assert "helpfulness" in (tmp_path / "report.html").read_text()
    capsys.readouterr()
    assert cli.main(["ui", str(path), "--trace-url", "{nothing}"]) == 2
    assert "{trace_id}" in capsys.readouterr().err


def test_objectives_are_shown_wherever_the_settings_state_them(tmp_path: Path) -> None:
    """Of the criteria set, of an agent's own set, and of an evaluator: the highest counts."""
    store(tmp_path / "results.db", traffic(60))
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        """
evaluators:
  - {type: ResponseHealth, criterion_name: groundedness}
  - {type: ResponseHealth, criterion_name: tone}
  - {type: Contains, criterion_name: helpfulness, substrings: [order], objective: 0.5}
criteria:
  default: [{name: tone, objective: 0.6}]
agents:
  billing: {criteria: [{name: tone, objective: 0.7}, {name: groundedness, objective: 0.8}]}
"""
    )
    report = tmp_path / "report.html"
    arguments = ["ui", str(tmp_path / "results.db"), "--settings", str(settings)]
    assert cli.main([*arguments, "--export", str(report)]) == 0
    page = Structure(report.read_text()).text
    assert re.findall(r"objective ([\d.]+) %:", page) == ["80.0", "50.0", "70.0"]


def test_invisible_characters_are_shown() -> None:
    """Controls as their pictures, marks of direction by number; long texts are cut with a note."""
    assert visible("a\x1b[31mb\u202ec\x00\r\nd\te") == "a\u241b[31mb[U+202E]c\u2400\nd\te"
    cut = shown("x" * 10_000_000)
    assert len(cut.text) == MAX_SHOWN
    assert "10,000,000 characters" in cut.note
    assert brief("a\nb" * 1_000).endswith("…")
    assert shown({"a": [1]}).text == '{\n  "a": [\n    1\n  ]\n}'
