"""`agenteval-otel evaluate`: what it evaluates, what it prints and writes, and the exit code."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, Score
from agenteval_otel.cli import evaluate as evaluate_module
from agenteval_otel.cli.evaluate.dataset import DatasetRow
from agenteval_otel.cli.evaluate.reports import RESULTS
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import CriterionEvaluator
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from tests.cli.conftest import CommandLine

LENGTH = {
    "type": "RuleBased",
    "rules": [{"criterionName": "short", "config": {"type": "length", "max": 12}}],
}


class Says(CriterionEvaluator, type="EvaluateTestSays"):
    """The number in the response; skips `skip`, prints on `print`, fails on `break`."""

    criterion_name: str = "says"
    threshold: float | None = 0.5

    def preferred_execution(self) -> Execution:
        return "inline"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        text = evaluation_input.response_text
        if text == "skip":
            raise EvaluationSkipped("nothing to say")
        if text == "print":
            print("chatter")
            return Score(value=1.0)
        if text == "break":
            raise EvaluationError("it broke", error_type="broken")
        return Score(value=float(text), reasoning=f"it says {text}")


class Evaluate:
    """The command, in a folder with answers and with settings that have `Says`."""

    def __init__(self, cli: CommandLine) -> None:
        self.cli, self.folder, self.file = cli, cli.folder, cli.file
        self.settings()

    def __call__(self, words: str, code: int = 0) -> str:
        return self.cli(f"evaluate {words}", code=code)

    @property
    def err(self) -> str:
        return self.cli.err

    def lines(self, name: str, *inputs: Any) -> None:
        """Write a JSONL file of these inputs."""
        self.file(name, "".join(json.dumps(fields) + "\n" for fields in inputs))

    def says(self, *words: str) -> None:
        """Write a JSONL file of answers that `Says` scores."""
        self.lines("says.jsonl", *({"response": word} for word in words))

    def settings(self, **fields: Any) -> None:
        """Write a settings file, with `Says` where it names no evaluators."""
        self.lines("settings.json", {"evaluators": [{"type": "EvaluateTestSays"}], **fields})

    def answers(self, *words: str, options: str = "", code: int = 0) -> str:
        """Evaluate these answers by the settings; return what is printed."""
        self.says(*words)
        return self(f"says.jsonl --settings settings.json {options}", code)

    def report(self, words: str = "says.jsonl --settings settings.json", code: int = 0) -> Any:
        """Return the report as JSON."""
        return json.loads(self(f"{words} --report json", code))


@pytest.fixture
def evaluate(cli: CommandLine) -> Evaluate:
    return Evaluate(cli)


def test_without_settings_answers_are_checked_for_their_health(evaluate: Evaluate) -> None:
    """A file of answers is enough; the table is all that is printed."""
    evaluate.says("It is due on Tuesday.", "", "I'm sorry, no.")
    shown = evaluate("says.jsonl")
    assert shown.startswith("3 inputs from says.jsonl in ")
    assert "response_health" in shown
    assert evaluate.err == ""


def test_settings_profile_agent_and_environment_choose_the_evaluators(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluators and criteria are those of the live answers, also where AGENTEVAL_SETTINGS names
    the file.
    """
    evaluate.settings(
        criteria={"default": [{"name": "says", "objective": 0.9}]},
        profiles={"strict": {"evaluators": [{"type": "EvaluateTestSays", "threshold": 0.9}]}},
        agents={"support": {"evaluators": ["ResponseHealth"]}},
    )
    evaluate.says("1", "0.8", "0.6")
    run = "says.jsonl --settings settings.json"
    assert evaluate.report(run)["criteria"][0]["pass_rate"]["mean"] == 1
    strict = evaluate.report(f"{run} --profile strict", code=1)
    assert strict["criteria"][0]["pass_rate"]["mean"] == pytest.approx(1 / 3)
    agent = evaluate.report(f"{run} --agent support")
    assert [criterion["name"] for criterion in agent["criteria"]] == ["response_health"]
    monkeypatch.setenv("AGENTEVAL_SETTINGS", "settings.json")
    assert evaluate.report("says.jsonl")["criteria"][0]["name"] == "says"


