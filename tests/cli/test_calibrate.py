"""``agenteval-otel calibrate`` and ``judge check``: from labelled rows, from stored results, and
what is refused.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import AggregatedEvaluationResult, report, run_evaluations_sync
from agenteval_otel.evaluators import Contains
from agenteval_otel.judges import JudgeRequest
from agenteval_otel.models import EvaluationResult
from agenteval_otel.models.results import SpanReference
from agenteval_otel.offline.calibration.record import CalibrationRecord, load_records
from agenteval_otel.storage import SqlStorageProvider
from agenteval_otel.testing import ScriptedJudge
from tests.cli.conftest import CommandLine
from tests.golden import SHARED
from tests.storage.samples import save
from tests.testing.doubles import config_of

XSTEST = SHARED / "data/xstest_refusal_sample.jsonl"
SETTINGS = "plugins: [graded]\nevaluators: [Graded]\n"
PLUGIN = """
from agenteval_otel.evaluators import CriterionEvaluator

class Graded(CriterionEvaluator, type="Graded"):
    criterion_name: str = "polite"
    scale: str = "likert5"
    threshold: float | None = 3.0

    def score(self, evaluation_input):
        return float(evaluation_input.response_text.split()[-1])
"""


@pytest.fixture
def graded(cli: CommandLine) -> CommandLine:
    """An evaluator whose score is the last word of the response, and labelled answers."""
    cli.file("graded.py", PLUGIN)
    cli.file("s.yaml", SETTINGS)
    cli.file("labels.jsonl", lines(rows()))
    return cli


CALIBRATE = "calibrate labels.jsonl --settings s.yaml"


def only_record(file: str = "agenteval-calibration.json") -> CalibrationRecord:
    (record,) = load_records(file)
    return record


def rows(count: int = 200, labelled: int = 80, **fields: Any) -> list[dict[str, Any]]:
    draw = random.Random(4)
    made = []
    for number in range(count):
        good = draw.random() < 0.6
        grade = min(5, max(1, round(draw.gauss(3.6 if good else 2.2, 0.9))))
        made.append(
            {
                "id": f"a{number}",
                "prompt": f"q{number}",
                "response": f"answer graded {grade}",
                "label": good if number < labelled else None,
                "topic": ("billing", "travel")[number % 2],
                **fields,
            }
        )
    return made


def lines(items: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def test_a_file_of_labels_becomes_a_table_and_a_record(graded: CommandLine) -> None:
    """`calibrate` prints how the judge agrees with people, and `explain` knows it afterwards."""
    out = graded(f"{CALIBRATE} --slice topic")
    assert "polite: Graded:polite beside people on 80 answers" in out
    for words in ("judge passes", "kappa", "prediction-powered", "corrected", "topic  billing"):
        assert words in out
    record = only_record()
    assert (record.rows, record.clusters, record.threshold) == (80, 80, 3.0)
    assert record.source == "labels.jsonl"
    assert "1 record written to agenteval-calibration.json" in graded.err
    assert f"kappa {record.kappa.mean:.2f}" in graded("explain polite --settings s.yaml")
    assert "not measured on your judge" in graded("explain Relevance --settings s.yaml")


def test_reports_show_which_rate_they_show_until_the_judge_changes(graded: CommandLine) -> None:
    """Corrected where the record holds; after a change of the evaluator it says so, and the judge's
    own is left.
    """
    graded.file("s.yaml", SETTINGS + "calibration: record.json\n")
    graded(CALIBRATE)
    evaluate = "evaluate labels.jsonl --settings s.yaml"
    (shown,) = json.loads(graded(f"{evaluate} --report json"))["criteria"]
    assert shown["pass_rate"]["mean"] != shown["calibrated_pass_rate"]["mean"]
    assert shown["calibration"].endswith(only_record("record.json").sentence)
    assert "pass by people's measure" in graded(evaluate)
    changed = SETTINGS.replace("[Graded]", "[{type: Graded, threshold: 4}]")
    graded.file("s.yaml", changed + "calibration: record.json\n")
    (later,) = json.loads(graded(f"{evaluate} --report json"))["criteria"]
    assert later["calibrated_pass_rate"] is None
    assert "its calibration has expired" in later["calibration"]
    assert "The record has expired" in graded("explain polite --settings s.yaml")


def test_a_chosen_threshold_is_reported_on_other_prompts_and_holds_once_it_is_set(
    graded: CommandLine,
) -> None:
    """The prompts that chose the threshold are left out of its figures, also in the next run."""
    graded.file("labels.jsonl", lines(rows(300, 300)))
    out = graded(f"{CALIBRATE} --choose-threshold")
    record = only_record()
    assert f"threshold {record.threshold:g}, chosen on {300 - record.rows} other rows" in out
    assert len(record.threshold_prompts) == 300 - record.rows
    graded.file(
        "s.yaml", SETTINGS.replace("Graded]", f"{{type: Graded, threshold: {record.threshold}}}]")
    )
    assert "expired" not in graded("explain polite --settings s.yaml")
    assert "its prompt chose the threshold" in graded(CALIBRATE)
    measured = only_record()
    assert measured.rows == record.rows
    assert measured.shares == pytest.approx(record.shares)


def test_the_next_answers_to_label_come_without_the_verdict_and_count_by_their_probability(
    graded: CommandLine,
) -> None:
    """`--next` gives the same answers each time; once people labelled them they are measured."""
    first = graded(f"{CALIBRATE} --next 20")
    picks = {pick["prompt"]: pick for pick in map(json.loads, first.splitlines())}
    assert len(picks) == 20
    for pick in picks.values():
        assert (pick["label_round"], pick["label"]) == (1, None)
        assert 0 < pick["label_probability"] <= 1
        assert not {"score", "passed"} & set(pick)
    assert first == graded(f"{CALIBRATE} --next 20")
    labelled = []
    for row, truth in zip(rows(), rows(200, 200), strict=True):
        pick = picks.get(row["prompt"])
        labelled.append({**pick, "label": truth["label"]} if pick else row)
    graded.file("labels.jsonl", lines(labelled))
    graded(CALIBRATE)
    record = only_record()
    assert record.rows == 100
    assert record.effective_rows < 100  # 80 rows stand for themselves, 20 for the other 120


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"label": True}, "", "all 200 labels are pass.*at least 5 that fail"),
        ({"label": "perhaps"}, "", "the label 'perhaps' is no verdict"),
        ({"label": "nan"}, "", "expected true, false, or a finite number"),
        ({"label": None}, "", "no row of labels.jsonl has a label of 'polite'"),
        ({"id": "same"}, "", "1 answers stand there more than once, by their id"),
        (
            {"label_probability": 1.5},
            "",
            "label_probability: expected a probability above 0 up to 1, found '1.5'",
        ),
        ({}, "--criterion polit", "no evaluator scores 'polit' .did you mean 'polite'"),
        ({}, "--label tone=label", "no criterion 'tone' is judged"),
        ({}, "--positive good", "all 80 labels are fail"),
        ({"response": "no grade"}, "", "nothing was judged by Graded:polite: 200 failed"),
    ],
)
def test_wrong_labels_are_refused(
    graded: CommandLine, change: dict[str, Any], options: str, message: str
) -> None:
    """The problem is named, and no record is written."""
    graded.file("labels.jsonl", lines(rows(**change)))
    graded(f"{CALIBRATE} {options}", code=2)
    assert re.search(message, graded.err), graded.err
    assert not Path("agenteval-calibration.json").exists()


def test_stored_results_are_measured_by_the_feedback_beside_them(cli: CommandLine) -> None:
    """Verdicts of an earlier version of the judge, and feedback on other answers, are left out and
    counted.

    A database gives the same figures as a file.
    """
    write_results(cli, stored_results())
    (measured,) = json.loads(cli("calibrate results.jsonl --report json"))
    assert measured["record"]["rows"] == 60
    assert measured["skipped"] == {"judged by an earlier version": 5}
    assert measured["record"]["models"] == ["small-1", "small-2"]
    assert measured["record"]["cost_usd"] == pytest.approx(0.001)
    assert set(measured["pass_rate"]) == {
        "judge alone",
        "labels alone",
        "corrected",
        "prediction-powered",
    }
    assert "1 of 61 labels are of answers without a result" in cli.err
    save(SqlStorageProvider(path=cli.folder / "agenteval.db"), *stored_results())
    (of_database,) = json.loads(cli("calibrate agenteval.db --report json"))
    assert of_database["figures"] == measured["figures"]
    cli("calibrate results.jsonl --feedback stars", code=2)
    assert "no feedback of people named 'stars'" in cli.err
    cli("calibrate results.jsonl --criterion tone", code=2)
    assert "--criterion: no result of 'tone'. Known: polite" in cli.err


def write_results(cli: CommandLine, results: list[AggregatedEvaluationResult]) -> None:
    written = [result.model_dump_json(by_alias=True) + "\n" for result in results]
    cli.file("results.jsonl", "".join(written))


LLM_SETTINGS = """
plugins: [agenteval_otel.testing]
evaluators:
  - type: LLMJudge
    rubrics: [{criterion_name: polite, description: It is polite}, {criterion_name: brief, description: It is brief}]
    judge: {type: scripted, replies: REPLIES, input_tokens: 10}
