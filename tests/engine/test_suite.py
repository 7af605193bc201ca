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
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel import EvaluationInput, Score, Suite, SuiteResult
from agenteval_otel.engine.suite import SuiteScore
from agenteval_otel.errors import ConfigurationError, EvaluationSkipped
from agenteval_otel.evaluators import Contains, CostWithin, Func, KeywordCoverage, RuleBased
from agenteval_otel.models import EvaluationCriteria
from tests.testing.doubles import Thinking

ANSWER = EvaluationInput(response="It is due on Monday.")


def stub(name: str, *, passed: bool | None = None, value: Any = 1.0, error: Exception | None = None) -> Func:
    def answer(_: EvaluationInput) -> Score:
        if error is not None:
            raise error
        return Score(value=value, passed=passed, reasoning=f"because of {name}")

    return Func(name=name, function=answer)


BROKEN = stub("broken", error=ValueError("down"))
ABSENT = stub("absent", error=EvaluationSkipped("nothing to say"))


def test_all_pass() -> None:
    """Every verdict is positive: the suite is true, its value the mean of the values."""
    actual = Suite(evaluators=[stub("a"), stub("b", passed=True, value=0.5)]).run_sync(ANSWER)
    assert actual
    assert actual.check() is actual
    assert (actual.value, actual.reasoning) == (0.75, "2 of 2 passed")
    assert actual.scores["b"] == SuiteScore(passed=True, value=0.5, reasoning="because of b")
    assert [result.evaluator_type for result in actual.results] == ["Func", "Func"]


def test_an_empty_suite_passes() -> None:
    """Nothing that could fail: true, and without a value."""
    result = Suite().run_sync(ANSWER)
    assert result
    assert (result.value, result.scores, result.errors, str(result)) == (None, {}, {}, "suite passed: 0 of 0 passed")


def test_a_failure_does_not_stop_it() -> None:
    """What comes behind a failure runs, and the suite has failed."""
    result = Suite(evaluators=[stub("a", passed=False, value=0), stub("b")]).run_sync(ANSWER)
    assert not result
    assert list(result.scores) == ["a", "b"]
    assert (result.value, result.errors, result.not_run) == (0.5, {}, ())


def test_an_error_stops_it() -> None:
    """What comes behind does not run; the error has no score, and does not enter the value."""
    result = Suite(evaluators=[stub("a"), BROKEN, stub("c")]).run_sync(ANSWER)
    assert not result
    assert (list(result.scores), result.errors, result.not_run) == (["a"], {"broken": "ValueError: down"}, ("c",))
    assert (result.value, result.reasoning) == (1.0, "1 of 2 passed; broke: broken; not run: c")


def test_it_can_go_on_behind_errors() -> None:
    """With `continue_on_error` every evaluator runs, and the suite has failed all the same."""
    result = Suite(evaluators=[BROKEN, stub("c")], continue_on_error=True).run_sync(ANSWER)
    assert not result
    assert (list(result.scores), list(result.errors), result.not_run) == (["c"], ["broken"], ())


def test_skips_neither_pass_nor_fail() -> None:
    """Who has nothing to say is listed, and changes neither verdict nor value."""
    result = Suite(evaluators=[CostWithin(max_cost_usd=1), ABSENT, stub("c")]).run_sync(ANSWER)
    assert result
    assert result.skipped == {"cost_within": "cost not known", "absent": "nothing to say"}
    assert result.value == 1.0


def test_two_of_one_name_are_refused() -> None:
    """Scores are told apart by name: a second evaluator for one is refused when the suite is made."""
    with pytest.raises(ConfigurationError, match=r"evaluators\[0\] has the name 'contains' already") as caught:
        Suite(evaluators=[Contains(substrings=["a"]), stub("b"), Contains(substrings=["c"])])
    assert caught.value.path == "evaluators[2]"
    two = [Contains(substrings=["due"]), Contains(substrings=["on"], criterion_name="on")]
    assert Suite(evaluators=two).run_sync(ANSWER)


