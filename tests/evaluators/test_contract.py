"""Every built-in evaluator keeps the contract: awkward inputs, dumps, worker processes, other
criteria.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from agenteval_otel import EvaluationRunConfig
from agenteval_otel.components.loading import resolve
from agenteval_otel.engine.execution.wire import load_evaluator, serialize_evaluator
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.testing import check_component, check_evaluator
from tests.evaluators.support import result_of, results_of


def tool(**fields: Any) -> dict[str, Any]:
    return {"type": "ToolUsage", "rules": [{"criterion_name": "T", **fields}]}


def text(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "criterion_name": "C", **fields}


def rule(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "RuleBased", "rules": [{"criterion": "R", "type": kind, **fields}]}


CONFIGURATIONS = yaml.safe_load("""
- type: ResponseHealth
- {type: RuleBased, rules: [{criterion: R, type: length, max: 3}]}
- {type: RuleBased, rules: [{criterion: R, type: keyword_count, keywords: [a], min: 1}]}
- {type: KeywordCoverage, criterion_name: C, expectedKeywords: [a, é]}
- {type: Toxicity, criterion_name: C, toxicTerms: [bad, "f***", хам, 💩]}
- {type: Sentiment, criterion_name: C}
- {type: Sentiment, criterion_name: C, outputType: category}
- {type: Sentiment, criterion_name: C, lexicon: afinn, agentdockTokens: true}
- {type: LexicalSimilarity, criterion_name: C}
- {type: LexicalSimilarity, criterion_name: C, algorithm: jaro-winkler, timeout_s: 2.0}
- {type: LexicalSimilarity, criterion_name: C, algorithm: levenshtein, without_reference: fail}
- {type: NLPAccuracy, criterion_name: C, embedder: {type: hashing, dimensions: 64}, similarity_threshold: 0}
- {type: ExactMatch, expected: "yes"}
- type: ExactMatch
- {type: Contains, substrings: [a, é]}
- {type: CostWithin, max_cost_usd: 0.01}
- {type: CompletedWithin, limit_s: 2}
- type: ToolUse
  expectations:
    - {name: search, min_calls: 2, argument_checks: {query: {not_empty: true}}}
    - {name: answer, arguments_contain: Paris}
- {type: ToolUse, expectations: [{name: answer, arguments_schema: {type: object}}]}
- type: ToolUsage
  rules:
    - {criterion_name: A, expected_tool_name: search, is_required: true}
    - criterion_name: B
      expected_tool_name: search
      argument_checks: {query: {type: string, pattern: "^[A-Z]"}}
    - criterion_name: C
      expected_tool_name: search
      arguments_schema: {required: [query]}
      checked_calls: all
    - {criterion_name: D, forbidden_tools: [delete], sequence: [search, answer]}
    - {criterion_name: E, min_calls: 1, max_calls: 3}
