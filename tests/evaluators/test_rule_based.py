"""RuleBased and its checks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, Length, Regex, RuleBased, RuleCheck, RuleFailure
from agenteval_otel.execution.wire import load_evaluator, serialize_evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.testing import check_component
from tests.evaluators.support import results_of

LIST = {"type": "array", "items": {"type": "integer"}}


def rules(*checks: dict[str, Any], **fields: Any) -> RuleBased:
    return RuleBased.load({"rules": [{"criterion": "R", **check, **fields} for check in checks]})


def run(evaluator: RuleBased, response: Any, scale: str = "binary", **more: Any) -> list[EvaluationResult]:
    return results_of(evaluator, response, criteria=[EvaluationCriteria(name="R", scale=scale)], **more)


@pytest.mark.parametrize(
    ("config", "response", "reason"),
    [
        ({"type": "length", "min": 3}, "ab", "too_short"),
        ({"type": "length", "max": 1}, "\U0001f600", "too_long"),
        ({"type": "length", "min": 2, "max": 2}, "\U0001f600", None),
        ({"type": "length"}, "", None),
        ({"type": "regex", "pattern": "b", "expectedOutcome": "match"}, "a", "pattern_missing"),
        ({"type": "regex", "pattern": "a", "expectedOutcome": "no_match"}, "a", "forbidden_pattern"),
        ({"type": "includes", "keywords": ["a", "b"]}, "A", "missing_keyword"),
        ({"type": "includes", "keywords": ["a"], "expectedOutcome": "none"}, "A", "forbidden_keyword"),
        ({"type": "includes", "keywords": [], "expectedOutcome": "any"}, "A", "missing_keyword"),
        ({"type": "json_parse"}, "[1,]", "invalid_json"),
        ({"type": "json_parse"}, "9" * 5000, None),
        ({"type": "json_parse"}, {"a": 1}, None),
        ({"type": "json_parse"}, None, "invalid_json"),
        ({"type": "keyword_count", "keywords": ["Cat"], "min": 2}, "cat, CAT", None),
        ({"type": "keyword_count", "keywords": ["cat"], "min": 2}, "cat, cats", "too_few_keywords"),
        ({"type": "keyword_count", "keywords": ["cat"], "min": 2, "matchWholeWord": False}, "cat, cats", None),
        ({"type": "keyword_count", "keywords": ["Cat"], "max": 0, "caseSensitive": True}, "cat", None),
        ({"type": "keyword_count", "keywords": ["a", "b"], "max": 1}, "a b", "too_many_keywords"),
        ({"type": "keyword_count", "keywords": ["a", "A", "a"], "max": 1}, "a", None),
        ({"type": "keyword_count", "keywords": ["a"], "min": 0}, "", None),
        (
            {"type": "keyword_count", "keywords": ["хам", "天気", "c++"], "min": 3, "max": 3},
            "Хам: 今日は天気, C++!",
            None,
        ),
        ({"type": "json_schema", "definition": LIST}, "[1, 2]", None),
        ({"type": "json_schema", "definition": LIST}, '["1"]', "schema_mismatch"),
        ({"type": "json_schema", "definition": LIST}, "[1,]", "invalid_json"),
        ({"type": "json_schema", "definition": LIST}, "[NaN]", "invalid_json"),
        ({"type": "json_schema", "definition": LIST}, "", "invalid_json"),
        ({"type": "json_schema", "definition": LIST}, [1, 2], None),
        ({"type": "json_schema", "definition": LIST}, {"a": 1}, "schema_mismatch"),
        ({"type": "json_schema", "definition": LIST}, 7, "schema_mismatch"),
        ({"type": "json_schema", "definition": '{"type": "array"}'}, "[]", None),
        ({"type": "json_schema", "definition": True}, "7", None),
        ({"type": "json_schema", "definition": False}, "7", "schema_mismatch"),
    ],
)
def test_a_failed_rule_says_why(config: dict[str, Any], response: Any, reason: str | None) -> None:
    """Each check fails with its own word from the closed list and passes without one."""
    (result,) = run(rules(config), response)
    assert (result.score, result.reason_code) == (reason is None, reason)
    assert result.reasoning is not None
    assert result.reasoning.startswith(f"rule {config['type']} on response: {'failed' if reason else 'passed'}")


@pytest.mark.parametrize(
    ("scale", "values"),
    [("binary", (False, True)), ("numeric", (0, 1)), ("likert5", (1, 5)), ("string", ("fail", "pass"))],
)
def test_the_scale_says_what_passing_is_worth(scale: str, values: tuple[Any, Any]) -> None:
    """A result becomes the scale's worst or best score; the label is pass or fail."""
    check = rules({"type": "length", "min": 2})
    for response, value, label in (("a", values[0], "fail"), ("ab", values[1], "pass")):
        (result,) = run(check, response, scale)
        assert result.score == value
        assert type(result.score) is type(value)
        assert result.label == label


