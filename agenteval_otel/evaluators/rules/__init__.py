"""Rules: `RuleBased`, its checks and their contract."""

from agenteval_otel.evaluators.rules.base import RuleCheck, RuleFailure, RulesEvaluator

__all__ = ["RuleCheck", "RuleFailure", "RulesEvaluator"]

RuleCheck.registry.announce(f"{__name__}.text", "includes", "keyword_count", "length", "regex")
RuleCheck.registry.announce(f"{__name__}.structure", "json_parse", "json_schema")
