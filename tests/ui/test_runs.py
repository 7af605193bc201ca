"""Runs of `evaluate` side by side: from their files, with the figures of the command line, over the
real server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from agenteval_otel import cli
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.comparison.statistics import Difference
from agenteval_otel.offline.reports.figures import with_interval
from agenteval_otel.ui.views import points
from tests.promises.test_b14_pages import HOSTILE, PLAIN, everywhere
from tests.ui.served import Structure, client_of, served
from tests.ui.stored import store, traffic, write_run

WORDS = {
    "drop": "▼ worse",
    "gain": "▲ better",
    "not significant": "no clear change",
    "evaluator changed": "evaluator changed",
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs over one dataset: the second contains less, and another evaluator scored its health."""
    folder = tmp_path_factory.mktemp("runs")
    main, branch = folder / "main.jsonl", folder / "branch.jsonl"
    return [write_run(main), write_run(branch, rate=0.7, version="2", first=5)]


@pytest.fixture(scope="module")
def client(files: list[Path]) -> Iterator[httpx.Client]:
    """A client of the pages over both."""
    with served(*files) as address, client_of(address) as made:
        assert urlsplit(address).path == "/compare", "several files open the comparison"
        yield made


def test_runs_are_compared_as_on_the_command_line(
    files: list[Path], client: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Means, intervals, p-values and outcomes of the page are those of `compare`, for means and for
    pass rates.
    """
    for figure, options in (("mean", []), ("pass_rate", ["--pass-rate"])):
        assert cli.main(["compare", *map(str, files), *options, "--report", "json"]) == 1
        expected = json.loads(capsys.readouterr().out)
        page = client.get(f"/compare?by=run&figure={figure}").text
        rows = [
            Structure(row).text
            for row in page.partition("<tbody>")[2].partition("</tbody>")[0].split("<tr>")[1:]
        ]
        assert len(rows) == len(expected["criteria"])
        for row, item in zip(rows, expected["criteria"], strict=True):
            assert item["name"] in row
            assert WORDS[item["outcome"]] in row
            assert points(Difference(item["difference"], item["low"], item["high"], 0.0)) in row
            for side in ("a", "b"):
                ends = [item[side][name] for name in ("mean", "low", "high")]
                assert with_interval(Estimate(*ends, 0, 0), rate=figure == "pass_rate") in row
            if item["outcome"] != "evaluator changed":
                p = item["p_corrected"]
                assert ("p < 0.001" if p < 0.001 else f"p = {p:.3f}") in row
                assert f"{item['pairs']} inputs scored in both runs" in row
        assert {item["outcome"] for item in expected["criteria"]} >= {
            "drop",
            "evaluator changed",
        }
        for words in (
            "115 inputs in both",
            "5 inputs only in main.jsonl",
            "the evaluators differ",
        ):
            assert words in Structure(page).text


def test_inputs_that_score_lower_lead_to_both_answers(client: httpx.Client) -> None:
    """Each has its two answers as links; the overview, a criterion and CSV are of one run."""
    page = client.get("/compare").text
    lower = page.partition("Inputs that score lower")[2]
    keys = [part.partition('"')[0] for part in lower.split('href="/answer/')[1:3]]
    question = lower.split('<th scope="row">')[1].partition("<")[0]
    for key, passed in zip(keys, ("True", "False"), strict=True):
        text = client.get(f"/answer/{key}").text
        assert question in text
        assert passed in text
    assert "branch.jsonl: 360 results" in client.get("/").text
    assert "main.jsonl: 360 results" in client.get("/?run=main.jsonl").text
    assert "run: main.jsonl" in client.get("/criterion?name=contains&run=main.jsonl").text
    by_run = Structure(client.get("/criterion?name=contains").text).text
    assert "By run" in by_run
    assert "run" in client.get("/export.csv?name=contains").text.splitlines()[0].split(",")
    report = client.get("/export/compare.html?by=run").text
    assert "▼ worse" in report
    assert "Question" not in report, "a report holds no content"
    assert 'href="/' not in report


def test_what_cannot_be_compared_is_named_with_the_choices(client: httpx.Client) -> None:
    """An unknown run, side or field says what there is; equal sides ask for two."""
    for path, field in (
        ("/compare?left=mian.jsonl", "left"),
        ("/compare?right=x", "right"),
        ("/compare?by=colour", "by"),
        ("/?run=x", "run"),
    ):
        reply = client.get(path)
        text = Structure(reply.text).text
        assert reply.status_code == 400, path
        assert f"{field}: no" in text, text
        assert ("Known: run" if field == "by" else "Known: main.jsonl, branch.jsonl") in text
    assert (
        "did you mean 'main.jsonl'" in Structure(client.get("/compare?left=mian.jsonl").text).text
    )
    assert "Both sides are the same" in client.get("/compare?left=main.jsonl&right=main.jsonl").text


def test_the_command_takes_files_of_runs_and_no_databases(
    files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several places are files of results with names of their own; `--export` writes their
    comparison.
    """
    store(tmp_path / "a.db", traffic(3))
    (tmp_path / "empty.jsonl").write_text("")
    for places, words in (
        (
            [files[0], tmp_path / "a.db"],
            "PLACE: " + str(tmp_path / "a.db") + " is no file of results",
        ),
        ([files[0], tmp_path / "empty.jsonl"], "is no file of results"),
        ([files[0], tmp_path / "none.jsonl"], "none.jsonl cannot be read"),
        ([files[0], files[0]], "is named twice"),
    ):
        assert cli.main(["ui", *map(str, places)]) == 2
        assert words in capsys.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    same_name = write_run(other / "main.jsonl", rate=0.7)
    report = tmp_path / "report.html"
    assert cli.main(["ui", str(files[0]), str(same_name), "--export", str(report)]) == 0
    assert "▼ worse" in report.read_text()
    assert str(same_name) in Structure(report.read_text()).text, (
        "files of one name are told apart by their places"
    )


def test_hostile_answers_of_a_run_are_text(tmp_path: Path) -> None:
    """The comparison of runs with hostile texts everywhere has the tags and attributes of one with
    plain words.
    """
    structures = []
    for text in (" ".join(HOSTILE), PLAIN):
        files = [tmp_path / f"{side}.jsonl" for side in ("a", "b")]
        for file in files:
            file.write_text(
                "".join(f"{everywhere(text).model_dump_json(by_alias=True)}\n" for _ in range(3))
            )
        with served(*files) as address, client_of(address) as client:
            pages = [client.get(path).text for path in ("/compare", "/", "/export/compare.html")]
            structures.append([Structure(page).tags for page in pages])
    assert structures[0] == structures[1]
