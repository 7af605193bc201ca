"""Evaluators: an input in, results out. The contract is in `base`.

Importing this package announces its evaluators to the registry, so that configuration finds them by
``type``. Each is imported when it is first used, because a process needs few of them.
"""

# ruff: noqa: I001 - one import a module, though the names are exported by `as`

from __future__ import annotations

from typing import TYPE_CHECKING

from agenteval_otel.evaluators.base import (
    CriterionEvaluator as CriterionEvaluator,
    Evaluator as Evaluator,
)
from agenteval_otel.evaluators.func import Func as Func
from agenteval_otel.evaluators.health import ResponseHealth as ResponseHealth
from agenteval_otel.runtime.lazy import importing

if TYPE_CHECKING:
    from agenteval_otel.evaluators.conversation.resolution import (
        TurnsToResolution as TurnsToResolution,
    )
    from agenteval_otel.evaluators.conversation.wording import (
        Repetition as Repetition,
        UnansweredQuestions as UnansweredQuestions,
    )
    from agenteval_otel.evaluators.keywords import (
        KeywordCoverage as KeywordCoverage,
        Toxicity as Toxicity,
    )
    from agenteval_otel.evaluators.llm_judge.evaluator import LLMJudge as LLMJudge
    from agenteval_otel.evaluators.llm_judge.presets import (
        Bias as Bias,
        CodeVulnerability as CodeVulnerability,
        Coherence as Coherence,
        Completeness as Completeness,
        Contradiction as Contradiction,
        Equivalence as Equivalence,
        Fluency as Fluency,
        Groundedness as Groundedness,
        HateAndUnfairness as HateAndUnfairness,
        IndirectAttack as IndirectAttack,
        IntentResolution as IntentResolution,
        ProtectedMaterial as ProtectedMaterial,
        Relevance as Relevance,
        Retrieval as Retrieval,
        SelfHarm as SelfHarm,
        Sexual as Sexual,
        TaskAdherence as TaskAdherence,
        ToolCallAccuracy as ToolCallAccuracy,
        ToxicLanguage as ToxicLanguage,
        Truth as Truth,
        UngroundedAttributes as UngroundedAttributes,
        Violence as Violence,
    )
    from agenteval_otel.evaluators.llm_judge.rubric import Rubric as Rubric
    from agenteval_otel.evaluators.lexical_similarity import LexicalSimilarity as LexicalSimilarity
    from agenteval_otel.evaluators.nlp_accuracy import NLPAccuracy as NLPAccuracy
    from agenteval_otel.evaluators.operational import (
        CompletedWithin as CompletedWithin,
        Contains as Contains,
        CostWithin as CostWithin,
        ExactMatch as ExactMatch,
    )
    from agenteval_otel.evaluators.rules import (
        Includes as Includes,
        Json as Json,
        KeywordCount as KeywordCount,
        Length as Length,
        Regex as Regex,
        RuleBased as RuleBased,
        RuleCheck as RuleCheck,
    )
    from agenteval_otel.evaluators.sentiment import Sentiment as Sentiment
    from agenteval_otel.evaluators.tools.definitions import DefinedTools as DefinedTools
    from agenteval_otel.evaluators.tools.steps import (
        ErrorRecovery as ErrorRecovery,
        ToolLoops as ToolLoops,
    )
    from agenteval_otel.evaluators.tools.trajectory import (
        ExpectedCall as ExpectedCall,
        StepEfficiency as StepEfficiency,
        TrajectoryMatch as TrajectoryMatch,
    )
    from agenteval_otel.evaluators.tools.tool_usage import (
        ToolUsage as ToolUsage,
        ToolUse as ToolUse,
    )

# A new evaluator is added here, by its module and its name, which is its type, and to the imports
# for type checkers.
_EVALUATORS = {
    "conversation.resolution": ("TurnsToResolution",),
    "conversation.wording": ("Repetition", "UnansweredQuestions"),
    "keywords": ("KeywordCoverage", "Toxicity"),
    "llm_judge.evaluator": ("LLMJudge",),
    "llm_judge.presets": (
        "Bias", "CodeVulnerability", "Coherence", "Completeness", "Contradiction", "Equivalence", "Fluency",
        "Groundedness", "HateAndUnfairness", "IndirectAttack", "IntentResolution", "ProtectedMaterial", "Relevance",
        "Retrieval", "SelfHarm", "Sexual", "TaskAdherence", "ToolCallAccuracy", "ToxicLanguage", "Truth",
        "UngroundedAttributes", "Violence",
    ),
    "operational": ("CompletedWithin", "Contains", "CostWithin", "ExactMatch"),
    "rules": ("RuleBased",),
    "nlp_accuracy": ("NLPAccuracy",),
    "sentiment": ("Sentiment",),
    "lexical_similarity": ("LexicalSimilarity",),
    "tools.definitions": ("DefinedTools",),
    "tools.steps": ("ErrorRecovery", "ToolLoops"),
    "tools.trajectory": ("StepEfficiency", "TrajectoryMatch"),
    "tools.tool_usage": ("ToolUsage", "ToolUse"),
}  # fmt: skip
_PARTS = {
    "llm_judge.rubric": ("Rubric",),
    "tools.trajectory": ("ExpectedCall",),
    "rules": ("Includes", "Json", "KeywordCount", "Length", "Regex", "RuleCheck"),
}
_MODULE_OF: dict[str, str] = {}
for _module, _names in _EVALUATORS.items():
    for _name in _names:
        _MODULE_OF[_name] = f"{__name__}.{_module}"
        Evaluator.registry.announce(_MODULE_OF[_name], _name)
for _module, _names in _PARTS.items():
    _MODULE_OF |= dict.fromkeys(_names, f"{__name__}.{_module}")
__all__ = sorted([*_MODULE_OF, "CriterionEvaluator", "Evaluator", "Func", "ResponseHealth"])

_OTHER_NAMES = {
    "AnswerRelevancy": "Relevance",
    "AnswerRelevancyMetric": "Relevance",
    "ContextPrecision": "Retrieval",
    "Correctness": "Equivalence, or LLMJudge with a rubric",
    "Faithfulness": "Groundedness",
    "FaithfulnessMetric": "Groundedness",
    "GEval": "LLMJudge",
    "Hallucination": "Groundedness",
    "HallucinationMetric": "Groundedness",
    "PromptJudge": "LLMJudge",
    "ToolCorrectness": "ToolCallAccuracy, or TrajectoryMatch without a judge",
}
"""Names of other products, and what the same is called here."""
__getattr__ = importing(globals(), _MODULE_OF, _OTHER_NAMES)
