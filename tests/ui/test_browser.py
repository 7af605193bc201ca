"""The pages in headless Chromium, from the real server over a real SQLite: every page, labels by
keys, what is new.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.models import EvaluationInput, ToolCall
from agenteval_otel.ui.labels import Labels
from tests.backends.fixtures import require
from tests.docs.generator import load_script
from tests.promises.test_b14_pages import HOSTILE, everywhere
from tests.storage.test_real_receivers import wait_for
from tests.ui.served import served
from tests.ui.stored import answer, columns_of, score, store, traffic, write_run
from tests.ui.traced import store_traced

pytestmark = [pytest.mark.backend, pytest.mark.slow]

Serve = Callable[..., str]
PAGES = (
    "/",
    "/criterion?name=helpfulness",
    "/answers?outcome=fail",
    "/label?criterion=helpfulness",
    "/conversation?id=conversation-1",
    "/compare?by=prompt_version",
    "/compare?by=arm",
    "/cost",
    "/health",
)
SIZES = ((1600, "light"), (375, "dark"))
_RUN_AXE = """() => axe.run().then(found => found.violations
    .filter(rule => ["serious", "critical"].includes(rule.impact))
    .map(rule => `${rule.id}: ${rule.nodes[0].html}`))"""
_LIMIT_MS = 20_000


def missing(what: str) -> Any:
    """Skip, or fail where the real programs are required."""
    if os.environ.get("AGENTEVAL_REQUIRE_BACKENDS"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="module", name="browser")
def _browser() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        missing("needs Chromium: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def axe() -> str:
    return require("axe-core").with_name("axe.min.js").read_text()


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serve pages until the test is over, and return their address with its token."""
    with ExitStack() as servers:
        yield lambda *arguments: servers.enter_context(served(*arguments))


@pytest.fixture
def visit(browser: Any, serve: object) -> Iterator[Any]:
    """A page of a context of its own; what its scripts or its policy complain about fails the test.

    It needs `serve` so that a page is closed before its server ends: an open page asks for what is
    new, and complains where nothing answers.
    """
    complaints: list[str] = []
    contexts: list[Any] = []

    def visit_(address: str, width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        contexts.append(
            browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme, **options
            )
        )
        page = contexts[-1].new_page()
        page.set_default_timeout(_LIMIT_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda line: (
                complaints.append(line.text) if line.type in ("error", "warning") else None
            ),
        )
        page.goto(address)
        return page

    yield visit_
    for context in contexts:
        context.close()
    assert complaints == []


