"""Trajectories: the tool calls of an answer or a conversation, in their order."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import (
    DefinedTools,
    ErrorRecovery,
    Evaluator,
    ExpectedCall,
    StepEfficiency,
    ToolLoops,
    TrajectoryMatch,
)
from agenteval_otel.models import EvaluationResult
from tests.evaluators.support import result_of

A, B, C = (
    {"name": "a", "arguments": {"x": 1}},
    {"name": "b"},
    {"name": "c", "arguments": {"x": 1, "y": 2}},
)


def of(evaluator: Evaluator, *calls: dict[str, Any], **fields: Any) -> EvaluationResult:
    return result_of(evaluator, "Done.", tool_calls=list(calls) or None, **fields)


@pytest.mark.parametrize(
    "evaluator", [ToolLoops(), ErrorRecovery(), StepEfficiency(), DefinedTools()]
)
def test_without_calls_there_is_nothing_to_score(evaluator: Evaluator) -> None:
    """An agent without tool calls is no efficient one."""
    with pytest.raises(EvaluationSkipped, match="no tool calls"):
        of(evaluator)


def with_result(call: dict[str, Any], result: Any) -> dict[str, Any]:
    return {**call, "result": result}


def test_equal_calls_with_equal_results_are_repeated() -> None:
    """Arguments are compared as values; what failed and then succeeded, and a state that changes,
    is no repetition.
    """
    result = of(
        ToolLoops(),
        with_result(A, "r"),
        B,
        with_result({"name": "a", "arguments": '{ "x": 1 }'}, "r"),
    )
    assert (result.score, result.passed, result.reason_code) == (
        pytest.approx(2 / 3),
        False,
        "repeated_call",
    )
    assert of(ToolLoops(max_repeats=1), A, B, A).passed is True
    assert of(ToolLoops(), with_result(A, "Error: busy"), with_result(A, "there")).score == 1.0
    assert of(ToolLoops(), with_result(A, "50 %"), with_result(A, "100 %")).score == 1.0
    assert (
        of(ToolLoops(), with_result(A, "Error: busy"), with_result(A, "Error: busy")).score == 0.5
    )


def test_calls_that_come_again_in_the_same_order_are_a_loop() -> None:
    """From three rounds on, whatever `max_repeats` allows; not where something else comes between."""
    result = of(ToolLoops(max_repeats=9), C, A, B, A, B, A, B)
    assert (result.reason_code, result.passed) == ("loop", False)
    assert "a > b came 3 times in a row" in (result.reasoning or "") or "b > a" in (
        result.reasoning or ""
    )
    assert result.metadata == {"repeated": 4, "rounds": 3}
    assert of(ToolLoops(max_repeats=9), A, A, A).reason_code == "loop"
    assert of(ToolLoops(max_repeats=9), A, B, A, B, C, A, B).passed is True
    assert of(ToolLoops(max_repeats=9, loop_from=2), A, B, A, B).passed is False


FAILED: list[dict[str, Any]] = [
    {"name": "a", "error": "timeout"},
    {"name": "a", "result": "Error: no seats"},
    {"name": "a", "result": "  *Traceback* (most recent call last)"},
    {"name": "a", "result": {"isError": True}},
    {"name": "a", "result": {"error": {"code": 4}}},
]


@pytest.mark.parametrize("failed", FAILED, ids=range(len(FAILED)))
def test_a_failed_call_has_recovered_when_a_later_one_of_its_purpose_succeeds(
    failed: dict[str, Any],
) -> None:
    """Of the same tool, or of one that does the same; an earlier success is none."""
    fine, other = {"name": "a", "result": "ok"}, {"name": "b", "result": "ok"}
    assert of(ErrorRecovery(), failed, other, fine).score == 1.0
    result = of(ErrorRecovery(), fine, failed, other)
    assert (result.score, result.passed, result.reason_code) == (0.0, False, "not_recovered")
    assert of(ErrorRecovery(same_purpose=[["a", "b"]]), fine, failed, other).score == 1.0
    assert of(
        ErrorRecovery(), failed, failed, fine, {**failed, "name": "b"}
    ).score == pytest.approx(2 / 3)
    with pytest.raises(EvaluationSkipped, match="no tool call failed"):
        of(ErrorRecovery(), fine, other)


def test_an_application_has_its_own_sign_of_failure() -> None:
    """A pattern in the result's text; values are searched as JSON."""
    evaluator = ErrorRecovery(error_pattern="status.*4[0-9]{2}")
    assert of(evaluator, {"name": "a", "result": {"status": 404}}).score == 0.0
    with pytest.raises(EvaluationSkipped):
        of(evaluator, {"name": "a", "result": {"status": 200}})


def test_steps_are_measured_against_what_the_task_takes() -> None:
    """By configuration, by the trajectory of the ground truth, else by the different calls that
    succeeded.
    """
    assert of(StepEfficiency(expected_steps=1), A, B).score == 0.5
    assert of(StepEfficiency(), A, B, C, ground_truth=[A, B]).score == pytest.approx(2 / 3)
    assert (
        of(StepEfficiency(), A, A, with_result(B, "Error: no"), with_result(B, "ok")).score == 0.5
    )
    assert of(StepEfficiency(expected_steps=5), A).passed is True
    result = of(StepEfficiency(expected_steps=1), A, B)
    assert (result.passed, result.reason_code, result.metadata) == (
        False,
        "too_many_calls",
        {"steps": 2, "expected": 1},
    )
    with pytest.raises(EvaluationSkipped, match="no calls are expected"):
        of(StepEfficiency(), A, ground_truth=[])


