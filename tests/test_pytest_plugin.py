"""The pytest plugin, as its users run it: in a process of its own, with this package installed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agenteval_otel.testing import ModelServer

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from agenteval_otel import EvaluationInput
from agenteval_otel.evaluators import ExactMatch, KeywordCoverage, ResponseHealth

CITY = KeywordCoverage(criterion_name="names_the_city", expected_keywords=["Paris"], threshold=1.0)

@pytest.mark.parametrize("answer", ["Paris.", EvaluationInput(response="Paris!"), {"response": "In Paris."},
                                    {"role": "assistant", "content": "Paris it is."}])
def test_capital(answer, assert_evaluation):
    result = assert_evaluation(answer, prompt="Capital of France?", evaluators=[ResponseHealth(), CITY])
    assert result.overall_score == 1.0

def test_expected_to_fail(assert_evaluation):
    assert_evaluation("Lyon", evaluators=[CITY], expect={"names_the_city": False})

async def ask(assert_evaluation):
    evaluators = [ResponseHealth(), CITY, ExactMatch()]
    assert_evaluation("Rome", prompt="Capital?", ground_truth="Paris", evaluators=evaluators)

def test_wrong(assert_evaluation):
    import asyncio
    asyncio.run(ask(assert_evaluation))  # within a running loop
"""
FAILURE = """
E*AssertionError: 2 of 3 results are not as expected
E*criterion * expected * got * reason
E*names_the_city *pass from 1 *fail 0.00 *0 of 1 keywords*
E*exact_match *pass *fail 0.00 *expected 'Paris', found 'Rome'*
E*as expected: response_health
E*response: 'Rome'
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return lambda *arguments: pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def section(result: pytest.RunResult) -> list[str]:
    """The lines of the summary, without the header."""
    text = "\n".join(result.outlines)
    _, found, rest = text.partition("= evaluations =")
    return re.split(r"\n=+ ", rest)[0].splitlines()[1:] if found else []


def test_a_failure_names_the_criteria_and_the_run_ends_with_a_table(
    pytester: pytest.Pytester, run: Run
) -> None:
    """Each way to write an answer is evaluated; under pytest-xdist the table is the same, whoever
    ran a test.
    """
    pytester.makepyfile(TESTS)
    alone = run()
    alone.assert_outcomes(passed=5, failed=1)
    alone.stdout.fnmatch_lines(FAILURE.strip().splitlines())
    table = section(alone)
    assert table[0] == "6 inputs"
    assert [
        line.split()[:2]
        for line in table
        if line.startswith(("names", "response", "exact", "overall"))
    ] == [
        ["response_health", "1.00"],
        ["names_the_city", "0.67"],
        ["exact_match", "0.00"],
        ["overall", "score"],
    ]
    assert "::test_wrong" in "".join(line.strip() for line in table)
    spread = run("-n", "2")
    spread.assert_outcomes(passed=5, failed=1)
    assert section(spread) == table


def test_a_run_that_does_not_use_it_pays_for_nothing(pytester: pytest.Pytester, run: Run) -> None:
    """Nothing of the package is imported but the plugin and its folder, whose names are imported late,
    and no table is printed; `-p no:agenteval` takes the fixtures away.
    """
    pytester.makepyfile(
        plain="import sys\n\ndef test_plain():\n    ours = {name for name in sys.modules if name[:9] == 'agenteval'}\n"
        "    lazy = {'agenteval_otel.runtime', 'agenteval_otel.runtime.lazy'}\n"
        "    plugin = {'agenteval_otel.testing', 'agenteval_otel.testing.pytest_plugin'}\n"
        "    assert ours <= {'agenteval_otel', *lazy, *plugin}\n",
        uses="def test_uses(assert_evaluation): ...\n",
    )
    unused = run("plain.py")
    unused.assert_outcomes(passed=1)
    assert section(unused) == []
    off = run("-p", "no:agenteval", "plain.py", "uses.py")
    off.assert_outcomes(passed=1, errors=1)
    off.stdout.fnmatch_lines("*fixture 'assert_evaluation' not found*")


JUDGED = """
def test_the_settings_judge(assert_evaluation):
    assert_evaluation({answer!r}, prompt="Hello?")

