"""AgentDock's rules, ``{criterionName, config: {type, ...}}``, rewritten into the flat rules of `RuleBased`.

AgentDock is lenient: it ignores unknown fields, and a rule that it cannot run fails in every evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic.alias_generators import to_camel

from agenteval_otel.compat.javascript import python_pattern
from agenteval_otel.components import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.rules import RuleCheck

_FIELDS: Final[dict[Any, tuple[str, ...]]] = {
    "length": ("min", "max"), "regex": ("pattern", "flags", "expected_outcome"),
    "includes": ("keywords", "case_sensitive", "expected_outcome"), "json_parse": (),
}  # fmt: skip
_NEVER_PASSES: Final = {"type": "includes", "keywords": [], "expected_outcome": "any"}


def flat_rules(rules: Any) -> Any:
    """The rules in our form; what is not AgentDock's form is returned as it is."""
    return [_flat(rule) for rule in rules] if isinstance(rules, list | tuple) else rules


def _flat(rule: Any) -> Any:
    if not isinstance(rule, Mapping) or "config" not in rule:
        return rule
    config = rule["config"]
    source = _field(rule, "source_text_field") or (isinstance(config, Mapping) and _field(config, "source_field"))
    common = {"criterion": _field(rule, "criterion_name"), "source_text_field": source}
    common = {name: value for name, value in common.items() if value}
    if not isinstance(config, Mapping):
        return _checked(common, {"type": config})
    kind = config.get("type")
    if isinstance(kind, str) and kind in RuleCheck.registry and kind not in _FIELDS:
        # Not a check of AgentDock's: strict.
        return {**{key: config[key] for key in config if key not in ("sourceField", "source_field")}, **common}
    check = {name: _field(config, name) for name in _FIELDS.get(kind if isinstance(kind, str) else "", ())}
    check = {name: value for name, value in check.items() if value is not None}
    return _checked(common, {"type": kind, **check})


def _checked(common: dict[str, Any], check: dict[str, Any]) -> dict[str, Any]:
    """The rule, or one that fails in every evaluation."""
    try:
        check = _translated(check)
        resolve(RuleCheck, {**common, **check, "criterion": "any"})
        return {**common, **check}
    except ConfigurationError as error:
        problem = "; ".join(message for _, message in error.problems)
    except ValueError as error:
        problem = str(error)
    return {**common, "type": "InvalidCheck", "source_text_field": "response", "problem": problem}


def _translated(check: dict[str, Any]) -> dict[str, Any]:
    """The check with AgentDock's meaning of wrong bounds and outcomes, and its pattern in our syntax."""
    outcome = check.get("expected_outcome")
    if check["type"] == "regex":
        check |= {"expected_outcome": "match" if outcome == "match" else "no_match"}
        pattern, flags = check.get("pattern"), check.get("flags", "")
        if isinstance(pattern, str) and isinstance(flags, str):
            check["pattern"], check["flags"] = python_pattern(pattern, flags)
    if check["type"] == "includes" and isinstance(check.get("keywords"), list | tuple):
        return check if outcome in ("all", "any", "none") else _NEVER_PASSES
    if check["type"] == "length" and _is_above(check.get("min"), check.get("max")):
        return _NEVER_PASSES
    return check


def _is_above(low: Any, high: Any) -> bool:
    return isinstance(low, int | float) and isinstance(high, int | float) and low > high


def _field(mapping: Mapping[str, Any], name: str) -> Any:
    return mapping.get(to_camel(name), mapping.get(name))