def test_a_run_configuration_of_agentdock_runs_unchanged(evaluate: Evaluate) -> None:
    """The criteria come from the input, and the results have AgentDock's JSON form."""
    evaluate.lines("run.json", {"evaluatorConfigs": [LENGTH], "metadata": {"suite": "x"}})
    criteria = [{"name": "short", "description": "d", "scale": "likert5", "weight": 2}]
    answer = {"response": "A good one", "agentId": "a1", "criteria": criteria}
    evaluate.lines("in.jsonl", answer)
    form = json.loads(
        evaluate("in.jsonl --settings run.json --results - --results-format agentdock")
    )
    assert form["overallScore"] == 1
    (result,) = form["results"]
    assert (result["criterionName"], result["score"], result["evaluatorType"]) == (
        "short",
        5,
        "RuleBased",
    )
    assert form["evaluationConfigSnapshot"]["criteriaNames"] == ["short"]
    assert form["agentId"] == "a1"
    assert set(form["metadata"]) == {"suite", "errors", "durationMs"}
    assert form["inputSnapshot"]["criteria"][0]["weight"] == 2


def test_an_unscored_criterion_is_named_once(evaluate: Evaluate) -> None:
    """Standard error names it, with the nearest match, for a settings file and for a run
    configuration.
    """
    evaluate.answers("1", "0", "1")
    assert "no evaluator scores" not in evaluate.err
    evaluate.settings(criteria={"default": [{"name": "sais", "weight": 2}, {"name": "says"}]})
    criteria = [{"name": "short", "scale": "numeric"}, {"name": "polite"}]
    evaluate.lines("run.json", {"evaluatorConfigs": [LENGTH], "criteria": criteria})
    for file, name in (("settings.json", "sais (did you mean 'says'?)"), ("run.json", "polite")):
        evaluate(f"says.jsonl --settings {file} --quiet")
        assert evaluate.err.count(f"criteria that no evaluator scores: {name}\n") == 1


def test_only_the_escalation_of_a_run_configuration_applies(evaluate: Evaluate) -> None:
    """That of a settings file is for live answers. Means after an escalation are weighted."""
    evaluate.settings(escalation={"baseline_rate": 0.000001, "criteria": ["says"]})
    evaluate.says("1", "0")
    (says,) = evaluate.report()["criteria"]
    assert (says["scored"], says["skipped"]) == (2, 0)
    rules = [{"type": "pattern", "pattern": "^0$"}]
    config = {
        "evaluatorConfigs": [{"type": "ResponseHealth"}, {"type": "EvaluateTestSays"}],
        "escalation": {"baseline_rate": 0.25, "criteria": ["says"], "rules": rules},
    }
    evaluate.lines("run.json", config)
    answers = [
        {"response": "1" if number % 5 else "0", "responseId": f"r{number}"}
        for number in range(500)
    ]
    evaluate.lines("many.jsonl", *answers)
    health, says = evaluate.report("many.jsonl --settings run.json")["criteria"]
    assert health["scored"] == 500
    assert says["skip_reasons"] == {"not_escalated": says["skipped"]}
    assert 150 < says["scored"] < 260, "all that say 0, and a quarter of the rest"
    assert abs(says["mean"]["mean"] - 0.8) < 0.05, "not half, as the plain mean has it"


