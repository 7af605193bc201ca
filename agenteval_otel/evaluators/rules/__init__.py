"""Rules: `RuleBased`, its checks and their contract."""

from agenteval_otel.evaluators.rules.base import RuleCheck as RuleCheck

RuleCheck.registry.announce(
    f"{__name__}.checks", "includes", "json_parse", "json_schema", "keyword_count", "length", "regex"
)
