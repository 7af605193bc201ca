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
from agenteval_otel.cli import main
from agenteval_otel.cli.evaluate.dataset import Row
from agenteval_otel.cli.evaluate.reports import RESULTS
from agenteval_otel.engine.offline import Progress
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import CriterionEvaluator
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from tests.golden import same, vectors

ANSWERS = [{"response": "It is due on Tuesday.", "prompt": "When?"}, {"response": ""}, {"response": "I'm sorry, no."}]
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


class Command:
    """The command in a folder of its own.

    Attributes:
        out, err: What it printed last.
    """

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys, self.out, self.err = folder, capsys, "", ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        exit_code = main(["evaluate", *arguments])
        self.out, self.err = self._capsys.readouterr()
        assert exit_code == code, self.err
        return self.out

    def lines(self, name: str, inputs: list[Any]) -> str:
        """A JSONL file of these inputs."""
        return self.file(name, "".join(json.dumps(fields) + "\n" for fields in inputs))

    def says(self, *words: str) -> str:
        """A JSONL file of answers that `Says` scores."""
        return self.lines("says.jsonl", [{"response": word} for word in words])

    def settings(self, **fields: Any) -> str:
        """A settings file, with `Says` where it names no evaluators."""
        return self.file("settings.json", json.dumps({"evaluators": [{"type": "EvaluateTestSays"}], **fields}))

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def report(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The report as JSON."""
        report: dict[str, Any] = json.loads(self(*arguments, "--report", "json", code=code))
        return report


@pytest.fixture
def evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    for name in ("AGENTEVAL_SETTINGS", "AGENTEVAL_PROFILE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Command(tmp_path, capsys)


def test_without_settings_answers_are_checked_for_their_health(evaluate: Command) -> None:
    """A file of answers is enough; the table is all that is printed."""
    shown = evaluate(evaluate.lines("answers.jsonl", ANSWERS))
    assert shown.startswith("3 inputs from answers.jsonl in ")
    assert "response_health" in shown
    assert evaluate.err == ""


def test_settings_profile_agent_and_environment_choose_the_evaluators(
    evaluate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluators and criteria are those of the live answers, also where AGENTEVAL_SETTINGS names the file."""
    path = evaluate.settings(
        criteria={"default": [{"name": "says", "objective": 0.9}]},
        profiles={"strict": {"evaluators": [{"type": "EvaluateTestSays", "threshold": 0.9}]}},
        agents={"support": {"evaluators": ["ResponseHealth"]}},
    )
    answers = evaluate.says("1", "0.8", "0.6")
    assert evaluate.report(answers, "--settings", path)["criteria"][0]["pass_rate"]["mean"] == 1
    strict = evaluate.report(answers, "--settings", path, "--profile", "strict", code=1)
    assert strict["criteria"][0]["pass_rate"]["mean"] == pytest.approx(1 / 3)
    agent = evaluate.report(answers, "--settings", path, "--agent", "support")
    assert [criterion["name"] for criterion in agent["criteria"]] == ["response_health"]
    monkeypatch.setenv("AGENTEVAL_SETTINGS", path)
    assert evaluate.report(answers)["criteria"][0]["name"] == "says"


def test_a_run_configuration_of_agentdock_runs_unchanged(evaluate: Command) -> None:
    """The criteria come from the input, and the results have AgentDock's JSON form."""
    config = evaluate.file("run.json", json.dumps({"evaluatorConfigs": [LENGTH], "metadata": {"suite": "x"}}))
    criteria = [{"name": "short", "description": "d", "scale": "likert5", "weight": 2}]
    answers = evaluate.lines("in.jsonl", [{"response": "A good one", "agentId": "a1", "criteria": criteria}])
    form = json.loads(evaluate(answers, "--settings", config, "--results", "-", "--results-format", "agentdock"))
    assert form["overallScore"] == 1
    (result,) = form["results"]
    assert (result["criterionName"], result["score"], result["evaluatorType"]) == ("short", 5, "RuleBased")
    assert form["evaluationConfigSnapshot"]["criteriaNames"] == ["short"]
    assert form["agentId"] == "a1"
    assert set(form["metadata"]) == {"suite", "errors", "durationMs"}
    assert form["inputSnapshot"]["criteria"][0]["weight"] == 2


def test_an_unscored_criterion_is_named_once(evaluate: Command) -> None:
    """Standard error names it, with the nearest match, for a settings file and for a run configuration."""
    answers = evaluate.says("1", "0", "1")
    settings = evaluate.settings(criteria={"default": [{"name": "sais", "weight": 2}, {"name": "says"}]})
    config = evaluate.file("run.json", json.dumps({
        "evaluatorConfigs": [LENGTH], "criteria": [{"name": "short", "scale": "numeric"}, {"name": "polite"}],
    }))  # fmt: skip
    for file, name in ((settings, "sais (did you mean 'says'?)"), (config, "polite")):
        evaluate(answers, "--settings", file, "--quiet")
        assert evaluate.err.count(f"criteria that no evaluator scores: {name}\n") == 1
    evaluate(answers, "--settings", evaluate.settings())
    assert "no evaluator scores" not in evaluate.err


def test_only_the_escalation_of_a_run_configuration_applies(evaluate: Command) -> None:
    """That of a settings file is for live answers. Means after an escalation are weighted."""
    live = evaluate.settings(escalation={"baseline_rate": 0.000001, "criteria": ["says"]})
    (says,) = evaluate.report(evaluate.says("1", "0"), "--settings", live)["criteria"]
    assert (says["scored"], says["skipped"]) == (2, 0)
    config = evaluate.file("run.json", json.dumps({
        "evaluatorConfigs": [{"type": "ResponseHealth", "config": {}}, {"type": "EvaluateTestSays", "config": {}}],
        "escalation": {"baseline_rate": 0.25, "criteria": ["says"], "rules": [{"type": "pattern", "pattern": "^0$"}]},
    }))  # fmt: skip
    answers = evaluate.lines("many.jsonl", [
        {"response": "1" if number % 5 else "0", "responseId": f"r{number}"} for number in range(500)
    ])  # fmt: skip
    health, says = evaluate.report(answers, "--settings", config)["criteria"]
    assert health["scored"] == 500
    assert says["skip_reasons"] == {"not_escalated": says["skipped"]}
    assert 150 < says["scored"] < 260, "all that say 0, and a quarter of the rest"
    assert abs(says["mean"]["mean"] - 0.8) < 0.05, "not half, as the plain mean has it"


def test_failures_and_skips_are_no_scores(evaluate: Command) -> None:
    """Means and rates leave them out, and count them by error type and reason."""
    report = evaluate.report(evaluate.says("1", "0", "break", "skip", "skip"), "--settings", evaluate.settings())
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
            "missed: says: 2 of 3 passed, 66.67 % (95 % interval 20.8 to 93.9), the objective is 70 %",
        ),
        (("1", "1", "1", "1", "0", "break", "skip"), 0, ""),
        (("break", "break"), 1, "no pass rate (0 scored, 2 failed: broken 2), the objective is 70 %"),
        (("skip",), 1, "no pass rate (0 scored, 1 skipped: nothing to say 1), the objective is 70 %"),
    ],
)
def test_a_pass_rate_below_the_objective_is_1(
    words: tuple[str, ...], code: int, message: str, evaluate: Command
) -> None:
    """Standard error names it. Without a pass rate the objective is missed too."""
    settings = evaluate.settings(evaluators=[{"type": "EvaluateTestSays", "objective": 0.7}])
    evaluate(evaluate.says(*words), "--settings", settings, code=code)
    assert message in evaluate.err
    assert bool(evaluate.err) is bool(code)


