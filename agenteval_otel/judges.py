"""The public names of `agenteval_otel.evaluators.judges`."""

from agenteval_otel.evaluators.judges import (
    AnthropicJudge,
    BreakerSettings,
    CacheSettings,
    Judge,
    JudgeRequest,
    JudgeUsage,
    OpenAICompatibleJudge,
    OpenAIJudge,
    SpendLimits,
    Verdict,
    parse_answer,
)

__all__ = [
    "AnthropicJudge",
    "BreakerSettings",
    "CacheSettings",
    "Judge",
    "JudgeRequest",
    "JudgeUsage",
    "OpenAICompatibleJudge",
    "OpenAIJudge",
    "SpendLimits",
    "Verdict",
    "parse_answer",
]
