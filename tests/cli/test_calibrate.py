"""``agenteval-otel calibrate`` and ``judge check``: from labelled rows, from stored results, and
what is refused.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import AggregatedEvaluationResult, EvaluationInput, report, run_evaluations_sync
from agenteval_otel.cli.calibrate import record_of
from agenteval_otel.cli.calibrate.collected import Collected, labelled_row
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.judges import JudgeRequest
from agenteval_otel.models import EvaluationResult
from agenteval_otel.models.results import SpanReference
from agenteval_otel.offline.calibration.measure import measure
from agenteval_otel.offline.calibration.record import CalibrationRecords, load_records
from agenteval_otel.storage import SqlStorageProvider
from agenteval_otel.testing import ScriptedJudge
from tests.cli.conftest import CommandLine
from tests.golden import SHARED
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
    """An evaluator whose score is the last word of the response."""
    cli.file("graded.py", PLUGIN)
    cli.file("s.yaml", SETTINGS)
    return cli


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
    graded.file("labels.jsonl", lines(rows()))
    out = graded("calibrate", "labels.jsonl", "--settings", "s.yaml", "--slice", "topic")
    assert "polite: Graded:polite beside people on 80 answers" in out
    for words in ("judge passes", "kappa", "prediction-powered", "corrected", "topic  billing"):
        assert words in out
    record = load_records("agenteval-calibration.json").find("polite", "Graded:polite")
    assert record is not None
    assert (record.rows, record.clusters, record.threshold, record.source) == (
        80,
        80,
        3.0,
        "labels.jsonl",
    )
    assert "1 record written to agenteval-calibration.json" in graded.err
    shown = graded("explain", "polite", "--settings", "s.yaml")
    assert f"kappa {record.kappa.mean:.2f}" in shown
    assert "not measured on your judge" in graded("explain", "Relevance", "--settings", "s.yaml")


def test_reports_show_which_rate_they_show_until_the_judge_changes(graded: CommandLine) -> None:
    """Corrected where the record holds; after a change of the evaluator it says so, and the judge's
    own is left.
    """
    graded.file("labels.jsonl", lines(rows()))
    place = "s.yaml"
    Path(place).write_text(SETTINGS + "calibration: record.json\n")
    graded("calibrate", "labels.jsonl", "--settings", place)
    shown = json.loads(graded("evaluate", "labels.jsonl", "--settings", place, "--report", "json"))[
        "criteria"
    ][0]
    assert shown["pass_rate"]["mean"] != shown["calibrated_pass_rate"]["mean"]
    assert shown["calibration"].endswith(load_records("record.json").find("polite").sentence)  # type: ignore[union-attr]
    assert "pass by people's measure" in graded("evaluate", "labels.jsonl", "--settings", place)
    changed = (
        SETTINGS.replace("[Graded]", "[{type: Graded, threshold: 4}]")
        + "calibration: record.json\n"
    )
    Path(place).write_text(changed)
    later = json.loads(graded("evaluate", "labels.jsonl", "--settings", place, "--report", "json"))[
        "criteria"
    ][0]
    assert later["calibrated_pass_rate"] is None
    assert "its calibration has expired" in later["calibration"]
    assert "The record has expired" in graded("explain", "polite", "--settings", place)


def test_a_chosen_threshold_is_reported_on_other_prompts_and_holds_once_it_is_set(
    graded: CommandLine,
) -> None:
    graded.file("labels.jsonl", lines(rows(300, 300)))
    place = "s.yaml"
    out = graded("calibrate", "labels.jsonl", "--settings", place, "--choose-threshold")
    record = load_records("agenteval-calibration.json").find("polite")
    assert record is not None
    assert f"threshold {record.threshold:g}, chosen on {300 - record.rows} other rows" in out
    assert len(record.threshold_prompts) == 300 - record.rows
    Path(place).write_text(
        f"plugins: [graded]\nevaluators: [{{type: Graded, threshold: {record.threshold}}}]\n"
    )
    assert "expired" not in graded("explain", "polite", "--settings", place)
    again = graded("calibrate", "labels.jsonl", "--settings", place)
    assert "its prompt chose the threshold" in again
    measured = load_records("agenteval-calibration.json").find("polite")
    assert measured is not None
    assert measured.rows == record.rows
    assert measured.shares == pytest.approx(record.shares)


def test_the_next_answers_to_label_come_without_the_verdict_and_count_by_their_probability(
    graded: CommandLine,
) -> None:
    graded.file("labels.jsonl", lines(rows()))
    place = "s.yaml"
    first = graded("calibrate", "labels.jsonl", "--settings", place, "--next", 20)
    picks = [json.loads(line) for line in first.splitlines()]
    assert len(picks) == 20
    assert {pick["label_round"] for pick in picks} == {1}
    assert all(0 < pick["label_probability"] <= 1 and pick["label"] is None for pick in picks)
    assert not any("score" in pick or "passed" in pick for pick in picks)
    assert first == graded("calibrate", "labels.jsonl", "--settings", place, "--next", 20)
    truth = {row["prompt"]: row for row in rows(200, 200)}
    answered = [
        {**truth[pick["prompt"]], "label_probability": pick["label_probability"], "label_round": 1}
        for pick in picks
    ]
    kept = [row for row in rows() if row["prompt"] not in {pick["prompt"] for pick in picks}]
    graded.file("labels.jsonl", lines(kept + answered))
    graded("calibrate", "labels.jsonl", "--settings", place)
    record = load_records("agenteval-calibration.json").find("polite")
    assert record is not None
    assert record.rows == 100
    assert record.effective_rows < 100  # 80 rows stand for themselves, 20 for the other 120


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"label": True}, (), "all 200 labels are pass"),
        ({"label": "perhaps"}, (), "the label 'perhaps' is no verdict"),
        ({"label": "nan"}, (), "expected true, false, or a finite number"),
        ({"label": None}, (), "no row of labels.jsonl has a label of 'polite'"),
        ({"id": "same"}, (), "1 answers stand there more than once, by their id"),
        (
            {"label_probability": 1.5},
            (),
            "label_probability: expected a probability above 0 up to 1, found '1.5'",
        ),
        ({}, ("--criterion", "polit"), "no evaluator scores 'polit' .did you mean 'polite'"),
        ({}, ("--label", "tone=label"), "no criterion 'tone' is judged"),
        ({}, ("--positive", "good"), "all 80 labels are fail"),
        ({"response": "no grade"}, (), "nothing was judged by Graded:polite: 200 failed"),
    ],
)
def test_wrong_labels_are_refused(
    graded: CommandLine, change: dict[str, Any], options: tuple[str, ...], message: str
) -> None:
    graded.file("labels.jsonl", lines(rows(**change)))
    graded("calibrate", "labels.jsonl", "--settings", "s.yaml", *options, code=2)
    assert re.search(message, graded.err), graded.err
    assert not Path("agenteval-calibration.json").exists()


def test_stored_results_are_measured_by_the_feedback_beside_them(cli: CommandLine) -> None:
    """Verdicts of an earlier version of the judge, and feedback on other answers, are left out and
    counted.
    """
    cli.file(
        "results.jsonl",
        "".join(result.model_dump_json(by_alias=True) + "\n" for result in stored_results()),
    )
    out = cli("calibrate", "results.jsonl", "--report", "json")
    (measured,) = json.loads(out)
    assert measured["record"]["rows"] == 60
    assert measured["skipped"] == {"judged by an earlier version": 5}
    assert measured["record"]["models"] == ["small-1", "small-2"]
    assert set(measured["pass_rate"]) == {
        "judge alone",
        "labels alone",
        "corrected",
        "prediction-powered",
    }
    assert "1 of 61 labels are of answers without a result" in cli.err
    cli("calibrate", "results.jsonl", "--feedback", "stars", code=2)
    assert "no feedback of people named 'stars'" in cli.err
    cli("calibrate", "results.jsonl", "--criterion", "tone", code=2)
    assert "--criterion: no result of 'tone'; known: polite" in cli.err


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
    verdicts = [(n % 2 == 0, n % 3 == 0) for n in range(40)]
    forms = [{"evidence": [], "reason": "r", "score": value} for value in (False, True)]
    replies: list[Any] = [
        {"polite": forms[polite], "brief": forms[brief]} for polite, brief in verdicts
    ]
    replies[7] = "no JSON"
    cli.file("s.yaml", LLM_SETTINGS.replace("REPLIES", json.dumps(replies)))
    cli.file(
        "labels.jsonl",
        lines(
            [
                {
                    "prompt": f"q{n}",
                    "response": f"a{n}",
                    "anna": "good" if polite or n == 1 else "bad",
                    "ben": brief,
                }
                for n, (polite, brief) in enumerate(verdicts)
            ]
        ),
    )
    options = ("--settings", "s.yaml", "--report", "json", "--concurrency", 1)
    out = json.loads(
        cli("calibrate", "labels.jsonl", *options, "--label", "polite=anna", "--positive", "good")
    )
    assert [entry["criterion"] for entry in out] == ["polite"]
    assert out[0]["record"]["rows"] == 39
    assert out[0]["record"]["malformed_rate"] == pytest.approx(1 / 40)
    assert out[0]["failed"] == {"malformed_answer": 1}
    assert out[0]["figures"]["sensitivity"]["mean"] == pytest.approx(20 / 21)
    assert out[0]["record"]["judge"] == "scripted:scripted"
    cli("calibrate", "labels.jsonl", "--settings", "s.yaml", code=2)
    assert "2 criteria are judged (polite, brief): name one with --criterion" in cli.err
    (brief,) = json.loads(
        cli("calibrate", "labels.jsonl", *options, "--criterion", "brief", "--label", "ben")
    )
    assert brief["figures"]["kappa"]["mean"] == 1
    assert {record.criterion for record in load_records("agenteval-calibration.json")} == {
        "polite",
        "brief",
    }


def test_the_database_is_read_as_the_file_is(cli: CommandLine) -> None:
    async def store() -> None:
        storage = SqlStorageProvider(path=cli.folder / "agenteval.db")
        for result in stored_results():
            await storage.save_result(result)
        await storage.close()

    asyncio.run(store())
    cli.file(
        "results.jsonl",
        "".join(result.model_dump_json(by_alias=True) + "\n" for result in stored_results()),
    )
    (of_database,) = json.loads(cli("calibrate", "agenteval.db", "--report", "json"))
    (of_file,) = json.loads(cli("calibrate", "results.jsonl", "--report", "json"))
    assert of_database["figures"] == of_file["figures"]
    assert of_database["record"]["cost_usd"] == pytest.approx(0.001)


def test_labels_of_an_older_release_are_told_before_any_figure(cli: CommandLine) -> None:
    """By the stored time of the answers and their annotations, whatever their text is."""
    old, began_ns = "v|1", 1_790_000_000 * 10**9
    results = [
        result.model_copy(
            update={
                "prompt_version": old if number < 130 else "2",
                "response_ended_ns": began_ns + number * 3_600 * 10**9,
                "ended_ns": began_ns + 10**15,
            }
        )
        for number, result in enumerate(stored_results())
    ]
    cli.file(
        "results.jsonl",
        "".join(result.model_dump_json(by_alias=True) + "\n" for result in results),
    )
    (measured,) = json.loads(cli("calibrate", "results.jsonl", "--report", "json"))
    assert measured["label_shift"] is None
    assert measured["label_age"]["labelled_median"] < measured["label_age"]["others_median"]
    (release,) = measured["label_releases"]
    assert (release["name"], release["value"]) == ("prompt_version", old)
    table = cli("calibrate", "results.jsonl")
    assert "The labels are of older answers: half of them before 2026-" in table
    assert f"100 % of the labels are of prompt version {old}, which 2 % of the other" in table
    assert table.index("prompt version") < table.index("Pass rate of all answers")
    report = cli("calibrate", "results.jsonl", "--report", "markdown")
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
    out = cli(
        "judge", "check", "labels.jsonl", "--judge", "anthropic:any", "--criterion", "Relevance"
    )
    assert "Relevance: Relevance:Relevance beside people on 100 answers" in out
    assert judge.calls == 100
    place = cli.file("s.yaml", "evaluators: [{type: Relevance, judge: 'anthropic:any'}]\n")
    assert "Judged by Relevance:Relevance: kappa" in cli(
        "explain", "Relevance", "--settings", place
    )
    cli(
        "judge",
        "check",
        "labels.jsonl",
        "--judge",
        "anthropic:any",
        "--criterion",
        "Relevnce",
        code=2,
    )
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
    labelled = {
        row["prompt"]
        for number, row in enumerate(source)
        if number % 3 == 0 and row["model"] == "gpt4"
    }
    cli.file(
        "labels.jsonl",
        lines(
            [
                {
                    "prompt": row["prompt"],
                    "response": row["completion"],
                    "model": row["model"],
                    "label": row["label"] if row["prompt"] in labelled else None,
                }
                for row in source
            ]
        ),
    )
    cli.file("s.yaml", "evaluators: [ResponseHealth]\n")
    out = cli(
        "calibrate",
        "labels.jsonl",
        "--settings",
        "s.yaml",
        "--positive",
        "1_full_compliance",
        "--report",
        "json",
    )
    rates = json.loads(out)[0]["pass_rate"]
    assert abs(rates["judge alone"]["mean"] - truth) > 0.1
    for name in ("labels alone", "corrected", "prediction-powered"):
        assert rates[name]["low"] <= truth <= rates[name]["high"], (name, truth, rates[name])


def test_a_scripted_judge_is_measured_at_the_errors_it_makes(cli: CommandLine) -> None:
    """400 answers, 90 % and 75 % right by construction; the report then corrects the rate of other
    answers.
    """
    draw = random.Random(2)

    def answer(request: JudgeRequest) -> dict[str, Any]:
        good = '"good' in request.prompt
        return {"evidence": [], "reason": "r", "score": draw.random() < (0.9 if good else 0.25)}

    evaluator = LLMJudge(
        "Is the answer polite?", judge=ScriptedJudge(answer=answer), criterion_name="polite"
    )
    config = config_of(evaluator)
    collected = Collected("polite", evaluator.label, evaluator)
    for number in range(400):
        good = number % 2 == 0
        item = EvaluationInput(
            prompt=f"q{number}", response=f"{'good' if good else 'bad'} {number}"
        )
        row = labelled_row(
            item,
            good,
            id_field="id",
            cluster=None,
            system="model",
            slices=(),
            label_weight=1.0,
            original={},
        )
        collected.add(run_evaluations_sync([item], config)[0].results[0], row)
    measurement = measure(collected.answers)
    record = record_of(collected, measurement)
    assert record.judge == "scripted:scripted"
    assert record.sensitivity.low <= 0.9 <= record.sensitivity.high
    assert record.specificity.low <= 0.75 <= record.specificity.high
    CalibrationRecords([record]).save("record.json")
    others = [
        {"prompt": f"o{n}", "response": f"{'good' if n % 10 < 2 else 'bad'} {n}"}
        for n in range(600)
    ]
    shown = report(run_evaluations_sync(others, config), calibration="record.json")
    (criterion,) = shown.to_dict()["criteria"]
    assert criterion["pass_rate"]["low"] > 0.3  # a fifth is good
    assert (
        criterion["calibrated_pass_rate"]["low"] <= 0.2 <= criterion["calibrated_pass_rate"]["high"]
    )