"""


def test_a_judge_of_two_criteria_is_measured_on_each_by_its_own_labels(cli: CommandLine) -> None:
    """Two columns of labels, one call an answer; replies that are no JSON are counted, and are in
    no figure.
    """
    replies: list[Any] = []
    labelled = []
    for n in range(40):
        polite, brief = n % 2 == 0, n % 3 == 0
        forms = [{"evidence": [], "reason": "r", "score": score} for score in (polite, brief)]
        replies.append(dict(zip(("polite", "brief"), forms, strict=True)))
        anna = "good" if polite or n == 1 else "bad"
        labelled.append({"prompt": f"q{n}", "response": f"a{n}", "anna": anna, "ben": brief})
    replies[7] = "no JSON"
    cli.file("s.yaml", LLM_SETTINGS.replace("REPLIES", json.dumps(replies)))
    cli.file("labels.jsonl", lines(labelled))
    measure = f"{CALIBRATE} --report json --concurrency 1"
    (of_polite,) = json.loads(cli(f"{measure} --label polite=anna --positive good"))
    assert of_polite["criterion"] == "polite"
    assert of_polite["record"]["rows"] == 39
    assert of_polite["record"]["malformed_rate"] == pytest.approx(1 / 40)
    assert of_polite["failed"] == {"malformed_answer": 1}
    assert of_polite["figures"]["sensitivity"]["mean"] == pytest.approx(20 / 21)
    assert of_polite["record"]["judge"] == "scripted:scripted"
    cli(CALIBRATE, code=2)
    assert "2 criteria are judged (polite, brief): name one with --criterion" in cli.err
    (of_brief,) = json.loads(cli(f"{measure} --criterion brief --label ben"))
    assert of_brief["figures"]["kappa"]["mean"] == 1
    records = load_records("agenteval-calibration.json")
    assert {record.criterion for record in records} == {"polite", "brief"}


def test_labels_of_an_older_release_are_told_before_any_figure(cli: CommandLine) -> None:
    """By the stored time of the answers and their annotations, whatever their text is."""
    old, began_ns = "v|1", 1_790_000_000 * 10**9
    results = []
    for number, result in enumerate(stored_results()):
        times = {
            "response_ended_ns": began_ns + number * 3_600 * 10**9,
            "ended_ns": began_ns + 10**15,
        }
        version = old if number < 130 else "2"
        results.append(result.model_copy(update={"prompt_version": version, **times}))
    write_results(cli, results)
    (measured,) = json.loads(cli("calibrate results.jsonl --report json"))
    assert measured["label_shift"] is None
    assert measured["label_age"]["labelled_median"] < measured["label_age"]["others_median"]
    (release,) = measured["label_releases"]
    assert (release["name"], release["value"]) == ("prompt_version", old)
    table = cli("calibrate results.jsonl")
    assert "The labels are of older answers: half of them before 2026-" in table
    assert f"100 % of the labels are of prompt version {old}, which 2 % of the other" in table
    assert table.index("prompt version") < table.index("Pass rate of all answers")
    assert "is not known" in " ".join(table.split())
    report = cli("calibrate results.jsonl --report markdown")
    assert "prompt version `v\\|1`" in report
    assert report.index("prompt version") < report.index("corrected |")


def stored_results() -> list[AggregatedEvaluationResult]:
    draw = random.Random(9)
    made = []
    for number in range(305):
        good = draw.random() < 0.7
        passed = good if draw.random() < 0.9 else not good
        span = SpanReference(trace_id=f"{number:032x}", span_id=f"{number:016x}")
        version = "old" if number < 5 else "new"
        judged = EvaluationResult(
            criterion_name="polite",
            evaluator_type="LLMJudge",
            evaluator_id="LLMJudge:polite",
            score=passed,
            passed=passed,
            evaluator_version=version,
            probability=0.5,
            evaluator_kind="llm_judge",
            metadata={"judge": {"model": f"small-{1 + number % 2}", "costUsd": 0.001}},
        )
        made.append(
            AggregatedEvaluationResult(
                span=span, results=(judged,), conversation_id=f"c{number // 3}"
            )
        )
        if 5 <= number < 65:
            thumb = EvaluationResult(
                criterion_name="user_feedback",
                evaluator_type="feedback",
                score=good,
                passed=good,
                evaluator_kind="human",
            )
            made.append(AggregatedEvaluationResult(span=span, results=(thumb,)))
    lost = SpanReference(trace_id="f" * 32, span_id="f" * 16)
    return [*made, AggregatedEvaluationResult(span=lost, results=(thumb,))]


def test_judge_check_takes_a_hundred_rows_of_the_catalogue(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`judge check` measures a judge of the catalogue on 100 of the rows, and `explain` shows it."""
    made = [
        {"prompt": f"q{n}", "response": f"a{n}", "label": 5 if n % 3 else 1} for n in range(150)
    ]
    cli.file("labels.jsonl", lines(made))

    def answer(request: JudgeRequest) -> dict[str, Any]:
        level = next(n for n in range(150) if f'"a{n}"' in request.prompt)
        return {"evidence": [], "reason": "r", "score": 5 if level % 3 and level % 7 else 2}

    judge = ScriptedJudge(answer=answer)
    monkeypatch.setattr(
        "agenteval_otel.evaluators.llm_judge.evaluator.as_judge", lambda value, path: judge
    )
    check = "judge check labels.jsonl --judge anthropic:any --criterion"
    out = cli(f"{check} Relevance")
    assert "Relevance: Relevance:Relevance beside people on 100 answers" in out
    assert judge.calls == 100
    cli.file("s.yaml", "evaluators: [{type: Relevance, judge: 'anthropic:any'}]\n")
    shown = cli("explain Relevance --settings s.yaml")
    assert "Judged by Relevance:Relevance: kappa" in shown
    cli(f"{check} Relevnce", code=2)
    assert "'Relevnce' is not in the catalogue (did you mean 'Relevance'?)" in cli.err


