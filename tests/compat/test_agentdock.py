"""AgentDock's entries: the defaults that they imply, and what AgentDock takes that our own form
refuses.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agenteval_otel import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, LLMJudge
from agenteval_otel.evaluators.compat.agentdock import load_evaluator


def entry(kind: str, **config: Any) -> Any:
    return load_evaluator({"type": kind, "config": {"criterionName": "c", **config}})


def result_of(evaluator: Evaluator, scale: str = "numeric", **fields: Any) -> EvaluationResult:
    criteria = [
        EvaluationCriteria(name=criterion.name, scale=scale) for criterion in evaluator.criteria()
    ]
    (result,) = asyncio.run(
        evaluator.evaluate(EvaluationInput.model_validate({"response": "ab", **fields}), criteria)
    )
    return result


IMPLIED = {
    "LexicalSimilarity": {"ngram_size": 1, "unit": "utf16", "without_reference": "fail"},
    "Sentiment": {"lexicon": "afinn", "agentdock_tokens": True},
    "NLPAccuracy": {"without_reference": "fail"},
}


@pytest.mark.parametrize("kind", IMPLIED)
def test_an_entry_implies_agentdocks_defaults(kind: str) -> None:
    """They are options of the evaluator, and an entry that sets one keeps its own value."""
    more: dict[str, Any] = {"embedder": "hashing"} if kind == "NLPAccuracy" else {}
    evaluator = entry(kind, **more)
    assert {name: getattr(evaluator, name) for name in IMPLIED[kind]} == IMPLIED[kind]
    own: dict[str, dict[str, Any]] = {
        "LexicalSimilarity": {"ngramSize": 3, "unit": "character", "without_reference": "skip"},
        "Sentiment": {"lexicon": "builtin", "agentdockTokens": False},
        "NLPAccuracy": {"withoutReference": "skip"},
    }
    assert entry(kind, **more, **own[kind]) == Evaluator.registry[kind].load(
        {"criterion_name": "c", **more, **own[kind]}
    )


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("KeywordCoverage", {"keywordsSourceField": "other"}),
        ("KeywordCoverage", {"expectedKeywords": ["a"], "sourceTextField": "answer"}),
        ("Toxicity", {"toxicTerms": ["a"], "sourceTextField": "answer"}),
        ("LexicalSimilarity", {"sourceField": "answer"}),
    ],
)
def test_an_unknown_place_fails_each_evaluation(kind: str, config: dict[str, Any]) -> None:
    """AgentDock loads it; there is nothing in such a place. Our own form refuses it."""
    assert result_of(entry(kind, **config), groundTruth="ab").status == "failed"
    with pytest.raises(ConfigurationError, match="expected"):
        Evaluator.registry[kind].load({"criterion_name": "c", **config})


@pytest.mark.parametrize(
    "rule", [{}, {"isRequired": False}, {"expectedToolName": ""}, {"forbiddenTools": []}]
)
def test_a_rule_without_a_tool_has_no_score(rule: dict[str, Any]) -> None:
    """It gives a failed result; our own form refuses it."""
    evaluator = load_evaluator(
        {"type": "ToolUsage", "config": {"rules": [{"criterionName": "T", **rule, "x": 1}]}}
    )
    result = result_of(evaluator, "likert5")
    assert (result.status, result.error_type, result.score) == ("failed", "invalid_rule", None)
    assert result.filler is False
    with pytest.raises(ConfigurationError, match="expected expected_tool_name"):
        Evaluator.registry["ToolUsage"].load(
            {"rules": [{"criterionName": "T", "isRequired": False}]}
        )


def test_a_judges_template_may_hold_other_braces() -> None:
    """A placeholder that AgentDock does not know stays text."""

    async def generate(prompt: str) -> str:
        return "{}"

    judge = entry("LLMJudge", llm=generate, promptTemplate="{{response}} {{mood}}", unknown=1)
    assert isinstance(judge, LLMJudge)
    assert (judge.reply_form, judge.placement, judge.needs) == ("score", "inline", ())


def test_an_evaluator_with_a_field_named_config_is_not_an_entry() -> None:
    """A mapping for a user's own evaluator that has such a field is read as it stands."""

    class Configured(Evaluator, type="CompatTestConfigured"):
        config: dict[str, int]

    try:
        evaluator = load_evaluator({"type": "CompatTestConfigured", "config": {"a": 1}})
        assert isinstance(evaluator, Configured)
        assert evaluator.config == {"a": 1}
    finally:
        Evaluator.registry.pop("CompatTestConfigured", None)


@pytest.mark.parametrize("limit", ["fast", True, [1]])
def test_a_limit_in_milliseconds_is_a_number(limit: Any) -> None:
    """GoGrid's; the error names it and what was found."""
    assert load_evaluator({"type": "CompletedWithin", "config": {"limitMs": 1_500}}).limit_s == 1.5  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigurationError, match=r"limit_ms: expected a number of milliseconds, found"
    ):
        load_evaluator({"type": "CompletedWithin", "config": {"limitMs": limit}})
