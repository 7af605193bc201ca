"""B14: stored text is text in pages and tables, and pages open with their token alone."""

from __future__ import annotations

import csv
import gzip
import io
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationInput,
    EvaluationResult,
    ToolCall,
)
from tests.promises.figures import Recorder
from tests.ui.served import Structure, client_of, served
from tests.ui.stored import answer, score, store

pytest.importorskip("starlette")

HOSTILE = (
    "<script>window.broken = 1</script>", "<img src=x onerror='window.broken=1'>", "\"><svg onload=alert(1)>",
    "'-alert(1)-'", "{{ 7 * 7 }}{% include 'answer.html' %}", "</pre></body><base href=//evil.example>",
    "javascript:alert(1)",
    "\x1b[2J\x1b]0;title\x07", "\u202egnp.exe\u2066", "a\u2028b\rc\0d", "=cmd|' /C calc'!A0", "@SUM(1+9)", "+1", "-1",
    "<!--", "]]>", "&lt;b&gt;&#0;", "%3Cscript%3E", "\ufeff\u200b", "<iframe srcdoc='<script>1</script>'>",
)  # fmt: skip
"""Text that is something else to a browser, a terminal or a spreadsheet."""
PLAIN = "word"
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\u200b]")
_MAX_PAGE = 300_000


def everywhere(text: str) -> AggregatedEvaluationResult:
    """An answer that has the text in every field that holds text."""
    call = ToolCall(name=text, arguments={text: text}, result=text, error=text)
    history: list[Any] = [{"role": text, "content": text}]
    snapshot = EvaluationInput(
        prompt=text,
        response=text,
        ground_truth=text,
        context={text: text},
        tool_calls=[call],
        message_history=history,
    )
    names = {"label": text, "reason_code": text, "evaluator_version": text, "evaluator_id": text}
    judged = {"metadata": {"judge": {"model": text, "costUsd": 0.5}}, "objective": 0.9}
    results = (
        score(text, 0.2, passed=False, reasoning=text).model_copy(update={**names, **judged}),
        EvaluationResult(criterion_name=text, evaluator_type=text, error=text, error_type=text),
        EvaluationResult(criterion_name=text, evaluator_type=text, skip_reason=text),
    )
    return answer(
        *results,
        input_snapshot=snapshot,
        agent=text,
        model=text,
        conversation_id=text,
        prompt_name=text,
        prompt_version=text,
        environment=text,
        user_id=text,
        sampling_reason=text,
        response_id=text,
    )


def pages_of(path: Path, text: str) -> dict[str, str]:
    """Every page of an answer with this text, by its name."""
    store(path, [everywhere(text), everywhere(PLAIN + "2")])
    with served(path) as address, client_of(address) as client:
        pages = {"overview": client.get("/").text}
        for name, query in (
            ("criterion", {"name": stored_name(text)}),
            ("answers", {"agent": stored_name(text)}),
            ("conversation", {"id": stored_name(text)}),
            ("label", {"criterion": stored_name(text)}),
            ("compare", {"by": "agent"}),
            ("cost", {}),
            ("health", {}),
        ):
            reply = client.get(f"/{name}", params=query)
            assert reply.status_code == 200, f"{name}: {reply.text[-300:]}"
            pages[name] = reply.text
        pages["answer"] = client.get(first_answer_on(pages["conversation"])).text
        pages["file"] = client.get("/export/overview.html").text
        pages["csv"] = (
            client.get("/export.csv").text
            + client.get("/export.csv", params={"name": stored_name(text)}).text
            + client.get("/export/answers.csv").text
        )
    return pages


def first_answer_on(page: str) -> str:
    """The address of the first answer that a page links to."""
    found = re.search(r'href="(/answer/[^"]+)"', page)
    assert found
    return found[1]


def stored_name(text: str) -> str:
    """A name as the database has it."""
    from agenteval_otel.storage.sql_rows import name_of

    return name_of(text) or ""


