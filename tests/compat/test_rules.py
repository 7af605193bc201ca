"""AgentDock's rules and their JavaScript patterns, rewritten into ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, Length, RuleBased
from agenteval_otel.evaluators.compat.agentdock import flat_rules
from agenteval_otel.evaluators.compat.javascript import python_pattern
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.runtime.patterns import compile_pattern


def rules(*configs: Any, **fields: Any) -> RuleBased:
    nested = [{"criterionName": "R", "config": config, **fields} for config in configs]
    return RuleBased.load({"rules": flat_rules(nested)})


def run(
    evaluator: RuleBased, response: Any, scale: str = "binary", **more: Any
) -> list[EvaluationResult]:
    evaluation_input = EvaluationInput(response=response, **more)
    return asyncio.run(
        evaluator.evaluate(evaluation_input, [EvaluationCriteria(name="R", scale=scale)])
    )


@pytest.mark.parametrize(
    "config",
    [
        {"type": "mystery"},
        None,
        {"type": "includes"},
        {"type": "regex", "pattern": "("},
        {"type": "length", "min": "x"},
        {"type": "length", "min": float("nan")},
        {"type": "regex", "pattern": "a", "flags": "zz"},
    ],
)
def test_a_wrong_rule_fails_in_every_evaluation(config: Any) -> None:
    """The rule is kept: a failed result without a score, and the other rules go on. It survives a
    dump.
    """
    evaluator = rules(config, {"type": "length"})
    wrong, right = run(evaluator, "text", "likert5")
    assert (wrong.status, wrong.score, wrong.filler, wrong.error_type) == (
        "failed",
        None,
        1,
        "invalid_rule",
    )
    assert right.score == 5
    assert resolve(Evaluator, evaluator.model_dump(mode="json")) == evaluator


def test_rules_are_lenient_where_agentdock_is() -> None:
    """Unknown fields are ignored; an unknown outcome, or bounds without room, never pass or mean
    ``no_match``.
    """
    lenient = rules(
        {"type": "length", "max": 9, "unit": "words"},
        {"type": "includes", "keywords": ["t"], "expectedOutcome": "most"},
        {"type": "length", "min": 9, "max": 1},
        {"type": "regex", "pattern": "x", "expectedOutcome": "perhaps"},
        note="any",
    )
    for text, last in (("text", False), ("tet", True)):
        actual = [(result.score, result.error) for result in run(lenient, text)]
        assert actual == [(True, None), (False, None), (False, None), (last, None)]


def test_checks_that_agentdock_does_not_have_are_strict() -> None:
    """A wrong one is refused at load, a right one runs."""
    with pytest.raises(ConfigurationError, match="keywords: expected at least 1"):
        rules({"type": "keyword_count", "keywords": []})
    assert run(rules({"type": "keyword_count", "keywords": ["a"], "min": 1}), "a")[0].score is True


def test_the_source_may_stand_in_the_check() -> None:
    """AgentDock's documents write the source into the check; the rule's own field comes first."""
    check = {
        "type": "includes",
        "keywords": ["a"],
        "expectedOutcome": "all",
        "sourceField": "prompt",
    }
    assert run(rules(check), "b", prompt="a")[0].score is True
    assert run(rules(check, sourceTextField="response"), "b", prompt="a")[0].score is False


def test_what_is_not_agentdocks_form_stays_as_it_is() -> None:
    """Flat rules, instances and what is not a list go on to `RuleBased`, which judges them."""
    flat = [{"criterion": "R", "type": "length"}, Length(criterion="R"), "length"]
    assert flat_rules(flat) == flat
    assert flat_rules("length") == "length"
    with pytest.raises(
        ConfigurationError, match=r"rules\[0\].criterion: required field is missing"
    ):
        RuleBased.load({"rules": flat_rules([{"config": {"type": "length"}}])})


@pytest.mark.parametrize(
    ("pattern", "flags", "text", "occurs"),
    [
        ("a$", "", "a\n", False),
        ("a$", "m", "a\nb", True),
        (".", "", "\r", False),
        (".", "", "\u2029", False),
        (".", "s", "\n", True),
        ("[.]", "", "a", False),
        (r"\w", "", "é", False),
        (r"\d", "", "\u0663", False),
        (r"\s", "", "\ufeff", True),
        (r"\s", "", "\x85", False),
        (r"[\s\S]", "", "\n", True),
        (r"\S", "", "\u00a0", False),
        (r"\bfoo\b", "", "éfoo", True),
        (r"(?<y>\d)-\k<y>", "", "1-1", True),
        (r"(?<y>\d)-\k<y>", "", "1-2", False),
        (r"(a)\1", "i", "aA", True),
        ("é", "i", "É", True),
        ("a[[]b", "", "a[b", True),
        (r"[\w-z]", "", "-", True),
        (r"\p{Lu}", "u", "É", True),
        (r"\u{1f600}", "u", "\U0001f600", True),
        (r"\u0041\x42", "", "AB", True),
        ("b", "y", "ab", False),
        (r"^\ud83d\ude00$", "", "\U0001f600", True),
        (r"\A\Z", "", "AZ", True),
        (r"a\/b\-c", "", "a/b-c", True),
        ("(?<!a)b", "", "ab", False),
        ("a*?b", "dgu", "aab", True),
    ],
)
def test_javascript_patterns_keep_their_meaning(
    pattern: str, flags: str, text: str, occurs: bool
) -> None:
    """Classes, anchors, references, escapes, names and flags are JavaScript's."""
    assert compile_pattern(*python_pattern(pattern, flags)).occurs_in(text) is occurs


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        ("(", ""),
        ("[a", ""),
        ("a**", ""),
        ("[z-a]", ""),
        (r"(?<a>x)\k<b>", ""),
        ("a", "v"),
        ("a", "gg"),
        ("a", "x"),
    ],
)
def test_what_javascript_does_not_have_is_refused(pattern: str, flags: str) -> None:
    """Wrong syntax, wrong flags and the flag ``v`` do not get through."""
    with pytest.raises(ValueError, match=r"."):
        compile_pattern(*python_pattern(pattern, flags))
