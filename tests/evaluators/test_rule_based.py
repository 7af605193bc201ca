"""RuleBased and its checks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenteval_otel import EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.components.loading import resolve
from agenteval_otel.engine.execution.wire import load_evaluator, serialize_evaluator
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, Length, Regex, RuleBased, RuleCheck
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score
from tests.evaluators.support import results_of

LIST = {"type": "array", "items": {"type": "integer"}}
SCHEMA = {"type": "json", "definition": LIST}


OTHERS = [f"other{number}" for number in range(200)]


def rules(*checks: dict[str, Any], **fields: Any) -> RuleBased:
    return RuleBased.load({"rules": [{"criterion": "R", **check, **fields} for check in checks]})


def run(
    evaluator: RuleBased, response: Any, scale: str = "binary", **more: Any
) -> list[EvaluationResult]:
    return results_of(
        evaluator, response, criteria=[EvaluationCriteria(name="R", scale=scale)], **more
    )


def count(*keywords: str, **fields: Any) -> dict[str, Any]:
    return {"type": "keyword_count", "keywords": keywords, **fields}


CHECKS: list[tuple[dict[str, Any], Any, str | None]] = [
    ({"type": "length", "min": 3}, "ab", "too_short"),
    ({"type": "length", "max": 1}, "\U0001f600", "too_long"),
    ({"type": "length", "min": 2, "max": 2}, "\U0001f600", None),
    ({"type": "length", "min": 3, "max": 2}, "abc", "too_long"),
    ({"type": "regex", "pattern": "b", "expectedOutcome": "match"}, "a", "pattern_missing"),
    ({"type": "regex", "pattern": "a", "expectedOutcome": "no_match"}, "a", "forbidden_pattern"),
    ({"type": "includes", "keywords": ["a", "b"]}, "A", "missing_keyword"),
    ({"type": "includes", "keywords": ["a"], "expectedOutcome": "none"}, "A", "forbidden_keyword"),
    ({"type": "json"}, "[1,]", "invalid_json"),
    ({"type": "json"}, "9" * 5000, None),
    ({"type": "json"}, None, "invalid_json"),
    (count("Cat", min=2), "cat, CAT", None),
    (count("cat", min=2), "cat, cats", "too_few_keywords"),
    (count("cat", min=2, matchWholeWord=False), "cat, cats", None),
    (count("Cat", max=0, caseSensitive=True), "cat", None),
    (count("a", "b", max=1), "a b", "too_many_keywords"),
    (count("a", "A", "a", max=1), "a", None),
    (count("a", min=0), "", None),
    (count("ha ha", min=2, max=2), "ha ha ha ha", None),
    (count("ha ha", *OTHERS, min=2, max=2), "ha ha ha ha", None),
    (count("new york", *OTHERS, max=0), "new jersey", None),
    (count("new york", "york", min=3, max=3), "new york, york", None),
    (count("ros", "se", matchWholeWord=False, min=4, max=4), "roses rose", None),
    (count("rose", *OTHERS, min=2, max=2), "a rose is a rose, and roses", None),
    (count("хам", "天気", "c++", min=3, max=3), "Хам: 今日は天気, C++!", None),
    (SCHEMA, "[1, 2]", None),
    (SCHEMA, '["1"]', "schema_mismatch"),
    (SCHEMA, "[1,]", "invalid_json"),
    (SCHEMA, "[NaN]", "invalid_json"),
    (SCHEMA, "", "invalid_json"),
    (SCHEMA, [1, 2], None),
    (SCHEMA, {"a": 1}, "schema_mismatch"),
    (SCHEMA, 7, "schema_mismatch"),
    (SCHEMA, None, "invalid_json"),
    (SCHEMA, {"role": "assistant", "contentParts": [{"type": "text", "text": "[1]"}]}, None),
    ({"type": "json", "definition": '{"type": "array"}'}, "[]", None),
    ({"type": "json", "definition": True}, "7", None),
    ({"type": "json", "definition": False}, "7", "schema_mismatch"),
]


@pytest.mark.parametrize(("config", "response", "reason"), CHECKS)
def test_a_failed_rule_says_why(config: dict[str, Any], response: Any, reason: str | None) -> None:
    """Each check fails with its own word from the closed list and passes without one."""
    (result,) = run(rules(config), response)
    assert (result.score, result.reason_code) == (reason is None, reason)
    assert result.reasoning is not None
    assert result.reasoning.startswith(
        f"rule {config['type']} on response: {'failed' if reason else 'passed'}"
    )


def test_a_declared_range_takes_a_boolean() -> None:
    """On a declared range a passed rule is the best there is, whatever the scale is called."""
    criterion = EvaluationCriteria(name="R", scale="likert5", minimum=0, maximum=10)
    (result,) = results_of(rules({"type": "length"}), "a", criteria=[criterion])
    assert (result.score, result.normalized) == (True, 1.0)


def test_a_place_without_a_value_is_a_failure() -> None:
    """JSON that is not there is no wrong JSON."""
    (result,) = run(rules({"type": "json"}, sourceTextField="context.nope"), "text")
    assert (result.score, result.error_type) == (None, "missing_text")


WRONG: list[tuple[dict[str, Any], str | None]] = [
    ({"type": "mystery"}, None),
    ({"type": "InvalidCheck"}, "problem"),
    ({"type": "length", "config": {}}, "config"),
    ({"type": "includes"}, "keywords"),
    ({"type": "regex", "pattern": "("}, "pattern"),
    ({"type": "includes", "keywords": ["a"], "expectedOutcome": "most"}, "expected_outcome"),
    ({"type": "regex", "pattern": "a", "flags": "zz"}, "flags"),
    ({"type": "length", "minimum": 3}, "minimum"),
    ({"type": "length", "min": float("nan")}, "min"),
    (count(min=1), "keywords"),
    (count("", min=1), "keywords[0]"),
    (count("a", min=-1), "min"),
    ({"type": "json", "schema": {}}, "schema"),
    ({"type": "json", "definition": {"type": "strin"}}, "definition"),
    ({"type": "json", "definition": {"$ref": "http://127.0.0.1:1/a.json"}}, "definition"),
    ({"type": "json", "definition": "{"}, "definition"),
    ({"type": "json", "definition": 7}, "definition"),
]


@pytest.mark.parametrize(("check", "field"), WRONG)
def test_a_wrong_rule_is_refused_at_load(check: dict[str, Any], field: str | None) -> None:
    """A rule that could never work is named by its path before anything runs."""
    with pytest.raises(ConfigurationError) as caught:
        RuleBased.load({"rules": [{"criterion": "R", **check}]}, path="evaluators[2]")
    assert caught.value.path == "evaluators[2].rules[0]" + (f".{field}" if field else "")
    with pytest.raises(ConfigurationError):
        RuleBased(rules=[{"criterion": "R", **check}])


def test_a_misspelled_rule_has_its_nearest_name() -> None:
    """An unknown type of rule is told with the known ones; and there is at least one rule."""
    with pytest.raises(
        ConfigurationError, match=r"unknown check type 'lenght' \(did you mean 'length'\?\)\. Known"
    ):
        RuleBased.load({"rules": [{"criterion": "short", "type": "lenght", "max": 3}]})
    with pytest.raises(ConfigurationError, match="rules: expected at least 1"):
        RuleBased(rules=[])


def test_the_reasoning_says_what_is_wrong_with_the_structure() -> None:
    """The problems of a value are named by their places, without what stands there."""
    (result,) = run(rules(SCHEMA), '[1, "secret words"]')
    assert (
        result.reasoning == 'rule json on response: failed (/1: the value is not of type "integer")'
    )


@pytest.mark.parametrize(
    ("check", "text", "seen"),
    [
        ({"type": "length", "max": 160}, "a" * 96, "passed (96 of at most 160 characters)"),
        ({"type": "length", "min": 2}, "a", "failed (1 of at least 2 characters)"),
        (
            {"type": "length", "min": 2, "max": 2_000},
            "a" * 3_000,
            "failed (3,000 characters, 2 to 2,000 are allowed)",
        ),
        ({"type": "length"}, "a", "passed (1 characters)"),
        (count("a", min=3), "a a", "failed (2 of at least 3 occurrences)"),
        (
            {"type": "includes", "keywords": ["please", "Thanks"]},
            "please",
            'failed (without "Thanks")',
        ),
        (
            {"type": "includes", "keywords": ["a" * 100], "expectedOutcome": "none"},
            "a" * 100,
            f'failed (with "{"a" * 77}...")',
        ),
        (
            {"type": "includes", "keywords": ["x", "y"], "expectedOutcome": "any"},
            "a",
            "failed (none of 2)",
        ),
        (
            {"type": "includes", "keywords": ["x", "Y"], "expectedOutcome": "any"},
            "y",
            'passed (with "Y")',
        ),
        (
            {"type": "regex", "pattern": r"\d{4}", "expectedOutcome": "match"},
            "12",
            r'failed (no match of "\d{4}")',
        ),
        ({"type": "regex", "pattern": "a+"}, "a", 'failed (matches "a+")'),
    ],
)
def test_the_reasoning_says_what_the_rule_saw(check: dict[str, Any], text: str, seen: str) -> None:
    """The measured number stands beside its bounds, and the keyword or pattern that decided is named."""
    (result,) = run(rules(check), text)
    assert result.reasoning == f"rule {check['type']} on response: {seen}"


@pytest.mark.parametrize(
    ("check", "text", "error_type"),
    [
        ({"type": "json"}, "[" * 200_000, "too_deep"),
        (SCHEMA, "[" * 200_000, "too_deep"),
        (SCHEMA, "[" * 300 + "]" * 300, "too_deep"),
        (SCHEMA, "9" * 5_000, "too_large"),
        (SCHEMA, "1e999", "too_large"),
    ],
    ids=["deep", "deep for a schema", "deeper than is looked", "digits", "infinite"],
)
def test_json_that_cannot_be_followed_has_no_score(
    check: dict[str, Any], text: str, error_type: str
) -> None:
    """Nesting and numbers beyond what is looked at are a failure, not a score."""
    (result,) = run(rules(check), text)
    assert (result.score, result.error_type) == (None, error_type)


def test_criteria_are_those_of_the_rules() -> None:
    """Each named criterion once, in rule order, as pass or fail."""
    criteria = RuleBased.load(
        {"rules": [{"criterion": name, "type": "length"} for name in ("B", "A", "B")]}
    ).criteria()
    assert [(criterion.name, criterion.scale) for criterion in criteria] == [
        ("B", "binary"),
        ("A", "binary"),
    ]


class NoEmoji(RuleCheck, type="RuleTestNoEmoji"):
    """A user's check."""

    allowed: int = 0

    @property
    def is_fast(self) -> bool:
        return True

    def check(self, text: str) -> bool | Score:
        if text == "broken":
            raise KeyError("broken")
        if text == "no boolean":
            return Score(value="fine")
        count = sum(char > "\U0001f000" for char in text)
        return count <= self.allowed or Score(
            value=False, reason_code="too_many_emoji", reasoning=str(count)
        )