@pytest.mark.parametrize(
    ("limits", "missed"),
    [
        (["0.5"], []),
        (["0.51"], ["missed: overall score: 0.5 (95 % interval 0.095 to 0.905), --fail-under is 0.51"]),
        (["says=0.5", "0.2"], []),
        (["says=0.6", "0.7"], ["missed: says: mean 0.5 (", "missed: overall score: 0.5 ("]),
    ],
)
def test_a_mean_below_the_limit_is_1(limits: list[str], missed: list[str], evaluate: Command) -> None:
    """Limits apply to the mean of a criterion or of the overall scores; a mean equal to its limit meets it."""
    options = [part for limit in limits for part in ("--fail-under", limit)]
    evaluate(evaluate.says("1", "0"), "--settings", evaluate.settings(), *options, code=1 if missed else 0)
    assert len(evaluate.err.splitlines()) == len(missed)
    assert all(line in evaluate.err for line in missed)


def test_without_a_score_every_limit_is_missed(evaluate: Command) -> None:
    """There is no mean then, so that not even 0 is met."""
    report = evaluate.report(
        evaluate.says("break"), "--settings", evaluate.settings(), "--fail-under", "says=0", "--fail-under", "0", code=1
    )
    assert [target["criterion"] for target in report["missed"]] == ["says", None]
    assert report["criteria"][0]["mean"] is None
    assert "no mean (0 scored, 1 failed: broken 1)" in evaluate.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--settings", "none.yaml"], "none.yaml: there is no such file"),
        (["--settings", "broken.yaml"], "broken.yaml:2: "),
        (["--settings", "wrong.json"], "wrong.json: sampel_rate: unknown field (did you mean 'sample_rate'?)"),
        (["--settings", "run.json"], "evaluatorConfigs[0]: unknown evaluator type 'Nope'"),
        (["--settings", "settings.json", "--profile", "ci"], "no profile 'ci'"),
        (["--settings", "settings.json", "--agent", "a"], "--agent: no agent 'a'"),
        (["--settings", "right.json", "--profile", "ci"], "--profile: only applies to settings files"),
        (["--settings", "settings.json", "--tags", "dear"], "no evaluator has the tag 'dear'"),
        (["--settings", "settings.json", "--execution", "async"], "no evaluator is left to run"),
        (["--settings", "settings.json", "--fail-under", "sais=0.5"], "(did you mean 'says'?); known: says"),
        (["--fail-under", "1.5"], "--fail-under: expected CRITERION=LIMIT or LIMIT, from 0 to 1, found '1.5'"),
        (["--fail-under", "says=much"], "--fail-under: expected CRITERION=LIMIT"),
        (["--fail-under", "=0.5"], "--fail-under: expected CRITERION=LIMIT"),
        (["--fail-under", "says=nan"], "--fail-under: expected CRITERION=LIMIT"),
        (["--report", "pdf"], "no report 'pdf'; known: table, json, junit, markdown"),
        (["--report", "json="], "expected a file after 'json='"),
        (["--report", "json", "--report", "table"], "two outputs for standard output"),
        (["--report", "json", "--results", "-"], "two outputs for standard output"),
        (["--report", "json=a", "--results", "./a"], "two outputs for ./a"),
        (["--report", "json=a.json", "--results", "link.json"], "two outputs for link.json"),
        (["--concurrency", "999999999"], "concurrency: expected a whole number from 1 to 10000, found 999999999"),
        (["--results", "says.jsonl"], "says.jsonl is an input and would be overwritten"),
        (["--report", "json=none/a.json"], "none/a.json: cannot be written: No such file or directory"),
        (["empty.jsonl", "--format", "csv"], "no inputs in says.jsonl"),
        (["bad.jsonl"], "bad.jsonl:1: not JSON"),
        (["twice.jsonl"], "twice.jsonl:1: criteria: criterion 'a' appears twice"),
    ],
)
def test_wrong_options_settings_and_datasets_are_2(arguments: list[str], message: str, evaluate: Command) -> None:
    """Nothing is evaluated; standard error names the problem, with the choices."""
    evaluate.says() if "--format" in arguments else evaluate.says("1")
    evaluate.settings()
    evaluate.file("bad.jsonl", "bad\n")
    (evaluate.folder / "link.json").symlink_to("a.json")  # which is not there yet
    evaluate.file("empty.jsonl", "")
    evaluate.lines("twice.jsonl", [{"response": "", "criteria": [{"name": "a"}, {"name": "a"}]}])
    evaluate.file("broken.yaml", "a: [1\nb: {")
    evaluate.file("wrong.json", json.dumps({"sampel_rate": 1}))
    evaluate.file("run.json", json.dumps({"evaluatorConfigs": [{"type": "Nope"}]}))
    evaluate.file("right.json", json.dumps({"evaluatorConfigs": [LENGTH]}))
    assert evaluate("says.jsonl", *arguments, code=2) == ""
    assert evaluate.err.startswith("agenteval-otel evaluate: ")
    assert message in evaluate.err


