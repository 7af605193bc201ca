"""RuleBased, its checks and the translation of JavaScript patterns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.components import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, RuleBased
from agenteval_otel.execution.portable import load_evaluator, serialize_evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.patterns import compile_pattern
from agenteval_otel.testing import check_component

ORIGINAL = {"original": True}
LIST = {"type": "array", "items": {"type": "integer"}}


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
    assert reason is None or reason in RuleBased.reason_codes
    assert result.reasoning is not None
    assert result.reasoning.startswith(f"rule {config['type']} on response: {'failed' if reason else 'passed'}")


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
        ({"type": "keyword_count", "keywords": ["a"]}, "config"),
        ({"type": "keyword_count", "keywords": [], "min": 1}, "config"),
        ({"type": "keyword_count", "keywords": [""], "min": 1}, "config.keywords[0]"),
        ({"type": "keyword_count", "keywords": ["a"], "min": 2, "max": 1}, "config"),
        ({"type": "keyword_count", "keywords": ["a"], "min": -1}, "config.min"),
        ({"type": "json_schema"}, "config"),
        ({"type": "json_schema", "schema": {}}, "config.schema"),
        ({"type": "json_schema", "definition": {"type": "strin"}}, "config.definition"),
        ({"type": "json_schema", "definition": {"$ref": "http://127.0.0.1:1/a.json"}}, "config.definition"),
        ({"type": "json_schema", "definition": "{"}, "config.definition"),
        ({"type": "json_schema", "definition": 7}, "config.definition"),
        ({"type": "json_schema", "definitionFile": "/nowhere/schema.json"}, "config"),
        ({"type": "json_schema", "definition": {}, "definitionFile": "schema.json"}, "config"),
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


def test_rules_that_the_originals_do_not_have_are_strict_in_their_form_too() -> None:
    """There is no leniency of an original to keep: a wrong one is refused at load, a right one runs."""
    with pytest.raises(ConfigurationError, match="expected min, max or both"):
        rules({"type": "keyword_count", "keywords": ["a"]}, original=True)
    with pytest.raises(ConfigurationError, match="not a JSON Schema"):
        rules({"type": "json_schema", "definition": {"type": "strin"}}, original=True)
    assert run(rules({"type": "json_schema", "definition": LIST}, original=True), "[1]")[0].score is True


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
    found = []
    for kind in ("string", "integer"):
        definition: Any = {"type": kind}
        for name in ("password", "street", "address", "person", "order"):
            definition = {"type": "object", "properties": {name: definition}}
        evaluator = rules({"type": "json_schema", "definition": definition})
        check_component(evaluator, Evaluator)
        found.append(evaluator.fingerprint)
    assert found[0] != found[1]


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
def test_json_that_cannot_be_followed_has_no_verdict(text: str, error_type: str) -> None:
    """Nesting and numbers beyond what is looked at are a failure, not a verdict."""
    (result,) = run(rules({"type": "json_schema", "definition": LIST}), text)
    assert (result.score, result.error_type) == (None, error_type)


def test_ten_megabytes_get_a_verdict_or_a_failure() -> None:
    """A text far beyond what is captured is judged offline; what has too many values for a schema is a failure."""
    check = rules(
        {"type": "length", "max": 10_485_761},
        {"type": "includes", "keywords": ["2"], "expectedOutcome": "any"},
        {"type": "keyword_count", "keywords": ["1"], "min": 5_242_880},
        {"type": "json_parse"},
        {"type": "json_schema", "definition": LIST},
    )
    results = run(check, "[" + "1," * 5_242_879 + "1]")
    assert [result.score for result in results] == [True, False, True, True, None]
    assert results[-1].error_type == "too_large"


def test_the_place_may_stand_in_the_check() -> None:
    """The originals' documents write the source into the rule's own settings; the rule's field comes first."""
    check = {"type": "includes", "keywords": ["a"], "expectedOutcome": "all", "sourceField": "prompt"}
    for original in (False, True):
        assert run(rules(check, original=original), "b", prompt="a")[0].score is True
        assert run(rules(check, original=original, sourceTextField="response"), "b", prompt="a")[0].score is False
    assert run(rules({"type": "json_parse", "sourceField": "prompt"}), "{", prompt="{}")[0].score is True