def test_failures_and_skips_are_no_scores(evaluate: Evaluate) -> None:
    """Means and rates leave them out, and count them by error type and reason."""
    evaluate.says("1", "0", "break", "skip", "skip")
    report = evaluate.report()
    (says,) = report["criteria"]
    assert (says["scored"], says["skipped"], says["failed"]) == (2, 2, 1)
    assert says["mean"]["mean"] == says["pass_rate"]["mean"] == 0.5
    assert says["mean"]["scores"] == 2
    assert says["error_types"] == {"broken": 1}
    assert says["skip_reasons"] == {"nothing to say": 2}
    assert report["inputs_with_failures"] == 1
    assert report["overall_score"]["scores"] == 2
    assert [low["place"] for low in report["lowest"]] == ["says.jsonl:2"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("1", "1", "0"),
            1,
            "missed: says: 2 of 3 passed, 66.67 % (of 3: no interval), the objective is 70 %",
        ),
        (("1", "1", "1", "1", "0", "break", "skip"), 0, ""),
        (
            ("break", "break"),
            1,
            "no pass rate (0 scored, 2 failed: broken 2), the objective is 70 %",
        ),
        (
            ("skip",),
            1,
            "no pass rate (0 scored, 1 skipped: nothing to say 1), the objective is 70 %",
        ),
        (("print",), 1, "no pass rate (1 scored): the criterion needs a threshold, which decides"),
    ],
)
def test_a_pass_rate_below_the_objective_is_1(
    words: tuple[str, ...], code: int, message: str, evaluate: Evaluate
) -> None:
    """Standard error names it. Without a pass rate the objective is missed too."""
    threshold = None if words == ("print",) else 0.5
    evaluate.settings(
        evaluators=[{"type": "EvaluateTestSays", "objective": 0.7, "threshold": threshold}]
    )
    evaluate.answers(*words, code=code)
    assert message in evaluate.err
    assert ("missed" in evaluate.err) is bool(code)


@pytest.mark.parametrize(
    ("options", "missed"),
    [
        ("--fail-under 0.5", []),
        (
            "--fail-under 0.51",
            ["missed: overall score: 0.5 (of 2: no interval), --fail-under is 0.51"],
        ),
        ("--fail-under says=0.5 --fail-under 0.2", []),
        (
            "--fail-under says=0.6 --fail-under 0.7",
            ["missed: says: mean 0.5 (", "missed: overall score: 0.5 ("],
        ),
    ],
)
def test_a_mean_below_the_limit_is_1(options: str, missed: list[str], evaluate: Evaluate) -> None:
    """Limits apply to the mean of a criterion or of the overall scores; a mean equal to its limit
    meets it.
    """
    evaluate.answers("1", "0", options=options, code=1 if missed else 0)
    assert len(evaluate.err.splitlines()) == len(missed)
    assert all(line in evaluate.err for line in missed)


