"""Evaluators: an input in, results out. One file each; the contract is in `base`.

Importing this room announces its evaluators to the contract's registry, so that configuration finds them by ``type``;
each is imported when it is used first: of the many a process needs few.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agenteval_otel.evaluators.base import CriterionEvaluator, Evaluator
from agenteval_otel.evaluators.func import Func, as_evaluator
from agenteval_otel.evaluators.health import ResponseHealth

if TYPE_CHECKING:
    from agenteval_otel.evaluators.keywords import KeywordCoverage
    from agenteval_otel.evaluators.llm_judge import LLMJudge
    from agenteval_otel.evaluators.llm_judge_catalogue import (
        AnswerQuality,
        Bias,
        CodeVulnerability,
        Coherence,
        Completeness,
        ContentHarm,
        Equivalence,
        Fluency,
        Groundedness,
        HateAndUnfairness,
        IndirectAttack,
        IntentResolution,
        ProtectedMaterial,
        Relevance,
        Retrieval,
        SelfHarm,
        Sexual,
        TaskAdherence,
        ToolCallAccuracy,
        ToxicLanguage,
        Truth,
        UngroundedAttributes,
        Violence,
    )
    from agenteval_otel.evaluators.operational import CompletedWithin, Contains, CostWithin, ExactMatch
    from agenteval_otel.evaluators.rubric import Rubric
    from agenteval_otel.evaluators.rules.base import RuleCheck, RuleFailure
    from agenteval_otel.evaluators.rules.rule_based import RuleBased
    from agenteval_otel.evaluators.rules.structure import Json, JsonSchema
    from agenteval_otel.evaluators.rules.text import Includes, KeywordCount, Length, Regex
    from agenteval_otel.evaluators.semantic import NLPAccuracy
    from agenteval_otel.evaluators.sentiment.evaluator import Sentiment
    from agenteval_otel.evaluators.similarity import LexicalSimilarity
    from agenteval_otel.evaluators.tool_usage import ToolUsage
    from agenteval_otel.evaluators.tool_use import ToolUse
    from agenteval_otel.evaluators.toxicity import Toxicity

__all__ = [
    "AnswerQuality",
    "Bias",
    "CodeVulnerability",
    "Coherence",
    "CompletedWithin",
    "Completeness",
    "Contains",
    "ContentHarm",
    "CostWithin",
    "CriterionEvaluator",
    "Equivalence",
    "Evaluator",
    "ExactMatch",
    "Fluency",
    "Func",
    "Groundedness",
    "HateAndUnfairness",
    "Includes",
    "IndirectAttack",
    "IntentResolution",
    "Json",
    "JsonSchema",
    "KeywordCount",
    "KeywordCoverage",
    "LLMJudge",
    "Length",
    "LexicalSimilarity",
    "NLPAccuracy",
    "ProtectedMaterial",
    "Regex",
    "Relevance",
    "ResponseHealth",
    "Retrieval",
    "Rubric",
    "RuleBased",
    "RuleCheck",
    "RuleFailure",
    "SelfHarm",
    "Sentiment",
    "Sexual",
    "TaskAdherence",
    "ToolCallAccuracy",
    "ToolUsage",
    "ToolUse",
    "ToxicLanguage",
    "Toxicity",
    "Truth",
    "UngroundedAttributes",
    "Violence",
    "as_evaluator",
]

# Each evaluator's name is the word of its type.
_EVALUATORS = {
    "keywords": ("KeywordCoverage",),
    "llm_judge": ("LLMJudge",),
    "llm_judge_catalogue": (
        "AnswerQuality", "Bias", "CodeVulnerability", "Coherence", "Completeness", "ContentHarm", "Equivalence",
        "Fluency", "Groundedness", "HateAndUnfairness", "IndirectAttack", "IntentResolution", "ProtectedMaterial",
        "Relevance", "Retrieval", "SelfHarm", "Sexual", "TaskAdherence", "ToolCallAccuracy", "ToxicLanguage", "Truth",
        "UngroundedAttributes", "Violence",
    ),
    "operational": ("CompletedWithin", "Contains", "CostWithin", "ExactMatch"),
    "rules.rule_based": ("RuleBased",),
    "semantic": ("NLPAccuracy",),
    "sentiment.evaluator": ("Sentiment",),
    "similarity": ("LexicalSimilarity",),
    "tool_usage": ("ToolUsage",),
    "tool_use": ("ToolUse",),
    "toxicity": ("Toxicity",),
}  # fmt: skip
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _EVALUATORS.items() for name in names}
for _name, _module in _MODULE_OF.items():
    Evaluator.registry.announce(_module, _name)
_MODULE_OF["Rubric"] = f"{__name__}.rubric"
_MODULE_OF |= dict.fromkeys(("RuleCheck", "RuleFailure"), f"{__name__}.rules.base")
_MODULE_OF |= dict.fromkeys(("Includes", "KeywordCount", "Length", "Regex"), f"{__name__}.rules.text")
_MODULE_OF |= dict.fromkeys(("Json", "JsonSchema"), f"{__name__}.rules.structure")
# A suite runs evaluators, so it stands in the runner's room, above; it is looked for here, beside what it runs.
_MODULE_OF |= dict.fromkeys(("Suite", "SuiteResult"), "agenteval_otel.engine")


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value
