"""ToolUsage: calls wherever they are told of, rules on them, and checks of their arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agenteval_otel.components.loading import resolve
from agenteval_otel.engine.execution.wire import NotPortable, load_evaluator, serialize_evaluator
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import Evaluator, ToolUsage
from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from tests.evaluators.support import results_of

SEARCH = {
    "name": "search",
    "arguments": {"query": "Paris", "limit": 5, "user": {"city": "Lyon"}, "tags": ["a", 1]},
}


def usage(**rule: Any) -> ToolUsage:
    return ToolUsage.load({"rules": [{"criterion_name": "T", **rule}]})


def run(
    evaluator: ToolUsage,
    *calls: dict[str, Any],
    scale: str = "binary",
    **fields: Any,
) -> list[EvaluationResult]:
    criteria = [
        EvaluationCriteria(name=criterion.name, scale=scale) for criterion in evaluator.criteria()
    ]
    return results_of(evaluator, "r", criteria=criteria, tool_calls=list(calls) or None, **fields)


def only(evaluator: ToolUsage, *calls: dict[str, Any], **fields: Any) -> EvaluationResult:
    (result,) = run(evaluator, *calls, **fields)
    return result


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def has_query(arguments: Any) -> bool:
    return "query" in arguments


def test_what_was_not_said_stays_unsaid_in_a_dump() -> None:
    """That an argument has to be null survives a dump, and that nothing is said of its value does
    too.
    """
    evaluator = usage(expected_tool_name="s", argument_checks={"a": {"equals": None}, "b": {}})
    for dump in (
        evaluator.model_dump(mode="json"),
        evaluator.model_dump(mode="json", by_alias=True),
    ):
        again = resolve(Evaluator, dump)
        assert isinstance(again, ToolUsage)
        assert only(again, call("s", a=None, b=1)).score is True
        assert only(again, call("s", a=1, b=1)).score is False
        assert only(again, call("s", a=None)).score is False


def test_values_of_secret_arguments_stay_hidden() -> None:
    """What an argument named like a secret has to be is shown to nobody; that something is expected
    of it is.
    """
    evaluator = usage(
        expected_tool_name="s", argument_checks={"api_key": {"equals": "sk-17", "type": "string"}}
    )
    dump = evaluator.model_dump(mode="json")
    assert "sk-17" not in str(dump) + repr(evaluator)
    assert '"type": "string"' in str(dump)
    again = load_evaluator(json.loads(json.dumps(serialize_evaluator(evaluator))))
    assert isinstance(again, ToolUsage)
    assert only(again, call("s", api_key="sk-17")).score is True


def test_a_call_among_the_parts_of_a_message_is_seen() -> None:
    """As Anthropic's client writes it, beside text."""
    call_part = {"type": "tool_use", "id": "t1", "name": "search", "input": {"query": 1}}
    said = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call_part]}
    evaluator = usage(expected_tool_name="search", argument_checks={"query": {"equals": 1}})
    assert only(evaluator, messageHistory=[said]).score is True


def test_other_messages_and_turns_count_on_request() -> None:
    """What stands in a user's message is no call; with ``toolCalls`` earlier turns do not count."""
    rules = [{"criterion_name": "T", "expected_tool_name": "search", "is_required": True}]
    alone = ToolUsage.load({"rules": rules, "tool_data_source": "toolCalls"})
    assert (
        only(alone, messageHistory=[{"role": "assistant", "tool_calls": [SEARCH]}]).score is False
    )
    assert only(alone, SEARCH).score is True
    of_user = [{"role": "user", "tool_calls": [SEARCH]}]
    assert only(ToolUsage.load({"rules": rules}), messageHistory=of_user).score is False


def test_the_answers_own_calls_complete_the_history() -> None:
    """A monitored answer's calls count beside those of earlier turns, and once where the history
    tells of them too.
    """
    reported = [{"role": "assistant", "tool_calls": [{**SEARCH, "id": "1"}, {**SEARCH, "id": "2"}]}]
    twice = usage(expected_tool_name="search", min_calls=2, max_calls=2)
    assert only(twice, {**SEARCH, "id": "2"}, messageHistory=reported).score is True
    assert only(twice, SEARCH, messageHistory=reported).score is True
    assert (
        only(twice, {**SEARCH, "id": "3"}, messageHistory=reported).reason_code == "too_many_calls"
    )
    assert (
        only(twice, SEARCH, SEARCH, SEARCH, messageHistory=reported).reason_code == "too_many_calls"
    )
    nameless = [{"role": "assistant", "tool_calls": [SEARCH, SEARCH]}]
    assert only(twice, {**SEARCH, "id": "1"}, messageHistory=nameless).score is True


