"""Write the generated parts of the documents: ``python docs/generate.py``; with ``--check`` only
say what differs.

A document holds ``<!-- generated: NAME -->`` and ``<!-- end of generated -->``; what stands between
them is replaced by what the function of that name in `PARTS` gives. Everything else in the document
is written by hand. The pages in ``rubrics/`` are written whole: each criterion of the catalogue as
a judge reads it, for the one case of `EXAMPLE`.
"""

from __future__ import annotations

import hashlib
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
from agenteval_otel.engine.load_shedding import LoadSheddingSettings
from agenteval_otel.engine.pipeline import Dispatcher
from agenteval_otel.evaluators import Evaluator, LLMJudge, RuleCheck
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


def configuration() -> str:
    """Every setting and every type of part, with type, default and description."""
    schema = json_schema()
    settings = {
        name: found for name, found in schema["properties"].items() if not name.startswith("$")
    }
    agent = schema["$defs"]["AgentSettings"]["properties"]
    sections = [
        "## Settings\n",
        _rows(settings, schema, Settings()),
        "## An agent's entry: `agents.<name>`\n",
        _rows(agent, {}, AgentSettings()),
        "## A criterion in a set: `criteria.<set>[]`\n",
        _table(Criterion),
        "## `telemetry`\n",
        _table(OtlpStorageProvider),
        "## `load_shedding`\n",
        f"{summary_of(LoadSheddingSettings)}\n",
        _table(LoadSheddingSettings),
        "## `sampling`\n",
        f"{summary_of(SamplingSettings)}\n",
        _table(SamplingSettings),
    ]
    for title, contract in (
        ("Evaluators: `evaluators[]`", Evaluator),
        ("Rules of `RuleBased`: `rules[]`", RuleCheck),
        ("Samplers: `sampler`", Sampler),
        ("Storage providers: `storage[]`", EvaluationStorageProvider),
        ("Redactors: `redaction[]`", Redactor),
        ("Aggregations: `aggregation`", Aggregation),
        ("Ground truth: `ground_truth`", GroundTruthStore),
        ("Embedders: an evaluator's `embedder`", Embedder),
        ("Judges: an evaluator's `judge`", Judge),
        ("Dispatchers: `dispatcher`", Dispatcher),
    ):
        sections.append(f"## {title}\n")
        for name, model in writable_types(contract).items():
            sections.append(f"### `{name}`\n\n{summary_of(model)}\n")
            if name in names() and name != names()[0]:
                # all of them have the same
                sections.append(f"Fields as [`{names()[0]}`](#{names()[0].lower()}).\n")
                continue
            sections.append(_table(model) if writable_fields(model) else "No fields.\n")
    sections += _inner_models()
    return "\n".join(sections)


def _inner_models() -> list[str]:
    """The models that fields of parts are made of, such as a rule and its checks."""
    sections = []
    covered = {
        "AgentSettings",
        "Criterion",
        "OtlpStorageProvider",
        "LoadSheddingSettings",
        "profile",
        "variable",
    }
    for name, found in json_schema()["$defs"].items():
        found = found.get("anyOf", [found])[0]  # a rubric may also be the name of the catalogue's
        if name in covered or "properties" not in found or "." in name:
            continue
        sections += [
            f"### {name}\n\n{found.get('description', '')}\n",
            _rows(found["properties"], found, None),
        ]
    return ["## Parts of parts\n", *sections] if sections else []


def _table(model: type[BaseModel], instance: BaseModel | None = None) -> str:
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    return _rows(writable_fields(model), {"required": required}, instance)


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
_REFERENCES = {
    "evaluator": "evaluator", "Evaluator": "evaluator", "sampler": "sampler", "Sampler": "sampler",
    "storage": "storage provider", "dispatcher": "dispatcher", "Dispatcher": "dispatcher",
    "aggregation": "aggregation", "Aggregation": "aggregation",
    "ground_truth": "ground-truth store", "GroundTruthStore": "ground-truth store",
    "embedder": "embedder", "Embedder": "embedder", "judge": "judge", "Judge": "judge",
    "check": "[rule](#rules-of-rulebased-rules)", "RuleCheck": "[rule](#rules-of-rulebased-rules)",
    "redactor": "redactor", "Redactor": "redactor", "profile": "settings",
    "AgentSettings": "[entry](#an-agents-entry-agentsname)", "OtlpStorageProvider": "[mapping](#telemetry)",
    "LoadSheddingSettings": "[mapping](#load_shedding)", "SamplingSettings": "[mapping](#sampling)",
    "Criterion": "[criterion](#a-criterion-in-a-set-criteriaset)",
}  # fmt: skip


def _bounds(found: Mapping[str, Any]) -> str:
    signs = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
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
            one.description,
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
    known = reference.OUTCOMES.items()
    return _explained({name: one._replace(means=f"The call {one.means}.") for name, one in known})


def failures() -> str:
    """What each part's failure means."""
    return _explained(reference.FAILURES)


def error_types() -> str:
    """What each `error.type` of ours means."""
    return _explained(reference.ERROR_TYPES)


def log_events() -> str:
    """What each log line's event means."""
    rows = ((f"`{event}`", line.means) for event, line in reference.LOG_LINES.items())
    return _lines(("log event", "meaning"), rows)


def no_calls() -> str:
    """Why nothing may have been counted at all."""
    found = reference.NO_CALLS
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
        configuration,
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
    wanted = rubric_pages()
    stale = {page for page in (DOCS / "rubrics").glob("*.md") if page not in wanted}
    for document in [*DOCS.glob("*.md"), *DOCS.glob("evaluators/*.md")]:
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