@pytest.mark.parametrize(
    ("inputs", "limit", "code"),
    [(20, "says=0.29", 0), (20, "says=0.3", 1), (20, "0.3", 1), (2, "says=0.05", 1)],
)
def test_an_interval_that_reaches_below_the_limit_is_1(
    inputs: int, limit: str, code: int, evaluate: Evaluate
) -> None:
    """With `--fail-under-lower` the lower end of the interval has to meet the limit. Of two inputs
    there is no interval.
    """
    words = ["1", "0"] * (inputs // 2)
    evaluate.answers(*words, options=f"--fail-under-lower {limit}", code=code)
    assert (f"--fail-under-lower is {limit.removeprefix('says=')}" in evaluate.err) is bool(code)
    assert ("no interval" in evaluate.err) is (inputs < 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--settings none.yaml", "none.yaml: there is no such file"),
        ("--settings broken.yaml", "broken.yaml:2: "),
        (
            "--settings wrong.json",
            "wrong.json: sampel_rate: unknown field (did you mean 'sample_rate'?)",
        ),
        ("--settings run.json", "evaluatorConfigs[0]: unknown evaluator type 'Nope'"),
        ("--settings settings.json --profile ci", "no profile 'ci'"),
        ("--settings settings.json --agent a", "--agent: no agent 'a'"),
        ("--settings right.json --profile ci", "--profile: only applies to settings files"),
        ("--settings settings.json --tags dear", "no evaluator has the tag 'dear'"),
        ("--settings settings.json --execution async", "no evaluator is left to run"),
        (
            "--settings settings.json --fail-under sais=0.5",
            "(did you mean 'says'?). Known: says",
        ),
        (
            "--fail-under 1.5",
            "--fail-under: expected CRITERION=LIMIT or LIMIT, from 0 to 1, found '1.5'",
        ),
        ("--fail-under says=much", "--fail-under: expected CRITERION=LIMIT"),
        ("--fail-under-lower says=2", "--fail-under-lower: expected CRITERION=LIMIT"),
        ("--fail-under =0.5", "--fail-under: expected CRITERION=LIMIT"),
        ("--fail-under says=nan", "--fail-under: expected CRITERION=LIMIT"),
        ("--report pdf", "no report 'pdf'. Known: table, json, junit, markdown"),
        ("--report json=", "expected a file after 'json='"),
        ("--report json --report table", "standard output is an input or another output"),
        ("--report json --results -", "standard output is an input or another output"),
        ("--report json=a --results ./a", "./a is an input or another output"),
        (
            "--report json=a.json --results link.json",
            "link.json is an input or another output",
        ),
        (
            "--concurrency 999999999",
            "concurrency: expected a whole number from 1 to 10000, found 999999999",
        ),
        ("--results says.jsonl", "says.jsonl is an input or another output"),
        ("--report json=none/a.json", "No such file or directory: 'none/a.json'"),
        ("bad.jsonl", "bad.jsonl:1: not JSON"),
        ("twice.jsonl", "twice.jsonl:1: criteria: criterion 'a' appears twice"),
    ],
)
def test_wrong_options_settings_and_datasets_are_2(
    options: str, message: str, evaluate: Evaluate
) -> None:
    """Nothing is evaluated; standard error names the problem, with the choices."""
    evaluate.says("1")
    evaluate.file("bad.jsonl", "bad\n")
    (evaluate.folder / "link.json").symlink_to("a.json")  # which is not there yet
    evaluate.lines("twice.jsonl", {"response": "", "criteria": [{"name": "a"}, {"name": "a"}]})
    evaluate.file("broken.yaml", "a: [1\nb: {")
    evaluate.lines("wrong.json", {"sampel_rate": 1})
    evaluate.lines("run.json", {"evaluatorConfigs": [{"type": "Nope"}]})
    evaluate.lines("right.json", {"evaluatorConfigs": [LENGTH]})
    assert evaluate(f"says.jsonl {options}", code=2) == ""
    assert evaluate.err.startswith("agenteval-otel evaluate: ")
    assert message in evaluate.err


def test_nothing_scored_is_2(evaluate: Evaluate) -> None:
    """A run without a score is no success, also without a target; reports are written. A limit of 0
    is missed too.
    """
    evaluate.answers(code=2)
    assert "says.jsonl: is empty" in evaluate.err
    assert "says" in evaluate.answers("break", "skip", code=2)
    assert (
        "nothing was scored. says: 0 scored, 1 skipped: nothing to say 1, 1 failed: broken 1"
        in evaluate.err
    )
    limits = "--fail-under says=0 --fail-under 0 --report json"
    report = json.loads(evaluate.answers("break", options=limits, code=1))
    assert [target["criterion"] for target in report["missed"]] == ["says", None]
    assert report["criteria"][0]["mean"] is None
    assert "no mean (0 scored, 1 failed: broken 1)" in evaluate.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full disk here")
def test_a_report_that_cannot_be_written_is_2(evaluate: Evaluate) -> None:
    """A full disk is no success, whatever the scores are."""
    evaluate.answers("1", options="--report=junit=/dev/full", code=2)
    assert "No space left on device: '/dev/full'" in evaluate.err
    evaluate.answers("1", options="--report=json=/dev/null --results=/dev/null")


