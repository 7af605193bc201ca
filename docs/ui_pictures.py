"""Makes the pictures of docs/ui.md in Chromium, of the demo's traffic:
`uv run python -m docs.ui_pictures`.

Each page in both themes, as docs/images/ui-PAGE-THEME.png; ui-pages.txt keeps the words that they
show. A test compares these with what the pages show now (tests/ui/test_pictures.py).
"""

from __future__ import annotations

import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from starlette.testclient import TestClient  # noqa: E402

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluations_sync  # noqa: E402
from agenteval_otel.cli.demo.agent import DemoTurn, plan_turns  # noqa: E402
from agenteval_otel.cli.demo.scores import demo_criteria, demo_evaluators  # noqa: E402
from agenteval_otel.components.database.target import Target  # noqa: E402
from agenteval_otel.models import AggregatedEvaluationResult  # noqa: E402
from agenteval_otel.storage.read import database_of  # noqa: E402
from agenteval_otel.storage.sql_database import Database  # noqa: E402
from agenteval_otel.storage.sql_rows import rows_of  # noqa: E402
from agenteval_otel.ui.access import Access  # noqa: E402
from agenteval_otel.ui.app import Pages, UiSettings, application  # noqa: E402
from agenteval_otel.ui.columns import ResultColumns  # noqa: E402
from agenteval_otel.ui.runs import opened_runs  # noqa: E402
from tests.ui.served import Structure, served  # noqa: E402

COMMAND = "uv run python -m docs.ui_pictures"
IMAGES = ROOT / "docs" / "images"
WORDS = IMAGES / "ui-pages.txt"
THEMES = ("light", "dark")
PAGES = {
    "overview": "/", "criterion": "/criterion?name=next_step", "answers": "/answers?criterion=next_step&outcome=fail",
    "answer": "/answer/{answer}",
    "conversation": "/conversation?id={conversation}", "label": "/label?criterion=next_step&order=lowest",
    "compare": "/compare?by=prompt_version", "runs": "/compare?by=run", "health": "/health",
}  # fmt: skip
"""Each with its address; `runs` are of two files, all others of a database."""
# as `agenteval-otel demo` has them
_CALLS, _SECONDS = 600, 20.0
_RUN_CALLS = 200
_START_S = datetime(2026, 11, 24, 6, tzinfo=UTC).timestamp()
_SAMPLED = 0.5  # as in the demo, of all but failures
_WIDTH, _HEIGHT = 1280, 860
# shown instead of the folder of the moment
_PLACE, _RUNS = "agenteval.db", "main.jsonl, branch.jsonl"
WALK = {
    "text=answers": "Answers",
    "a:has-text('next_step over time')": "next_step",
    "a:has-text('its answers that fail')": "Answers",
    "th.moment a": "Answer by support",
    "section:has(h2:text-is('Conversation')) p a": "Conversation",
}
"""What is clicked on, and the heading of the page that it opens."""
_VERSION = re.compile(r"\b[0-9a-f]{12,}\b")


def traffic(
    calls: int, *, drop: bool = True, sampled: float = _SAMPLED
) -> list[tuple[DemoTurn, AggregatedEvaluationResult]]:
    """The demo's planned answers by the demo's evaluators, at the moments that it plans."""
    turns, chance = plan_turns(calls=calls, seconds=_SECONDS, drop=drop), random.Random(7)
    config = EvaluationRunConfig(evaluators=demo_evaluators(), criteria=demo_criteria())
    results = []
    inputs = [_input_of(turn, number) for number, turn in enumerate(turns)]
    for turn, result in zip(turns, run_evaluations_sync(inputs, config), strict=True):
        probability = 1.0 if turn.kind == "failed" else sampled
        if chance.random() < probability:
            ended_ns = int((_START_S + turn.at_s) * 1e9)
            own = {
                "probability": probability,
                "started_ns": ended_ns,
                "ended_ns": ended_ns + 1_000_000,
            }
            scores = [score.model_copy(update=own) for score in result.results]
            changes = {
                "results": tuple(scores),
                "sampling_probability": probability,
                "ended_ns": ended_ns,
                "response_ended_ns": ended_ns,
                "timestamp": ended_ns // 1_000_000,
            }
            results.append(
                (turn, result.model_copy(update={**changes, "sampling_reason": "ratio"}))
            )
    return results


def _input_of(turn: DemoTurn, number: int) -> EvaluationInput:
    failed = turn.kind == "failed"
    return EvaluationInput(
        prompt=turn.messages[-1]["content"],
        response=None if failed else turn.answer,
        error_type="OrderSystemError" if failed else None,
        message_history=turn.messages[:-1],
        agent="support",
        tool_calls=turn.tool_calls,
        conversation_id=turn.conversation,
        prompt_version=str(turn.release),
        model="scripted-1",
        metadata={"id": number},
    )