def test_nothing_scored_is_2(evaluate: Command) -> None:
    """A run without a score is no success, also without a target; its reports are written."""
    shown = evaluate(evaluate.says("break", "skip"), "--settings", evaluate.settings(), code=2)
    assert "nothing was scored (says: 0 scored, 1 skipped: nothing to say 1, 1 failed: broken 1)" in evaluate.err
    assert "says" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tags", " , "], "argument --tags: expected at least one value"),
        (["--execution", "inline,dear"], "'dear' is none of inline, thread, process, async"),
        (["--concurrency", "0"], "must be a whole number, at least 1"),
        (["--limit", "many"], "must be a whole number, at least 1"),
        (["--results-format", "short"], "invalid choice: 'short'"),
    ],
)
def test_wrong_use_is_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong value is refused before anything is read."""
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", "none.jsonl", *arguments])
    assert message in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full disk here")
@pytest.mark.parametrize("option", ["--report=json=/dev/full", "--report=junit=/dev/full", "--results=/dev/full"])
def test_a_report_that_cannot_be_written_is_2(option: str, evaluate: Command) -> None:
    """A full disk is no success, whatever the scores are."""
    evaluate(evaluate.says("1"), "--settings", evaluate.settings(), option, code=2)
    assert evaluate.err == "agenteval-otel evaluate: /dev/full: cannot be written: No space left on device\n"


def test_a_closed_standard_output_is_2(evaluate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports in files do not need it."""
    monkeypatch.setattr(sys, "stdout", None)
    evaluate(evaluate.says("1"), "--settings", evaluate.settings(), code=2)
    assert "standard output is closed" in evaluate.err
    evaluate(evaluate.says("1"), "--settings", evaluate.settings(), "--output", "table.txt", "--fail-under", "1")
    assert "says" in (evaluate.folder / "table.txt").read_text()