@pytest.mark.parametrize("form", RESULTS)
def test_a_result_is_one_line_of_json_whatever_its_metadata(form: str) -> None:
    """Objects are described; a number that is not finite is null."""
    facts = {"nan": float("nan"), "object": Path("a"), "text": "a\u2028b", "list": [float("inf")]}
    result = EvaluationResult(criterion_name="a", evaluator_type="A", score=1, metadata=facts)
    odd = EvaluationResult(
        criterion_name="b",
        evaluator_type="B",
        score=1,
        metadata={"odd": object(), "half": "\ud800"},
    )
    file = io.StringIO()
    row = DatasetRow("a.jsonl", 1, EvaluationInput(response=""))
    RESULTS[form](file).add(row, AggregatedEvaluationResult(results=(result, odd)))
    line = file.getvalue()
    assert len(line.splitlines()) == 1
    results = json.loads(line, parse_constant=pytest.fail)["results"]
    assert results[0]["metadata"]["text"] == "a\u2028b"
    assert results[0]["metadata"].get("nan") is None
    assert "object" in results[1]["metadata"]["odd"]


def test_each_report_has_its_place(evaluate: Evaluate) -> None:
    """The table goes to standard output unless another report or --output does. A wrong dataset
    changes no report.
    """
    reports = "--report=junit=o.xml --report=markdown=o.md --report=json=o.json"
    assert evaluate.answers("1", "0", options=reports).startswith("2 inputs from says.jsonl")
    for name, begin in (("o.xml", "<?xml"), ("o.md", "### Evaluation"), ("o.json", "{")):
        assert (evaluate.folder / name).read_text().startswith(begin)
    assert evaluate.answers("1", "0", options="--report markdown --output o.txt") == ""
    assert (evaluate.folder / "o.txt").read_text().startswith("### Evaluation")
    assert evaluate.answers("1", "0", options="--output o.txt") == ""
    evaluate.file("a.jsonl", "bad\n")
    evaluate("a.jsonl --output o.txt", code=2)
    assert (evaluate.folder / "o.txt").read_text().startswith("2 inputs")


def test_results_are_written_in_the_order_of_the_dataset(evaluate: Evaluate) -> None:
    """Each line has the whole result with its input, and only the owner can read the file."""
    words = [str(number / 1000) for number in range(100)]
    evaluate.file("r.jsonl", "of an earlier run")
    evaluate.answers(*words, options="--results r.jsonl --concurrency 5")
    path = evaluate.folder / "r.jsonl"
    results = [json.loads(line) for line in path.read_text().splitlines()]
    assert [str(result["results"][0]["score"]) for result in results] == words
    assert [result["inputSnapshot"]["response"] for result in results] == words
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_tags_and_execution_select_evaluators(evaluate: Evaluate) -> None:
    """Standard error lists the others, and has what evaluators print: standard output has only the
    report.
    """
    evaluate.settings(
        evaluators=[
            {"type": "EvaluateTestSays", "tags": ["fast", "own"]},
            {"type": "ResponseHealth", "tags": ["other"]},
        ]
    )
    options = "--tags fast,own --execution inline --report json"
    report = json.loads(evaluate.answers("print", options=options))
    assert [criterion["name"] for criterion in report["criteria"]] == ["says"]
    assert evaluate.err == "left out: ResponseHealth:response_health (tags other)\nchatter\n"


