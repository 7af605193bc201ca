"""Write the generated parts of the documents: ``python docs/generate.py``; with ``--check`` only say what differs.

A document holds ``<!-- generated: NAME -->`` and ``<!-- end of generated -->``; what stands between them is replaced by
what the function of that name in `PARTS` gives. Everything else in the document is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agenteval_otel import semconv
from agenteval_otel.capture.redaction import Redactor
from agenteval_otel.components import Component
from agenteval_otel.config.criteria import Criterion
from agenteval_otel.config.descriptions import summary_of
from agenteval_otel.config.schema import json_schema, writable_fields, writable_types
from agenteval_otel.config.settings import AgentSettings, Settings
from agenteval_otel.dispatch import Dispatcher
from agenteval_otel.embedders import Embedder
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.ground_truth import GroundTruthStore
from agenteval_otel.judges import Judge
from agenteval_otel.restraint import RestraintSettings
from agenteval_otel.sampling import Sampler
from agenteval_otel.scoring import Aggregation
from agenteval_otel.storage import EvaluationStorageProvider, OtlpStorageProvider
from agenteval_otel.telemetry import explanations
from agenteval_otel.telemetry.explanations import Explanation

DOCS = Path(__file__).resolve().parent
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


def configuration() -> str:
    """Every setting and every type of part, with type, default and description."""
    schema = json_schema()
    settings = {name: found for name, found in schema["properties"].items() if not name.startswith("$")}
    agent = schema["$defs"]["AgentSettings"]["properties"]
    sections = [
        "## Settings\n", _rows(settings, schema, Settings()),
        "## An agent's entry: `agents.<name>`\n", _rows(agent, {}, AgentSettings()),
        "## A criterion in a set: `criteria.<set>[]`\n", _table(Criterion),
        "## `telemetry`\n", _table(OtlpStorageProvider),
        "## `restraint`\n", f"{summary_of(RestraintSettings)}\n", _table(RestraintSettings),
    ]  # fmt: skip
    for title, contract in (
        ("Evaluators: `evaluators[]`", Evaluator), ("Samplers: `sampler`", Sampler),
        ("Storage providers: `storage[]`", EvaluationStorageProvider), ("Redactors: `redaction[]`", Redactor),
        ("Aggregations: `aggregation`", Aggregation), ("Ground truth: `ground_truth`", GroundTruthStore),
        ("Embedders: an evaluator's `embedder`", Embedder), ("Judges: an evaluator's `judge`", Judge),
        ("Dispatchers: `dispatcher`", Dispatcher),
    ):  # fmt: skip
        sections.append(f"## {title}\n")
        for name, model in writable_types(contract).items():
            sections.append(f"### `{name}`\n\n{summary_of(model)}\n")
            sections.append(_table(model) if writable_fields(model) else "No fields.\n")
    sections += _inner_models()
    return "\n".join(sections)


def _inner_models() -> list[str]:
    """The models that fields of parts are made of, such as a rule and its checks."""
    sections = []
    covered = {"AgentSettings", "Criterion", "OtlpStorageProvider", "RestraintSettings", "profile", "variable"}
    for name, found in json_schema()["$defs"].items():
        if name in covered or "properties" not in found or "." in name:
            continue
        sections += [f"### {name}\n\n{found.get('description', '')}\n", _rows(found["properties"], found, None)]
    return ["## Parts of parts\n", *sections] if sections else []


def _table(model: type[BaseModel], instance: BaseModel | None = None) -> str:
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    return _rows(writable_fields(model), {"required": required}, instance)


def _rows(properties: Mapping[str, Any], owner: Mapping[str, Any], instance: BaseModel | None) -> str:
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, found in properties.items():
        default = "required" if name in owner.get("required", ()) else _default_in_words(name, found, instance)
        text = found.get("description", "").replace("|", "\\|").replace("\n", " ")
        lines.append(f"| `{name}` | {_type_in_words(found)} | {default} | {text} |")
    return "\n".join(lines) + "\n"


def _default_in_words(name: str, found: Mapping[str, Any], instance: BaseModel | None) -> str:
    value = found.get("default")
    if value is None and instance is not None:
        value = getattr(instance, name, None)
    if isinstance(value, Component):
        return f"`{value.type}`"
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, tuple) and value and all(isinstance(one, Component) for one in value):
        return "`[" + ", ".join(one.type for one in value) + "]`"
    if isinstance(value, list) and len(value) > 3:
        return "all of them"
    if value is None or value == "":
        return "none"
    shown = sorted(value) if isinstance(value, list) else value
    if isinstance(shown, bool):
        return "`true`" if shown else "`false`"
    return "`[]`" if shown == () else f"`{shown}`".replace("'", "")


def _type_in_words(found: Mapping[str, Any]) -> str:
    if "anyOf" in found or "oneOf" in found:
        words = [_type_in_words(one) for one in found.get("anyOf", found.get("oneOf", ()))]
        return " or ".join(dict.fromkeys(word for word in words if word not in ("null", "")))
    if "$ref" in found:
        name = found["$ref"].rpartition("/")[2]
        return "" if name == "variable" else _REFERENCES.get(name, f"[{name}](#{name.lower()})")
    if "enum" in found:
        return ", ".join(f"`{one}`" for one in found["enum"])
    if "const" in found:
        return f"`{found['const']}`"
    if found.get("type") == "array":
        return f"list of {_type_in_words(found.get('items', {})) or 'values'}"
    if found.get("type") == "object":
        inner = found.get("additionalProperties")
        return f"mapping of {_type_in_words(inner)} by name" if isinstance(inner, dict) and inner else "mapping"
    return f"{_TYPES.get(found.get('type', ''), 'any value')}{_bounds(found)}"


_TYPES = {"string": "text", "number": "number", "integer": "whole number", "boolean": "true or false", "null": "null"}
_REFERENCES = {
    "evaluator": "evaluator", "Evaluator": "evaluator", "sampler": "sampler", "Sampler": "sampler",
    "storage": "storage provider", "dispatcher": "dispatcher", "Dispatcher": "dispatcher",
    "aggregation": "aggregation", "Aggregation": "aggregation",
    "ground_truth": "ground-truth store", "GroundTruthStore": "ground-truth store",
    "embedder": "embedder", "Embedder": "embedder", "judge": "judge", "Judge": "judge",
    "redactor": "redactor", "Redactor": "redactor", "profile": "settings",
    "AgentSettings": "[entry](#an-agents-entry-agentsname)", "OtlpStorageProvider": "[mapping](#telemetry)",
    "RestraintSettings": "[mapping](#restraint)",
    "Criterion": "[criterion](#a-criterion-in-a-set-criteriaset)",
}  # fmt: skip


def _bounds(found: Mapping[str, Any]) -> str:
    signs = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    words = [f"{word} {found[key]:g}" for key, word in signs.items() if key in found]
    return f", {', '.join(words)}" if words else ""


def event_attributes() -> str:
    """The attributes of a result's event and of its span."""
    return _attributes("event")