def test_an_objective_needs_a_threshold(evaluate: Command) -> None:
    """Without one no score passes, and the message says so."""
    settings = evaluate.settings(evaluators=[{"type": "EvaluateTestSays", "threshold": None, "objective": 0.5}])
    evaluate(evaluate.says("1", "1"), "--settings", settings, "--report", "json", code=1)
    assert "no pass rate (2 scored): the criterion needs a threshold" in evaluate.err


@pytest.mark.parametrize("form", RESULTS)
def test_a_result_is_one_line_of_json_whatever_its_metadata(form: str) -> None:
    """Objects are described; a number that is not finite is null."""
    facts = {"nan": float("nan"), "object": Path("a"), "text": "a\u2028b", "list": [float("inf")]}
    result = EvaluationResult(criterion_name="a", evaluator_type="A", score=1, metadata=facts)
    odd = EvaluationResult(
        criterion_name="b", evaluator_type="B", score=1, metadata={"odd": object(), "half": "\ud800"}
    )
    file = io.StringIO()
    row = Row("a.jsonl", 1, EvaluationInput(response=""))
    RESULTS[form](file).add(row, AggregatedEvaluationResult(results=(result, odd)))
    line = file.getvalue()
    assert len(line.splitlines()) == 1
    results = json.loads(line, parse_constant=pytest.fail)["results"]
    assert results[0]["metadata"]["text"] == "a\u2028b"
    assert results[0]["metadata"].get("nan") is None
    assert "object" in results[1]["metadata"]["odd"]


def test_a_wrong_dataset_leaves_the_outputs_alone(evaluate: Command) -> None:
    """The report of the last run stays when this run cannot start."""
    kept = evaluate.file("report.json", "kept")
    evaluate(evaluate.file("a.jsonl", "bad\n"), "--report", f"json={kept}", code=2)
    assert Path(kept).read_text() == "kept"


def test_each_report_has_its_place(evaluate: Command) -> None:
    """The table goes to standard output unless another report or --output does."""
    run = (evaluate.says("1", "0"), "--settings", evaluate.settings())
    files = {"junit": "<?xml", "markdown": "### Evaluation", "json": "{"}
    shown = evaluate(*run, *(f"--report={kind}=report.{kind}" for kind in files))
    assert shown.startswith("2 inputs from says.jsonl")
    for kind, begin in files.items():
        assert (evaluate.folder / f"report.{kind}").read_text().startswith(begin)
    assert evaluate(*run, "--report", "markdown", "--output", "o.md") == ""
    assert (evaluate.folder / "o.md").read_text().startswith("### Evaluation")
    assert evaluate(*run, "--output", "o.txt") == ""
    assert (evaluate.folder / "o.txt").read_text().startswith("2 inputs")


