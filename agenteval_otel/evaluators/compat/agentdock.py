"""AgentDock's run configuration, ``evaluatorConfigs: [{type, config}]``.

It is rewritten into our form when it is loaded. What AgentDock does differently is an option of our
evaluators, which the rewritten entry sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from agenteval_otel.components.loading import load_each, resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.compat.javascript import python_pattern
from agenteval_otel.evaluators.func import as_evaluator
from agenteval_otel.models.inputs import ROOTS

ENTRIES: Final = "evaluatorConfigs"
"""The field by which a document is AgentDock's."""

AGENT_ID: Final = "agentId"
"""The field by which a document is the definition of an AgentDock agent."""
BLOCK: Final = "evaluation"
"""The field of a definition that says how the agent is evaluated: a run configuration."""

SETTINGS_OF: Final[dict[str, str | None]] = {
    ENTRIES: "evaluators",
    "storageProvider": "storage",
    "groundTruth": "ground_truth",
    "metadata": None,
}
"""The names of a document's fields in our settings, where they differ. None for what settings do
not have.
"""

Fields = dict[str, Any]


def load_evaluator(value: object, *, path: str | None = None) -> Evaluator:
    """Load an evaluator as `as_evaluator` does, or from an entry ``{type, config}`` of AgentDock's.

    Raises:
        ConfigurationError: The value is neither, its type is unknown, or its settings are wrong.
    """
    if not isinstance(value, Mapping):
        return as_evaluator(value, path=path)
    name = value.get("type")
    kind = None
    if isinstance(name, str) and name in Evaluator.registry:
        kind = Evaluator.registry[name]
    if "config" in value and (kind is None or "config" not in kind.model_fields):
        return _load_entry(value, path=path)
    if name == "RuleBased":
        value = _rule_based(dict(value))
    return as_evaluator(value, path=path)


def load_evaluators(values: object, *, at_least: int = 1) -> tuple[Evaluator, ...]:
    """Load evaluators from a list of instances, functions, names and mappings.

    Raises:
        ConfigurationError: The value is no list or too short, or entries are wrong: with the path
            of each wrong entry, as `load_evaluator` or `criteria` raises.
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ConfigurationError(
            f"expected a list of evaluators, found {type(values).__name__}", path="evaluators"
        )
    if len(values) < at_least:
        raise ConfigurationError("expected at least one evaluator", path="evaluators")
    return load_each(_load_declaring, values, path="evaluators")


def _load_declaring(value: object, path: str) -> Evaluator:
    evaluator = load_evaluator(value, path=path)
    if type(evaluator).evaluate is Evaluator.evaluate:
        raise ConfigurationError(
            f"{type(evaluator).__name__} has no method evaluate of its own", path=path
        )
    try:
        evaluator.criteria()
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:200]}"
        raise ConfigurationError(f"does not say what it scores: {problem}", path=path) from error
    return evaluator


def check_one_form(fields: Mapping[str, Any]) -> None:
    """Refuse a document that gives one thing in AgentDock's form and in ours: one would be lost.

    Raises:
        ConfigurationError: With the path of each field that is given twice.
    """
    twice: list[tuple[str | None, str]] = []
    for name, ours in SETTINGS_OF.items():
        if ours is not None and fields.get(name) is not None and fields.get(ours) is not None:
            twice.append((ours, f"give {ours} or {name}, not both"))
    if twice:
        raise ConfigurationError.of(twice)


def marked(entry: object) -> Any:
    """Return the entry of a document with its settings in ``config``.

    By that `load_evaluator` knows the entry. An entry that has ``config`` already, or is no
    mapping, is returned as it is.
    """
    if not isinstance(entry, Mapping) or "config" in entry:
        return entry
    return {
        "type": entry.get("type"),
        "config": {name: value for name, value in entry.items() if name != "type"},
    }


def load_entries(entries: object) -> tuple[Evaluator, ...]:
    """Load the evaluators of a document's ``evaluatorConfigs``.

    Raises:
        ConfigurationError: With the problems of all entries.
    """
    if not isinstance(entries, list | tuple) or not entries:
        raise ConfigurationError("expected a list with at least one evaluator", path=ENTRIES)
    return load_each(lambda entry, path: _load_entry(entry, path=path), entries, path=ENTRIES)


def _load_entry(entry: object, *, path: str | None) -> Evaluator:
    if not isinstance(entry, Mapping):
        return as_evaluator(entry, path=path)
    config = entry.get("config", {})
    if not isinstance(config, Mapping):
        raise ConfigurationError(
            f"expected a mapping, found {type(config).__name__}", path=f"{path}.config"
        )
    fields: Fields = {**config, **{key: value for key, value in entry.items() if key != "config"}}
    kind = str(fields.get("type"))
    for name in _PLACES.get(kind, ()):
        if isinstance(fields.get(name), str):
            fields[name] = _known_place(fields[name], keywords=name.startswith("keywords"))
    new_names = _RENAMED.get(kind, {})
    fields = {new_names.get(name, name): value for name, value in fields.items()}
    rewrite = _REWRITE.get(kind, dict)
    try:
        fields = rewrite(fields)
    except ConfigurationError as error:
        raise error.with_prefix(path) from None
    fields = _with_defaults(fields, **_IMPLIED.get(kind, {}))
    return resolve(Evaluator, fields, path=path)


def _with_defaults(fields: Fields, **defaults: Any) -> Fields:
    left_out = {
        name: value
        for name, value in defaults.items()
        if name not in fields and to_camel(name) not in fields
    }
    return {**left_out, **fields}


def _known_place(place: str, *, keywords: bool) -> str:
    """Return the place, below ``context`` if AgentDock does not know it.

    AgentDock takes any place. A place that it does not know has nothing in it, which fails each
    evaluation.
    """
    known = ("config", *list(ROOTS)[2:]) if keywords else tuple(ROOTS)
    if not place or place.partition(".")[0] in known:
        return place
    return f"context.{place}"


def _similarity(fields: Fields) -> Fields:
    algorithm = fields.get("algorithm")
    if algorithm not in ("sorensen-dice", "jaro-winkler", "levenshtein"):
        # as AgentDock does with a name that it does not know
        return {**fields, "algorithm": "sorensen-dice"}
    return fields


def _completed(fields: Fields) -> Fields:
    """Convert GoGrid's limit in milliseconds to `limit_s` in seconds."""
    limit_ms = fields.pop("limitMs", fields.pop("limit_ms", None))
    if limit_ms is None:
        return fields
    if isinstance(limit_ms, bool) or not isinstance(limit_ms, int | float):
        raise ConfigurationError(
            f"expected a number of milliseconds, found {limit_ms!r}"[:200], path="limit_ms"
        )
    return {**fields, "limit_s": limit_ms / 1000}