def test_the_context_is_a_source() -> None:
    """Entries need a tool's name and arguments that are an object, a list or null; others are
    passed over.
    """
    rules = [{"criterionName": "T", "expectedToolName": "s", "minCalls": 2, "maxCalls": 2}]
    evaluator = ToolUsage.load({"rules": rules, "toolDataSource": "context"})
    calls: list[Any] = [
        {"toolName": "s", "args": {}},
        {"toolName": "s", "args": None},
        {"toolName": "s"},
        {"toolName": "s", "args": 5},
        {"toolName": 5, "args": {}},
        None,
        "s",
    ]
    assert only(evaluator, context={"toolCalls": calls}).score is True
    assert only(evaluator, context={"toolCalls": "s"}).reason_code == "tool_not_called"
    assert only(evaluator).reason_code == "tool_not_called"


RULES: dict[str, tuple[dict[str, Any], list[str], str | None]] = {
    "required": ({"expected_tool_name": "a", "is_required": True}, ["b"], "tool_not_called"),
    "optional": ({"expected_tool_name": "a"}, ["b"], None),
    "case counts": ({"expected_tool_name": "a", "is_required": True}, ["A"], "tool_not_called"),
    "too few": ({"expected_tool_name": "a", "min_calls": 2}, ["a"], "too_few_calls"),
    "none of some": ({"expected_tool_name": "a", "min_calls": 2}, ["b"], "tool_not_called"),
    "too many": ({"expected_tool_name": "a", "max_calls": 1}, ["a", "a"], "too_many_calls"),
    "never": ({"expected_tool_name": "a", "max_calls": 0}, ["b"], None),
    "all tools, too many": ({"max_calls": 2}, ["a", "b", "c"], "too_many_calls"),
    "all tools, too few": ({"min_calls": 1}, [], "too_few_calls"),
    "all tools, enough": ({"min_calls": 1, "max_calls": 2}, ["a", "b"], None),
    "forbidden": ({"forbidden_tools": ["x", "y"]}, ["a", "y"], "forbidden_tool"),
    "none forbidden": ({"forbidden_tools": ["x"]}, [], None),
    "in order": ({"sequence": ["a", "c"]}, ["a", "b", "c"], None),
    "wrong order": ({"sequence": ["a", "c"]}, ["c", "a"], "wrong_order"),
    "not to the end": ({"sequence": ["a", "a"]}, ["a", "b"], "wrong_order"),
    "order and tool": ({"sequence": ["a", "b"], "expected_tool_name": "c", "is_required": True}, ["a", "b"],
                       "tool_not_called"),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "names", "reason"), RULES.values(), ids=RULES)
def test_rules(rule: dict[str, Any], names: list[str], reason: str | None) -> None:
    """Required, optional, forbidden tools, their number and their order."""
    result = only(usage(**rule), *(call(name) for name in names))
    assert (result.score, result.passed, result.reason_code) == (
        reason is None,
        reason is None,
        reason,
    )


@pytest.mark.parametrize(
    ("checked", "valid", "passed"),
    [
        ("first", [1, 0], True),
        ("first", [0, 1], False),
        ("any", [0, 1], True),
        ("any", [0, 0], False),
        ("all", [1, 0], False),
        ("all", [1, 1], True),
    ],
)
def test_which_calls_are_checked(checked: str, valid: list[int], passed: bool) -> None:
    """The first call's arguments as in the original, any call's, or all calls'."""
    evaluator = usage(
        expected_tool_name="s", checked_calls=checked, argument_checks={"v": {"equals": 1}}
    )
    result = only(evaluator, *(call("s", v=value) for value in valid))
    assert result.score is passed
    assert result.reason_code == (None if passed else "invalid_arguments")


ANSWERS: list[tuple[Any, bool, str]] = [
    (True, True, ""),
    (False, False, "refused"),
    ((False, "too far"), False, "too far"),
    ((True, None), True, ""),
    ({"isValid": True}, True, ""),
    ({"is_valid": False, "reason": "empty"}, False, "empty"),
    ({"isValid": False}, False, "refused"),
]