def test_results_are_written_in_the_order_of_the_dataset(evaluate: Command) -> None:
    """Each line has the whole result with its input, and only the owner can read the file."""
    words = [str(number / 1000) for number in range(700)]
    evaluate.file("r.jsonl", "of an earlier run")
    evaluate(evaluate.says(*words), "--settings", evaluate.settings(), "--results", "r.jsonl", "--concurrency", "5")
    path = evaluate.folder / "r.jsonl"
    results = [json.loads(line) for line in path.read_text().splitlines()]
    assert [result["results"][0]["score"] for result in results] == list(map(float, words))
    assert [result["inputSnapshot"]["response"] for result in results] == words
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_tags_and_execution_select_evaluators(evaluate: Command) -> None:
    """Standard error lists the others."""
    path = evaluate.settings(
        evaluators=[
            {"type": "EvaluateTestSays", "tags": ["fast", "own"]},
            {"type": "ResponseHealth", "tags": ["other"]},
        ]
    )
    report = evaluate.report(evaluate.says("1"), "--settings", path, "--tags", "fast,own", "--execution", "inline")
    assert [criterion["name"] for criterion in report["criteria"]] == ["says"]
    assert evaluate.err == "left out: ResponseHealth:response_health (tags other)\n"


def test_files_and_standard_input_are_read_in_order(evaluate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the limit; a dash is standard input."""
    first, second = evaluate.lines("a.jsonl", [{"response": "1"}]), evaluate.file("b.csv", "response\n1\n0\n")
    settings = evaluate.settings()
    assert evaluate.report(first, second, "--settings", settings)["inputs"] == 3
    assert evaluate.report(first, second, "--settings", settings, "--limit", "2")["overall_score"]["mean"] == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"response": "1"}\n')))
    report = evaluate.report("-", "--settings", settings)
    assert (report["sources"], report["inputs"]) == (["stdin"], 1)


def test_unknown_fields_are_named(evaluate: Command) -> None:
    """Standard error lists them, since nothing evaluates them."""
    evaluate(evaluate.lines("a.jsonl", [{"response": "1", "id": 1, "note": 2}]), "--settings", evaluate.settings())
    assert evaluate.err == "unknown fields, kept in metadata: id, note\n"


def test_a_failing_storage_provider_is_named(evaluate: Command) -> None:
    """Standard error counts what the storage of a run configuration lost."""
    broken = evaluate.folder / "folder"
    broken.mkdir()
    config = {"evaluatorConfigs": [{"type": "EvaluateTestSays", "config": {}}],
              "storageProvider": {"type": "json_file", "path": str(broken)}}  # fmt: skip
    criteria = [{"name": "says", "scale": "numeric"}]
    answers = evaluate.lines("a.jsonl", [{"response": "1", "criteria": criteria}])
    evaluate(answers, "--settings", evaluate.file("run.json", json.dumps(config)))
    assert evaluate.err == "StorageProvider failed for 1 input\n"


def test_names_from_the_dataset_are_shown_without_control_characters(evaluate: Command) -> None:
    """Names of fields and files must not steer the terminal."""
    evil = "\x1b[31mred\x07"
    answers = evaluate.lines(f"a{evil}.jsonl", [{"response": "0", evil: 1}])
    for report in ("table", "json", "markdown"):
        shown = evaluate(answers, "--settings", evaluate.settings(), "--report", report) + evaluate.err
        assert "red" in shown
        assert [char for char in shown if not char.isprintable() and char != "\n"] == []


def test_what_evaluators_print_goes_to_standard_error(evaluate: Command) -> None:
    """Standard output has only the report."""
    assert evaluate.report(evaluate.says("print", "1"), "--settings", evaluate.settings())["inputs"] == 2
    assert evaluate.err == "chatter\n"


@pytest.mark.parametrize("report", ["table", "json", "markdown", "junit"])
def test_output_in_an_old_encoding(report: str, evaluate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has what the terminal can show; reports for programs are UTF-8."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    answers = evaluate.lines("Zoë 東京.jsonl", [{"response": "0"}])
    evaluate(answers, "--settings", evaluate.settings(), "--report", report)
    shown = raw.getvalue().decode("latin-1" if report == "table" else "utf-8")
    assert ("Zoë ??.jsonl" if report == "table" else "Zoë 東京.jsonl") in shown


def test_the_help_has_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """They follow the options."""
    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    text, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    assert "exit codes: 0 success" in text
    assert examples.count("agenteval-otel evaluate") >= 5


def test_an_interrupt_is_130(evaluate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of results has those so far."""

    async def interrupted(inputs: Any, config: Any, *, on_result: Callable[..., None], **_: Any) -> None:
        (result,) = await run([next(iter(inputs))], config)
        on_result(0, result)
        raise KeyboardInterrupt

    run = evaluate_module.run_evaluations
    monkeypatch.setattr(evaluate_module, "run_evaluations", interrupted)
    evaluate(evaluate.says("1", "0"), "--settings", evaluate.settings(), "--results", "r.jsonl", code=130)
    assert evaluate.err.endswith("interrupted\n")
    assert len((evaluate.folder / "r.jsonl").read_text().splitlines()) == 1


def test_progress_in_logs_is_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """It goes to standard error; a shorter run has none."""
    now = 0.0

    def clock() -> float:
        return now

    progress = Progress(1000, clock=clock)
    for count in range(300):
        now = count / 12
        progress.advance(1 if count > 200 else 0)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "121 of 1,000 inputs evaluated, 12.1 a second", "241 of 1,000 inputs evaluated, 12.1 a second, 1 with failures",
    ]  # fmt: skip


