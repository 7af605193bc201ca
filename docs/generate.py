"""Write the generated parts of the documents: ``python docs/generate.py``; with ``--check`` only
say what differs.

A document holds ``<!-- generated: NAME -->`` and ``<!-- end of generated -->``; what stands between
them is replaced by what the function of that name in `PARTS` gives. Everything else in the document
is written by hand. Two folders are written whole: ``rubrics/`` has each criterion of the catalogue
as a judge reads it, for the one case of `EXAMPLE`, and ``settings/`` has the `SETTINGS_PAGES`.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from agenteval_otel import EvaluationInput, evaluators, semconv
from agenteval_otel.components import Component
from agenteval_otel.config import AgentSettings, Criterion, Settings
from agenteval_otel.config.schema import json_schema, summary_of, writable_fields, writable_types
from agenteval_otel.embedders import Embedder
from agenteval_otel.engine.aggregation import Aggregation
from agenteval_otel.engine.capabilities.notify import MessagePlace
from agenteval_otel.engine.load_shedding import LoadSheddingSettings
from agenteval_otel.engine.pipeline import Dispatcher
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator, LLMJudge, RuleCheck
from agenteval_otel.evaluators.llm_judge.prompt import NAMES
from agenteval_otel.evaluators.llm_judge.rubric import entry_of, names, rubric_fields, scales_of
from agenteval_otel.ground_truth import GroundTruthStore
from agenteval_otel.judges import Judge, JudgeRequest
from agenteval_otel.offline.calibration.record import NOT_MEASURED
from agenteval_otel.redaction import Redactor
from agenteval_otel.sampling import Sampler
from agenteval_otel.sampling.trace import SamplingSettings
from agenteval_otel.storage import EvaluationStorageProvider, OtlpStorageProvider
from agenteval_otel.telemetry import reference
from agenteval_otel.telemetry.reference import Explanation

DOCS = Path(__file__).resolve().parent
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


class Attribute(NamedTuple):
    """An attribute, what it means, and when each carrier has it; empty where it never does.

    Attributes:
        event: On the event of a result, and on its span, which has the same attributes.
        evaluated_span: On the span of the answer; ``agent span`` where only the one that we start
            has it.
        extension: A name under ``gen_ai.`` that the conventions do not define.
        crossing: On the event about an objective.
        forwarded: On the event for the sidecar.
        suite_span: On the span of a test suite.
    """

    name: str
    kind: str
    description: str
    event: str = ""
    run_span: str = ""
    evaluated_span: str = ""
    extension: bool = False
    crossing: str = ""
    forwarded: str = ""
    suite_span: str = ""


class SpanShape(NamedTuple):
    """A kind of span: its name's pattern, its parent, and when it is written."""

    name: str
    parent: str
    when: str


_TELEMETRY = tomllib.loads((DOCS / "telemetry.toml").read_text(encoding="utf-8"))
ATTRIBUTES = tuple(Attribute(**entry) for entry in _TELEMETRY["attributes"])
SPANS = tuple(SpanShape(**entry) for entry in _TELEMETRY["spans"])


class Section(NamedTuple):
    """A section of a page of settings.

    Attributes:
        title: Its heading in Markdown. Empty for the only section of a page.
        of: A model, a contract with its types, some types of `Evaluator`, or the name of a model
            that fields refer to.
        word: What other tables call a value of it. By default the model's name.
    """

    title: str
    of: type[BaseModel] | Sequence[str] | str
    word: str = ""


class SettingsPage(NamedTuple):
    """A page of ``settings/``.

    Attributes:
        name: The file without its ending.
        keys: The settings that it is about, for the table in configuration.md.
        sentence: What the page begins with, and what the table says.
        guides: The pages that explain these settings.
    """

    name: str
    title: str
    keys: str
    sentence: str
    guides: tuple[str, ...]
    sections: tuple[Section, ...]


