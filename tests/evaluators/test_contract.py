"""Every built-in evaluator keeps the contract: awkward inputs, dumps, worker processes, other
criteria.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenteval_otel.components.loading import resolve
from agenteval_otel.engine.execution.wire import load_evaluator, serialize_evaluator
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.testing import check_component, check_evaluator
from tests.evaluators.support import results_of

RULE = {"criterion": "Short", "type": "length", "max": 3}
SEARCH = {"name": "search", "min_calls": 2, "argument_checks": {"query": {"not_empty": True}}}


def tool(**rule: Any) -> dict[str, Any]:
    return {"type": "ToolUsage", "rules": [{"criterion_name": "T", **rule}]}


def text(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "criterion_name": "C", **fields}


CONFIGURATIONS = [
    {"type": "ResponseHealth"},
    {"type": "RuleBased", "rules": [RULE]},
    {
        "type": "RuleBased",
        "rules": [{"criterion": "K", "type": "keyword_count", "keywords": ["a"], "min": 1}],
    },
    text("KeywordCoverage", expectedKeywords=["a", "é"]),
    text("Toxicity", toxicTerms=["bad", "f***", "хам", "💩"]),
    text("Toxicity", toxicTerms=["bad"] * 101, matchWholeWord=False),
    text("Sentiment"),
    text("Sentiment", outputType="category"),
    text("Sentiment", lexicon="afinn", agentdockTokens=True),
    text("LexicalSimilarity"),
    text("LexicalSimilarity", algorithm="jaro-winkler", timeout_s=2.0),
    text("LexicalSimilarity", algorithm="levenshtein", without_reference="fail"),
    text("NLPAccuracy", embedder={"type": "hashing", "dimensions": 64}, similarity_threshold=0),
    {"type": "ExactMatch", "expected": "yes"},
    {"type": "ExactMatch"},
    {"type": "Contains", "substrings": ["a", "é"]},
    {"type": "CostWithin", "max_cost_usd": 0.01},
    {"type": "CompletedWithin", "limit_s": 2},
    {"type": "ToolUse", "expectations": [SEARCH, {"name": "answer", "arguments_contain": "Paris"}]},
    {
        "type": "ToolUse",
        "expectations": [{"name": "answer", "arguments_schema": {"type": "object"}}],
    },
    tool(expected_tool_name="search", is_required=True),
    tool(
        expected_tool_name="search",
        argument_checks={"query": {"type": "string", "pattern": "^[A-Z]"}},
    ),
    tool(
        expected_tool_name="search", arguments_schema={"required": ["query"]}, checked_calls="all"
    ),
    {"type": "TurnsToResolution", "max_turns": 3, "phrases": ["done"]},
    {"type": "Repetition"},
    {"type": "UnansweredQuestions", "similarity": 0.7},
    {"type": "ToolLoops", "evaluates": "conversation"},
    {"type": "ErrorRecovery", "same_purpose": [["a", "b"]], "error_pattern": "no such"},
    {"type": "DefinedTools"},
    {"type": "StepEfficiency", "expected_steps": 3},
    {"type": "TrajectoryMatch"},
    {
        "type": "TrajectoryMatch",
        "order": "unordered",
        "expected": [{"name": "a", "arguments": {"token": "t"}}],
    },
    tool(forbidden_tools=["delete"], sequence=["search", "answer"]),
    tool(min_calls=1, max_calls=3),
]


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
        (text("LexicalSimilarity"), "inline"),
        (text("LexicalSimilarity", max_characters=50_000), "process"),
        (text("LexicalSimilarity", algorithm="levenshtein"), "process"),
        (text("LexicalSimilarity", algorithm="levenshtein", max_characters=2_000), "inline"),
    ],
)
def test_what_may_take_long_leaves_the_loop_alone(
    configuration: dict[str, Any], execution: str
) -> None:
    """Long lists of terms, terms that come with the input, and measures whose time grows with both
    texts.
    """
    assert resolve(Evaluator, configuration).resolved_execution == execution