@pytest.mark.parametrize(("answer", "passed", "reason"), ANSWERS)
def test_functions_answer_in_several_forms(answer: Any, passed: bool, reason: str) -> None:
    """A boolean, a boolean with a reason, or the original's mapping; the function sees the
    arguments as a value.
    """
    seen: list[Any] = []

    def check(arguments: Any) -> Any:
        seen.append(arguments)
        return answer

    evaluator = usage(expected_tool_name="s", argumentChecks=check)
    result = only(evaluator, {"name": "s", "arguments": '{"a": [1]}'})
    assert seen == [{"a": [1]}]
    assert result.score is passed
    assert reason in (result.reasoning or "")
    assert evaluator.preferred_execution() is None


@pytest.mark.parametrize("answer", [None, 1, "yes", {}, {"isValid": "no"}, (1, 2, 3)])
def test_what_is_no_answer_is_a_failure(answer: Any) -> None:
    """An answer that is none makes no verdict up."""
    result = only(
        usage(expected_tool_name="s", argument_checks=lambda arguments: answer), call("s")
    )
    assert (result.status, result.error_type, result.raised) == ("failed", "invalid_check", False)


def test_a_check_may_have_nothing_to_say() -> None:
    """A function that abstains skips its rule; one whose error cannot be read still fails only its
    own.
    """

    class Unreadable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def raising(error: Exception) -> Callable[[Any], bool]:
        def check(arguments: Any) -> bool:
            raise error

        return check

    rules = [
        {"criterion_name": name, "expected_tool_name": "s", "argument_checks": raising(error)}
        for name, error in (("a", EvaluationSkipped("no tariff")), ("b", Unreadable()))
    ]
    skipped, failed = run(ToolUsage.load({"rules": rules}), call("s"))
    assert (skipped.status, skipped.skip_reason, skipped.error_type) == (
        "skipped",
        "no tariff",
        None,
    )
    assert (failed.status, failed.error_type) == ("failed", "Unreadable")


PREDICATES: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({}, [0], []),
    ({"present": True}, [None], []),
    ({"present": False}, [], [1]),
    ({"type": "string"}, ["a"], [1]),
    ({"type": "number"}, [1.5], [True]),
    ({"type": "integer"}, [2.0], [2.5, float("inf")]),
    ({"type": "boolean"}, [], [0]),
    ({"type": "array"}, [[1]], []),
    ({"type": "object"}, [{}], []),
    ({"type": "null"}, [None], []),
    ({"type": ["string", "null"]}, [None], [1]),
    ({"equals": 1}, [1.0], [True]),
    ({"equals": {"a": [1]}}, [{"a": [1]}], [{"a": [True]}]),
    ({"equals": None}, [None], [0]),
    ({"one_of": ["a", 1]}, ["a"], [True]),
    ({"min": 1, "max": 5}, [5], [0.5, 6, "3", float("nan")]),
    ({"min": 0}, [], [True, float("nan")]),
    ({"max": 5}, [], [float("nan")]),
    ({"min_length": 2}, [[1, 2]], ["é"]),
    ({"max_length": 1}, ["é"], [7, [1, 2]]),
    ({"contains": "ari"}, ["Paris"], [7]),
    ({"contains": 1}, [[1]], [["1"]]),
    ({"pattern": "^P"}, ["Paris"], ["paris", 1]),
    ({"not_empty": True}, ["a", 0], [" \n", [], None]),
    ({"optional": True, "type": "string"}, [], [1]),
]


@pytest.mark.parametrize(("predicate", "fitting", "wrong"), PREDICATES)
def test_predicates(predicate: dict[str, Any], fitting: list[Any], wrong: list[Any]) -> None:
    """What a file can say of an argument: presence, type, value, bounds, content."""
    evaluator = usage(expected_tool_name="s", argument_checks={"a": predicate})
    for value in fitting:
        assert only(evaluator, call("s", a=value)).score is True, value
    for value in wrong:
        assert only(evaluator, call("s", a=value)).score is False, value
    assert evaluator.resolved_execution == "inline"


def test_arguments_that_are_not_there() -> None:
    """They fail, unless they are optional or must not be there; so do arguments that are no object."""
    for predicate, passed in (
        ({}, False),
        ({"optional": True, "min": 1}, True),
        ({"present": False}, True),
    ):
        evaluator = usage(expected_tool_name="s", argument_checks={"a": predicate})
        for arguments in ({}, None, "text", [1]):
            assert only(evaluator, {"name": "s", "arguments": arguments}).score is passed