def run_span_attributes() -> str:
    """The attributes of the run span."""
    return _attributes("run_span")


def evaluated_span_attributes() -> str:
    """The attributes that we add to the span of the answer."""
    return _attributes("evaluated_span")


def _attributes(carrier: str) -> str:
    rows = [
        (f"`{one.name}`" + (" *ext.*" if one.extension else ""), one.kind, getattr(one, carrier), one.description)
        for one in semconv.ATTRIBUTES if getattr(one, carrier)
    ]  # fmt: skip
    return _lines(("attribute", "type", "there", "says"), rows)


def spans() -> str:
    """The kinds of spans that we write."""
    return _lines(("span", "parent", "written"), [(f"`{one.name}`", one.parent, one.when) for one in semconv.SPANS])


def metrics() -> str:
    """Every metric with unit, kind, attributes and its name in Prometheus."""
    rows = [
        (f"`{one.name}`", one.kind.replace("_", "-"), f"`{one.unit}`", one.description,
         ", ".join(f"`{name}`" for name in one.attributes) or "none", f"`{one.prometheus_name}`")
        for one in semconv.INSTRUMENTS
    ]  # fmt: skip
    return _lines(("metric", "kind", "unit", "says", "attributes", "in Prometheus"), rows)


def boundaries() -> str:
    """The buckets of the histograms."""
    rows = [
        (f"`{one.name}`", " ".join(f"{bound:g}" for bound in one.boundaries))
        for one in semconv.INSTRUMENTS if one.boundaries
    ]  # fmt: skip
    return _lines(("histogram", "upper bounds"), rows)


def _lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def outcomes() -> str:
    """What each outcome means, why it comes and what to do."""
    known = explanations.OUTCOMES.items()
    return _explained({name: one._replace(means=f"The call {one.means}.") for name, one in known})


def failures() -> str:
    """What each part's failure means."""
    return _explained(explanations.FAILURES)


def error_types() -> str:
    """What each `error.type` of ours means."""
    return _explained(explanations.ERROR_TYPES)


def no_calls() -> str:
    """Why nothing may have been counted at all."""
    found = explanations.NO_CALLS
    return "\n".join(f"- {_sentence(entry)}" for entry in (*found.causes, *found.remedies))


def _explained(known: Mapping[str, Explanation]) -> str:
    blocks = []
    for name, found in known.items():
        lines = [f"### `{name}`", "", found.means, ""]
        for title, entries in (("Causes", found.causes), ("To do", found.remedies)):
            lines += [f"{title}:", "", *(f"- {_sentence(entry)}" for entry in entries), ""]
        blocks.append("\n".join(lines).rstrip())
    return "\n\n".join(blocks)


def _sentence(text: str) -> str:
    begun = text if text.startswith("`") else text[0].upper() + text[1:]
    return begun if begun.endswith(".") else f"{begun}."


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part
    for part in (
        configuration, event_attributes, spans, run_span_attributes, evaluated_span_attributes, metrics, boundaries,
        no_calls, outcomes, failures, error_types,
    )
}  # fmt: skip
"""The generated parts, by the name in their document."""


def generated(text: str) -> str:
    """The document with its generated parts made anew."""
    return _PART.sub(lambda match: f"{match[1]}\n{PARTS[match[2]]().strip()}\n\n{match[3]}", text)


def main(arguments: list[str]) -> int:
    """Write, or check; 1 when something differs from what stands there."""
    differs = 0
    for document in sorted(DOCS.glob("*.md")):
        before = document.read_text(encoding="utf-8")
        after = generated(before)
        if after == before:
            continue
        differs += 1
        if "--check" in arguments:
            sys.stderr.write(f"{document.name} is not what it would be: run python docs/generate.py\n")
        else:
            document.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{document.name} written\n")
    return 1 if differs and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