class Stored:
    """The demo's traffic in a folder: a database, and two runs as files."""

    def __init__(self, folder: Path) -> None:
        self.database = Target(folder / "agenteval.db", "")
        answers, database = traffic(_CALLS), Database(self.database)
        rows = [rows_of(result, f"{number:032x}") for number, (_, result) in enumerate(answers)]
        assert not any(database.write(rows, may_wait=True))
        database.close()
        self.runs = [folder / "main.jsonl", folder / "branch.jsonl"]
        for file, drop in zip(self.runs, (False, True), strict=True):
            lines = [
                result.model_dump_json(by_alias=True)
                for _, result in traffic(_RUN_CALLS, drop=drop, sampled=1.0)
            ]
            file.write_text("\n".join(lines))
        turns = [turn for turn, _ in answers]
        number = next(
            i for i, turn in enumerate(turns) if turn.kind == "vague" and len(turn.messages) > 2
        )
        self.pages = {
            name: path.format(answer=f"{number:032x}", conversation=turns[number].conversation)
            for name, path in PAGES.items()
        }


def words(stored: Stored) -> dict[str, str]:
    """The words of each page, a text a line; versions of evaluators, which are hashes of code, as
    dots.
    """
    texts = {}
    for name, html in pages_of(stored).items():
        lines = (
            " ".join(line.split()) for line in Structure(html.replace("<", "\n<")).text.splitlines()
        )
        texts[name] = _VERSION.sub("…", "\n".join(filter(None, lines)))
    return texts


def pages_of(stored: Stored) -> dict[str, str]:
    """The pages as HTML."""
    runs = opened_runs([str(file) for file in stored.runs])
    settings = UiSettings(database_of(stored.database), _PLACE)
    of_runs = UiSettings(runs.place, _RUNS, can_label=False, runs=runs)
    return {
        name: _client(of_runs if name == "runs" else settings).get(path).text
        for name, path in stored.pages.items()
    }


def _client(settings: UiSettings) -> TestClient:
    columns, access = ResultColumns(settings.place, runs=settings.runs), Access(8629)
    client = TestClient(
        application(Pages(settings, columns, access)), base_url="http://127.0.0.1:8629"
    )
    client.get(f"/health?token={access.token}")
    return client


def kept_words() -> dict[str, str]:
    """The words of each page when its pictures were made."""
    parts = re.split(r"^== (\w+)\n", WORDS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.rstrip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def take(
    browser: Any, stored: Stored, folder: Path, *, width: int = _WIDTH, is_whole: bool = False
) -> Iterator[str]:
    """Write the picture of each page in each theme, its upper part or the whole page; the files'
    names.
    """
    for names, places, shown in (
        (
            [name for name in PAGES if name != "runs"],
            [stored.database.place],
            _PLACE,
        ),
        (["runs"], stored.runs, _RUNS),
    ):
        with served(*places) as address:
            base = "{0.scheme}://{0.netloc}".format(urlsplit(address))
            for theme in THEMES:
                page = browser.new_page(
                    viewport={"width": width, "height": _HEIGHT}, color_scheme=theme
                )
                page.goto(address)
                for name in names:
                    page.goto(base + stored.pages[name])
                    show_place(page, shown)
                    file = f"ui-{name}-{theme}.png"
                    page.screenshot(path=folder / file, full_page=is_whole)
                    yield file
                page.close()


def show_place(page: Any, name: str = _PLACE) -> None:
    """Show a name for the folder of the moment."""
    page.locator(".place").evaluate("(element, text) => { element.textContent = text }", name)


def clicks(page: Any, base: str) -> Iterator[str]:
    """Go from a message about next_step to why its answers fail. Yields the heading after each click."""
    ended = int(_START_S + _SECONDS)
    link = (
        f"{base}/answers?agent=support&criterion=next_step&outcome=fail&time=evaluated"
        f"&since={ended - 10}&until={ended}"
    )
    page.goto(base)
    page.evaluate("(link) => { document.body.innerHTML = `<a href='${link}'>answers</a>` }", link)
    for selector, heading in WALK.items():
        page.locator(selector).first.click()
        page.wait_for_selector(f"h1:has-text('{heading}')")
        yield page.inner_text("main")


def walk(browser: Any, stored: Stored, folder: Path) -> Iterator[str]:
    """Write a picture after each of `clicks`, and yield the files' names."""
    with served(stored.database.place) as address:
        base = "{0.scheme}://{0.netloc}".format(urlsplit(address))
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        page.goto(address)
        for number, _ in enumerate(clicks(page, base), 1):
            show_place(page)
            file = f"walk-{number}.png"
            page.screenshot(path=folder / file)
            yield file
        page.close()


def main() -> None:
    """Write ``docs/images/ui-*.png`` and ``walk-*.png``, and the words of the pages."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        stored = Stored(Path(folder))
        names = [*take(browser, stored, IMAGES), *walk(browser, stored, IMAGES)]
        texts = words(stored)
        browser.close()
    WORDS.write_text(
        "".join(f"== {name}\n{text}\n" for name, text in texts.items()), encoding="utf-8"
    )
    sys.stdout.write(f"written: {', '.join(names)}, {WORDS.name}\n")


if __name__ == "__main__":
    main()