@pytest.mark.parametrize("given", ["just text", {"response": "a"}, None])
def test_what_is_no_input_is_refused(given: Any) -> None:
    """Whatever is not an input is named, as `run_evaluation` does; an empty suite does so too."""
    for suite in (Suite(evaluators=[stub("a")]), Suite()):
        with pytest.raises(ConfigurationError, match="expected an EvaluationInput, found"):
            suite.run_sync(given)


def test_an_error_stands_for_itself() -> None:
    """What is raised has nothing of ours behind it, such as that there was no loop: a test's report would show it."""
    with pytest.raises(ConfigurationError) as caught:
        Suite().run_sync("just text")  # type: ignore[arg-type]
    assert caught.value.__context__ is None


def test_a_suite_that_scored_nothing_has_failed() -> None:
    """Where every evaluator skips, nothing was tested: no green test comes of it."""
    result = Suite(evaluators=[CostWithin(max_cost_usd=1), ABSENT]).run_sync(ANSWER)
    assert not result
    assert result.value is None
    assert result.reasoning == "nothing was scored; skipped: cost_within, absent"
    assert "nothing was scored" in repr(result)


@pytest.mark.parametrize(
    "wrong", [{"evaluators": "Contains"}, {"evaluators": [7]}, {"evaluator": []}, {"evaluators": None}]
)
def test_wrong_suites_are_refused(wrong: dict[str, Any]) -> None:
    """What is no list of evaluators is refused, and what a suite does not know, however it is built."""
    for build in (lambda: Suite(**wrong), lambda: Suite.model_validate(wrong),
                  lambda: Suite.model_validate_json(json.dumps(wrong))):  # fmt: skip
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

    async def inside() -> bool:
        return bool(suite.run_sync(ANSWER))

    assert asyncio.run(inside())


def test_without_a_verdict_only_the_best_score_passes() -> None:
    """A fraction without a threshold fails below 1, and says why; with a threshold it is held to that."""

    def coverage(*keywords: str, **fields: Any) -> SuiteResult:
        return Suite(evaluators=[KeywordCoverage(criterion_name="kw", expected_keywords=keywords, **fields)]).run_sync(
            ANSWER
        )

    assert coverage("due", "Monday")
    assert "without a threshold" in str(coverage("due", "Sunday"))
    assert coverage("due", "Sunday", threshold=0.5)
    assert "threshold 0.75" in str(coverage("due", "Sunday", threshold=0.75))


def test_several_results_of_one_name_are_one_score() -> None:
    """Rules for one criterion pass together, with the mean of their values and the reasons of those that failed."""
    rules = [{"criterion": "form", "type": "length", "max": most} for most in (100, 5, 3)]
    result = Suite(evaluators=[RuleBased.load({"rules": rules})]).run_sync(ANSWER)
    assert (result.scores["form"].passed, result.scores["form"].value) == (False, pytest.approx(1 / 3))
    assert (result.scores["form"].reasoning or "").count("failed") == 2


def test_the_inputs_criteria_are_used_where_they_fit() -> None:
    """A criterion of the input replaces the evaluator's own; one that no evaluator has is not asked for."""
    criteria = (EvaluationCriteria(name="contains", scale="numeric", threshold=0.5), EvaluationCriteria(name="other"))
    requests = EvaluationInput(response="a", criteria=criteria)
    assert Suite(evaluators=[Contains(substrings=["a", "b"]), stub("c")]).run_sync(requests)


def test_the_json_has_the_originals_names() -> None:
    """``pass``, ``value`` and ``reason`` by alias, scores and errors by name; what was written is read again."""
    result = Suite(evaluators=[stub("a"), BROKEN]).run_sync(ANSWER)
    shape = json.loads(result.model_dump_json(by_alias=True))
    assert shape == {
        "name": "suite", "pass": False, "value": 1.0, "reason": "1 of 2 passed; broke: broken", "notRun": [],
        "scores": {"a": {"pass": True, "value": 1.0, "reason": "because of a"}},
        "errors": {"broken": "ValueError: down"}, "skipped": {},
    }  # fmt: skip
    again = SuiteResult.model_validate(shape)
    assert again.scores == result.scores
    assert str(again) == str(result)