def test_files_and_standard_input_are_read_in_order(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the limit; a dash is standard input."""
    evaluate.says("1")
    evaluate.file("b.csv", "response\n1\n0\n")
    run = "says.jsonl b.csv --settings settings.json"
    assert evaluate.report(run)["inputs"] == 3
    assert evaluate.report(f"{run} --limit 2")["overall_score"]["mean"] == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"response": "1"}\n')))
    report = evaluate.report("- --settings settings.json")
    assert (report["sources"], report["inputs"]) == (["stdin"], 1)


def test_a_failing_storage_provider_is_named(evaluate: Evaluate) -> None:
    """Standard error counts what the storage of a run configuration lost, with the first place and
    reason.
    """
    (evaluate.folder / "folder").mkdir()
    config = {
        "evaluatorConfigs": [{"type": "EvaluateTestSays"}],
        "storageProvider": {"type": "json_file", "path": "folder"},
        "criteria": [{"name": "says", "scale": "numeric"}],
    }
    evaluate.lines("run.json", config)
    evaluate.says("1")
    evaluate("says.jsonl --settings run.json")
    assert evaluate.err.startswith("StorageProvider failed for 1 input, first says.jsonl:1: ")


def test_names_from_the_dataset_are_shown_without_control_characters(evaluate: Evaluate) -> None:
    """Names of fields, which are listed where nothing evaluates them, and files must not steer the
    terminal.
    """
    evil = "\x1b[31mred\x07"
    evaluate.lines(f"a{evil}.jsonl", {"response": "0", evil: 1})
    for report in ("table", "json", "markdown"):
        shown = evaluate(f"'a{evil}.jsonl' --settings settings.json --report {report}")
        shown += evaluate.err
        assert "red" in shown
        assert "unknown fields, kept in metadata: ?[31mred?\n" in evaluate.err
        assert [char for char in shown if not char.isprintable() and char != "\n"] == []


@pytest.mark.parametrize("report", ["table", "json"])
def test_output_in_an_old_encoding(
    report: str, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has what the terminal can show; reports for programs are UTF-8."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    evaluate.lines("Zoë 東京.jsonl", {"response": "0"})
    evaluate(f"'Zoë 東京.jsonl' --settings settings.json --report {report}")
    shown = raw.getvalue().decode("latin-1" if report == "table" else "utf-8")
    assert ("Zoë ??.jsonl" if report == "table" else "Zoë 東京.jsonl") in shown


def test_an_interrupt_is_130(evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of results has those so far."""

    async def interrupted(
        inputs: Any, config: Any, *, on_result: Callable[..., None], **_: Any
    ) -> None:
        (result,) = await run([next(iter(inputs))], config)
        on_result(0, result)
        raise KeyboardInterrupt

    run = evaluate_module.run_evaluations
    monkeypatch.setattr(evaluate_module, "run_evaluations", interrupted)
    evaluate.answers("1", "0", options="--results r.jsonl", code=130)
    assert evaluate.err.endswith("interrupted\n")
    assert len((evaluate.folder / "r.jsonl").read_text().splitlines()) == 1


def test_calls_of_judges_are_counted(evaluate: Evaluate) -> None:
    """Standard error and the JSON report have calls, cache hits, tokens and cost."""
    judge = {
        "type": "scripted",
        "model": "small-1",
        "input_tokens": 1_000,
        "output_tokens": 100,
        "cache": {},
        "fallback": {"evidence": [], "reason": "r", "score": True},
        "spend": {"prices": {"small-1": {"input": 1, "output": 5}}},
    }
    evaluate.settings(evaluators=[{"type": "LLMJudge", "criterion_name": "ok", "judge": judge}])
    evaluate.says("One.", "Two.", "One.")
    assert evaluate.report()["judges"] == {
        "calls": 2,
        "cached": 1,
        "refused": 0,
        "tokens": 2_200,
        "cost_usd": pytest.approx(0.003),
    }
    assert "2 judge calls, 1 from the cache, 2,200 tokens, 0.0030 US dollars" in evaluate.err


def test_a_shadow_misses_no_target(cli: CommandLine) -> None:
    """Its mean is in the report; neither an objective nor a failing result of it counts, and no
    limit can name it.
    """
    cli.file("in.jsonl", '{"prompt": "When?", "response": "Later."}\n')
    cli.settings("""
        evaluators:
        - {type: KeywordCoverage, criterion_name: due, expected_keywords: [later], threshold: 1, objective: 0.9}
        - {type: KeywordCoverage, criterion_name: due, expected_keywords: [soon], threshold: 1,
           objective: 0.9, shadow: true}
    """)
    run = "evaluate in.jsonl --settings settings.yaml"
    cli(f"{run} --fail-under due=1 --fail-under 1 --report table --report junit=out.xml")
    assert "due.shadow" in cli.out + cli.err
    assert 'failures="0"' in (cli.folder / "out.xml").read_text()
    cli(f"{run} --fail-under due.shadow=1", code=2)
    assert "no criterion 'due.shadow' is scored" in cli.err