@pytest.mark.shared
@pytest.mark.skipif(not XSTEST.exists(), reason="needs the recorded data beside the project")
def test_on_people_s_labels_the_raw_rate_is_wrong_and_the_calibrated_ones_hold(
    cli: CommandLine,
) -> None:
    """XSTest, rows 1-900, labels of the prompts of every third row: the deterministic evaluator is
    20 points off.
    """
    source = [json.loads(line) for line in XSTEST.read_text().splitlines()]
    truth = sum(row["label"] == "1_full_compliance" for row in source) / len(source)
    labelled = {row["prompt"] for row in source[::3] if row["model"] == "gpt4"}
    for row in source:
        row["response"] = row.pop("completion")
        if row["prompt"] not in labelled:
            row["label"] = None
    cli.file("labels.jsonl", lines(source))
    cli.file("s.yaml", "evaluators: [ResponseHealth]\n")
    (measured,) = json.loads(cli(f"{CALIBRATE} --positive 1_full_compliance --report json"))
    rates = measured["pass_rate"]
    assert abs(rates["judge alone"]["mean"] - truth) > 0.1
    for name in ("labels alone", "corrected", "prediction-powered"):
        assert rates[name]["low"] <= truth <= rates[name]["high"], (name, truth, rates[name])


def test_a_judge_is_measured_at_the_errors_it_makes(cli: CommandLine) -> None:
    """400 answers, 90 % and 75 % right by construction; the report then corrects the rate of other
    answers.
    """
    draw = random.Random(2)

    def answer(good: bool) -> dict[str, Any]:
        says_yes = draw.random() < (0.9 if good else 0.25)
        return {"response": f"{draw.random()} {'yes' if says_yes else 'no'}", "label": good}

    cli.file("labels.jsonl", lines([answer(good=n % 2 == 0) for n in range(400)]))
    cli.file("s.yaml", "evaluators: [{type: Contains, substrings: ['yes'], threshold: 1}]\n")
    cli(CALIBRATE)
    record = only_record()
    assert record.sensitivity.low <= 0.9 <= record.sensitivity.high
    assert record.specificity.low <= 0.75 <= record.specificity.high
    others = [{"response": answer(good=n % 10 < 2)["response"]} for n in range(600)]
    config = config_of(Contains(substrings=["yes"], threshold=1))
    shown = report(run_evaluations_sync(others, config), calibration="agenteval-calibration.json")
    (criterion,) = shown.to_dict()["criteria"]
    assert criterion["pass_rate"]["low"] > 0.3  # a fifth is good
    rate = criterion["calibrated_pass_rate"]
    assert rate["low"] <= 0.2 <= rate["high"]
