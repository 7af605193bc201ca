"""`report` and the short texts of results: what people read in a terminal and in a notebook."""

from __future__ import annotations

import io
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agenteval_otel import AggregatedEvaluationResult, EvaluationInput, report, run_evaluations_sync
from agenteval_otel.cli import main
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Func, ResponseHealth
from agenteval_otel.models import EvaluationResult, RunError
from agenteval_otel.offline.reports.report import Report
from tests.testing.doubles import config_of


def shouts(evaluation_input: EvaluationInput) -> float:
    if evaluation_input.response_text == "!":
        raise ValueError("<b>loud</b>\x1b[2J")
    return 0.25


def results(*answers: str) -> list[AggregatedEvaluationResult]:
    config = config_of(ResponseHealth(), Func(function=shouts, name="shouts", threshold=0.5))
    return run_evaluations_sync([{"response": answer, "prompt": "q"} for answer in answers], config)


def test_a_printed_result_has_a_line_for_each_criterion() -> None:
    """The overall score, then criterion, outcome, score and reason, cut to fit; control characters
    stay out.
    """
    good, broken = results("Paris", "!")
    assert str(good).splitlines() == [
        "overall score 0.62",
        "  response_health  pass  True",
        "  shouts           fail  0.25",
    ]
    assert (
        str(broken).splitlines()[2]
        == "  shouts           failed        ValueError: <b>loud</b>?[2J"
    )
    assert repr(good) == "<AggregatedEvaluationResult 0.62: response_health pass, shouts fail>"
    assert str(good.results[1]) == "shouts fail 0.25"
    long = EvaluationResult(
        criterion_name="c", evaluator_type="T", score=1, reasoning="word " * 1000
    )
    assert max(map(len, str(AggregatedEvaluationResult(results=(long,) * 3)).splitlines())) < 120


def test_a_printed_result_shows_what_broke_beside_the_evaluators() -> None:
    error = RunError(evaluator_type="StorageProvider", message="the disk is full")
    text = str(AggregatedEvaluationResult(run_errors=(error,)))
    assert repr(AggregatedEvaluationResult(run_errors=(error,))) == (
        "<AggregatedEvaluationResult -: StorageProvider error>"
    )
    assert text == "overall score -\n  StorageProvider  error    the disk is full"


def test_a_report_is_a_table_of_the_criteria() -> None:
    """Means and rates, counts, and why results failed; a single result is a report of one. Of three
    answers no interval is shown but a sentence.
    """
    text = str(report(results("Paris", "", "!")))
    assert text == repr(report(results("Paris", "", "!")))
    assert text.startswith("3 inputs, 1 with failures\n")
    assert re.search(
        r"^response_health +0\.67 \(of 3\) +67 % \(of 3\) +3 +0 +0$", text, re.MULTILINE
    )
    assert re.search(r"^Intervals +of \.\.\. +too few for an interval", text, re.MULTILINE)
    assert re.search(r"^Failed +shouts +ValueError 1$", text, re.MULTILINE)
    assert "results[1]" in text
    assert str(report(results("Paris")[0])).startswith("1 input\n")
    assert str(report([])).startswith("0 inputs\n")


def test_rich_prints_it_in_colour() -> None:
    """As wide as its console; in a pipe without codes."""
    made = report(results("!"))
    files = [io.StringIO(), io.StringIO()]
    for file, system in zip(files, ("standard", None), strict=True):
        Console(file=file, width=60, color_system=system).print(made)  # type: ignore[arg-type]
    assert ["\x1b[" in file.getvalue() for file in files] == [True, False]
    assert max(map(len, files[1].getvalue().splitlines())) <= 60


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_notebook_shows_a_table() -> None:
    """Well-formed HTML with a row for each criterion; names and reasons are text, whatever they
    contain.
    """
    made = [
        AggregatedEvaluationResult(
            results=(
                EvaluationResult(
                    criterion_name="<script>", evaluator_type="T", error="x", error_type="<img>"
                ),
                EvaluationResult(criterion_name="b", evaluator_type="T", score=0.5, normalized=0.5),
            )
        )
    ]
    html, tags = report(made)._repr_html_(), Tags()
    tags.feed(html)
    assert (tags.open, tags.rows) == ([], 4)
    assert "<script>" not in html
    assert "<img>" not in html
    assert "&lt;script&gt;" in html


def test_the_figures_are_those_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`to_dict` is what `--report json` prints for the same answers, apart from the names of the
    inputs.
    """
    dataset, settings = tmp_path / "answers.jsonl", tmp_path / "agenteval.yaml"
    answers = ["Paris", "", "Rome"]
    dataset.write_text("".join(json.dumps({"response": answer}) + "\n" for answer in answers))
    settings.write_text("evaluators:\n  - type: ResponseHealth\n")
    assert (
        main(["evaluate", str(dataset), "--settings", str(settings), "--report", "json", "--quiet"])
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    made = run_evaluations_sync(
        [{"response": answer} for answer in answers], config_of(ResponseHealth())
    )
    figures = Report(made, [f"answers.jsonl:{line}" for line in (1, 2, 3)]).to_dict()
    assert json.loads(json.dumps(figures)) == {name: printed[name] for name in figures}


def test_a_data_frame_has_a_row_for_each_criterion_or_result() -> None:
    made = report(results("Paris", "!"))
    by_criterion, by_result = made.to_dataframe(), made.to_dataframe(by="result")
    assert list(by_criterion["criterion"]) == ["response_health", "shouts"]
    assert list(by_criterion["failed"]) == [0, 1]
    assert by_criterion["mean_low"][0] < by_criterion["mean"][0] <= by_criterion["mean_high"][0]
    assert list(by_result["status"]) == ["scored", "scored", "scored", "failed"]
    assert list(by_result["input"]) == [0, 0, 1, 1]
    assert by_result["response"][3] == "!"
    with pytest.raises(ConfigurationError, match="'criterion' or 'result', found 'row'"):
        made.to_dataframe(by="row")  # type: ignore[arg-type]


def test_without_pandas_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    made = report([])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match="needs pandas: pip install pandas"):
        made.to_dataframe()


@pytest.mark.parametrize("wrong", [[EvaluationInput(response="x")], ["text"], [None], None, 7])
def test_only_results_are_reported(wrong: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"results\[0\]: expected what run_evaluations returns, found"
    ):
        report(wrong)