SETTINGS_PAGES = (
    SettingsPage(
        "top-level", "Top-level settings", "every key of the file",
        "What a settings file may hold, with a link to the page of each section.", ("configuration.md",),
        (Section("", Settings, "settings"),),
    ),
    SettingsPage(
        "agents", "Agents and criteria", "`agents`, `criteria`",
        "What differs for single agents, and what differs from the evaluators' own criteria.", ("configuration.md",),
        (
            Section("An agent's entry: `agents.<name>`", AgentSettings, "entry"),
            Section("A criterion in a set: `criteria.<set>[]`", Criterion, "criterion"),
        ),
    ),
    SettingsPage(
        "evaluators", "Evaluators", "`evaluators[]`",
        "Which evaluators score the answers, and the fields that all of them have.", ("evaluators/README.md",),
        (Section("", Evaluator, "evaluator"),),
    ),
    SettingsPage(
        "evaluators-text", "Evaluators of texts and figures", "`evaluators[]`",
        "Evaluators that look at the answer's text, its duration or its cost.", ("evaluators/README.md",),
        (
            Section("", (
                "ResponseHealth", "RuleBased", "Contains", "KeywordCoverage", "ExactMatch", "LexicalSimilarity",
                "NLPAccuracy", "Toxicity", "Sentiment", "CompletedWithin", "CostWithin",
            )),
            Section("Rules of `RuleBased`: `rules[]`", RuleCheck, "rule"),
        ),
    ),
    SettingsPage(
        "evaluators-tools", "Evaluators of tool calls and conversations", "`evaluators[]`",
        "Evaluators that look at an agent's tool calls, or at whole conversations.", ("evaluators/README.md",),
        (
            Section("", (
                "ToolUsage", "ToolUse", "ToolLoops", "ErrorRecovery", "StepEfficiency", "TrajectoryMatch",
                "DefinedTools", "TurnsToResolution", "Repetition", "UnansweredQuestions",
            )),
            Section("ToolRule", "ToolRule"),
            Section("Predicate", "Predicate"),
            Section("Expectation", "Expectation"),
            Section("ExpectedCall", "ExpectedCall"),
        ),
    ),
    SettingsPage(
        "evaluators-judges", "Evaluators that ask a model", "`evaluators[]`",
        "`LLMJudge`, whose criteria are in the user's words, and the types of the catalogue.",
        ("evaluators/llm-judge.md", "evaluators/catalogue.md"),
        (
            Section("", ("LLMJudge",)),
            Section("Rubric", "Rubric"),
            Section("Claims", "Claims"),
            Section("Types of the catalogue", tuple(names())),
        ),
    ),
    SettingsPage(
        "judges", "Judges and spend", "`judge` of an evaluator",
        "The models that judge answers, what their calls may cost, and when calls are suspended.",
        ("judges.md", "spend.md"),
        (
            Section("Judges: an evaluator's `judge`", Judge, "judge"),
            Section("SpendLimits", "SpendLimits"),
            Section("Price", "Price"),
            Section("PurposeLimits", "PurposeLimits"),
            Section("BreakerSettings", "BreakerSettings"),
            Section("CacheSettings", "CacheSettings"),
        ),
    ),
    SettingsPage(
        "judge-health", "Judge health", "`judge_health`",
        "How judges are watched: canaries with known answers, repeats, people, and the spread of scores.",
        ("judge-health.md",), (Section("", "JudgeHealthSettings"),),
    ),
    SettingsPage(
        "embedders", "Embedders", "`embedder` of an evaluator", "What turns texts into vectors for `NLPAccuracy`.",
        ("embedders.md",), (Section("", Embedder, "embedder"),),
    ),
    SettingsPage(
        "aggregation", "Aggregations", "`aggregation`",
        "How the overall score of an answer is computed from its scores.", ("offline.md#the-overall-score",),
        (Section("", Aggregation, "aggregation"),),
    ),
    SettingsPage(
        "sampling", "Sampling and escalation", "`sampler`, `sampling`, `escalation`",
        "Which answers are evaluated.", ("sampling.md", "escalation.md"),
        (
            Section("Samplers: `sampler`", Sampler, "sampler"),
            Section("`sampling`", SamplingSettings),
            Section("`escalation`", "Escalation"),
        ),
    ),
    SettingsPage(
        "telemetry", "Telemetry", "`telemetry`, `export`, `names`",
        "Where spans, events and metrics are sent, what they contain, and how much may wait.",
        ("telemetry.md", "reliability.md"),
        (
            Section("`telemetry`", OtlpStorageProvider),
            Section("`export`", "ExportSettings"),
            Section("`names`", "NamesSettings"),
        ),
    ),
    SettingsPage(
        "storage", "Storage providers", "`storage[]`", "Where results are kept in addition to telemetry.",
        ("storage.md",), (Section("", EvaluationStorageProvider, "storage provider"),),
    ),
    SettingsPage(
        "ground-truth", "Ground truth", "`ground_truth`", "The store that reference answers are read from.",
        ("ground-truth.md",), (Section("", GroundTruthStore, "ground-truth store"),),
    ),
    SettingsPage(
        "redaction", "Redactors", "`redactors[]`", "What is removed from texts before they leave the process.",
        ("privacy.md",), (Section("", Redactor, "redactor"),),
    ),
    SettingsPage(
        "breach", "Objectives", "`breach`", "When a criterion of an agent counts as below its objective.",
        ("thresholds.md",), (Section("", "BreachSettings"),),
    ),
    SettingsPage(
        "notify", "Messages", "`notify[]`", "Where messages go when something gets worse, and once a week.",
        ("notify.md",), (Section("", MessagePlace, "place"),),
    ),
    SettingsPage(
        "conversations", "Conversations", "`conversations`",
        "How turns are put together for evaluators of conversations, and how many are kept.", ("conversations.md",),
        (Section("", "ConversationSettings"),),
    ),
    SettingsPage(
        "off-peak", "Off-peak", "`off_peak`",
        "When evaluators with `schedule: off_peak` run, and where answers wait until then.", ("off-peak.md",),
        (Section("", "OffPeakSettings"),),
    ),
    SettingsPage(
        "load-shedding", "Queue and load shedding", "`dispatcher`, `load_shedding`",
        "Where evaluations run, how many calls may wait, and when sampling is reduced under load.",
        ("load-shedding.md", "execution.md"),
        (
            Section("`load_shedding`", LoadSheddingSettings),
            Section("Dispatchers: `dispatcher`", Dispatcher, "dispatcher"),
        ),
    ),
    SettingsPage(
        "sidecar", "Sidecar", "`sidecar`", "Where `agenteval-otel serve` listens, and how much it keeps.",
        ("sidecar.md",), (Section("", "SidecarSettings"),),
    ),
    SettingsPage(
        "benchmarks", "Benchmarks", "`benchmarks`", "What `agenteval-otel benchmark` runs, by the benchmark's name.",
        ("evaluate.md",), (Section("", "BenchmarkSettings"),),
    ),
)  # fmt: skip
"""The pages of ``settings/``, in the order of the navigation."""