def test_every_page_is_whole_in_both_themes(
    serve: Serve, visit: Any, axe: str, tmp_path: Path
) -> None:
    """At 375 and 1,600 pixels: nothing is wider than the window, charts are drawn, axe has no
    serious complaint.
    """
    store(tmp_path / "a.db", traffic())
    address = serve(tmp_path / "a.db")
    base = address.split("/?")[0]
    for width, scheme in SIZES:
        page = visit(address, width, scheme, bypass_csp=True)
        for path in PAGES:
            page.goto(base + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            lines = page.locator(".chart .lines .trend:not(.filling)")
            drawn = [lines.nth(number).bounding_box() for number in range(lines.count())]
            assert all(box["width"] > 40 for box in drawn), path
            page.evaluate(axe)
            assert page.evaluate(_RUN_AXE) == [], f"{path} {scheme}"
        page.goto(f"{base}/criterion?name=helpfulness")
        page.locator("a[href^='/answer/']").first.click()
        page.wait_for_selector("text=How do I return order")
        page.evaluate(axe)
        assert page.evaluate(_RUN_AXE) == []


def test_a_link_on_another_site_opens_the_answers(serve: Serve, visit: Any, tmp_path: Path) -> None:
    """As in a message that is read in the browser: the cookie goes with it."""
    store(tmp_path / "a.db", traffic())
    address = serve(tmp_path / "a.db")
    page = visit(address)
    link = f"<a href='{address.split('/?')[0]}/answers?outcome=fail'>answers</a>"
    page.route(
        "http://alerts.example/",
        lambda route: route.fulfill(body=link, content_type="text/html"),
    )
    page.goto("http://alerts.example/")
    page.click("text=answers")
    page.wait_for_selector("h1:has-text('Answers')")


def test_a_step_that_is_not_over_is_dashed_and_says_so(
    serve: Serve, visit: Any, tmp_path: Path
) -> None:
    """The line to it is dashed, its point is hollow, and the pointer shows the figures of each step."""
    store(tmp_path / "a.db", [*traffic(), answer(score(), number=300)])  # the last one is of now
    address = serve(tmp_path / "a.db")
    page = visit(address)
    page.goto(f"{address.split('/?')[0]}/criterion?name=helpfulness")
    line, filling = (
        page.evaluate("""() => [".trend:not(.filling)", ".trend.filling"].map((name) => {
        const drawn = document.querySelector(`.chart.line .lines ${name}`);
        return getComputedStyle(drawn).strokeDasharray;
    })""")
    )
    assert line == "none"
    assert filling == "3px, 4px"
    assert page.locator(".chart.line .dot.hollow").count() == 1
    plot = page.locator(".chart.line .lines").bounding_box()
    at = plot["x"] + plot["width"] - 2, plot["y"] + plot["height"] / 2
    words = page.evaluate(
        """([x, y]) => document.elementFromPoint(x, y).closest(".step").textContent.trim()""", at
    )
    assert re.fullmatch(
        r"from .* UTC: [\d.]+ % \([\d.]+ to [\d.]+\), answers: \d+, still filling", words
    ), words


def test_each_part_of_a_chart_leads_to_its_answers(
    serve: Serve, visit: Any, tmp_path: Path
) -> None:
    """A step of time, a bar of scores, a row of the numbers and a group: a click lists as many answers
    as stand there.
    """
    store(tmp_path / "a.db", traffic())
    address = serve(tmp_path / "a.db")
    page = visit(address)
    criterion = f"{address.split('/?')[0]}/criterion?name=helpfulness"

    def answers_behind(link: Any) -> int:
        with page.expect_navigation():
            link.click()
        return int(page.locator(".lead").inner_text().split()[0])

    page.goto(criterion)
    steps = page.locator(".chart.line a")
    words = steps.nth(5).locator("title").text_content()
    of_step = int(re.search(r"answers: (\d+)", words)[1])  # type: ignore[index]
    assert answers_behind(steps.nth(5)) == of_step > 0
    page.goto(criterion)
    of_bars = 0
    for number in range(20):
        bar = page.locator(".chart.bars a").nth(number)
        of_bars += answers_behind(bar)
        page.goto(criterion)
    assert of_bars == 300, "each answer in one bar"
    page.locator("summary:has-text('The numbers')").click()
    row = page.locator("details[open] tbody tr").nth(2)
    of_row = int(row.locator("td").nth(1).inner_text())
    assert answers_behind(row.locator("a")) == of_row
    page.goto(criterion)
    group = page.locator("section:has(h2:text-is('By model')) tbody tr").first
    of_group = int(group.locator("td").last.inner_text())
    assert answers_behind(group.locator("td a")) == of_group
    page.locator("tbody th a").first.click()
    page.wait_for_selector("text=How do I return order")


def test_dragging_in_a_chart_chooses_a_range(serve: Serve, visit: Any, tmp_path: Path) -> None:
    """From the middle to the right edge: the page has the newer half, whose steps are shorter, at an
    address of its own. A drag that is given up, and a click, choose no range.
    """
    store(tmp_path / "a.db", traffic())
    address = serve(tmp_path / "a.db")
    page = visit(address)
    criterion = f"{address.split('/?')[0]}/criterion?name=helpfulness"
    page.goto(criterion)
    scored = page.locator(".tile:has-text('Answers scored') .figure")
    assert scored.inner_text() == "300"
    plot = page.locator(".chart.line .plot").bounding_box()
    middle = plot["x"] + plot["width"] / 2
    y = plot["y"] + plot["height"] / 2
    page.mouse.move(middle, y)
    page.mouse.down()
    page.mouse.move(middle + 80, y, steps=4)
    assert page.locator(".chosen").bounding_box()["width"] == pytest.approx(80, abs=3)
    page.keyboard.press("Escape")
    page.mouse.move(middle, y)
    page.mouse.up()
    assert page.locator(".chosen").count() == 0
    page.goto(criterion)
    page.mouse.move(middle, y)
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] + 40, y, steps=4)
    with page.expect_navigation():
        page.mouse.up()
    assert re.search(r"since=\d+&until=\d+", page.url)
    assert 140 <= int(scored.inner_text()) <= 165
    page.locator("summary[aria-current]").click()
    since = page.locator("input[name=since]")
    assert since.input_value().startswith("20")
    since.fill("2020-01-01T00:00:00")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert int(scored.inner_text()) == 300


