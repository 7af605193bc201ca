"""Reports of `agenteval-otel evaluate`: table, JUnit XML, Markdown, and the totals behind them."""

from __future__ import annotations

import io
import itertools
import re
import sys
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from agenteval_otel import EvaluationCriteria, EvaluationInput
from agenteval_otel.cli.evaluate.dataset import DatasetRow
from agenteval_otel.cli.evaluate.reports import KINDS
from agenteval_otel.cli.evaluate.totals import FailUnder, Summary, targets_of
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult, RunError
from agenteval_otel.offline.reports.table import console_for, fitting, grid_of
from agenteval_otel.offline.reports.totals import Totals
from agenteval_otel.offline.run import Progress

EVIL = "a\0\x1b\ud800\ufffe]]>&<b>\"'|`\n@all"


def result(criterion: str = "tone", **fields: Any) -> EvaluationResult:
    return EvaluationResult(criterion_name=criterion, evaluator_type="Test", **fields)


def scored(passed: bool | None = True, criterion: str = "tone", **fields: Any) -> EvaluationResult:
    value = 1.0 if passed else 0.0
    return result(criterion, score=value, normalized=value, passed=passed, **fields)


FAILED = result(error="it broke", error_type="timeout", raised=True)
SKIPPED = result(skip_reason="no ground truth")


class Run:
    """A report on inputs with prepared results."""

    def __init__(
        self, kind: str, *criteria: EvaluationCriteria, limits: tuple[str, ...] = ()
    ) -> None:
        self.file = io.StringIO()
        self.report = KINDS[kind](self.file)
        self.totals = Totals(criteria or [EvaluationCriteria(name="tone")])
        self.limits = [FailUnder.parse(limit) for limit in limits]
        self.sources: dict[str, None] = {}
        self.line = 0

    def add(self, *results: EvaluationResult, source: str = "a.jsonl", **fields: Any) -> Run:
        self.line += 1
        self.sources[source] = None
        row = DatasetRow(source, self.line, EvaluationInput(response="secret answer"))
        normalized = [result.normalized for result in results if result.normalized is not None]
        overall = sum(normalized) / len(normalized) if normalized else None
        aggregated = AggregatedEvaluationResult(results=results, overall_score=overall, **fields)
        self.totals.add(aggregated, place=row.place)
        self.report.add(row, aggregated)
        return self

    def text(self) -> str:
        targets = list(targets_of(self.totals, self.limits))
        self.report.finish(Summary(self.totals, list(self.sources), self.limits, targets, 1.5))
        return self.file.getvalue()

    def cases(self) -> list[ElementTree.Element]:
        """The test cases of a JUnit report in the common form."""
        root = ElementTree.fromstring(self.text().encode())
        check_junit(root)
        return list(root.iter("testcase"))


def check_junit(root: ElementTree.Element) -> None:
    """Check the form that CI servers have in common: elements, attributes, counts, one outcome at
    most.
    """
    assert (root.tag, {suite.tag for suite in root}) == ("testsuites", {"testsuite"})
    for element in (root, *root):
        assert {"name", "tests", "failures", "errors", "time"} == set(element.attrib) - {"skipped"}
        assert ("skipped" in element.attrib) is (element is not root)
        assert re.fullmatch(r"\d+\.\d+", element.attrib["time"])
        assert element.attrib["tests"] == str(len(element.findall(".//testcase")))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            if name in element.attrib:
                assert element.attrib[name] == str(len(element.findall(f".//testcase/{tag}")))
    for case in root.iter("testcase"):
        assert set(case.attrib) == {"classname", "name", "time"}
        assert re.fullmatch(r"[\w-]+\.[\w-]+", case.attrib["classname"])
        assert float(case.attrib["time"]) >= 0
        assert [child.tag for child in case] in (
            [],
            ["failure"],
            ["error"],
            ["skipped"],
            ["system-out"],
        )


def test_junit_tells_failures_errors_and_skips_apart() -> None:
    """A score that does not pass is a failure, a failed evaluator an error, a skip a skip."""
    run = Run("junit").add(scored()).add(scored(False, reason_code="rude", reasoning="It shouts."))
    run.add(FAILED).add(SKIPPED).add(result(score="neutral", label="neutral"))
    cases = run.cases()
    for line, case in enumerate(cases, 1):
        assert case.attrib["name"] == f"tone at a.jsonl:{line}"
        assert case.attrib["classname"] == "a.tone"
    passed, failure, error, skipped, labelled = (child for case in cases for child in case)
    assert passed.tag == labelled.tag == "system-out"
    assert (failure.tag, failure.attrib["type"]) == ("failure", "rude")
    assert failure.text == "score 0.0 (rude): It shouts."
    assert (error.tag, error.attrib["type"], error.text) == ("error", "timeout", "it broke")
    assert (skipped.tag, skipped.attrib["message"]) == ("skipped", "no ground truth")