def test_paths_lead_inside_of_arguments() -> None:
    """``user.city`` is the city of the user, unless an argument has this very name."""
    evaluator = usage(
        expected_tool_name="search", argument_checks={"user.city": {"equals": "Lyon"}}
    )
    assert only(evaluator, SEARCH).score is True
    assert only(evaluator, {"name": "search", "arguments": {"user.city": "Lyon"}}).score is True
    items = usage(expected_tool_name="search", argument_checks={"items.1.id": {"equals": 2}})
    assert only(items, call("search", items=[{"id": 1}, {"id": 2}])).score is True
    assert only(items, call("search", items=[{"id": 2}])).score is False
    assert only(evaluator, call("search", user="Lyon")).reasoning == (
        "search was called with wrong arguments: user.city is missing"
    )


@pytest.mark.parametrize(
    "checks",
    [
        {"argument_checks": has_query},
        {"argument_checks": {"query": {"optional": True}}},
        {"arguments_schema": True},
    ],
)
@pytest.mark.parametrize("broken", ['{"query": "Par', '["query"', '{query: "Paris"}'])
def test_arguments_that_are_broken_json_are_the_agents_fault(
    checks: dict[str, Any], broken: str
) -> None:
    """A call whose JSON text cannot be read has wrong arguments for every check; other text is
    judged.
    """
    evaluator = usage(expected_tool_name="s", **checks)
    result = only(evaluator, {"name": "s", "arguments": broken})
    assert (result.score, result.reason_code) == (False, "invalid_arguments")
    assert (result.reasoning or "").endswith("they are no JSON")
    assert (
        only(evaluator, {"name": "s", "arguments": "the query of a tool that takes text"}).score
        is True
    )


def test_a_schema_of_the_arguments() -> None:
    """A JSON Schema judges all arguments, JSON text too, and says what is wrong."""
    schema = {"type": "object", "required": ["query"], "properties": {"limit": {"maximum": 10}}}
    evaluator = usage(expected_tool_name="search", arguments_schema=schema)
    assert only(evaluator, SEARCH).score is True
    result = only(evaluator, {"name": "search", "arguments": '{"query": 1, "limit": 11}'})
    assert (result.score, result.reason_code) == (False, "invalid_arguments")
    assert "/limit" in (result.reasoning or "")
    assert evaluator.resolved_execution == "process"


def test_a_slow_pattern_is_a_failure() -> None:
    """A pattern that would search for seconds is given up: that is no verdict."""
    evaluator = usage(expected_tool_name="s", argument_checks={"a": {"pattern": "(?=a)(a+)+$"}})
    result = only(evaluator, call("s", a="a" * 200_000 + "b"))
    assert (result.status, result.error_type, result.filler) == ("failed", "timeout", False)
    assert evaluator.resolved_execution == "process"


@pytest.mark.parametrize("scale", ["binary", "pass/fail", "numeric", "likert5", "mood"])
def test_a_verdict_is_a_boolean_and_a_number_on_numeric(scale: str) -> None:
    """A called tool passes, and so does an optional tool that was not called."""
    evaluator = usage(expected_tool_name="s")
    for calls in ([call("s")], []):
        score = only(evaluator, *calls, scale=scale).score
        assert score == 1
        assert (type(score) is bool) is (scale != "numeric")


def test_functions_stay_in_this_process() -> None:
    """An evaluator with a function runs in a thread; the function's name is part of the
    fingerprint.
    """
    evaluator = usage(expected_tool_name="search", argument_checks=has_query)
    assert (
        evaluator.fingerprint
        != usage(expected_tool_name="search", argument_checks=lambda _: True).fingerprint
    )
    with pytest.raises(NotPortable):
        serialize_evaluator(evaluator)


def test_arguments_nested_beyond_reading_are_judged_as_text() -> None:
    """JSON text of any depth or size of numbers raises nothing."""
    evaluator = usage(expected_tool_name="s", argument_checks={"a": {"type": "object"}})
    for text in ("[" * 100_000, '{"a": ' * 100_000, '{"a": 1' + "0" * 10_000 + "}"):
        assert only(evaluator, {"name": "s", "arguments": text}).score is False