def middle_of(element: Any) -> tuple[float, float]:
    """Where it is on the screen, after it was brought to its middle."""
    element.evaluate("element => element.scrollIntoView({block: 'center'})")
    box = element.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


class Finger:
    """Touches a page as a screen does: the browser decides what becomes of it."""

    def __init__(self, page: Any) -> None:
        self._screen = page.context.new_cdp_session(page)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """Send a touch event with the fingers that are down."""
        fingers = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self._screen.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})

    def draw(self, begin: tuple[float, float], end: tuple[float, float], steps: int = 8) -> None:
        """Put a finger down, and move it in steps. It stays down."""
        self.touch("touchStart", begin)
        for step in range(1, steps + 1):
            x, y = (a + (b - a) * step / steps for a, b in zip(begin, end, strict=True))
            self.touch("touchMove", (x, y))

    def lift(self) -> None:
        self.touch("touchEnd")


def test_a_finger_chooses_a_range(serve: Serve, visit: Any, tmp_path: Path) -> None:
    """Across the chart. A finger that goes up or down scrolls the page, two zoom it, and a touch
    opens the answers of its step. None of these leaves a range behind.
    """
    store(tmp_path / "a.db", traffic())
    address = serve(tmp_path / "a.db")
    page = visit(address, 390, has_touch=True, is_mobile=True)
    criterion = f"{address.split('/?')[0]}/criterion?name=helpfulness"
    page.goto(criterion)
    chosen = page.locator(".chosen")
    chart = page.locator(".chart.line .plot")
    middle, y = middle_of(chart)
    right = 2 * middle - chart.bounding_box()["x"]
    finger = Finger(page)

    scrolled = page.evaluate("scrollY")
    page.evaluate("document.onscrollend = () => { document.body.dataset.rests = '' }")
    finger.draw((middle, y), (middle + 60, y - 160))
    finger.lift()
    page.wait_for_selector("body[data-rests]")
    assert page.evaluate("scrollY") > scrolled + 50
    assert chosen.count() == 0
    assert page.url == criterion
    numbers = page.locator("summary:has-text('The numbers')")
    numbers.tap()
    page.wait_for_selector("details[open] tbody tr")

    page.goto(criterion)
    middle, y = middle_of(chart)
    finger.touch("touchStart", (middle, y))
    finger.touch("touchStart", (middle, y), (middle + 30, y))
    for apart in range(10, 90, 10):
        finger.touch("touchMove", (middle - apart, y), (middle + 30 + apart, y))
    finger.lift()
    wait_for(lambda: page.evaluate("visualViewport.scale") > 1.2)
    assert chosen.count() == 0
    assert page.url == criterion

    page.goto(criterion)
    middle, y = middle_of(chart)
    finger.draw((middle, y), (middle + 80, y + 10))
    # The browser reports the last move with its next frame.
    wait_for(lambda: chosen.bounding_box()["width"] == pytest.approx(80, abs=3))
    finger.touch("touchMove", (right - 1, y))
    with page.expect_navigation():
        finger.lift()
    assert re.search(r"since=\d+&until=\d+", page.url)
    scored = page.locator(".tile:has-text('Answers scored') .figure")
    assert 140 <= int(scored.inner_text()) <= 165

    page.goto(criterion)
    middle, y = middle_of(chart)
    with page.expect_navigation():
        page.touchscreen.tap(middle, y)
    assert "/answers?" in page.url