@functools.cache
def _schema() -> dict[str, Any]:
    return json_schema()


@functools.cache
def _types_of(contract: type[Component]) -> dict[str, type[Component]]:
    """Return the types of this package: tests register others."""
    types = writable_types(contract)
    return {
        name: one for name, one in types.items() if one.__module__.startswith("agenteval_otel.")
    }


@functools.cache
def _fields_of(model: type[BaseModel]) -> dict[str, Any]:
    return writable_fields(model)


def settings_sections() -> str:
    """Return the table of the pages of settings."""
    rows = [
        (
            f"[{page.title}](settings/{page.name}.md)",
            page.keys,
            page.sentence,
            ", ".join(f"[{_title_of(guide)}]({guide})" for guide in page.guides),
        )
        for page in SETTINGS_PAGES
    ]
    return _lines(("fields", "setting", "what it is for", "guide"), rows)


def _title_of(guide: str) -> str:
    """Return the first heading of a page, without what follows a colon."""
    first, _, _ = (DOCS / guide.partition("#")[0]).read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("# ").partition(":")[0]


def settings_pages() -> dict[Path, str]:
    """Return the pages of settings, by their path."""
    _require_complete()
    return {DOCS / "settings" / f"{page.name}.md": _settings_page(page) for page in SETTINGS_PAGES}


def _require_complete() -> None:
    """Raise if a type of evaluator is on no page."""
    listed = {name for page in SETTINGS_PAGES for one in page.sections for name in _names_in(one)}
    missing = set(_types_of(Evaluator)) - listed
    if missing:
        raise LookupError(f"SETTINGS_PAGES has no section for {', '.join(sorted(missing))}")


def _names_in(section: Section) -> Sequence[str]:
    if isinstance(section.of, str):
        return (section.of,)
    return (section.of.__name__,) if isinstance(section.of, type) else section.of