def test_a_declared_range_takes_a_boolean() -> None:
    """On a declared range a passed rule is the best there is, whatever the scale is called."""
    criterion = EvaluationCriteria(name="R", scale="likert5", minimum=0, maximum=10)
    (result,) = asyncio.run(rules({"type": "length"}).evaluate(EvaluationInput(response="a"), [criterion]))
    assert (result.score, result.normalized) == (True, 1.0)


@pytest.mark.parametrize(
    ("check", "field"),
    [
        ({"type": "mystery"}, None),
        ({"type": "InvalidCheck"}, "problem"),
        ({"type": "length", "config": {}}, "config"),
        ({"type": "includes"}, "keywords"),
        ({"type": "includes", "keywords": ["a"], "expectedOutcome": "most"}, "expected_outcome"),
        ({"type": "regex", "pattern": "("}, "pattern"),
        ({"type": "regex", "pattern": "a", "flags": "zz"}, "flags"),
        ({"type": "length", "minimum": 3}, "minimum"),
        ({"type": "length", "min": 3, "max": 2}, None),
        ({"type": "keyword_count", "keywords": ["a"]}, None),
        ({"type": "keyword_count", "keywords": [], "min": 1}, None),
        ({"type": "keyword_count", "keywords": [""], "min": 1}, "keywords[0]"),
        ({"type": "keyword_count", "keywords": ["a"], "min": 2, "max": 1}, None),
        ({"type": "keyword_count", "keywords": ["a"], "min": -1}, "min"),
        ({"type": "json_schema"}, None),
        ({"type": "json_schema", "schema": {}}, "schema"),
        ({"type": "json_schema", "definition": {"type": "strin"}}, "definition"),
        ({"type": "json_schema", "definition": {"$ref": "http://127.0.0.1:1/a.json"}}, "definition"),
        ({"type": "json_schema", "definition": "{"}, "definition"),
        ({"type": "json_schema", "definition": 7}, "definition"),
        ({"type": "json_schema", "definitionFile": "/nowhere/schema.json"}, None),
        ({"type": "json_schema", "definition": {}, "definitionFile": "schema.json"}, None),
    ],
)
def test_a_wrong_rule_is_refused_at_load(check: dict[str, Any], field: str | None) -> None:
    """A rule that could never work is named by its path before anything runs."""
    with pytest.raises(ConfigurationError) as caught:
        RuleBased.load({"rules": [{"criterion": "R", **check}]}, path="evaluators[2]")
    assert caught.value.path == "evaluators[2].rules[0]" + (f".{field}" if field else "")
    with pytest.raises(ConfigurationError):
        RuleBased(rules=[{"criterion": "R", **check}])


@pytest.mark.parametrize("kind", ["length", "json_parse"])
def test_missing_text_is_a_failure(kind: str) -> None:
    """A field that is not there is no answer, so there is no score, only the original's filler."""
    (result,) = run(rules({"type": kind}, sourceTextField="context.nope"), "text", "numeric")
    assert (result.score, result.error_type, result.filler) == (None, "missing_text", 0)


def test_json_is_read_from_the_source_field() -> None:
    """A value that is no text passes; text is parsed."""
    check = rules({"type": "json_parse"}, source_text_field="context.a")
    assert [run(check, "-", context={"a": value})[0].score for value in ({"b": 1}, "{}", "{")] == [True, True, False]


def test_json_too_deep_to_check_is_a_failure() -> None:
    """Nesting beyond what can be followed is a failure, not a score."""
    (result,) = run(rules({"type": "json_parse"}), "[" * 200_000)
    assert (result.score, result.error_type) == (None, "too_deep")