def test_a_page_prints_without_its_controls(serve: Serve, visit: Any, tmp_path: Path) -> None:
    """On white, in the dark theme too: what is clicked is left out, and what is read is not."""
    store(tmp_path / "a.db", traffic(60))
    address = serve(tmp_path / "a.db")
    page = visit(address, 1000, "dark")
    page.goto(f"{address.split('/?')[0]}/criterion?name=helpfulness")
    page.emulate_media(media="print", color_scheme="dark")
    for name in ("nav", ".tools", "form", ".skip"):
        assert not page.locator(name).first.is_visible(), name
    for name in ("h1", ".tile", ".chart.line .trend"):
        assert page.locator(name).first.is_visible(), name
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"


def test_runs_are_looked_at_side_by_side(
    serve: Serve, visit: Any, axe: str, tmp_path: Path
) -> None:
    """Two files open their comparison, whole at both sizes; an answer is one click away, also of
    pass rates.
    """
    files = [
        write_run(tmp_path / "main.jsonl"),
        write_run(tmp_path / "branch.jsonl", rate=0.7, version="2"),
    ]
    address = serve(*files)
    for width, scheme in SIZES:
        page = visit(address, width, scheme, bypass_csp=True)
        page.wait_for_selector("text=branch.jsonl beside main.jsonl")
        page.wait_for_selector("text=▼ worse")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(axe)
        assert page.evaluate(_RUN_AXE) == []
        page.select_option("select[name=figure]", "pass_rate")
        with page.expect_navigation():
            page.click("button:has-text('Compare')")
        page.wait_for_selector("text=Pass rates, weighted", state="attached")
        page.locator("a[href^='/answer/']").first.click()
        page.wait_for_selector("text=Question")


def test_fifty_answers_are_labelled_with_keys(serve: Serve, visit: Any, tmp_path: Path) -> None:
    """p, f and s, a comment after c; the labels are in the database, and the page shows the
    agreement.
    """
    target = store(tmp_path / "a.db", traffic(60))
    address = serve(tmp_path / "a.db")
    page = visit(address)
    page.goto(f"{address.split('/?')[0]}/label?criterion=helpfulness")
    page.keyboard.press("s")
    page.wait_for_url("**after=*")
    page.keyboard.press("c")
    page.keyboard.type("pf is text here")
    page.keyboard.press("Escape")
    for number in range(50):
        with page.expect_navigation():
            page.keyboard.press("f" if number % 5 == 0 else "p")
    page.wait_for_selector("text=50 of 100 answers labelled")
    page.wait_for_selector("text=evaluators agree with")
    columns = columns_of(target)
    labels = Labels(target, columns).all()
    assert len({label.evaluation_id for label in labels}) == len(labels) == 50
    assert sum(label.passed is False for label in labels) == 10
    assert all(label.others for label in labels)


