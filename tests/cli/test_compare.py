"""`agenteval-otel compare`, and `evaluate --baseline`: what they print, and the exit code."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import annotate, configure, monitor, shutdown
from agenteval_otel.evaluators import Contains
from agenteval_otel.offline.comparison import ComparedSource
from agenteval_otel.storage import SqlStorageProvider
from agenteval_otel.testing import ModelServer
from tests.cli.conftest import CommandLine

SETTINGS = "evaluators: [{type: Contains, substrings: [hello]}]"


def results(cli: CommandLine, name: str, good: int, *, inputs: int = 60) -> None:
    """Write the answers of a run, so many of which are good, and the file of their results."""
    rows = [{"prompt": f"q{n}", "response": "hello" if n < good else "no"} for n in range(inputs)]
    dataset(cli, f"{name}.data.jsonl", rows)
    cli.settings(SETTINGS)
    cli(f"evaluate {name}.data.jsonl --settings settings.yaml --results {name}.jsonl --quiet")


def dataset(cli: CommandLine, name: str, rows: list[dict[str, str]]) -> None:
    cli.file(name, "".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_drop_is_found_and_nothing_is_not(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a table, in Markdown and in JSON; the texts of answers only on request."""
    monkeypatch.setenv("COLUMNS", "120")
    for name, good in (("before", 57), ("worse", 40), ("same", 56)):
        results(cli, name, good)
    compared = "compare before.jsonl worse.jsonl"
    table = cli(compared, code=1)
    assert "Comparison: 1 significant drop (contains)" in table
    assert "contains: 17 score lower, 0 higher" in table
    assert "question" not in table
    assert "q40" in cli(f"{compared} --answers", code=1)
    assert "no significant drop" in cli("compare before.jsonl same.jsonl")
    markdown = cli(f"{compared} --report markdown", code=1)
    assert markdown.startswith("### ❌ Comparison")
    assert "q40" not in markdown
    cli(f"{compared} --report json --output o.json", code=1)
    report = json.loads(Path("o.json").read_text())
    assert report["criteria"][0]["outcome"] == "drop"
    assert report["changed"]["matched"] == 60


def test_two_versions_of_the_demo_from_its_database(cli: CommandLine) -> None:
    """The planted drop is found in what the demo's agent stored of live traffic, and nothing where
    none was planted.
    """
    out = cli("demo --seconds 0.5 --calls 400 --storage drop.db")
    assert "agenteval-otel ui drop.db" in out
    assert all(answer.content is not None for answer in ComparedSource("drop.db").answers()), (
        "its texts are invented, and kept"
    )
    cli("demo --seconds 0.5 --calls 400 --storage same.db --no-drop")
    report = json.loads(cli("compare drop.db --by prompt_version --report json", code=1))
    drops = {item["name"] for item in report["criteria"] if item["outcome"] == "drop"}
    assert {"names_the_topic", "next_step", "short_enough"} <= drops
    cli("compare sql:drop.db?prompt_version=1 sql:drop.db?prompt_version=2", code=1)
    # Which calls are sampled is chance, and one look is wrong in every twentieth case; by so much
    # hardly ever.
    same = json.loads(cli("compare same.db --by prompt_version=1,2 --report json", code=None))
    assert min(item["p"] for item in same["criteria"]) > 5e-4