def _first_choice(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the model of a choice: a rubric may also be the name of the catalogue's."""
    choices: list[Mapping[str, Any]] = found.get("anyOf", [found])
    return choices[0]


def _settings_page(page: SettingsPage) -> str:
    guides = ", ".join(f"[{_title_of(guide)}](../{guide})" for guide in page.guides)
    lines = []
    for section in page.sections:
        if section.title:
            lines.append(f"## {section.title}\n")
        lines += _section_lines(section)
    headings = [line.strip("#\n ") for line in lines if line.startswith("#")]
    contents = [f"[{heading}](#{_anchor_of(heading)})" for heading in headings]
    head = [f"# {page.title}\n", f"{page.sentence} Guide: {guides}.\n"]
    if len(contents) > 3:
        head.append(f"On this page: {', '.join(contents)}.\n")
    return "\n".join([*head, *lines]).replace(f"({page.name}.md#", "(#")


def _section_lines(section: Section) -> list[str]:
    of = section.of
    level = "###" if section.title else "##"
    if isinstance(of, str):
        found = _first_choice(_schema()["$defs"][of])
        # An untitled section is the whole page, which has begun with its own sentence.
        summary = found.get("description", "")
        text = summary if section.title else summary.partition("\n\n")[2]
        table = _rows(found["properties"], found, None)
        return [f"{text}\n", table] if text else [table]
    if of is Settings:
        return [_top_level()]
    if of is Evaluator:
        return _all_evaluators()
    if not isinstance(of, type):
        return _evaluators(of, level)
    if issubclass(of, Component) and "contract" in of.__dict__:
        lines = []
        if of.has_short_form:
            lines.append("In short, a type is the key of its fields: `{a_type: {...}}`.\n")
        for name, model in _types_of(of).items():
            lines += [f"{level} `{name}`\n", f"{summary_of(model)}\n"]
            if model.text_field:
                lines.append(f"A text in place of its fields is its `{model.text_field}`.\n")
            lines.append(_table(model))
        return lines
    summary = summary_of(of) if of in (LoadSheddingSettings, SamplingSettings) else ""
    instance = None if of is Criterion else of()
    return [*([f"{summary}\n"] if summary else []), _table(of, instance)]


def _top_level() -> str:
    schema = _schema()
    properties = {
        name: found for name, found in schema["properties"].items() if not name.startswith("$")
    }
    return _rows(properties, schema, Settings())


def _all_evaluators() -> list[str]:
    """The fields that evaluators share, and a row for each type."""
    rows = []
    for page in SETTINGS_PAGES:
        for name in (name for one in page.sections for name in _names_in(one)):
            model = _types_of(Evaluator).get(name)
            if model is not None:
                what = summary_of(model).partition("\n\n")[0]
                rows.append(
                    (f"[`{name}`]({_place_of_evaluator(name, page)})", what, _guide_to(name))
                )
    return [
        "## Types\n",
        _lines(("type, with its fields", "what it does", "guide"), rows),
        "\n## Fields of every evaluator\n",
        "`RuleBased` and `ToolUsage` have no field of a criterion "
        "(`criterion_name`, `scale`, `threshold`, `weight`, `objective`): their rules name criteria.\n",
        _rows(_shared_fields(), {}, None),
    ]


def _place_of_evaluator(name: str, page: SettingsPage) -> str:
    anchor = "types-of-the-catalogue" if name in names() else name.lower()
    return f"{page.name}.md#{anchor}"


def _guide_to(name: str) -> str:
    """Link to the page in ``evaluators/`` about a type, or to the one with a section about it."""
    if name in names():
        return f"[{name}](../rubrics/{_page_of(name)})"
    own = DOCS / "evaluators" / f"{_WORDS.sub('-', name).lower()}.md"
    if own.exists():
        return f"[{name}](../evaluators/{own.name})"
    for page in sorted((DOCS / "evaluators").glob("*.md")):
        if f"\n## {name}\n" in page.read_text(encoding="utf-8"):
            return f"[{name}](../evaluators/{page.name}#{name.lower()})"
    raise LookupError(f"no page in docs/evaluators is about {name}")


_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _shared_fields() -> dict[str, Any]:
    """The fields of an evaluator with one criterion, as most of them have them."""
    fields = _fields_of(evaluators.Contains)
    return {name: fields[name] for name in fields if name in CriterionEvaluator.model_fields} | {
        "criterion_name": {**fields["criterion_name"], "default": None}
    }


def _evaluators(types: Sequence[str], level: str) -> list[str]:
    """A section for each type, with what it has beside the shared fields."""
    models = _types_of(Evaluator)
    if types == tuple(names()):
        rows = [
            (f"[`{name}`](../rubrics/{_page_of(name)})", summary_of(models[name])) for name in types
        ]
        fields = (
            "All of them have these fields, beside those of [every evaluator](evaluators.md).\n"
        )
        return [_lines(("type", "what it judges"), rows), "", fields, _own_table(models[types[0]])]
    lines = []
    for name in types:
        guide = (
            f"Fields beside those of [every evaluator](evaluators.md). Guide: {_guide_to(name)}.\n"
        )
        lines += [f"{level} `{name}`\n", f"{summary_of(models[name])}\n", guide]
        lines.append(_own_table(models[name]))
    return lines


def _own_table(model: type[BaseModel]) -> str:
    """The table of the fields that an evaluator has beside the shared ones, or has otherwise."""
    shared = _shared_fields()
    fields = {name: found for name, found in _fields_of(model).items() if found != shared.get(name)}
    return _rows(_in_order(model, fields), _required_in(model), None)


def _table(model: type[BaseModel], instance: BaseModel | None = None) -> str:
    fields = _fields_of(model) if model.model_fields else {}
    if not fields:
        return "No fields.\n"
    return _rows(_in_order(model, fields), _required_in(model), instance)


def _required_in(model: type[BaseModel]) -> dict[str, list[str]]:
    return {"required": [name for name, field in model.model_fields.items() if field.is_required()]}


def _in_order(model: type[BaseModel], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Sort fields: required ones first, then the model's own, then those of its bases."""
    required = _required_in(model)["required"]
    own = inspect.get_annotations(model)
    order = sorted(fields, key=lambda name: (name not in required, name not in own))
    return {name: fields[name] for name in order}


def _rows(
    properties: Mapping[str, Any], owner: Mapping[str, Any], instance: BaseModel | None
) -> str:
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, found in properties.items():
        default = (
            "required"
            if name in owner.get("required", ())
            else _default_in_words(name, found, instance)
        )
        text = found.get("description", "").replace("|", "\\|").replace("\n", " ")
        lines.append(f"| `{name}` | {_type_in_words(found)} | {default} | {text} |")
    return "\n".join(lines) + "\n"


def _default_in_words(name: str, found: Mapping[str, Any], instance: BaseModel | None) -> str:
    value = found.get("default")
    if value is None and instance is not None:
        value = getattr(instance, name, None)
    if isinstance(value, OtlpStorageProvider):  # the settings of telemetry, which name no type
        return "its defaults"
    if isinstance(value, Component):
        return f"`{value.type}`"
    if isinstance(value, BaseModel) or (isinstance(value, dict) and value):
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
        if name == "variable":
            return ""
        if name not in _links():
            raise LookupError(f"SETTINGS_PAGES has no section for {name}")
        return _links()[name]
    if "enum" in found:
        return ", ".join(f"`{one}`" for one in found["enum"])
    if "const" in found:
        return f"`{found['const']}`"
    if found.get("type") == "array":
        return f"list of {_type_in_words(found.get('items', {})) or 'values'}"
    if found.get("type") == "object":
        inner = found.get("additionalProperties")
        return (
            f"mapping of {_type_in_words(inner)} by name"
            if isinstance(inner, dict) and inner
            else "mapping"
        )
    return f"{_TYPES.get(found.get('type', ''), 'any value')}{_bounds(found)}"


_TYPES = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "null": "null",
}


@functools.cache
def _links() -> dict[str, str]:
    """The link to the section of each model and contract, by the names that schemas have for it."""
    links = {"profile": "[settings](top-level.md)"}
    for page in SETTINGS_PAGES:
        for section in page.sections:
            place = f"{page.name}.md#{_anchor_of(section.title or page.title)}"
            own_name = section.title if section.of == section.title else "mapping"
            word = section.word or own_name
            for name in _names_in(section):
                links[name] = f"[{word}]({place})"
            contract = getattr(section.of, "contract", None)
            if contract:
                links[contract] = f"[{section.word}]({place})"
    return links


def _anchor_of(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def _bounds(found: Mapping[str, Any]) -> str:
    signs = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    words = [f"{word} {_number(found[key])}" for key, word in signs.items() if key in found]
    return f", {', '.join(words)}" if words else ""


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def event_attributes() -> str:
    """The attributes of a result's event and of its span."""
    return _attributes("event")


def run_span_attributes() -> str:
    """The attributes of the run span."""
    return _attributes("run_span")


def evaluated_span_attributes() -> str:
    """The attributes that we add to the span of the answer."""
    return _attributes("evaluated_span")


def crossing_attributes() -> str:
    """The attributes of the events that tell of an objective."""
    return _attributes("crossing")


def forwarded_attributes() -> str:
    """The attributes of the event for the sidecar."""
    return _attributes("forwarded")


def suite_span_attributes() -> str:
    """The attributes of the span of a test suite."""
    return _attributes("suite_span")


def _attributes(carrier: str) -> str:
    rows = [
        (
            f"`{one.name}`" + (" *ext.*" if one.extension else ""),
            one.kind,
            getattr(one, carrier),
            _from_a_folder(one.description),
        )
        for one in ATTRIBUTES
        if getattr(one, carrier)
    ]
    return _lines(("attribute", "type", "there", "says"), rows)


def spans() -> str:
    """The kinds of spans that we write."""
    return _lines(
        ("span", "parent", "written"), [(f"`{one.name}`", one.parent, one.when) for one in SPANS]
    )


def metrics() -> str:
    """Every metric with unit, kind, attributes and its name in Prometheus."""
    rows = [
        (
            f"`{one.name}`",
            one.kind.replace("_", "-"),
            f"`{one.unit}`",
            one.description,
            ", ".join(f"`{name}`" for name in one.attributes) or "none",
            f"`{one.prometheus_name}`",
        )
        for one in semconv.INSTRUMENTS
    ]
    return _lines(("metric", "kind", "unit", "says", "attributes", "in Prometheus"), rows)


def boundaries() -> str:
    """The buckets of the histograms."""
    rows = [
        (f"`{one.name}`", " ".join(f"{bound:g}" for bound in one.boundaries))
        for one in semconv.INSTRUMENTS
        if one.boundaries
    ]
    return _lines(("histogram", "upper bounds"), rows)


def _lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def outcomes() -> str:
    """What each outcome means, why it comes and what to do."""
    rows = [
        (_to_heading(name), one.means, "yes" if one.harmless else "")
        for name, one in reference.OUTCOMES.items()
    ]
    known = {
        name: one._replace(means=f"The call {one.means}.")
        for name, one in reference.OUTCOMES.items()
    }
    return f"{_lines(('outcome', 'the call', 'intended'), rows)}\n\n{_explained(known)}"


def failures() -> str:
    """What each part's failure means."""
    return _explained_with_index("part", reference.FAILURES)


def error_types() -> str:
    """What each `error.type` of ours means."""
    return _explained_with_index("`error.type`", reference.ERROR_TYPES)


def lost_reasons() -> str:
    """Why something did not reach the backend."""
    rows = ((f"`{name}`", means) for name, means in reference.LOST_REASONS.items())
    return _lines(("`agenteval.export.reason`", "means"), rows)


def log_events() -> str:
    """What each log line says and means, and what to do."""
    rows = []
    blocks = []
    for event, line in sorted(reference.LOG_LINES.items()):
        sentence = reference.sentence_of_log_line(line)
        says = f"`{sentence}`"
        is_of_facts_alone = not re.search(r"[a-z]{2}", re.sub(r"<\w+>|Fix:", "", sentence))
        shown = _from_a_folder(line.means) if is_of_facts_alone else says
        rows.append((_to_heading(event), shown))
        means = _from_a_folder(f"{_sentence(line.means)} More: [{line.page}]({line.page}).")
        lines = [f"### `{event}`", "", f"Says: {says}", "", means, "", "To do:", ""]
        blocks.append("\n".join([*lines, *(f"- {_sentence(entry)}" for entry in line.remedies)]))
    return "\n\n".join([_lines(("event", "the line says, or means"), rows), *blocks])


def no_calls() -> str:
    """Why nothing may have been counted at all."""
    found = reference.NO_CALLS
    return "\n".join(f"- {_sentence(entry)}" for entry in (*found.causes, *found.remedies))


def _to_heading(name: str) -> str:
    """The name with a link to its heading on the same page."""
    return f"[`{name}`](#{re.sub(r'[^a-z0-9_]', '', name)})"


def _from_a_folder(text: str) -> str:
    """The text with its links, which are relative to ``docs/``, relative to a folder of it."""
    return re.sub(r"\]\((?=[\w/-]+\.md)", "](../", text)


def _explained_with_index(title: str, known: Mapping[str, Explanation]) -> str:
    rows = [(_to_heading(name), _first_sentence(one.means)) for name, one in known.items()]
    return f"{_lines((title, 'means'), rows)}\n\n{_explained(known)}"


def _first_sentence(text: str) -> str:
    return f"{text.partition('. ')[0].rstrip('.')}."


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


CODE_ANSWER = """This asks the database:

    def orders_of(name):
        return db.execute("SELECT * FROM orders WHERE customer = '" + name + "'").fetchall()

Close the connection when you are done."""
EXAMPLE = {
    "prompt": "When will order A-17 arrive, and can I still change the address?",
    "response": "Order A-17 left the warehouse on Monday and is due on Wednesday by noon. The address can no longer be "
    "changed, since the parcel is on its way; you can have it kept at the post office instead.",
    "ground_truth": "It is due on Wednesday by noon. After dispatch the address cannot be changed; the parcel can be "
    "redirected to a post office once, free of charge.",
    "context": {
        "documents": [
            "Order A-17: dispatched on Monday, expected on Wednesday, 12:00.",
            "Addresses can be changed until dispatch. "
            "Later a parcel can be redirected to a post office, once and free.",
        ]
    },
    "message_history": [
        {
            "role": "system",
            "content": "You help customers of a shop. Answer in at most three sentences.",
        },
        {
            "role": "user",
            "content": "When will order A-17 arrive, and can I still change the address?",
        },
    ],
    "tool_calls": [
        {
            "name": "find_order",
            "arguments": {"id": "A-17"},
            "result": {"dispatched": "Monday", "expected": "Wednesday, 12:00"},
        }
    ],
    "agent_config": {
        "tools": [
            {
                "name": "find_order",
                "description": "What is known of an order.",
                "parameters": {
                    "type": "object",
                    "properties": {"id": {"type": "string"}},
                    "required": ["id"],
                },
            }
        ]
    },
}
"""The case that the rubrics' pages and the measured tokens are of; of code, with `CODE_ANSWER` as
the response.
"""
TOKENS = DOCS / "rubrics" / "tokens.json"
"""What ``docs/count_tokens.py`` measured: by the criterion, tokens of the question and of its data,
and its digest.
"""


def _unasked(prompt: str) -> str:
    raise RuntimeError("nothing is asked here")


def question_of(name: str) -> JudgeRequest:
    """What a judge is asked for a criterion, of the example; with a mark that is the same each
    time.
    """
    case = {**EXAMPLE, "response": CODE_ANSWER} if name == "CodeVulnerability" else EXAMPLE
    judge: LLMJudge = getattr(evaluators, name)(judge=_unasked)
    request, _ = judge.question_for(EvaluationInput.model_validate(case))
    return request.model_copy(
        update={"prompt": re.sub(r"DATA-[0-9a-f]{32}", f"DATA-{'0' * 32}", request.prompt)}
    )


def digest_of(request: JudgeRequest) -> str:
    """Twelve hexadecimal digits of a question: what was measured of another one is out of date."""
    return hashlib.sha256(f"{request.system}\n{request.prompt}".encode()).hexdigest()[:12]


def evaluator_index() -> str:
    """A row for each page of an evaluator, of its title and its ``<!-- index: ... -->``."""
    rows = []
    for page in sorted((DOCS / "evaluators").glob("*.md")):
        match = _INDEX.match(page.read_text(encoding="utf-8"))
        if match is not None:
            rows.append((f"[{match[1]}]({page.name})", *match[2].split(" | ")))
    return _lines(_INDEX_HEADS, rows)


_INDEX = re.compile(r"# (.+)\n\n<!-- index: (.+) -->\n")
_INDEX_HEADS = (
    "evaluator",
    "what it measures",
    "score",
    "needs",
    "execution",
    "microseconds, 1 KB",
    "100 KB",
    "extra",
)


def recorded_clients() -> str:
    """Each client by the forms in which its answers were recorded, with the versions."""
    forms: dict[str, set[str]] = {}
    versions: dict[str, dict[str, str]] = {}
    for path in sorted((RECORDED / "capture/recorded").glob("*.json")):
        recording = json.loads(path.read_text(encoding="utf-8"))
        forms.setdefault(recording["client"], set()).update(recording["forms"])
        versions.setdefault(recording["client"], {}).update(recording["libraries"])
    clients = sorted({*forms, *_AS_SPANS}, key=str.lower)
    return _lines(
        ("client", "recorded with", "returned", "streamed", "async", "as spans"),
        (
            _client_row(client, versions.get(client, {}), forms.get(client, set()))
            for client in clients
        ),
    )


RECORDED = DOCS.parent / "tests"
_AS_SPANS: dict[str, dict[str, str]] = {
    "Anthropic": {
        "logfire_anthropic": "logfire",
        "openinference_anthropic": "openinference-instrumentation-anthropic",
        "openllmetry_anthropic": "opentelemetry-instrumentation-anthropic",
    },
    "Google ADK": {"adk_agent": "google-adk"},
    "LangChain, LangGraph": {
        "openinference_langchain": "openinference-instrumentation-langchain",
        "openllmetry_langchain": "opentelemetry-instrumentation-langchain",
    },
    "Strands": {"strands_agent": "strands-agents"},
    "OpenAI Agents": {"openinference_openai_agents": "openinference-instrumentation-openai-agents"},
    "OpenAI, Responses API": {
        "genai_responses": "opentelemetry-instrumentation-genai-openai",
        "logfire_openai_responses": "logfire",
        "openinference_openai_responses": "openinference-instrumentation-openai",
        "openllmetry_openai_responses": "opentelemetry-instrumentation-openai",
    },
    "OpenAI, chat completions": {
        "genai_chat": "opentelemetry-instrumentation-genai-openai",
        "openaiv2_tools": "opentelemetry-instrumentation-openai-v2",
        "logfire_openai": "logfire",
        "openinference_openai": "openinference-instrumentation-openai",
        "openllmetry_openai": "opentelemetry-instrumentation-openai",
    },
    "pydantic-ai": {"pydantic_ai_agent": "pydantic-ai-slim"},
    "Vercel AI SDK": {"vercel_ai_generate": "ai", "vercel_ai5_stream": "ai"},
}
"""Of each client, the recordings of its spans and the distribution that made them."""


def _client_row(client: str, versions: Mapping[str, str], forms: Iterable[str]) -> tuple[str, ...]:
    spans = []
    for name, library in _AS_SPANS.get(client, {}).items():
        path = RECORDED / f"mappers/recorded/{name}.json"
        recording = json.loads(path.read_text(encoding="utf-8"))
        spans.append(f"{library} {recording['libraries'][library]}")
    kinds = ("returned", "streamed")
    later = [kind for kind in kinds if any(form.startswith(f"async {kind}") for form in forms)]
    return (
        client,
        ", ".join(" ".join(found) for found in versions.items()),
        *("yes" if any(form.startswith(kind) for form in forms) else "" for kind in kinds),
        ", ".join(later),
        ", ".join(spans),
    )


def catalogue() -> str:
    """The criteria of the catalogue by their groups."""
    measured = json.loads(TOKENS.read_text(encoding="utf-8"))["questions"]
    blocks = []
    for group, title in _GROUPS.items():
        rows = [
            _criterion_row(name, measured) for name in names() if entry_of(name)["group"] == group
        ]
        blocks.append(f"### {title}\n\n{_lines(_HEADS, rows)}")
    return "\n\n".join(blocks)


_GROUPS = {
    "quality": "The answer itself",
    "reference": "Against a reference answer",
    "retrieval": "What was retrieved",
    "agent": "What the agent did",
    "safety": "Harm and safety",
}
_HEADS = (
    "criterion",
    "what it measures",
    "needs",
    "takes too",
    "scale",
    "passes",
    "direction",
    "tokens",
)


def _criterion_row(name: str, measured: Mapping[str, Any]) -> tuple[str, ...]:
    entry = entry_of(name)
    told = {
        "likert5": "1 to 5",
        "numeric": "0 to 1, the share of claims that hold",
        "pass/fail": "true or false",
    }
    threshold = entry.get("threshold")
    other = f"; on request {' or '.join(_SCALES_IN_WORDS[scale] for scale in scales_of(name)[1:])}"
    at = f"from {threshold:g}" if threshold is not None else "true"
    unit = rubric_fields(name, {"scale": "numeric"})["threshold"]
    passes = at if entry["scale"] == "numeric" else f"{at}; {unit:g} of 0 to 1"
    return (
        f"[`{name}`](../rubrics/{_page_of(name)})",
        summary_of(getattr(evaluators, name)),
        _fields_in_words(entry["needs"]),
        _fields_in_words(entry["takes"]) or "nothing",
        f"{told[entry['scale']]}{other}",
        passes,
        entry["direction"],
        _tokens_of(name, measured),
    )


_SCALES_IN_WORDS = {"numeric": "0 to 1", "likert5": "1 to 5"}


def _fields_in_words(fields: Iterable[str]) -> str:
    return ", ".join(" or ".join(f"`{one}`" for one in field.split("|")) for field in fields)


def _tokens_of(name: str, measured: Mapping[str, Any]) -> str:
    found = measured.get(name, {})
    if found.get("digest") != digest_of(question_of(name)):
        return "not measured"
    return f"{found['tokens']:,} ({found['case']} of them the case)"


def _page_of(name: str) -> str:
    return f"{re.sub(r'(?<=[a-z])(?=[A-Z])', '-', name).lower()}.md"


def rubric_pages() -> dict[Path, str]:
    """The pages of the rubrics, by their path."""
    return {DOCS / "rubrics" / _page_of(name): _rubric_page(name) for name in names()}


def _rubric_page(name: str) -> str:
    request = question_of(name)
    source = (
        f"../../agenteval_otel/evaluators/catalogue/{_page_of(name).replace('-', '_')[:-3]}.yaml"
    )
    written = f" Its words are in [its file]({source})."
    fields = ", ".join(
        f"`{read}` is the {field.replace('_', ' ')}"
        for field, read in NAMES.items()
        if read != field
    )
    form = json.dumps(request.answer_form, indent=1)
    return f"""# {name}

{summary_of(getattr(evaluators, name))}

What a judge reads for one case; written by `python docs/generate.py`.{written} All of them are in
[the catalogue](../evaluators/catalogue.md). In the case, {fields}; the mark around it is drawn anew for each call.

Agreement with people: {NOT_MEASURED}. [`agenteval-otel judge check`](../calibration.md#judge-check) measures it on a
hundred labelled rows, and `agenteval-otel explain {name}` then shows it.

## System

~~~~text
{request.system}
~~~~

## Question

~~~~text
{request.prompt}
~~~~

## Form of the answer

~~~~json
{form}
~~~~
"""


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part
    for part in (
        settings_sections,
        event_attributes,
        crossing_attributes,
        forwarded_attributes,
        spans,
        run_span_attributes,
        evaluated_span_attributes,
        suite_span_attributes,
        metrics,
        boundaries,
        no_calls,
        outcomes,
        log_events,
        failures,
        error_types,
        lost_reasons,
        catalogue,
        evaluator_index,
        recorded_clients,
    )
}
"""The generated parts, by the name in their document."""


def generated(text: str) -> str:
    """The document with its generated parts made anew."""
    return _PART.sub(lambda match: f"{match[1]}\n{PARTS[match[2]]().strip()}\n\n{match[3]}", text)


def main(arguments: list[str]) -> int:
    """Write, or check; 1 when something differs from what stands there."""
    wanted = {**rubric_pages(), **settings_pages()}
    written_whole = (*DOCS.glob("rubrics/*.md"), *DOCS.glob("settings/*.md"))
    stale = {page for page in written_whole if page not in wanted}
    with_parts = [*DOCS.glob("*.md"), *DOCS.glob("evaluators/*.md"), *DOCS.glob("reference/*.md")]
    for document in with_parts:
        wanted[document] = generated(document.read_text(encoding="utf-8"))
    differing = sorted(
        page
        for page, text in wanted.items()
        if not page.exists() or page.read_text(encoding="utf-8") != text
    )
    for page in (*differing, *sorted(stale)):
        name = page.relative_to(DOCS)
        if "--check" in arguments:
            sys.stderr.write(f"{name} is not what it would be: run python docs/generate.py\n")
        elif page in stale:
            page.unlink()
            sys.stdout.write(f"{name} removed\n")
        else:
            page.parent.mkdir(exist_ok=True)
            page.write_text(wanted[page], encoding="utf-8")
            sys.stdout.write(f"{name} written\n")
    return 1 if (differing or stale) and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