def _accuracy(fields: Fields) -> Fields:
    if all(fields.get(name) is None for name in ("embedder", "embeddingModel", "embedding_model")):
        raise ConfigurationError(
            'required field is missing: "hashing", which is built in and compares wording, or an object that embeds',
            path="embedder",
        )
    return fields


def _judge(fields: Fields) -> Fields:
    """Translate the settings of AgentDock's judge.

    The template holds the texts, the reply is a score with its reasoning, and nothing is skipped.
    With a `rubric` the settings are those of GoGrid's judge, and the reply is lines.
    """
    known = _names_of(Evaluator.registry["LLMJudge"]) | {"llm", "provider", "type"}
    fields = {name: value for name, value in fields.items() if name in known and value is not None}
    template = _field(fields, "prompt_template")
    # GoGrid's judge: two lines of reply, and a template holds the texts itself
    if fields.get("rubric") is not None:
        if isinstance(template, str):
            template = template.replace("{rubric}", "{{criterion_description}}").replace(
                "{output}", "{{response}}"
            )
            fields = {**fields, **{name: template for name in _TEMPLATE if name in fields}}
        placement = "inline" if isinstance(template, str) else "data"
        return _with_defaults(fields, reply_form="lines", placement=placement)
    required = {"criterion_name": _field(fields, "criterion_name"), "prompt_template": template}
    for name, value in required.items():
        if value is None:
            raise ConfigurationError("required field is missing", path=name)
        if isinstance(value, str) and not value.strip():
            raise ConfigurationError("must not be blank", path=name)
    return _with_defaults(fields, reply_form="score", placement="inline")


def _tool_usage(fields: Fields) -> Fields:
    from agenteval_otel.evaluators.tools.tool_usage import ToolRule

    fields = {name: value for name, value in fields.items() if value is not None}
    known = _names_of(ToolRule)
    rules = fields.get("rules")
    if isinstance(rules, list | tuple):
        fields["rules"] = [
            _tool_rule(rule, known) if isinstance(rule, Mapping) else rule for rule in rules
        ]
    return fields


def _tool_rule(rule: Mapping[str, Any], known: set[str]) -> Fields:
    """Return the rule as AgentDock reads it. A rule that names no tool gets `invalid_reason`.

    AgentDock ignores unknown fields, and treats null and empty texts as left out.
    """
    rule = {
        key: value
        for key, value in rule.items()
        if key in known and value is not None and value != ""
    }
    names_nothing = all(_field(rule, name) in (None, [], ()) for name in _DECIDING)
    return {**rule, "invalid_reason": "the rule names no tool"} if names_nothing else rule


def _rule_based(fields: Fields) -> Fields:
    if "rules" not in fields:
        return fields
    return {**fields, "rules": flat_rules(fields["rules"])}