def test_a_judge_of_its_own(assert_evaluation, agenteval_judge, agenteval_settings):
    from agenteval_otel.evaluators import LLMJudge
    judge = agenteval_judge(agenteval_settings.evaluators[0].judge)
    warm = LLMJudge(criterion_name="warm", description="Is it warm?", scale="numeric", judge=judge,
                    threshold=0.5)
    assert_evaluation("Hello, dear.", evaluators=[warm])

def test_a_script(assert_evaluation, agenteval_judge):
    from agenteval_otel.evaluators import LLMJudge
    judge = agenteval_judge(replies=[{{"evidence": [], "reason": "curt", "score": 2}}])
    warm = LLMJudge(criterion_name="warm", description="Is it warm?", scale="likert5", threshold=4, judge=judge)
    assert_evaluation("No.", evaluators=[warm], expect={{"warm": False}})
"""


def test_judges_are_recorded_once(pytester: pytest.Pytester, run: Run) -> None:
    """`--agenteval-record` asks; later runs read the file, need no server, and fail where the
    question is another.
    """
    reply = json.dumps({"evidence": [], "reason": "kind words", "score": 1.0})
    pytester.makeini(
        "[pytest]\nagenteval_settings = agenteval.yaml\nagenteval_cassettes = recorded\n"
    )
    with ModelServer([reply]) as server:
        (pytester.path / "agenteval.yaml").write_text(
            "evaluators:\n  - type: LLMJudge\n    criterion_name: polite\n    description: Is it polite?\n    "
            "threshold: 0.5\n    scale: numeric\n    judge: {type: openai_compatible, model: m, api_key: k, "
            f"base_url: {server.url}/v1}}\n"
        )
        pytester.makepyfile(test_judged=JUDGED.format(answer="Hello, dear."))
        run("--agenteval-record").assert_outcomes(passed=3)
        assert len(server.requests) == 2
        run().assert_outcomes(passed=3)
        assert len(server.requests) == 2
    recorded = sorted(path.name for path in Path(pytester.path / "recorded").iterdir())
    assert recorded == ["settings.jsonl", "test_judged.jsonl"]
    pytester.makepyfile(test_judged=JUDGED.format(answer="Go away."))
    changed = run()
    changed.assert_outcomes(passed=2, failed=1)
    changed.stdout.fnmatch_lines(
        "E*polite *pass *failed *settings.jsonl has no verdict*--agenteval-record*"
    )


COMPARED = """
import os
import pytest
from agenteval_otel.evaluators import Contains

@pytest.mark.parametrize("number", range(30))
def test_answer(number, assert_evaluation):
    answer = "no" if number < int(os.environ["BAD"]) else "hello"
    hello = Contains(substrings=["hello"])
    assert_evaluation(answer, prompt=f"q{number}", evaluators=[hello], expect={"contains": 0.0})
"""


def test_a_significant_drop_blocks_and_noise_does_not(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tests pass; eleven of thirty answers got worse, also under pytest-xdist, then one did."""
    pytester.makepyfile(COMPARED)
    monkeypatch.setenv("BAD", "3")
    assert run("--agenteval-results", "main.jsonl").ret == 0
    for bad, options, code, outcome in (
        ("14", ["-n", "2"], 1, "1 significant drop (contains)"),
        ("4", [], 0, "no significant drop"),
    ):
        monkeypatch.setenv("BAD", bad)
        result = run("--agenteval-baseline", "main.jsonl", *options)
        result.assert_outcomes(passed=30)
        assert result.ret == code
        result.stdout.fnmatch_lines(
            ["*= evaluations against the baseline =*", f"Comparison: {outcome}"]
        )
    monkeypatch.setenv("BAD", "14")
    result = run("--agenteval-baseline", "main.jsonl", "-k", "13 or 20")
    result.stdout.fnmatch_lines(
        ["*contains: 1 score lower, 0 higher", "*only in main.jsonl: 28 inputs*"]
    )


def test_a_baseline_that_cannot_be_used_is_an_error(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not there, or of other tests."""
    pytester.makepyfile(COMPARED)
    monkeypatch.setenv("BAD", "0")
    result = run("--agenteval-baseline", "none.jsonl")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--agenteval-baseline: none.jsonl: cannot be read*"])
    run("--agenteval-results", "one.jsonl", "-k", "answer and 29")
    result = run("--agenteval-baseline", "one.jsonl", "-k", "28")
    assert result.ret == 4
    result.stdout.fnmatch_lines(["--agenteval-baseline: no input of one side is in the other*"])