def test_it_reads_well() -> None:
    """A line for each evaluator in the order in which they ran, with verdict, value and reason."""
    suite = Suite(
        name="tracking", continue_on_error=True,
        evaluators=[stub("fine"), Contains(substrings=["due", "Tuesday"]), BROKEN, ABSENT],
    )  # fmt: skip
    result = suite.run_sync(ANSWER)
    assert str(result) == textwrap.dedent("""\
        tracking failed: 1 of 3 passed; failed: contains; broke: broken; skipped: absent
          pass    fine       1.00
          FAIL    contains   0.50  1 of 2 found; missing: 'Tuesday'
          ERROR   broken           ValueError: down
          skip    absent           nothing to say""")
    assert repr(result) == (
        "<SuiteResult 'tracking' failed: broken broke (ValueError: down); "
        "contains 0.50 (1 of 2 found; missing: 'Tuesday')>"
    )
    assert repr(suite) == "<Suite 'tracking': fine, contains, broken, absent>"
    with pytest.raises(AssertionError, match="tracking failed"):
        result.check()


def test_a_single_failure_has_the_line_for_itself() -> None:
    """The one thing that is wrong is told as far as the line goes."""
    result = Suite(evaluators=[stub("judge", error=ValueError("x" * 100))]).run_sync(ANSWER)
    assert "x" * 100 in repr(result)


def test_many_failures_still_fit_into_a_line() -> None:
    """A bare assertion shows one line: with much to say the names and values, at last cut."""
    result = Suite(evaluators=[stub(f"evaluator_{index}", passed=False, value=0.999) for index in range(40)]).run_sync(
        ANSWER
    )
    assert repr(result).startswith("<SuiteResult 'suite' failed: evaluator_0 0.99, evaluator_1 0.99")
    assert len(repr(result)) < 230


def test_pytest_reports_a_failing_suite(tmp_path: Path) -> None:
    """In a real run of pytest the bare assertion names what failed, and `check` shows the lines at the test's own."""
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

            def test_passing():
                assert Suite(evaluators=[Contains(substrings=["due"])]).run_sync(ANSWER)
            """)
    )
    # The project's own configuration has nothing to say to a user's tests.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "E       AssertionError: assert <SuiteResult 'answers' failed: contains 0.50 (1 of 2 found" in done.stdout
    assert "E         FAIL    contains      0.50  1 of 2 found; missing: 'Tuesday'" in done.stdout
    assert "suite_result.py" not in done.stdout


VERDICTS = st.lists(st.tuples(st.sampled_from(["pass", "fail", "skip", "break"]), st.floats(0, 1)), max_size=5)


@settings(deadline=None)
@given(verdicts=VERDICTS, continues=st.booleans())
def test_any_suite_adds_up(verdicts: list[tuple[str, float]], continues: bool) -> None:
    """Every name stands in exactly one place, the value is a mean, and the verdict follows from the parts."""
    errors = {"skip": EvaluationSkipped("no"), "break": ValueError("no")}
    suite = Suite(
        continue_on_error=continues,
        evaluators=[stub(str(index), passed=word == "pass", value=value, error=errors.get(word))
                    for index, (word, value) in enumerate(verdicts)],
    )  # fmt: skip
    result = suite.run_sync(ANSWER)
    places = [*result.scores, *result.errors, *result.skipped, *result.not_run]
    assert sorted(places) == sorted(str(index) for index in range(len(verdicts)))
    tested = not verdicts or any(word != "skip" for word, _ in verdicts)
    assert result.passed is (tested and not any(word in ("fail", "break") for word, _ in verdicts))
    assert continues is False or result.not_run == ()
    assert result.value is None or 0.0 <= result.value <= 1.0
    assert (result.value is None) is (not result.scores)
    assert len(str(result).splitlines()) == 1 + len(verdicts)