def flat_rules(rules: object) -> Any:
    """Return the rules in our form. Rules that are not AgentDock's are returned as they are.

    AgentDock is lenient: it ignores unknown fields, and a rule that it cannot run fails in every
    evaluation.
    """
    return [_flat(rule) for rule in rules] if isinstance(rules, list | tuple) else rules


def _flat(rule: object) -> Any:
    if not isinstance(rule, Mapping) or "config" not in rule:
        return rule
    config = rule["config"] if isinstance(rule["config"], Mapping) else {"type": rule["config"]}
    source = _field(rule, "source_text_field") or _field(config, "source_field")
    common = {"criterion": _field(rule, "criterion_name"), "source_text_field": source}
    common = {name: value for name, value in common.items() if value}
    kind = config["type"] if isinstance(config.get("type"), str) else ""
    from agenteval_otel.evaluators import RuleCheck  # loads the checks, which few processes need

    if kind in RuleCheck.registry and kind not in _RULE_FIELDS:
        # Not a check of AgentDock's: strict.
        settings = {
            key: value
            for key, value in config.items()
            if key not in ("sourceField", "source_field")
        }
        return settings | common
    check = {"type": config.get("type")}
    for name in _RULE_FIELDS.get(kind, ()):
        value = _field(config, name)
        if value is not None:
            check[name] = value
    return _checked(common, check)


def _checked(common: dict[str, Any], check: dict[str, Any]) -> dict[str, Any]:
    """Return the rule, or a rule that fails in every evaluation if the check is wrong."""
    from agenteval_otel.evaluators import RuleCheck

    try:
        check = _translated(check)
        resolve(RuleCheck, {**common, **check, "criterion": "any"})
        return {**common, **check}
    except ConfigurationError as error:
        problem = ". ".join(message for _, message in error.problems)
    except ValueError as error:
        problem = str(error)
    return {**common, "type": "InvalidCheck", "source_text_field": "response", "problem": problem}


def _translated(check: dict[str, Any]) -> dict[str, Any]:
    """Return the check with its pattern in our syntax.

    A wrong outcome has AgentDock's meaning.
    """
    if check["type"] == "json_parse":
        return {"type": "json"}
    outcome = check.get("expected_outcome")
    if check["type"] == "regex":
        check |= {"expected_outcome": "match" if outcome == "match" else "no_match"}
        pattern = check.get("pattern")
        flags = check.get("flags", "")
        if isinstance(pattern, str) and isinstance(flags, str):
            check["pattern"], check["flags"] = python_pattern(pattern, flags)
    if check["type"] == "includes" and isinstance(check.get("keywords"), list | tuple):
        has_known_outcome = outcome in ("all", "any", "none")
        return check if has_known_outcome else _NEVER_PASSES
    return check


def _field(mapping: Mapping[str, Any], name: str) -> Any:
    return mapping.get(to_camel(name), mapping.get(name))


def _names_of(model: type[BaseModel]) -> set[str]:
    names = set(model.model_fields)
    return names | set(map(to_camel, names))


_RULE_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "length": ("min", "max"),
    "regex": ("pattern", "flags", "expected_outcome"),
    "includes": ("keywords", "case_sensitive", "expected_outcome"),
    "json_parse": (),
}
_NEVER_PASSES: Final = {"type": "includes", "keywords": [], "expected_outcome": "any"}
_TEMPLATE: Final = ("promptTemplate", "prompt_template")
_DECIDING: Final = ("expected_tool_name", "forbidden_tools", "sequence", "min_calls", "max_calls")
_PLACES: Final = {
    "KeywordCoverage": (
        "keywordsSourceField",
        "keywords_source_field",
        "sourceTextField",
        "sourceField",
    ),
    "LexicalSimilarity": ("sourceField", "referenceField"),
    "Toxicity": ("sourceTextField",),
}
_RENAMED: Final[dict[str, dict[str, str]]] = {
    "KeywordCoverage": {
        "keywords": "expectedKeywords",
        "sourceField": "sourceTextField",
        "normalizeWhitespace": "normalizeWhitespaceForSource",
    },
}
_REWRITE: Final[dict[str, Callable[[Fields], Fields]]] = {
    "CompletedWithin": _completed,
    "LexicalSimilarity": _similarity,
    "LLMJudge": _judge,
    "NLPAccuracy": _accuracy,
    "RuleBased": _rule_based,
    "ToolUsage": _tool_usage,
}
_IMPLIED: Final[dict[str, Fields]] = {
    "LexicalSimilarity": {"ngram_size": 1, "unit": "utf16", "without_reference": "fail"},
    "LLMJudge": {"refuse_degenerate": False, "needs": ()},
    "NLPAccuracy": {"without_reference": "fail"},
    "Sentiment": {"lexicon": "afinn", "agentdock_tokens": True},
    "ToolUsage": {"zero_when_unused": True},
}