- {type: TurnsToResolution, max_turns: 3, phrases: [done]}
- type: Repetition
- {type: UnansweredQuestions, similarity: 0.7}
- {type: ToolLoops, evaluates: conversation}
- {type: ErrorRecovery, same_purpose: [[a, b]], error_pattern: no such}
- type: DefinedTools
- {type: StepEfficiency, expected_steps: 3}
- type: TrajectoryMatch
- {type: TrajectoryMatch, order: unordered, expected: [{name: a, arguments: {token: t}}]}
""")
CONFIGURATIONS.append(text("Toxicity", toxicTerms=["bad"] * 101, matchWholeWord=False))


@pytest.mark.parametrize(
    "configuration", CONFIGURATIONS, ids=lambda configuration: configuration["type"]
)
def test_built_in_evaluators_keep_the_contract(configuration: dict[str, Any]) -> None:
    """They survive awkward inputs, come back from a dump and a worker process, and leave other
    criteria alone.
    """
    evaluator = resolve(Evaluator, configuration)
    check_component(evaluator, Evaluator)
    check_evaluator(evaluator)
    check_evaluator(
        evaluator, [EvaluationInput(response="a" * 300_000, ground_truth="b" * 300_000)]
    )
    assert resolve(Evaluator, evaluator.model_dump(mode="json")) == evaluator
    again = load_evaluator(json.loads(json.dumps(serialize_evaluator(evaluator))))
    assert (again, again.fingerprint) == (evaluator, evaluator.fingerprint)
    assert results_of(evaluator, "text", criteria=[]) == []
    assert results_of(evaluator, "text", criteria=[EvaluationCriteria(name="Other")]) == []


OF_TEXT = [
    rule("length"),
    text("KeywordCoverage", expectedKeywords=["a"]),
    text("Toxicity", toxicTerms=["a"]),
    text("Sentiment"),
    text("LexicalSimilarity"),
    {"type": "ExactMatch", "expected": "a"},
    {"type": "Contains", "substrings": ["a"]},
]


@pytest.mark.parametrize("configuration", OF_TEXT, ids=lambda configuration: configuration["type"])
def test_an_answer_without_text_is_a_failure(configuration: dict[str, Any]) -> None:
    """It is neither right nor wrong."""
    for response in ({"a": 1}, {"role": "assistant"}):
        result = result_of(resolve(Evaluator, configuration), response, ground_truth="a")
        assert (result.status, result.error_type, result.score) == ("failed", "missing_text", None)


def nested(kind: str) -> dict[str, Any]:
    """A schema whose last word stands deep inside, below a name like that of a secret."""
    definition: dict[str, Any] = {"type": kind}
    for name in ("password", "street", "address", "person", "order"):
        definition = {"type": "object", "properties": {name: definition}}
    return definition


def checked(check: Any) -> dict[str, Any]:
    return tool(expected_tool_name="s", argument_checks=check)


NEARLY_EQUAL = [
    (checked({"page_token": {"type": "string"}}), checked({"page_token": {"type": "integer"}})),
    (
        checked({"a": {"equals": {"b": {"c": {"d": [1]}}}}}),
        checked({"a": {"equals": {"b": {"c": {"d": [2]}}}}}),
    ),
    (
        tool(expected_tool_name="s", arguments_schema=nested("string")),
        tool(expected_tool_name="s", arguments_schema=nested("integer")),
    ),
    (rule("json", definition=nested("string")), rule("json", definition=nested("integer"))),
    (
        {"type": "ToolUse", "expectations": [{"name": "s", "arguments_schema": nested("string")}]},
        {"type": "ToolUse", "expectations": [{"name": "s", "arguments_schema": nested("integer")}]},
    ),
    (
        {"type": "TrajectoryMatch", "expected": [{"name": "a", "arguments": {"api_key": "k"}}]},
        {"type": "TrajectoryMatch", "expected": [{"name": "a", "arguments": {"api_key": "l"}}]},
    ),
]


@pytest.mark.parametrize(
    ("configuration", "other"), NEARLY_EQUAL, ids=[first["type"] for first, _ in NEARLY_EQUAL]
)
def test_what_is_expected_of_data_stands_in_dumps(
    configuration: dict[str, Any], other: dict[str, Any]
) -> None:
    """What is named like a secret and what is nested deeply come back from a dump, and tell
    fingerprints apart.
    """
    config = EvaluationRunConfig(evaluators=[configuration])
    (evaluator,) = config.evaluators
    assert evaluator.fingerprint != resolve(Evaluator, other).fingerprint
    for by_alias in (True, False):
        dump = config.model_dump(mode="json", by_alias=by_alias)
        (again,) = EvaluationRunConfig.model_validate(dump).evaluators
        assert (again, again.fingerprint) == (evaluator, evaluator.fingerprint)


async def awaited(arguments: Any) -> bool:
    return True


REFUSED = [
    (text("KeywordCoverage", expected_keywords=[]), "at least one keyword"),
    (text("KeywordCoverage", keywordsSourceField="other"), "config, groundTruth or context.<path>"),
    (text("Toxicity"), "toxic_terms or terms_file must name at least one term"),
    (text("Toxicity", toxicTerms=["", " "]), "toxic_terms or terms_file must name at least one"),
    (text("LexicalSimilarity", algorithm="cosine"), "'jaro-winkler' or 'levenshtein'"),
    (text("LexicalSimilarity", algorithm=None), "'jaro-winkler' or 'levenshtein'"),
    (text("NLPAccuracy", embedder="hash"), "embedder: unknown embedder type 'hash'"),
    ({"type": "ErrorRecovery", "error_pattern": "("}, "error_pattern"),
    (
        {"type": "TurnsToResolution", "max_turns": 3},
        "give tools, phrases, user_phrases or end_mark",
    ),
    (tool(argument_checks={}), "need expected_tool_name"),
    (tool(is_required=True), "need expected_tool_name"),
    (tool(expected_tool="s"), "did you mean 'expected_tool_name'"),
    (tool(), "expected expected_tool_name, forbidden"),
    (tool(criterion_name=" "), "must not be blank"),
    (checked(7), "argument_checks: expected a function"),
    (checked(awaited), "need not be awaited"),
    (checked({"a": 7}), "argument_checks.a: expected a mapping"),
    (checked({"a": {"min": "x"}}), "argument_checks.a.min: expected a number"),
    (checked({"a": {"pattern": "("}}), "argument_checks.a.pattern: not a regular expression"),
    (checked({"a": {"minimum": 2}}), "argument_checks.a.minimum: unknown field"),
]


@pytest.mark.parametrize(("configuration", "message"), REFUSED)
def test_what_could_never_work_is_refused_at_load(
    configuration: dict[str, Any], message: str
) -> None:
    """By its place, with what was expected."""
    with pytest.raises(ConfigurationError) as caught:
        resolve(Evaluator, configuration, path="evaluators[0]")
    assert str(caught.value).startswith("evaluators[0]")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("configuration", "execution"),
    [
        *(
            (text(kind, **{terms: ["a"] * count}), "inline" if count == 100 else "thread")
            for count in (100, 101)
            for kind, terms in (
                ("KeywordCoverage", "expectedKeywords"),
                ("Toxicity", "toxicTerms"),
                ("Contains", "substrings"),
            )
        ),
        (text("KeywordCoverage", keywordsSourceField="groundTruth"), "thread"),
        (rule("json"), "inline"),
        (rule("json", definition={"type": "array"}), "process"),
        (rule("regex", pattern="a"), "inline"),
        (rule("regex", pattern="a(?=b)"), "process"),
        (rule("includes", keywords=["a"] * 100), "inline"),
        (rule("includes", keywords=["a"] * 101), "process"),
        (text("LexicalSimilarity"), "inline"),
        (text("LexicalSimilarity", max_characters=50_000), "process"),
        (text("LexicalSimilarity", algorithm="levenshtein"), "process"),
        (text("LexicalSimilarity", algorithm="levenshtein", max_characters=2_000), "inline"),
    ],
)
def test_what_may_take_long_leaves_the_loop_alone(
    configuration: dict[str, Any], execution: str
) -> None:
    """Long lists of terms, terms that come with the input, patterns that RE2 cannot run, schemas,
    and measures whose time grows with both texts.
    """
    assert resolve(Evaluator, configuration).resolved_execution == execution
