"""RuleBased, its checks and the translation of JavaScript patterns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.components import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, RuleBased
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.patterns import compile_pattern

ORIGINAL = {"original": True}


def rules(*configs: Any, original: bool = False, **fields: Any) -> RuleBased:
    listed = [{"criterionName": "R", "config": config, **fields} for config in configs]
    return RuleBased.load({"rules": listed}, context=ORIGINAL if original else None)


def run(evaluator: RuleBased, response: Any, scale: str = "binary", **more: Any) -> list[EvaluationResult]:
    evaluation_input = EvaluationInput(response=response, **more)
    return asyncio.run(evaluator.evaluate(evaluation_input, [EvaluationCriteria(name="R", scale=scale)]))


@pytest.mark.parametrize(
    ("config", "response", "reason"),
    [
        ({"type": "length", "min": 3}, "ab", "too_short"),
        ({"type": "length", "max": 1}, "\U0001f600", "too_long"),
        ({"type": "length", "min": 2, "max": 2}, "\U0001f600", None),
        ({"type": "length"}, "", None),
        ({"type": "regex", "pattern": "b", "expectedOutcome": "match"}, "a", "pattern_missing"),
        ({"type": "regex", "pattern": "a", "expectedOutcome": "no_match"}, "a", "forbidden_pattern"),
        ({"type": "regex", "pattern": "a", "flags": None}, "b", None),
        ({"type": "includes", "keywords": ["a", "b"]}, "A", "missing_keyword"),
        ({"type": "includes", "keywords": ["a"], "expectedOutcome": "none"}, "A", "forbidden_keyword"),
        ({"type": "includes", "keywords": [], "expectedOutcome": "any"}, "A", "missing_keyword"),
        ({"type": "json_parse"}, "[1,]", "invalid_json"),
        ({"type": "json_parse"}, "9" * 5000, None),
        ({"type": "json_parse"}, {"a": 1}, None),
        ({"type": "json_parse"}, None, "invalid_json"),
    ],
)
def test_a_failed_rule_says_why(config: dict[str, Any], response: Any, reason: str | None) -> None:
    """Each check fails with its own word from the closed list and passes without one."""
    (result,) = run(rules(config), response)
    assert (result.score, result.reason_code) == (reason is None, reason)
    assert reason is None or reason in RuleBased.reason_codes
    assert result.reasoning == f"rule {config['type']} on response: {'failed' if reason else 'passed'}"


@pytest.mark.parametrize(
    ("scale", "values"),
    [("binary", (False, True)), ("numeric", (0, 1)), ("likert5", (1, 5)), ("string", ("fail", "pass"))],
)
def test_the_scale_says_what_passing_is_worth(scale: str, values: tuple[Any, Any]) -> None:
    """A verdict becomes the scale's worst or best score, and the label stays the verdict."""
    check = rules({"type": "length", "min": 2})
    for response, value, label in (("a", values[0], "fail"), ("ab", values[1], "pass")):
        (result,) = run(check, response, scale)
        assert result.score == value
        assert type(result.score) is type(value)
        assert result.label == label


def test_a_declared_range_takes_the_verdict() -> None:
    """On a declared range a passed rule is the best there is, whatever the scale is called."""
    criterion = EvaluationCriteria(name="R", scale="likert5", minimum=0, maximum=10)
    (result,) = asyncio.run(rules({"type": "length"}).evaluate(EvaluationInput(response="a"), [criterion]))
    assert (result.score, result.normalized) == (True, 1.0)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"type": "mystery"}, "config"),
        ("length", "config"),
        ({"type": "includes"}, "config.keywords"),
        ({"type": "includes", "keywords": ["a"], "expectedOutcome": "most"}, "config.expectedOutcome"),
        ({"type": "regex", "pattern": "("}, "config.pattern"),
        ({"type": "regex", "pattern": "a", "flags": "zz"}, "config.flags"),
        ({"type": "length", "minimum": 3}, "config.minimum"),
        ({"type": "length", "min": 3, "max": 2}, "config"),
    ],
)
def test_a_wrong_rule_is_refused_at_load(config: Any, field: str) -> None:
    """A rule that could never work is named by its path before anything runs."""
    with pytest.raises(ConfigurationError) as caught:
        RuleBased.load({"rules": [{"criterionName": "R", "config": config}]}, path="evaluators[2]")
    assert caught.value.path == f"evaluators[2].rules[0].{field}"
    with pytest.raises(ConfigurationError):
        RuleBased(rules=[{"criterion_name": "R", "config": config}])