def test_junit_has_one_case_for_each_criterion_of_an_input() -> None:
    """Of several results for a criterion the worst decides; each source is a suite."""
    run = (
        Run("junit")
        .add(scored(), scored(False), scored(criterion="health"))
        .add(scored(), FAILED, scored(False))
    )
    run.add(SKIPPED, scored(), source="b/b.csv")
    run.add(
        run_errors=(RunError(evaluator_type="EvaluationInput", message="no input"),),
        source="b/b.csv",
    )
    root = ElementTree.fromstring(run.text())
    check_junit(root)
    assert [(suite.attrib["name"], len(suite)) for suite in root] == [
        ("a.jsonl", 3),
        ("b/b.csv", 2),
    ]
    assert [case[0].tag for case in root.iter("testcase")] == [
        "failure",
        "system-out",
        "error",
        "system-out",
        "error",
    ]


def test_junit_can_contain_any_text() -> None:
    """Control characters, half characters and markup are replaced or escaped, and long texts are
    cut.
    """
    run = Run("junit")
    run.add(
        scored(False, criterion=EVIL, reasoning=EVIL + "x" * 100_000, reason_code="a\tb"),
        source=f"{EVIL}.jsonl",
    )
    run.add(result(error=EVIL, error_type=EVIL)).add(result(skip_reason=EVIL))
    cases = run.cases()
    assert len(cases[0][0].text or "") < 3000
    assert "more characters]" in (cases[0][0].text or "")
    assert "]]>&<b>" in (cases[1][0].text or "")
    assert cases[1][0].attrib["message"] == "a\ufffd\ufffd\ufffd\ufffd]]>&<b>\"'|`"


def test_markdown_contains_no_answers() -> None:
    """It has targets, figures and places."""
    run = Run(
        "markdown", EvaluationCriteria(name="tone", objective=0.9), limits=("0.2", "tone=0.8")
    )
    text = (
        run.add(scored())
        .add(scored(False, reasoning="secret reasoning"))
        .add(FAILED)
        .add(SKIPPED)
        .text()
    )
    assert text.startswith(
        "### ❌ Evaluation: 2 targets missed\n\n4 inputs from a.jsonl in 1.5 s.\n"
    )
    assert "| tone | 0.50 (of 2) | 50 % (of 2) | 2 | 1 | 1 | 90 % ❌, 0.8 ❌ |" in text
    assert "| **overall score** | 0.50 (of 2) | | 2 | | | 0.2 ✅ |" in text
    assert "| a.jsonl:2 | 0.00 | tone |" in text
    assert "secret" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "place" not in line]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8, 4}


def test_markdown_shows_special_names_as_code() -> None:
    """Nothing in a name is rendered."""
    text = Run("markdown").add(scored(False, criterion="a|b @all <img>`")).text()
    assert text.startswith("### Evaluation: no targets set\n")
    assert "| `a\\|b @all <img>'` |" in text