def test_the_reasoning_says_what_is_wrong_with_the_structure() -> None:
    """The problems of a value are named by their places, without what stands there."""
    (result,) = run(rules({"type": "json_schema", "definition": LIST}), '[1, "secret words"]')
    assert result.reasoning == 'rule json_schema on response: failed (/1: the value is not of type "integer")'
    (result,) = run(rules({"type": "keyword_count", "keywords": ["a"], "min": 3}), "a a")
    assert result.reasoning == "rule keyword_count on response: failed (2, at least 3)"


def test_a_schema_may_come_from_a_file(tmp_path: Path) -> None:
    """It is read once, at load; then the rule holds its content and needs the file no more."""
    file = tmp_path / "list.json"
    file.write_text(json.dumps(LIST))
    from_file = rules({"type": "json_schema", "definitionFile": str(file)})
    file.unlink()
    assert from_file == rules({"type": "json_schema", "definition": LIST})
    assert load_evaluator(json.loads(json.dumps(serialize_evaluator(from_file)))) == from_file
    assert [run(from_file, text)[0].score for text in ("[1]", "{}")] == [True, False]
    file.write_text("{,}")
    with pytest.raises(ConfigurationError, match=r"list\.json:1: not JSON"):
        rules({"type": "json_schema", "definitionFile": str(file)})
    file.write_text("[" * 100_000)
    with pytest.raises(ConfigurationError, match=r"list\.json: not JSON"):
        rules({"type": "json_schema", "definitionFile": str(file)})


def test_all_of_a_schema_counts() -> None:
    """A schema comes back from its dump, and its fingerprint knows what stands deep inside, whatever it is called."""
    actual = []
    for kind in ("string", "integer"):
        definition: Any = {"type": kind}
        for name in ("password", "street", "address", "person", "order"):
            definition = {"type": "object", "properties": {name: definition}}
        evaluator = rules({"type": "json_schema", "definition": definition})
        check_component(evaluator, Evaluator)
        actual.append(evaluator.fingerprint)
    assert actual[0] != actual[1]


def test_messages_and_fields_are_judged_by_a_schema() -> None:
    """A message's text is parsed, a value at a path is taken as it stands, and nothing there is a failure."""
    message = {"role": "assistant", "contentParts": [{"type": "text", "text": "[1]"}]}
    check = {"type": "json_schema", "definition": LIST}
    assert run(rules(check), message)[0].score is True
    from_context = rules(check, sourceTextField="context.items")
    assert [run(from_context, "-", context={"items": value})[0].score for value in ([1], ["1"], "[1]")] == [
        True, False, True,
    ]  # fmt: skip
    (result,) = run(from_context, "[1]", context={})
    assert (result.score, result.error_type) == (None, "missing_text")


@pytest.mark.parametrize(
    ("text", "error_type"),
    [
        ("[" * 200_000, "too_deep"),
        ("[" * 300 + "]" * 300, "too_deep"),
        ("9" * 5_000, "too_large"),
        ("1e999", "too_large"),
    ],
    ids=["deep", "deeper than is looked", "digits", "infinite"],
)
def test_json_that_cannot_be_followed_has_no_score(text: str, error_type: str) -> None:
    """Nesting and numbers beyond what is looked at are a failure, not a score."""
    (result,) = run(rules({"type": "json_schema", "definition": LIST}), text)
    assert (result.score, result.error_type) == (None, error_type)


def test_a_megabyte_gets_a_score() -> None:
    """A text far beyond what is captured is judged offline."""
    check = rules(
        {"type": "length", "max": 1_048_577},
        {"type": "includes", "keywords": ["2"], "expectedOutcome": "any"},
        {"type": "keyword_count", "keywords": ["1"], "min": 524_288},
        {"type": "json_parse"},
        {"type": "json_schema", "definition": LIST},
    )
    results = run(check, "[" + "1," * 524_287 + "1]")
    assert [result.score for result in results] == [True, False, True, True, True]


def test_criteria_are_those_of_the_rules() -> None:
    """Each named criterion once, in rule order, as pass or fail."""
    named = [{"criterion": name, "type": "length"} for name in ("B", "A", "B")]
    criteria = RuleBased.load({"rules": named}).criteria()
    assert [(criterion.name, criterion.scale) for criterion in criteria] == [("B", "binary"), ("A", "binary")]