@pytest.mark.parametrize(
    "config",
    [
        {"type": "mystery"},
        None,
        {"type": "includes"},
        {"type": "regex", "pattern": "("},
        {"type": "length", "min": "x"},
    ],
)
def test_a_wrong_rule_of_the_originals_form_fails_in_every_evaluation(config: Any) -> None:
    """In the originals' form the rule is kept: a failed result without a score, and the other rules go on."""
    evaluator = rules(config, {"type": "length"}, original=True)
    wrong, right = run(evaluator, "text", "likert5")
    assert (wrong.status, wrong.score, wrong.filler, wrong.error_type) == ("failed", None, 1, "invalid_rule")
    assert right.score == 5
    assert resolve(Evaluator, evaluator.model_dump(mode="json")) == evaluator


def test_the_originals_form_is_lenient_where_the_original_is() -> None:
    """Unknown fields are ignored, an unknown outcome fails without an error or means ``no_match``."""
    lenient = rules(
        {"type": "length", "max": 9, "unit": "words"},
        {"type": "includes", "keywords": ["t"], "expectedOutcome": "most"},
        {"type": "regex", "pattern": "x", "expectedOutcome": "perhaps"},
        original=True,
        note="any",
    )
    assert [(result.score, result.error) for result in run(lenient, "text")] == [
        (True, None),
        (False, None),
        (False, None),
    ]
    assert [(result.score, result.error) for result in run(lenient, "tet")][2] == (True, None)


def test_no_rules_are_refused() -> None:
    """An evaluator without rules would say nothing for ever."""
    with pytest.raises(ConfigurationError, match="at least one rule"):
        RuleBased.load({"rules": []})


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
    """Nesting beyond what can be followed is no verdict on the answer."""
    (result,) = run(rules({"type": "json_parse"}), "[" * 200_000)
    assert (result.score, result.error_type) == (None, "too_deep")


def test_criteria_are_those_of_the_rules() -> None:
    """Each named criterion once, in rule order, as pass or fail."""
    named = [{"criterionName": name, "config": {"type": "length"}} for name in ("B", "A", "B")]
    criteria = RuleBased.load({"rules": named}).criteria()
    assert [(criterion.name, criterion.scale) for criterion in criteria] == [("B", "binary"), ("A", "binary")]


def test_patterns_do_not_run_on_the_loop() -> None:
    """With a pattern that can take long the lane is ``cpu``, otherwise ``free``."""
    assert rules({"type": "length"}, {"type": "json_parse"}).lane == "free"
    assert rules({"type": "length"}, {"type": "regex", "pattern": "a"}).lane == "free"
    assert rules({"type": "length"}, {"type": "regex", "pattern": "a(?=b)"}).lane == "cpu"


def test_a_catastrophic_pattern_is_cut_off() -> None:
    """A search beyond its time limit is a failed result; the next rule is applied."""
    evaluator = RuleBased.load(
        {
            "regexLimitS": 0.001,
            "rules": [
                {"criterionName": "R", "config": {"type": "regex", "pattern": "(?=a)(a+)+$"}},
                {"criterionName": "R", "config": {"type": "length"}},
            ],
        }
    )
    cut, whole = run(evaluator, "a" * 50_000 + "b")
    assert (cut.score, cut.error_type, cut.filler) == (None, "timeout", False)
    assert whole.score is True


@given(text=st.text(max_size=200))
@settings(deadline=None)
def test_any_text_gets_a_verdict(text: str) -> None:
    """No text, not even one with lone surrogates, makes a rule raise."""
    evaluator = rules(
        {"type": "length", "min": 2, "max": 50},
        {"type": "regex", "pattern": "^[a-z\\u00e9]+\\b.$", "flags": "iu", "expectedOutcome": "match"},
        {"type": "includes", "keywords": ["a", "é"], "expectedOutcome": "any"},
        {"type": "json_parse"},
    )
    results = run(evaluator, text + "\ud800")
    assert [type(result.score) for result in results] == [bool] * 4


