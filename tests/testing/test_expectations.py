"""What `assert_evaluation` expects, and judges whose verdicts are recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.errors import ConfigurationError, JudgeError
from agenteval_otel.judges import JudgeRequest, SpendLimits, Verdict
from agenteval_otel.models import RunError
from agenteval_otel.testing import CassetteJudge, ScriptedJudge
from agenteval_otel.testing.expectations import Expected, check_expected

RESULTS: dict[str, dict[str, Any]] = {
    "passed": {"score": 0.9, "normalized": 0.9, "passed": True, "label": "pass"},
    "low": {"score": 0.2, "normalized": 0.2, "passed": False, "label": "fail", "threshold": 0.5},
    "best": {"score": 5, "normalized": 1.0},
    "middling": {"score": 4, "normalized": 0.75},
    "category": {"score": "refusal", "label": "refusal"},
    "skipped": {"skip_reason": "no ground truth"},
    "failed": {"error": "the judge is away", "error_type": "timeout"},
}


def result_of(*names: str, **fields: Any) -> AggregatedEvaluationResult:
    results = [
        EvaluationResult(criterion_name=name, evaluator_type="T", **RESULTS[name]) for name in names
    ]
    return AggregatedEvaluationResult(results=results, **fields)


@pytest.mark.parametrize(
    ("name", "expected", "got"),
    [
        ("passed", None, None),
        ("passed", True, None),
        ("passed", 0.9, None),
        ("passed", "pass", None),
        ("passed", False, "fail pass 0.90"),
        ("passed", 0.95, "at least 0.95 pass 0.90"),
        ("low", None, "pass from 0.5 fail 0.20"),
        ("low", False, None),
        ("low", 0.2, None),
        ("best", None, None),
        ("middling", None, "pass 0.75 without a threshold only the best score passes"),
        ("middling", 0.75, None),
        ("category", "refusal", None),
        ("category", None, "pass refusal"),
        ("category", 0.5, "at least 0.50 refusal"),
        ("skipped", "skipped", None),
        ("skipped", True, "pass skipped no ground truth"),
        ("skipped", 0.0, "at least 0.00 skipped"),
        ("failed", None, "pass failed the judge is away"),
        ("failed", False, "fail failed the judge is away"),
        ("failed", "failed", None),
    ],
)
def test_each_result_is_compared(name: str, expected: Expected | None, got: str | None) -> None:
    """A verdict, a least score or a label; a failure is neither a pass nor a fail."""
    expect = {} if expected is None else {name: expected}
    if got is None:
        check_expected(result_of(name, "best"), expect)
        return
    with pytest.raises(AssertionError) as caught:
        check_expected(result_of(name, "best"), expect)
    assert " ".join([name, *got.split()]) in " ".join(str(caught.value).split())
    assert "as expected: best" in str(caught.value)


def test_a_skip_passes_beside_a_score_and_not_alone() -> None:
    check_expected(result_of("skipped", "passed"))
    with pytest.raises(AssertionError, match=r"a score *skipped *no ground truth"):
        check_expected(result_of("skipped"))


def test_what_broke_beside_the_evaluators_is_a_difference() -> None:
    error = RunError(evaluator_type="GroundTruthStore", message="no connection")
    with pytest.raises(AssertionError, match=r"GroundTruthStore *no error *error *no connection"):
        check_expected(result_of("passed", run_errors=(error,)))


@pytest.mark.parametrize(
    ("expect", "message"), [({"pased": True}, "did you mean 'passed'"), ({"passed": 4}, "0 to 1")]
)
def test_an_impossible_expectation_is_refused(expect: dict[str, Expected], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_expected(result_of("passed"), expect)


def ask(judge: CassetteJudge, prompt: str) -> Verdict:
    return asyncio.run(judge.judge(JudgeRequest(prompt=prompt, purpose="tone")))


def test_a_cassette_answers_as_its_judge_did(tmp_path: Path) -> None:
    """Recorded once, behind the judge's own limits; read back without a call, by any judge with the
    same settings.
    """
    path, script = (
        tmp_path / "new" / "tone.jsonl",
        ScriptedJudge(replies=[{"score": 4}], input_tokens=7),
    )
    recording = CassetteJudge(recorded=script, path=path, record=True)
    assert [ask(recording, "a").answer, ask(recording, "a").answer] == [{"score": 4}, {"score": 4}]
    assert script.calls == 1
    other = ScriptedJudge(
        replies=[{"score": 4}], input_tokens=7, spend=SpendLimits(tokens_per_minute=9_000)
    )
    replayed = ask(CassetteJudge(recorded=other, path=path), "a")
    assert (replayed.answer, replayed.from_cache, replayed.usage.calls, other.calls) == (
        {"score": 4},
        True,
        0,
        0,
    )
    for judge, prompt in ((other, "b"), (ScriptedJudge(model="other"), "a")):
        with pytest.raises(
            JudgeError, match=r"has no verdict on this question.*--agenteval-record"
        ) as caught:
            ask(CassetteJudge(recorded=judge, path=path), prompt)
        assert caught.value.error_type == "not_found"


def test_a_damaged_cassette_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tone.jsonl"
    path.write_text('{"question": "q", "verdict": {"answer": {}}}\n{"question"\n')
    with pytest.raises(JudgeError, match=r"tone\.jsonl:2 is no recorded verdict"):
        ask(CassetteJudge(recorded=ScriptedJudge(), path=path), "a")