def test_live_arms(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two arms of a monitored handler: the worse one is found while the experiment runs, and its
    version is stored.

    An assignment that went wrong ends it.
    """
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=1.4")
    draw = random.Random(5)

    @monitor
    def handler(question: str, arm: str, number: int) -> str:
        annotate(experiment="short", arm=arm, conversation_id=f"c{number}")
        return "hello" if draw.random() < (0.95 if arm == "control" else 0.6) else "no"

    configure(
        dispatcher="inline",
        evaluators=[Contains(substrings=["hello"])],
        sample_rate=1.0,
        storage=[SqlStorageProvider(path="live.db")],
    )
    try:
        for number in range(400):
            handler("q", draw.choice(("control", "new")), number)
    finally:
        shutdown()
    found = cli(
        "compare 'live.db?experiment=short&service_version=1.4' --by arm=control,new", code=1
    )
    assert "1 significant drop (contains)" in found
    assert "any number of looks" in " ".join(found.split())
    cli("compare live.db --by arm=control,new --share 0.1", code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("a.jsonl", "expected two sources, or one with either --by or --shadow"),
        ("a.jsonl b.jsonl --shadow", "expected two sources"),
        ("a.jsonl --by prompt_verison", "did you mean 'prompt_version'"),
        ("a.jsonl --by arm=a", "expected LABEL=A,B with two different values"),
        ("a.jsonl --shadow", "no evaluator is tried there"),
        ("a.jsonl --by arm", "expected two values of arm, found 0"),
        ("a.jsonl none.jsonl", "none.jsonl: cannot be read"),
        ("a.jsonl a.jsonl?since=2999-01-01", "no answers"),
        ("a.jsonl a.jsonl --since soon", "--since, --until: expected a moment"),
    ],
)
def test_wrong_use(cli: CommandLine, arguments: str, message: str) -> None:
    """What cannot be compared is refused, with the reason."""
    results(cli, "a", 3, inputs=3)
    cli(f"compare {arguments}", code=2)
    assert message in cli.err


def test_a_run_below_its_baseline_fails(cli: CommandLine) -> None:
    """A significant drop fails the run, and every report says it; noise and a better run pass."""
    for name, good in (("before", 54), ("worse", 30), ("noise", 52), ("better", 60)):
        results(cli, name, good)
    options = "--settings settings.yaml --baseline before.jsonl"
    reports = "--report table --report json=o.json --report markdown=o.md"
    table = cli(f"evaluate worse.data.jsonl {options} {reports}", code=1)
    assert "missed: contains: dropped by 0.400" in cli.err
    assert "contains: 24 score lower, 0 higher" in table
    assert json.loads(Path("o.json").read_text())["baseline"]["exit_code"] == 1
    assert "1 significant drop (contains)" in Path("o.md").read_text()
    for name in ("noise", "better"):
        cli(f"evaluate {name}.data.jsonl {options}")


def test_results_that_were_cut_off_are_read_up_to_there(
    cli: CommandLine, caplog: pytest.LogCaptureFixture
) -> None:
    """A killed process leaves half a line; one in the middle costs itself, and is named."""
    results(cli, "before", 57)
    text = Path("before.jsonl").read_text()
    cli.file("after.jsonl", text[:-40])
    assert "59 answers" in cli("compare before.jsonl after.jsonl")
    cli.file("after.jsonl", text.replace("{", "[", 1))
    assert "59 answers" in cli("compare before.jsonl after.jsonl")
    assert "after.jsonl:1: not JSON" in caplog.text


def test_a_baseline_that_cannot_be_compared_blocks_nothing_or_leaves_the_reports(
    cli: CommandLine,
) -> None:
    """A changed evaluator is reported: otherwise the change that brings it could never be merged."""
    results(cli, "before", 54)
    run = "evaluate before.data.jsonl --settings settings.yaml --baseline"
    cli.settings("evaluators: [ResponseHealth]")
    assert "response_health" in cli(f"{run} before.jsonl", code=2)
    assert "no criterion has scores on both sides" in cli.err
    cli.settings("evaluators: [{type: Contains, substrings: [hello, no]}]")
    assert "evaluators differ" in cli(f"{run} before.jsonl")
    cli(f"{run} gone.jsonl", code=2)
    assert "gone.jsonl: cannot be read" in cli.err
    cli(f"{run} before.jsonl --results before.jsonl", code=2)
    assert "is an input or another output" in cli.err


def test_a_benchmark_and_its_history(cli: CommandLine) -> None:
    """Versions are kept with their intervals; a drop since the version before, and a missed
    objective, fail the run.
    """
    benchmark = "{dataset: [d.jsonl], columns: {prompt: question}, objectives: {contains: 0.5}}"
    cli.settings(f"{SETTINGS}\nbenchmarks: {{faq: {benchmark}}}")
    run = "benchmark run --settings settings.yaml"
    for version, good, code in (
        ("1.0", 57, 0),
        ("1.1 beta", 56, 0),
        ("1.2", 36, 1),
        ("1.3", 20, 1),
    ):
        answers = ["hello"] * good + ["no"] * (60 - good)
        rows = [{"question": f"q{n}", "response": answer} for n, answer in enumerate(answers)]
        dataset(cli, "d.jsonl", rows)
        cli(f"{run} faq --version '{version}'", code=code)
    assert "--fail-under is 0.5" in cli.err
    history = cli("benchmark history faq")
    shown = [line.partition("60  ")[2].split() for line in history.splitlines()[1:5]]
    assert [line[0] for line in shown] == ["0.95", "0.93", "0.60", "0.33"]
    assert [line[-1] == "✗" for line in shown] == [False, False, True, True]
    versions = json.loads(cli("benchmark history faq --json"))
    assert [item["version"] for item in versions] == ["1.0", "1.1_beta", "1.2", "1.3"]
    cli(f"{run} fag --version 1", code=2)
    assert "no benchmark 'fag'. Known: faq" in cli.err
    cli("benchmark history other", code=2)
    cli(f"{run} faq", code=2)
    assert "--version: expected the version" in cli.err


def test_a_judge_compares_pairs(cli: CommandLine) -> None:
    """Over the real client; a second look takes the verdicts from the file, and costs no call."""

    def reply(body: dict[str, Any]) -> str:
        first = body["messages"][-1]["content"].split('"first": "')[1]
        better = "first" if first.startswith("hello") else "second"
        return json.dumps({"reason": "r", "better": better})

    results(cli, "before", 10, inputs=30)
    results(cli, "after", 28, inputs=30)
    with ModelServer(replies=[reply]) as server:
        judge = f"--pairwise openai_compatible:judge-1@{server.url}/v1 --cache verdicts.db"
        command = f"compare before.jsonl after.jsonl {judge} --report json"
        report = json.loads(cli(command))
        assert len(server.requests) == 2 * 18, "equal texts are not asked about"
        assert "36 judge calls" in cli.err
        assert json.loads(cli(command))["criteria"] == report["criteria"]
        assert len(server.requests) == 36
    (preferred,) = (item for item in report["criteria"] if item["name"] == "preferred")
    assert (preferred["outcome"], preferred["higher"], preferred["lower"]) == ("gain", 18, 0)
    assert "prefers A 0 times, B 18 times, and neither 12 times" in report["notes"][0]
    for option in ("--pass-rate", "--no-pairs"):
        cli(f"{command} {option}", code=2)
        assert f"--pairwise: cannot be used with {option}" in cli.err


def test_judges_are_asked_only_about_what_changed(cli: CommandLine) -> None:
    """A second run with the file asks about the one changed answer; a changed description asks
    about all again.
    """
    verdict = {"evidence": [], "reason": "polite", "score": 5}
    with ModelServer(replies=[json.dumps(verdict)] * 20) as server:
        judge = f"{{type: anthropic, model: m, api_key: k, base_url: '{server.url}'}}"
        rows = [{"prompt": f"q{n}", "response": f"answer {n}"} for n in range(4)]
        for expected, response, description in (
            (4, "answer 0", "Polite?"),
            (5, "new", "Polite?"),
            (9, "new", "Kind?"),
        ):
            rows[0]["response"] = response
            dataset(cli, "d.jsonl", rows)
            criterion = f"criterion_name: tone, description: '{description}', scale: likert5"
            cli.settings(
                f"evaluators: [{{type: LLMJudge, {criterion}, threshold: 4, judge: {judge}}}]"
            )
            cli("evaluate d.jsonl --settings settings.yaml --cache verdicts.db --quiet")
            assert len(server.requests) == expected, cli.err