@pytest.mark.parametrize("width", [40, 80])
def test_the_table_fits_its_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider than the terminal; names and figures are complete."""
    monkeypatch.setenv("COLUMNS", str(width))
    long_name = "a_criterion_with_a_name_that_is_long"
    criteria = [EvaluationCriteria(name="tone", objective=0.9), EvaluationCriteria(name=long_name)]
    run = Run("table", *criteria, limits=("0.8", "tone=0.5"))
    for _ in range(1_200):
        run.add(scored(), scored(False, criterion=long_name), source="answers.jsonl")
    text = run.add(FAILED).add(SKIPPED).text()
    assert max(map(cell_len, text.splitlines())) <= width
    assert (" 1,200 " in text) is (width == 80)
    assert "90 %" in text
    assert "100 %" in text
    folded = re.sub(r" .*\n", "", text[text.index("criterion") :] + "\n")
    assert long_name in (folded if width == 80 else text)
    assert ("0.00 (0.00" in text) is (width == 80)


@pytest.mark.parametrize("width", [20, 50, 79])
def test_rows_that_do_not_fit_stand_under_their_name(width: int) -> None:
    """No column becomes a ribbon and no figure is cut; a place longer than the line is broken."""
    place = "a_folder/answers_of_the_support_agent.jsonl:1"
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("criterion", overflow="fold")
    for name in ("answers", "B - A (95 %)", "outcome"):
        table.add_column(name, no_wrap=True)
    table.add_row("close_to_the_reference", "1,200", "-0.263 (-0.412 to -0.113)", Text("drop"))
    file = io.StringIO()
    console = console_for(file, width=width)
    console.print(fitting(table))
    console.print(grid_of([("Lowest", place, "0.33", "response_health (empty)"), ("", "b:2")]))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert max(map(cell_len, lines)) <= width
    text = re.sub(r"\s+", "", file.getvalue())
    assert "-0.263(-0.412to-0.113)" in text
    assert place in text or width == 79
    if width == 79:
        assert re.split(r"\s{2,}", lines[0]) == ["criterion", "answers", "B - A (95 %)", "outcome"]
    if width == 50:
        assert lines == [
            "close_to_the_reference",
            "  answers 1,200",
            "    B - A (95 %) -0.263 (-0.412 to -0.113)",
            "    outcome drop",
            "Lowest    a_folder/answers_of_the_support_agent.js",
            "            onl:1  0.33  response_health (empty)",
            "          b:2",
        ]


def test_the_table_shows_categories_and_the_lowest_inputs() -> None:
    """Labels without a score are counted below the table. An input without a failing result is not
    a lowest one.
    """
    run = Run("table").add(scored(False)).add(result("other", score=0.2, normalized=0.2))
    for label in ("neutral", "positive", "neutral"):
        run.add(result("mood", score=label, label=label))
    text = run.text()
    assert re.search(r"Labels +mood +neutral 2, positive 1", text)
    assert [line.split() for line in text.splitlines() if "a.jsonl:" in line] == [
        ["Lowest", "a.jsonl:1", "0.00", "tone"]
    ]


def test_the_table_shows_what_the_first_failure_says() -> None:
    """With its place, in one line and cut; a report that others read has the error types alone."""
    first = result(
        error="it is no JSON. The reply begins 'Well,\n4 of 5'", error_type="malformed_answer"
    )
    second = result(error="another", error_type="malformed_answer")
    text = Run("table").add(first).add(second).text()
    assert re.search(r"Failed +tone +malformed_answer 2 *\n", text)
    assert "first at a.jsonl:1: it is no JSON. The reply begins 'Well, 4 of 5'" in " ".join(
        text.split()
    )
    assert "another" not in text
    assert "4 of 5" not in Run("markdown").add(first).add(second).text()
    long = result(error="x" * 5_000, error_type="malformed_answer")
    assert Run("table").add(long).text().count("x") < 500


def test_totals_do_not_grow_with_the_inputs() -> None:
    """They keep a bounded number of labels, reasons and inputs."""
    totals = Totals([EvaluationCriteria(name="tone")])
    for number in range(300):
        results = (
            scored(None, label=f"label {number}"),
            result(error="x", error_type=f"type {number}"),
            result(skip_reason=f"reason {number}"),
        )
        aggregated = AggregatedEvaluationResult(results=results, overall_score=1 - number / 300)
        totals.add(aggregated, place=f"a:{number}")
    (tone,) = totals.criteria
    for counts in (tone.labels, tone.errors, tone.skips):
        assert len(counts) <= 32
    assert (tone.scored, tone.failed, tone.skipped) == (300, 300, 300)
    lowest = [f"a:{number}" for number in range(299, 289, -1)]
    assert [low.place for low in totals.lowest] == lowest


@pytest.mark.parametrize("closed", [False, True])
def test_progress_takes_any_stream(monkeypatch: pytest.MonkeyPatch, closed: bool) -> None:
    """A host's own has no `isatty`, and a closed one cannot tell."""
    lines: list[str] = []
    stream = io.StringIO() if closed else SimpleNamespace(write=lines.append, flush=list)
    if closed:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    Progress(3, clock=itertools.count(step=20).__next__).advance(0)
    assert lines == ([] if closed else ["1 of 3 inputs evaluated, about 40 s left, 0.1 a second\n"])


def test_progress_is_a_rewritten_line_on_a_terminal_and_one_every_ten_seconds_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is written to standard error. The terminal's is blank at the end; a short run has no line
    elsewhere.
    """
    clock = itertools.count(step=4).__next__
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    progress = Progress(1000, clock=clock)
    for number in range(6):
        progress.advance(number // 3)
    assert sys.stderr.getvalue().splitlines() == [
        "3 of 1,000 inputs evaluated, about 66 min left, 0.2 a second",
        "6 of 1,000 inputs evaluated, about 66 min left, 1 with failures, 0.2 a second",
    ]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = Progress(3, clock=itertools.count().__next__)
    progress.advance(0)
    progress.close()
    lines = [line.strip() for line in sys.stderr.getvalue().split("\r")]
    assert lines == ["[######..............] 1 of 3 inputs evaluated, 1.0 a second", "", ""]


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (
            120,
            "[########............] 4 pairs judged, about 6 s left, 2 with failures, 1.0 a second, at noon",
        ),
        (50, "4 pairs judged, about 6 s left, 2 with failures"),
        (10, "4 pairs j"),
    ],
)
def test_a_terminals_progress_stays_in_its_line(
    columns: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that the terminal breaks could not be rewritten: the time left comes before the rest,
    and a bar only where there is room for both."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = Progress(
        None,
        clock=itertools.count().__next__,
        what="pairs judged",
        share=lambda: 0.4,
        more=lambda: "at noon",
    )
    for _ in range(4):
        progress.advance(2)
    lines = sys.stderr.getvalue().split("\r")
    assert lines[3] == line.ljust(columns - 1)