MATCHES: list[tuple[dict[str, Any], list[dict[str, Any]], float, str | None]] = [
    ({}, [A, B], 1.0, None),
    ({}, [B, A], 0.5, "wrong_order"),
    ({"order": "unordered"}, [B, A], 1.0, None),
    ({}, [A], 2 / 3, "missing_call"),
    ({}, [A, C, B], 0.8, "extra_call"),
    ({"allow_extra": True}, [A, C, B], 1.0, None),
    ({"allow_extra": True}, [B, C, A], 0.5, "wrong_order"),
    ({"tools": ["a"]}, [C, A, C], 1.0, None),
    ({}, [], 0.0, "missing_call"),
]


@pytest.mark.parametrize(("options", "calls", "score", "reason"), MATCHES, ids=range(len(MATCHES)))
def test_calls_are_matched_with_the_expected_ones(
    options: Any, calls: Any, score: float, reason: str | None
) -> None:
    """F1 of the calls, in order or not; with `allow_extra` the recall. Configured or of the ground
    truth: the same.
    """
    for evaluator, fields in (
        (TrajectoryMatch(expected=[ExpectedCall(**A), ExpectedCall(**B)], **options), {}),
        (TrajectoryMatch(**options), {"ground_truth": [A, B]}),
        (TrajectoryMatch(**options), {"ground_truth": {"tool_calls": [A, B]}}),
    ):
        result = of(evaluator, *calls, **fields)
        assert result.score == pytest.approx(score)
        assert (result.passed, result.reason_code) == (score == 1.0, reason)


def test_arguments_are_matched_as_strictly_as_is_asked_for() -> None:
    """Equal, equal as far as they are expected, or not at all; an expected call without arguments
    takes any.
    """
    more = {"name": "a", "arguments": {"x": 1.0, "extra": True}}
    scores = [
        of(TrajectoryMatch(expected=[ExpectedCall(**A)], arguments=how), more).score
        for how in ("exact", "expected")
    ]
    assert scores == [0.0, 1.0]
    assert (
        of(TrajectoryMatch(expected=[ExpectedCall(**C)], arguments="ignore"), {"name": "c"}).score
        == 1.0
    )
    assert of(TrajectoryMatch(expected=[ExpectedCall(name="a")]), more).score == 1.0
    for none in ({}, ""):
        nothing = [ExpectedCall(name="a", arguments=none)]
        assert of(TrajectoryMatch(expected=nothing, arguments="expected"), more).score == 1.0
        assert of(TrajectoryMatch(expected=nothing), more).score == 0.0
    assert (
        of(
            TrajectoryMatch(expected=[ExpectedCall(**A)]), {"name": "a", "arguments": {"x": True}}
        ).score
        == 0.0
    )


def test_the_largest_matching_is_taken() -> None:
    """A call that fits two expected ones does not take the only one that another call has."""
    wanted = [ExpectedCall(name="a"), ExpectedCall(name="a", arguments={"x": 1})]
    evaluator = TrajectoryMatch(expected=wanted, order="unordered")
    assert of(evaluator, A, {"name": "a", "arguments": {"x": 2}}).score == 1.0
    assert of(evaluator, {"name": "a", "arguments": {"x": 2}}, A).score == 1.0
    assert of(evaluator, A).score == pytest.approx(2 / 3)  # one call for both is one


def test_without_an_expected_trajectory_there_is_nothing_to_match() -> None:
    """A reference answer in words is none."""
    for ground_truth in (None, "Say hello.", [{"content": "x"}], {"text": "x"}):
        reason = "no ground truth" if ground_truth is None else "no expected trajectory"
        with pytest.raises(EvaluationSkipped, match=reason):
            of(TrajectoryMatch(), A, ground_truth=ground_truth)


TOOL = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
DEFINITIONS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "a", "parameters": TOOL}},
    {"name": "a", "input_schema": TOOL},
    {"name": "a", "inputSchema": TOOL},
    {"name": "a", "parameters": TOOL},
]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=["openai", "anthropic", "mcp", "plain"])
def test_calls_are_held_against_their_tools_definitions(definition: dict[str, Any]) -> None:
    """A tool that is not defined, a missing and an additional argument; a definition without a
    schema takes any.
    """
    config = {"tools": [definition, {"name": "b"}]}
    wrong = {"name": "a", "arguments": '{"x": "one", "y": 2}'}
    assert of(DefinedTools(), A, B, agent_config=config).score == 1.0
    result = of(DefinedTools(), A, B, wrong, C, agent_config=config)
    assert (result.score, result.passed, result.reason_code) == (0.5, False, "undefined_tool")
    assert (
        of(DefinedTools(), wrong, context={"tools": [definition]}).reason_code
        == "invalid_arguments"
    )
    assert of(DefinedTools(), {"name": "a"}, agent_config=config).score == 0.0
    assert of(DefinedTools(check_arguments=False), wrong, agent_config=config).score == 1.0
    with pytest.raises(EvaluationSkipped, match="no tool definitions"):
        of(DefinedTools(), A)


def test_a_definition_that_is_no_schema_is_a_failure() -> None:
    """Nobody can tell then: no score."""
    config = {"tools": [{"name": "a", "parameters": {"type": "strange"}}]}
    result = of(DefinedTools(), A, agent_config=config)
    assert (result.status, result.error_type) == ("failed", "invalid_schema")