@pytest.mark.slow
def test_stored_text_is_text_on_every_page(tmp_path: Path, promise: Recorder) -> None:
    """The tags of a page are those of the page with a harmless word; nothing invisible is left, no
    cell computes.
    """
    plain = {
        name: Structure(page).tags for name, page in pages_of(tmp_path / "plain.db", PLAIN).items()
    }
    hostile = " ".join(HOSTILE)
    for number, text in enumerate((hostile, *HOSTILE[:3], HOSTILE[10])):
        pages = pages_of(tmp_path / f"{number}.db", text)
        for name, page in pages.items():
            # What a form sends back is the name as it is stored; what is shown is the text.
            assert not _INVISIBLE.search(
                page.replace("\r\n", "\n") if name == "csv" else Structure(page).text
            ), f"{name}: {text!r}"
            assert Structure(page).tags == plain[name] or name in ("csv", "file", "compare"), (
                f"{name}: {text!r}"
            )
        for name in ("file", "compare"):
            tags = set(Structure(pages[name]).tags)
            assert tags <= {*plain[name], *plain["compare"]}, (
                f"{name}: {text!r}: {tags - set(plain[name])}"
            )
        rows = list(csv.reader(io.StringIO(pages["csv"])))
        assert [row for row in rows[1:] if PLAIN + "2" not in row[0]]
        for row in rows:
            assert not [cell for cell in row if cell.startswith(("=", "+", "@", "\t", "\r"))], row
    promise(
        "B14",
        figure=f"{len(HOSTILE)} texts in every field of 10 pages: 0 tags or scripts of stored text",
    )


@pytest.mark.slow
def test_ten_megabytes_are_cut_with_a_note(tmp_path: Path, promise: Recorder) -> None:
    """The page has the beginning and says how much there is; what it loads stays small."""
    path = tmp_path / "large.db"
    text = "<b>long</b> \u202e " * 800_000
    snapshot = EvaluationInput(prompt=text, response=text)
    store(path, [answer(score(reasoning=text), input_snapshot=snapshot, conversation_id="c")])
    with served(path) as address, client_of(address) as client:
        address = first_answer_on(client.get("/conversation?id=c").text)
        page = client.get(address).text
        assert f"of {len(text):,} characters" in page
        largest = 0
        for name in (address, "/conversation?id=c", "/label"):
            whole = client.get(name).content
            scripts = [
                client.get(found).content
                for found in re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
            ]
            largest = max(largest, sum(len(gzip.compress(part)) for part in (whole, *scripts)))
        assert largest <= _MAX_PAGE
    promise(
        "B14",
        figure=f"12 MB in a field: a page with its scripts is {largest // 1000} KB compressed",
    )


@pytest.mark.slow
def test_pages_open_with_the_token_alone(tmp_path: Path, promise: Recorder) -> None:
    """Other hosts, other cookies, a wrong token and forms of other sites get nothing; it listens on
    127.0.0.1.
    """
    path = tmp_path / "a.db"
    store(path, [answer(score("canary_criterion"), conversation_id="c")])
    with served(path) as address:
        base = address.split("/?")[0]
        assert base.startswith("http://127.0.0.1:")
        port = int(base.rsplit(":", 1)[1])
        name = f"agenteval_{port}"
        paths = (
            "/",
            "/label",
            "/criterion?name=canary_criterion",
            "/conversation?id=c",
            "/export.csv",
            "/static/ui.js",
            "/compare",
            "/cost",
            "/health",
            "/export/overview.html",
            "/answer/0",
            "/nothing",
        )
        headers = (
            {},
            {"cookie": f"{name}=guess"},
            {"cookie": f"{name}="},
            {"host": f"evil.example:{port}"},
            {"host": "127.0.0.1:1"},
            {"cookie": "x" * 8_000},
            {"authorization": "Bearer guess"},
        )
        refused = 0
        with httpx.Client(base_url=base) as client:
            for way in headers:
                for page in (*paths, "/?token=", "/?token=guess", f"/?token={'x' * 5_000}"):
                    reply = client.get(page, headers=way)
                    assert reply.status_code in (403, 421), f"{page} {way}"
                    assert "canary" not in reply.text
                    assert "set-cookie" not in reply.headers
                    refused += 1
        with client_of(address) as client:
            assert "canary_criterion" in client.get("/").text
            csrf = client.get("/label").text.split('name="csrf" value="')[1].split('"')[0]
            form = {"csrf": csrf, "key": "0", "criterion": "a", "verdict": "pass"}
            for way in (
                {"origin": "http://evil.example"},
                {"origin": f"http://evil.example:{port}"},
                {"sec-fetch-site": "cross-site"},
                {"sec-fetch-site": "same-site"},
            ):
                assert client.post("/label", data=form, headers=way).status_code == 403
                refused += 1
    promise("B14", figure=f"{refused} requests without the token or of other sites: 0 answered")
