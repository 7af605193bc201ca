"""The checks of `RuleBased` and the rules that carry them."""

from __future__ import annotations

from agenteval_otel.evaluators.rule_checks.base import Broken, ReasonCode, Verdict
from agenteval_otel.evaluators.rule_checks.rule import Rule, WrongCheck
from agenteval_otel.evaluators.rule_checks.structure import JsonCheck, JsonSchemaCheck
from agenteval_otel.evaluators.rule_checks.text import IncludesCheck, KeywordCountCheck, LengthCheck, RegexCheck

__all__ = [
    "Broken", "IncludesCheck", "JsonCheck", "JsonSchemaCheck", "KeywordCountCheck", "LengthCheck", "ReasonCode",
    "RegexCheck", "Rule", "Verdict", "WrongCheck",
]  # fmt: skip
