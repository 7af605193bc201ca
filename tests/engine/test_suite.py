"""Suite: evaluators in order with one verdict, and how a failing one reads in a test's report."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, Score, Suite, SuiteResult
from agenteval_otel.errors import ConfigurationError, EvaluationSkipped
from agenteval_otel.evaluators import Contains, CostWithin, Func, KeywordCoverage, RuleBased
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.offline.suite import SuiteScore
from tests.testing.doubles import Thinking

ANSWER = EvaluationInput(response="It is due on Monday.")


def stub(
    name: str, *, passed: bool | None = None, value: Any = 1.0, error: Exception | None = None
) -> Func:
    def answer(_: EvaluationInput) -> Score:
        if error is not None:
            raise error
        return Score(value=value, passed=passed, reasoning=f"because of {name}")

    return Func(name=name, function=answer)


BROKEN = stub("broken", error=ValueError("down"))
ABSENT = stub("absent", error=EvaluationSkipped("nothing to say"))


@pytest.mark.parametrize(
    ("evaluators", "passed", "value", "reasoning"),
    [
        ([], True, None, "0 of 0 passed"),
        ([stub("a"), stub("b", passed=True, value=0.5)], True, 0.75, "2 of 2 passed"),
        ([stub("a", passed=False, value=0), stub("b")], False, 0.5, "1 of 2 passed. Failed: a"),
        ([stub("a"), BROKEN, stub("c")], False, 1.0, "1 of 2 passed. Broke: broken. Not run: c"),
        (
            [CostWithin(max_cost_usd=1), ABSENT, stub("c")],
            True,
            1.0,
            "1 of 1 passed. Skipped: cost_within, absent",
        ),
        (
            [CostWithin(max_cost_usd=1), ABSENT],
            False,
            None,
            "nothing was scored. Skipped: cost_within, absent",
        ),
    ],
    ids=[
        "nothing",
        "all pass",
        "a failure goes on",
        "an error stops it",
        "skips",
        "nothing was scored",
    ],
)
@pytest.mark.filterwarnings("ignore:the suite 'suite' has no evaluators")
def test_a_suite_passes_where_nothing_failed_or_broke(
    evaluators: list[Any], passed: bool, value: float | None, reasoning: str
) -> None:
    """Its value is the mean of the scores; errors and skips do not enter it."""
    result = Suite(evaluators=evaluators).run_sync(ANSWER)
    assert (bool(result), result.value, result.reasoning) == (passed, value, reasoning)
    assert reasoning in str(result)
    if passed:
        assert result.check() is result


def test_it_can_go_on_behind_errors() -> None:
    """With `continue_on_error` every evaluator runs, and the suite has failed all the same."""
    result = Suite(evaluators=[BROKEN, stub("c"), ABSENT], continue_on_error=True).run_sync(ANSWER)
    assert not result
    assert result.scores == {"c": SuiteScore(passed=True, value=1.0, reasoning="because of c")}
    assert (result.errors, result.not_run) == ({"broken": "ValueError: down"}, ())
    assert result.skipped == {"absent": "nothing to say"}
    assert [result.evaluator_type for result in result.results] == ["Func"] * 3


def test_two_of_one_name_are_refused() -> None:
    """Scores are told apart by name: a second evaluator for one is refused when the suite is made."""
    with pytest.raises(
        ConfigurationError, match=r"evaluators\[0\] has the name 'contains' already"
    ) as caught:
        Suite(evaluators=[Contains(substrings=["a"]), stub("b"), Contains(substrings=["c"])])
    assert caught.value.path == "evaluators[2]"
    two = [Contains(substrings=["due"]), Contains(substrings=["on"], criterion_name="on")]
    assert Suite(evaluators=two).run_sync(ANSWER)


def test_what_is_no_input_is_refused() -> None:
    """By an error that stands for itself: a test's report would show what is behind it, such as a
    missing loop. A suite without evaluators is only warned of: others build theirs from what they
    find.
    """
    with pytest.warns(UserWarning, match="the suite 'suite' has no evaluators: it always passes"):
        empty = Suite()
    for suite in (Suite(evaluators=[stub("a")]), empty):
        with pytest.raises(
            ConfigurationError, match=r"expected an EvaluationInput.*, found str"
        ) as caught:
            suite.run_sync("just text")  # type: ignore[arg-type]
        assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "wrong",
    [{"evaluators": "Contains"}, {"evaluators": [7]}, {"evaluator": []}, {"evaluators": None}],
)
def test_wrong_suites_are_refused(wrong: dict[str, Any]) -> None:
    """What is no list of evaluators is refused, and what a suite does not know, however it is
    built.
    """
    for build in (
        lambda: Suite(**wrong),
        lambda: Suite.model_validate(wrong),
        lambda: Suite.model_validate_json(json.dumps(wrong)),
    ):
        with pytest.raises(ConfigurationError, match="evaluator"):
            build()


def test_everything_that_stands_for_an_evaluator_runs() -> None:
    """Functions, mappings, and evaluators of every execution, one after the other on one loop."""

    def short(evaluation_input: EvaluationInput) -> bool:
        return len(evaluation_input.response_text) < 50

    exact = {"type": "ExactMatch", "expected": "It is due on Monday."}
    suite = Suite(name="all", evaluators=[short, exact, Thinking(threshold=0.5), "ResponseHealth"])
    outcome = asyncio.run(suite.run(ANSWER))
    assert outcome.check().name == "all"
    assert list(outcome.scores) == ["short", "exact_match", "thinking", "response_health"]


def test_without_a_verdict_only_the_best_score_passes() -> None:
    """A fraction without a threshold fails below 1, and says why; with a threshold it is held to
    that.
    """

    def coverage(*keywords: str, **fields: Any) -> SuiteResult:
        evaluator = KeywordCoverage(criterion_name="kw", expected_keywords=keywords, **fields)
        return Suite(evaluators=[evaluator]).run_sync(ANSWER)

    assert coverage("due", "Monday")
    assert "without a threshold" in str(coverage("due", "Sunday"))
    assert coverage("due", "Sunday", threshold=0.5)
    assert "threshold 0.75" in str(coverage("due", "Sunday", threshold=0.75))


def test_several_results_of_one_name_are_one_score() -> None:
    """Rules for one criterion pass together, with the mean of their values and the reasons of those
    that failed.
    """
    rules = [{"criterion": "form", "type": "length", "max": most} for most in (100, 5, 3)]
    result = Suite(evaluators=[RuleBased.load({"rules": rules})]).run_sync(ANSWER)
    assert (result.scores["form"].passed, result.scores["form"].value) == (
        False,
        pytest.approx(1 / 3),
    )
    assert (result.scores["form"].reasoning or "").count("failed") == 2


def test_the_inputs_criteria_are_used_where_they_fit() -> None:
    """A criterion of the input replaces the evaluator's own; one that no evaluator has is not asked
    for.
    """
    criteria = (
        EvaluationCriteria(name="contains", scale="numeric", threshold=0.5),
        EvaluationCriteria(name="other"),
    )
    requests = EvaluationInput(response="a", criteria=criteria)
    assert Suite(evaluators=[Contains(substrings=["a", "b"]), stub("c")]).run_sync(requests)


def test_the_json_has_the_originals_names() -> None:
    """``pass``, ``value`` and ``reason`` by alias, scores and errors by name; what was written is
    read again.
    """
    result = Suite(evaluators=[stub("a"), BROKEN]).run_sync(ANSWER)
    shape = json.loads(result.model_dump_json(by_alias=True))
    assert shape == {
        "name": "suite",
        "pass": False,
        "value": 1.0,
        "reason": "1 of 2 passed. Broke: broken",
        "notRun": [],
        "scores": {"a": {"pass": True, "value": 1.0, "reason": "because of a"}},
        "errors": {"broken": "ValueError: down"},
        "skipped": {},
    }
    again = SuiteResult.model_validate(shape)
    assert again.scores == result.scores
    assert str(again) == str(result)


def test_it_reads_well() -> None:
    """A line for each evaluator in the order in which they ran, with verdict, value and reason."""
    suite = Suite(
        name="tracking",
        continue_on_error=True,
        evaluators=[stub("fine"), Contains(substrings=["due", "Tuesday"]), BROKEN, ABSENT],
    )
    result = suite.run_sync(ANSWER)
    assert str(result) == textwrap.dedent("""\
        tracking failed: 1 of 3 passed. Failed: contains. Broke: broken. Skipped: absent
          pass    fine       1.00
          FAIL    contains   0.50  1 of 2 found, missing: 'Tuesday'
          ERROR   broken           ValueError: down
          skip    absent           nothing to say""")
    assert repr(result) == (
        "<SuiteResult 'tracking' failed: broken broke (ValueError: down), "
        "contains 0.50 (1 of 2 found, missing: 'Tuesday')>"
    )
    assert repr(suite) == "<Suite 'tracking': fine, contains, broken, absent>"
    with pytest.raises(AssertionError, match="tracking failed"):
        result.check()


def test_a_bare_assertion_shows_one_line() -> None:
    """A single failure has it for itself; with many of them, names and values, at last cut."""
    alone = Suite(evaluators=[stub("judge", error=ValueError("x" * 100))]).run_sync(ANSWER)
    assert "x" * 100 in repr(alone)
    many = Suite(
        evaluators=[stub(f"evaluator_{index}", passed=False, value=0.999) for index in range(40)]
    )
    line = repr(many.run_sync(ANSWER))
    assert line.startswith("<SuiteResult 'suite' failed: evaluator_0 0.99, evaluator_1 0.99")
    assert len(line) < 230


@pytest.mark.slow
def test_pytest_reports_a_failing_suite(tmp_path: Path) -> None:
    """In a real run of pytest the bare assertion names what failed, and `check` shows the lines at
    the test's own.
    """
    (tmp_path / "test_answers.py").write_text(
        textwrap.dedent("""
            from agenteval_otel import EvaluationInput, Suite
            from agenteval_otel.evaluators import Contains, ExactMatch

            EVALUATORS = [Contains(substrings=["due", "Tuesday"]), ExactMatch(expected="a")]
            SUITE = Suite(name="answers", evaluators=EVALUATORS)
            ANSWER = EvaluationInput(response="due")

            def test_bare():
                assert SUITE.run_sync(ANSWER)

            def test_checked():
                SUITE.run_sync(ANSWER).check()
            """)
    )
    # The project's own configuration has nothing to say to a user's tests.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert "2 failed" in done.stdout, done.stdout + done.stderr
    assert (
        "E       AssertionError: assert <SuiteResult 'answers' failed: contains 0.50 (1 of 2 found"
        in done.stdout
    )
    assert "E         FAIL    contains      0.50  1 of 2 found, missing: 'Tuesday'" in done.stdout
    assert "suite_result.py" not in done.stdout