MATCHES = [
    ("a$", "", "a\n", False), ("a$", "m", "a\nb", True), ("^b", "", "a\nb", False), ("^b", "m", "a\u2028b", True),
    (".", "", "\r", False), (".", "", "\u2029", False), (".", "s", "\n", True), ("[.]", "", "a", False),
    (r"\w", "", "é", False), (r"\W", "", "é", True), (r"\d", "", "\u0663", False), (r"\s", "", "\ufeff", True),
    (r"\s", "", "\x85", False), (r"[^\S]", "", "\u00a0", True), (r"\bfoo\b", "", "éfoo", True),
    (r"\Bo", "", "o", False), (r"(?<y>\d)-\k<y>", "", "1-1", True), (r"(?<y>\d)-\k<y>", "", "1-2", False),
    (r"\k<y>", "", "k<y>", True), (r"\1(a)", "", "a", True), (r"(?:(a)|b)\1c", "", "bc", True),
    (r"(a)\1", "i", "aA", True), ("k", "i", "\u212a", False), ("k", "iu", "\u212a", True), ("é", "i", "É", True),
    ("[à-ö]", "i", "É", True), ("[^a-z]", "i", "K", False), (r"[\W]", "i", "k", False), ("i", "i", "\u0130", False),
    ("[]", "", "a", False), ("[^]", "", "\n", True), ("a{,2}", "", "a{,2}", True), ("a{e<=1}", "", "a{e<=1}", True),
    ("[[:alpha:]]", "", "a]", True), ("[[:alpha:]]", "", "b", False), (r"[\w-z]", "", "-", True),
    (r"\p{Lu}", "u", "É", True), (r"\p{Lu}", "", "p{Lu}", True), (r"[\p{Lu}\d]", "u", "7", True),
    (r"\u{1f600}", "u", "\U0001f600", True), (r"\uD83D\uDE00", "", "\U0001f600", True), ("b", "y", "ab", False),
    (r"\x41\cA\0\t", "", "A\x01\0\t", True), (r"\07\8", "", "\x078", True), (r"\c", "", "\\c", True),
    (r"[\b]", "", "\b", True), ("a{99999999999}", "", "a", False), ("(?=a)*b", "", "b", True),
    ("x y#", "", "x y#", True), ("[^a]|[^b]", "", "a", True),
    ("(?<!a)b", "", "ab", False), ("a*?b", "dgv", "aab", True), (r"\xg", "", "xg", True), (r"\u12", "", "u12", True),
    (r"\ud83dx", "", "\U0001f600", False), ("]}", "", "]}", True), (r"\P{L}", "iu", "1", True),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "flags", "text", "found"), MATCHES)
def test_patterns_mean_what_they_mean_in_javascript(pattern: str, flags: str, text: str, found: bool) -> None:
    """Classes, borders, anchors, references, escapes and folding are JavaScript's."""
    assert compile_pattern(pattern, flags).found(text) is found


REFUSED = [
    ("(", ""), (")", ""), ("[a", ""), ("*", ""), ("a**", ""), ("a++", ""), ("^*", ""), ("a{2,1}", ""), ("[z-a]", ""),
    ("\\", ""), ("(?i)a", ""), ("(?>a)", ""), ("(?P<a>b)", ""), ("(?<1>a)", ""), ("(?<a>x)(?<a>y)", ""),
    (r"(?<a>x)\k<b>", ""), ("(?<=a)*", ""), ("(?=a)*", "u"), ("{", "u"), ("}", "u"), (r"\-", "u"), (r"\1", "u"),
    (r"\00", "u"), (r"\c", "u"), (r"\xg", "u"), (r"\u{110000}", "u"), (r"\p{Nope}", "u"), (r"\pL", "u"),
    (r"\p{L&}", "u"),
    (r"[\w-z]", "u"), ("[a--b]", "v"), ("[[a]]", "v"), ("a", "uv"), ("a", "gg"), ("a", "x"), ("(?<a", ""),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "flags"), REFUSED)
def test_what_javascript_refuses_is_refused(pattern: str, flags: str) -> None:
    """Syntax that only another engine knows, wrong flags, and the ``v`` flag's set operations do not get through."""
    with pytest.raises(ValueError, match=r"."):
        compile_pattern(pattern, flags)


SIGNS = st.text(alphabet="ab01(){}[]^$\\|?*+.,:<>=!-kdwsWbBpPux&~é", max_size=12)


@given(pattern=SIGNS, flags=st.sampled_from(["", "i", "u", "iu", "m"]))
@settings(deadline=None)
def test_any_pattern_compiles_or_is_refused(pattern: str, flags: str) -> None:
    """A pattern is translated or refused with a ValueError; nothing else comes out, no warning either."""
    try:
        compiled = compile_pattern(pattern, flags)
    except ValueError:
        return
    assert compiled.found("ab", limit_s=10.0) in (True, False)