def test_a_user_adds_a_check_in_one_class() -> None:
    """It is chosen by its type, says why a text fails, and a worker process gets it with its
    settings.
    """
    evaluator = rules({"type": "RuleTestNoEmoji", "allowed": 1}, {"type": "length"})
    assert resolve(Evaluator, json.loads(evaluator.model_dump_json())) == evaluator
    failed, passed = run(evaluator, "\U0001f600\U0001f600")
    assert (failed.score, failed.reason_code, passed.score) == (False, "too_many_emoji", True)
    assert failed.reasoning == "rule RuleTestNoEmoji on response: failed (2)"
    assert [result.error_type for result in run(evaluator, "no boolean")] == ["invalid_score", None]
    assert evaluator.resolved_execution == "inline"
    recipe = json.loads(json.dumps(serialize_evaluator(evaluator)))
    assert [__name__, "NoEmoji"] in recipe["fields"]["parts"], (
        "a worker process would not know the check"
    )
    assert load_evaluator(recipe) == evaluator
    # settings cannot have modules imported
    with pytest.raises(ConfigurationError, match="parts: unknown field"):
        RuleBased.load(
            {"rules": [{"criterion": "R", "type": "length"}], "parts": [["os", "system"]]}
        )
    with pytest.raises(
        ConfigurationError, match=r"rules\[0\].alowed: unknown field \(did you mean 'allowed'\?\)"
    ):
        rules({"type": "RuleTestNoEmoji", "alowed": 1})


def test_a_check_that_raises_is_no_error_of_the_run() -> None:
    """It fails its own rule; the next one is applied, and the run's errors stay empty."""
    config = EvaluationRunConfig(
        evaluators=[rules({"type": "RuleTestNoEmoji"}, {"type": "length"})]
    )
    aggregated = run_evaluation_sync(EvaluationInput(response="broken"), config)
    assert [(result.error_type, result.score) for result in aggregated.results] == [
        ("KeyError", None),
        (None, True),
    ]
    assert not aggregated.run_errors


def test_a_catastrophic_pattern_is_cut_off() -> None:
    """A search beyond its time limit is a failed result; the next rule is applied."""
    evaluator = RuleBased(
        rules=[Regex(criterion="R", pattern="(?=a)(a+)+$", limit_s=0.001), Length(criterion="R")]
    )
    cut, whole = run(evaluator, "a" * 50_000 + "b")
    assert (cut.score, cut.error_type, cut.filler) == (None, "timeout", False)
    assert whole.score is True