def test_a_run_of_spans_is_a_tree_on_one_axis(
    serve: Serve, visit: Any, axe: str, tmp_path: Path
) -> None:
    """Bars of all levels begin where their steps did, in both themes, on a wide and a small screen."""
    store_traced(tmp_path / "a.db")
    address = serve(tmp_path / "a.db")
    for width, scheme in ((1440, "light"), (390, "dark")):
        page = visit(address, width, scheme, bypass_csp=True)
        page.goto(f"{address.split('/?')[0]}/answers")
        page.locator("th a").first.click()
        page.wait_for_url("**/answer/*")
        assert page.locator(".step-name").all_inner_texts() == [
            "support", "retrieval", "claude-sonnet", "lookup_order", "ask_bank", "bank", "small-1",
            "read_ledger", "claude-sonnet",
        ]  # fmt: skip
        axes = [axis.bounding_box() for axis in page.locator(".run .time").all()]
        bars = [bar.bounding_box() for bar in page.locator(".run .range").all()]
        assert len({(round(axis["x"]), round(axis["width"])) for axis in axes}) == 1
        began = [(bar["x"] - axes[0]["x"]) / axes[0]["width"] * 8 for bar in bars]
        assert began == pytest.approx([0.1, 0.7, 2.3, 2.9, 3.0, 3.1, 4.1, 6.3], abs=0.1)
        lines = [line.bounding_box() for line in page.locator(".run .facts").all()[1:]]
        for line, axis in zip(lines, axes, strict=True):
            beside = line["x"] + line["width"] <= axis["x"]
            assert beside or line["y"] + line["height"] <= axis["y"] + 1, "no text under a bar"
        bank = page.locator("li:has(> .step)", has_text="bank").first.bounding_box()
        ask = page.locator("summary", has_text="ask_bank").bounding_box()
        assert bank["x"] > ask["x"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("summary", has_text="lookup_order").click()
        assert page.locator("details[open] .parts", has_text="Arguments").count() == 1
        page.evaluate(axe)
        assert page.evaluate(_RUN_AXE) == []


def test_an_answer_is_read_and_marked_with_keys(
    serve: Serve, visit: Any, axe: str, tmp_path: Path
) -> None:
    """The run is open to axe in both themes and sizes; `l` marks an answer, and `j` goes on in the list."""
    calls = [
        ToolCall(name="lookup", arguments={"id": 1}, result="ok", duration_s=1.0),
        ToolCall(name="pay", arguments={"id": 1}, error="TimeoutError: slow", duration_s=2.0),
    ]
    snapshot = EvaluationInput(
        prompt="Where is it?",
        tool_calls=calls,
        error_type="OrderSystemError",
        duration_s=4.0,
        context={"documents": ["Three days."]},
        message_history=[{"role": "user", "content": "Hello"}],
    )
    answers = [answer(score(), number=1, conversation_id="c", input_snapshot=snapshot)]
    answers += [answer(score(), number=number, conversation_id="c") for number in range(2, 5)]
    store(tmp_path / "a.db", answers)
    address = serve(tmp_path / "a.db", "--trace-url", "http://localhost:16686/trace/{trace_id}")
    base = address.split("/?")[0]
    for width, scheme in ((1440, "light"), (390, "dark")):
        page = visit(address, width, scheme, bypass_csp=True)
        page.goto(f"{base}/answers")
        page.locator("tr", has_text="Where is it?").locator("a").click()
        for details in page.locator("main details").all():
            details.evaluate("element => { element.open = true }")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        bars = page.locator(".time .range")
        widths = [bars.nth(number).bounding_box()["width"] for number in range(bars.count())]
        assert len(widths) == 2
        assert abs(widths[1] - 2 * widths[0]) < 1
        page.evaluate(axe)
        assert page.evaluate(_RUN_AXE) == []
    page.goto(f"{base}/answers?looked=no")
    page.locator("th a").first.click()
    page.wait_for_url("**/answer/*")
    page.keyboard.press("l")
    page.wait_for_selector("button[aria-pressed=true]")
    assert page.locator("nav", has_text="1 of 4").count() == 1
    page.wait_for_load_state()
    page.keyboard.press("j")
    page.wait_for_selector("button[aria-pressed=false]")
    assert page.locator("nav", has_text="1 of 3").count() == 1
    page.goto(f"{base}/answers?looked=yes")
    assert page.locator("text=✓ looked at").count() == 1
    page.locator("th a").first.click()
    page.wait_for_url("**/answer/*")
    page.keyboard.press("c")
    page.keyboard.type("ask Kim")
    page.click("text=Save")
    page.wait_for_selector("pre:has-text('ask Kim')")
    page.wait_for_load_state()
    page.keyboard.press("l")
    page.wait_for_selector("button[aria-pressed=false]")
    assert page.locator("a", has_text="trace in Jaeger").count() == 1


def test_a_mistyped_key_is_undone_and_the_queue_goes_on(
    serve: Serve, visit: Any, tmp_path: Path
) -> None:
    """u takes back the last label, b leads to the one before; a second browser goes on behind them."""
    target = store(tmp_path / "a.db", traffic(20))
    address = serve(tmp_path / "a.db")
    queue = f"{address.split('/?')[0]}/label?criterion=helpfulness&goal=10"
    page = visit(address)
    page.goto(queue)
    page.fill("input[name=labeller]", "Ann")
    press(page, "Enter")
    assert page.input_value("input[name=labeller]") == "Ann"
    keys = []
    for verdict in "ppf":
        keys.append(key_of(page))
        press(page, verdict)
    press(page, "u")
    assert key_of(page) == keys[2]
    press(page, "p")
    page.wait_for_selector("text=3 of 10 answers labelled")
    press(page, "b")
    press(page, "b")
    assert key_of(page) == keys[1]
    assert page.locator("text=Your label so far").count() == 1
    press(page, "f")
    press(page, "s")
    other = visit(address)
    other.goto(queue)
    assert other.input_value("input[name=labeller]") == ""
    assert key_of(other) not in keys
    labels = Labels(target, columns_of(target)).all()
    verdicts = {label.evaluation_id: (label.name, label.passed) for label in labels}
    assert [verdicts[key] for key in keys] == [("Ann", True), ("Ann", False), ("Ann", True)]


def test_several_criteria_are_labelled_with_keys(
    serve: Serve, visit: Any, axe: str, tmp_path: Path
) -> None:
    """p and f answer the first open criterion, a digit goes to one, and the last sends the form."""
    target = store(tmp_path / "a.db", traffic(20))
    address = serve(tmp_path / "a.db")
    names = ("helpfulness", "tone", "groundedness")
    page = visit(address, 390, bypass_csp=True)
    page.goto(f"{address.split('/?')[0]}/label")
    page.click("summary:has-text('Criteria')")
    for name in names:
        page.check(f"input[type=checkbox][value={name}]")
    page.evaluate(axe)
    assert page.evaluate(_RUN_AXE) == []
    with page.expect_navigation():
        page.click("button:has-text('Show')")
    shown = page.locator("[data-choice] legend").all_inner_texts()
    key = key_of(page)
    page.keyboard.press("2")
    page.keyboard.press("f")
    page.keyboard.press("1")
    page.keyboard.press("p")
    page.evaluate(axe)
    assert page.evaluate(_RUN_AXE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    press(page, "p")
    assert key_of(page) != key
    labels = Labels(target, columns_of(target)).all()
    assert {label.evaluation_id for label in labels} == {key}
    by_name = {label.criterion: label.passed for label in labels}
    assert [by_name[text.split()[1]] for text in shown] == [True, False, True]
    press(page, "u")
    assert page.locator("[data-choice] input:checked").count() == 2
    press(page, "f")
    labels = Labels(target, columns_of(target)).all()
    by_name = {label.criterion: label.passed for label in labels}
    assert [by_name[text.split()[1]] for text in shown] == [True, False, False]


def key_of(page: Any) -> str:
    """The answer that is to be labelled."""
    return str(page.input_value("#verdict input[name=key]"))


def press(page: Any, key: str) -> None:
    """Press a key that leads to another page."""
    with page.expect_navigation():
        page.keyboard.press(key)


def test_new_results_appear_by_themselves(serve: Serve, visit: Any, tmp_path: Path) -> None:
    """The overview follows what is stored while it is open, unless it is paused."""
    path = tmp_path / "a.db"
    store(path, [answer(score())])
    address = serve(path)
    page = visit(address)
    page.wait_for_selector("text=helpfulness")
    store(path, [answer(score("new_criterion"), number=1)])
    page.wait_for_selector("text=new_criterion")
    page.wait_for_selector("#live .chart >> nth=1", state="attached")
    page.check("#pause")
    store(path, [answer(score("unseen"), number=2)])
    page.wait_for_timeout(3_000)
    assert page.locator("text=unseen").count() == 0


def test_hostile_answers_run_nothing(serve: Serve, visit: Any, tmp_path: Path) -> None:
    """No script of stored text runs and no request leaves, on any page."""
    text = " ".join(HOSTILE)
    store(tmp_path / "a.db", [everywhere(text), everywhere("word")])
    address = serve(tmp_path / "a.db")
    base = address.split("/?")[0]
    page = visit(address)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: requests.append(f"dialog {dialog.message}"))
    for path in ("/", "/label", "/compare", "/health", "/conversation?id=word"):
        page.goto(base + path)
        assert page.evaluate("window.broken") is None
    page.goto(base)
    page.locator("th a").first.click()
    page.locator("a[href^='/answer/']").first.click()
    page.wait_for_selector("text=Prompt")
    assert page.evaluate("window.broken") is None
    assert page.locator(".stored script, .stored img, .stored svg, iframe, base").count() == 0
    assert [request for request in requests if not request.startswith((base, "data:"))] == []


def test_the_pictures_of_the_documents_can_be_made(browser: Any, tmp_path: Path) -> None:
    """Each page in both themes, of the demo's traffic; the words beside them are compared in
    test_pictures.py.
    """
    pictures = load_script("ui_pictures")
    (tmp_path / "pictures").mkdir()
    names = list(pictures.take(browser, pictures.Stored(tmp_path), tmp_path / "pictures"))
    assert len(names) == len(pictures.PAGES) * len(pictures.THEMES)
    for name in pictures.PAGES:
        light, dark = (
            (tmp_path / "pictures" / f"ui-{name}-{theme}.png").read_bytes()
            for theme in pictures.THEMES
        )
        assert light != dark
        assert min(len(light), len(dark)) > 20_000, name


def test_a_report_opens_from_disk(serve: Serve, visit: Any, tmp_path: Path) -> None:
    """One file has its charts and asks for nothing else."""
    store(tmp_path / "a.db", traffic(60))
    address = serve(tmp_path / "a.db")
    page = visit(address)
    with page.expect_download() as download:
        page.click("text=Export HTML")
    report = tmp_path / "report.html"
    download.value.save_as(report)
    requests: list[str] = []
    page = visit("about:blank")
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector(".chart .lines", state="attached")
    assert page.locator("text=helpfulness").count() > 0
    assert requests == [report.as_uri()]


def test_answers_are_searched_by_keyboard_and_filters_are_removed(
    serve: Serve, visit: Any, axe: str, tmp_path: Path
) -> None:
    """``/`` leads to the words, Enter searches, a chip removes its filter; on a phone too."""
    store(tmp_path / "a.db", traffic(60))
    address = serve(tmp_path / "a.db")
    page = visit(address, 390, "dark", bypass_csp=True)
    page.goto(f"{address.split('/?')[0]}/answers?agent=support")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.type("return 59/")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=return*")
    assert page.locator(".chips a").count() == 3
    page.get_by_role("link", name="agent support , remove this filter").click()
    page.wait_for_url(lambda url: "agent=" not in url)
    assert page.locator("mark").all_inner_texts() == ["return", "59", "59"]
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.evaluate(axe)
    assert page.evaluate(_RUN_AXE) == []
    page.get_by_role("searchbox", name="Words").fill("nowhere")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="without words").click()
    page.wait_for_url(lambda url: "text=" not in url)
    assert page.locator("tbody tr").count() == 25


def test_a_message_leads_to_the_reason_in_five_clicks(browser: Any, tmp_path: Path) -> None:
    """The answers that fail, the release since which they do, its answers, the reason, the
    conversation. The pictures are those of docs/ui.md.
    """
    pictures = load_script("ui_pictures")
    stored = pictures.Stored(tmp_path)
    with served(stored.database.place) as address:
        page = browser.new_page()
        page.goto(address)
        seen = list(pictures.clicks(page, address.split("/?")[0]))
        page.close()
    listed, criterion, of_release, answer, conversation = seen
    assert "outcome fail" in " ".join(listed.split())
    assert "prompt version 2" in criterion
    assert "prompt version 2" in " ".join(of_release.split())
    assert "no next step" in answer
    assert "Turn 1" in conversation
    names = list(pictures.walk(browser, stored, tmp_path))
    assert names == [f"walk-{number}.png" for number in range(1, 6)]
    assert all((pictures.IMAGES / name).is_file() for name in names)