def test_criteria_are_those_of_the_rules() -> None:
    """Each named criterion once, in rule order, as pass or fail."""
    named = [{"criterionName": name, "config": {"type": "length"}} for name in ("B", "A", "B")]
    criteria = RuleBased.load({"rules": named}).criteria()
    assert [(criterion.name, criterion.scale) for criterion in criteria] == [("B", "binary"), ("A", "binary")]


def test_patterns_do_not_run_on_the_loop() -> None:
    """With a pattern that can take long they prefer a worker process, otherwise they run inline."""
    assert rules({"type": "length"}, {"type": "json_parse"}).resolved_execution == "inline"
    assert rules({"type": "length"}, {"type": "regex", "pattern": "a"}).resolved_execution == "inline"
    assert rules({"type": "length"}, {"type": "regex", "pattern": "a(?=b)"}).resolved_execution == "process"
    assert rules({"type": "keyword_count", "keywords": ["a"] * 100, "max": 1}).resolved_execution == "inline"
    assert rules({"type": "keyword_count", "keywords": ["a"] * 101, "max": 1}).resolved_execution == "process"
    assert rules({"type": "includes", "keywords": ["a"] * 101}).resolved_execution == "process"
    assert rules({"type": "json_schema", "definition": True}).resolved_execution == "process"


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
        {"type": "keyword_count", "keywords": ["a", "é", "天"], "min": 1, "max": 3},
        {"type": "json_schema", "definition": {"type": ["string", "object"], "maxLength": 3}},
    )
    results = run(evaluator, text + "\ud800")
    assert [type(result.score) for result in results] == [bool] * 6


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON.filter(lambda value: not isinstance(value, str) and value is not None))
@settings(deadline=None)
def test_a_value_and_its_json_are_judged_alike(value: Any) -> None:
    """Whether an answer is a structure or its JSON text, the schema's verdict is the same."""
    check = rules({"type": "json_schema", "definition": {"type": ["object", "number"], "maxProperties": 1}})
    as_value, as_text = run(check, value)[0], run(check, json.dumps(value))[0]
    assert (as_value.score, as_value.reasoning) == (as_text.score, as_text.reasoning)


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


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), float("-inf")])
def test_a_bound_on_the_length_is_a_finite_number(bound: float) -> None:
    """No text is shorter or longer than NaN: each one would pass. The originals' form fails with each text instead."""
    with pytest.raises(ConfigurationError, match=r"rules\[0\].config"):
        rules({"type": "length", "min": bound})
    (result,) = run(rules({"type": "length", "min": bound}, original=True), "text")
    assert (result.error_type, result.filler) == ("invalid_rule", False)


class Raising(dict[str, Any]):
    def get(self, key: str, default: Any = None) -> Any:
        raise KeyError(f"no {key} here")


def test_a_rule_that_raises_does_not_lose_the_others() -> None:
    """Whatever breaks inside of one rule fails that rule alone."""
    evaluator = RuleBased(rules=[
        {"criterion_name": "R", "config": {"type": "length"}, "source_text_field": "context.a"},
        {"criterion_name": "R", "config": {"type": "length", "min": 1}},
    ])  # fmt: skip
    evaluation_input = EvaluationInput(response="r").model_copy(update={"context": Raising()})
    first, second = asyncio.run(evaluator.evaluate(evaluation_input, [EvaluationCriteria(name="R")]))
    assert (first.error_type, first.score, first.filler) == ("KeyError", None, False)
    assert second.score is True


def test_a_rule_that_is_misspelled_has_its_nearest_name() -> None:
    """An unknown type of rule is told with the known ones, and with the one that was probably meant."""
    with pytest.raises(ConfigurationError, match=r"unknown rule type 'lenght' \(did you mean 'length'\?\); known"):
        RuleBased.load({"rules": [{"criterion_name": "short", "config": {"type": "lenght", "max": 3}}]})