def runs() -> list[Any]:
    """Recorded runs whose whole configuration is JSON: without functions and storage of the test."""
    parameters = []
    for parameter in vectors("runner.run"):
        (vector,) = parameter.values
        whole = vector is None or ("storage" not in vector and "argumentChecks" not in json.dumps(vector["config"]))
        if whole and (vector is None or (vector["class"] == "exact" and "evaluatorConfigs" in vector["config"])):
            parameters.append(parameter)
    return parameters


@pytest.mark.parametrize("vector", runs())
def test_recorded_runs_of_agentdock_have_its_results(vector: dict[str, Any], evaluate: Command) -> None:
    """Configuration and input are files; the result is the recorded one, or a refusal."""
    expected = vector["expected"]
    config = evaluate.file("run.json", json.dumps(vector["config"]))
    arguments = (evaluate.lines("input.jsonl", [vector["input"]]), "--settings", config)
    if expected.get("throws"):
        evaluate(*arguments, code=2)
        assert "run.json" in evaluate.err
        return
    form = json.loads(
        evaluate(*arguments, "--results", "-", "--results-format", "agentdock", code=0 if expected["results"] else 2)
    )
    assert same(form.get("overallScore"), expected["overallScore"])
    assert same(form["evaluationConfigSnapshot"], expected["evaluationConfigSnapshot"])
    assert set(form["metadata"]) == set(expected["metadataKeysOut"])
    assert same(form["metadata"]["errors"], expected["errors"])
    assert len(form["results"]) == len(expected["results"])
    for result, wanted in zip(form["results"], expected["results"], strict=True):
        assert ("error" in result) is wanted["error"]
        assert all(same(result.get(key), value) for key, value in wanted.items() if key != "error")


def test_calls_of_judges_are_counted(evaluate: Command) -> None:
    """Standard error and the JSON report have calls, cache hits, tokens and cost."""
    judge = {
        "type": "scripted", "model": "small-1", "input_tokens": 1_000, "output_tokens": 100, "cache": {},
        "fallback": {"evidence": [], "reason": "r", "score": True},
        "spend": {"prices": {"small-1": {"input": 1, "output": 5}}},
    }  # fmt: skip
    settings = evaluate.settings(evaluators=[{"type": "LLMJudge", "criterion_name": "ok", "judge": judge}])
    inputs = evaluate.lines("in.jsonl", [{"response": text} for text in ("One.", "Two.", "One.")])
    report = evaluate.report(inputs, "--settings", settings)
    assert report["judges"] == {
        "calls": 2, "cached": 1, "refused": 0, "tokens": 2_200, "cost_usd": pytest.approx(0.003),
    }  # fmt: skip
    assert "2 judge calls, 1 from the cache, 2,200 tokens, 0.0030 US dollars" in evaluate.err