@pytest.mark.parametrize(
    ("check", "execution"),
    [
        ({"type": "json_parse"}, "inline"), ({"type": "regex", "pattern": "a"}, "inline"),
        ({"type": "regex", "pattern": "a(?=b)"}, "process"),
        ({"type": "keyword_count", "keywords": ["a"] * 100, "max": 1}, "inline"),
        ({"type": "keyword_count", "keywords": ["a"] * 101, "max": 1}, "process"),
        ({"type": "includes", "keywords": ["a"] * 101}, "process"), ({"type": "json_schema",
        "definition": True}, "process"),
    ],
)  # fmt: skip
def test_rules_that_a_text_can_make_slow_run_in_a_process(check: dict[str, Any], execution: str) -> None:
    """A pattern that RE2 cannot run, a schema and more than 100 keywords prefer a worker process."""
    assert rules({"type": "length"}, check).resolved_execution == execution


class NoEmoji(RuleCheck, type="RuleTestNoEmoji"):
    """A user's check."""

    allowed: int = 0

    @property
    def is_fast(self) -> bool:
        return True

    def check(self, text: str) -> RuleFailure | None:
        if text == "broken":
            raise KeyError("broken")
        count = sum(char > "\U0001f000" for char in text)
        return RuleFailure("too_many_emoji", str(count)) if count > self.allowed else None


def test_a_user_adds_a_check_in_one_class() -> None:
    """It is chosen by its type, has a reason code and settings of its own, and what it raises fails its rule alone."""
    evaluator = rules({"type": "RuleTestNoEmoji", "allowed": 1}, {"type": "length"})
    assert resolve(Evaluator, json.loads(evaluator.model_dump_json())) == evaluator
    failed, passed = run(evaluator, "\U0001f600\U0001f600")
    assert (failed.score, failed.reason_code, passed.score) == (False, "too_many_emoji", True)
    assert [result.error_type for result in run(evaluator, "broken")] == ["KeyError", None]
    assert evaluator.resolved_execution == "inline"
    recipe = json.loads(json.dumps(serialize_evaluator(evaluator)))
    assert [__name__, "NoEmoji"] in recipe["fields"]["parts"], "a worker process would not know the check"
    assert load_evaluator(recipe) == evaluator
    with pytest.raises(ConfigurationError, match="parts: unknown field"):  # settings cannot have modules imported
        RuleBased.load({"rules": [{"criterion": "R", "type": "length"}], "parts": [["os", "system"]]})
    with pytest.raises(ConfigurationError, match=r"rules\[0\].alowed: unknown field \(did you mean 'allowed'\?\)"):
        rules({"type": "RuleTestNoEmoji", "alowed": 1})


def test_a_catastrophic_pattern_is_cut_off() -> None:
    """A search beyond its time limit is a failed result; the next rule is applied."""
    evaluator = RuleBased(rules=[Regex(criterion="R", pattern="(?=a)(a+)+$", limit_s=0.001), Length(criterion="R")])
    cut, whole = run(evaluator, "a" * 50_000 + "b")
    assert (cut.score, cut.error_type, cut.filler) == (None, "timeout", False)
    assert whole.score is True


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), float("-inf")])
def test_a_bound_on_the_length_is_a_finite_number(bound: float) -> None:
    """No text is shorter or longer than NaN: each one would pass."""
    with pytest.raises(ConfigurationError, match=r"rules\[0\].min"):
        rules({"type": "length", "min": bound})


class Raising(dict[str, Any]):
    def get(self, key: str, default: Any = None) -> Any:
        raise KeyError(f"no {key} here")


def test_a_rule_that_raises_does_not_lose_the_others() -> None:
    """Whatever breaks inside of one rule fails that rule alone."""
    evaluator = RuleBased(rules=[
        {"criterion": "R", "type": "length", "source_text_field": "context.a"},
        {"criterion": "R", "type": "length", "min": 1},
    ])  # fmt: skip
    evaluation_input = EvaluationInput(response="r").model_copy(update={"context": Raising()})
    first, second = asyncio.run(evaluator.evaluate(evaluation_input, [EvaluationCriteria(name="R")]))
    assert (first.error_type, first.score, first.filler) == ("KeyError", None, False)
    assert second.score is True


def test_a_rule_that_is_misspelled_has_its_nearest_name() -> None:
    """An unknown type of rule is told with the known ones, and with the one that was probably meant."""
    with pytest.raises(ConfigurationError, match=r"unknown check type 'lenght' \(did you mean 'length'\?\); known"):
        RuleBased.load({"rules": [{"criterion": "short", "type": "lenght", "max": 3}]})
