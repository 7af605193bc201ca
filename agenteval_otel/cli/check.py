"""``agenteval-otel check``: everything that is wrong with a settings file, or what it configures."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from agenteval_otel.cli.figures import count_of, json_for_terminals, setting
from agenteval_otel.components import Component
from agenteval_otel.components.explained import known_choices, suggestion
from agenteval_otel.config.load import Loaded, Problem, SettingsError, hide, load_settings, profile_names
from agenteval_otel.config.process import build_loaded
from agenteval_otel.config.settings import Settings
from agenteval_otel.engine.handler import problems_of
from agenteval_otel.engine.run import EvaluationRunner, waits
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.runtime.masking import mask_text, printable

DESCRIPTION = (
    "Read a settings file (YAML, TOML or JSON) as the process would, with its profile, the variables AGENTEVAL_* and "
    "${...}. Prints every problem with its line, setting and the known choices, or else what will run. Imports "
    "the plugins that the file lists. Checks every profile; --profile checks and prints one. "
    "Exit codes: 0 valid, 1 problems, 2 wrong use."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the settings file")
    parser.add_argument("--profile", metavar="NAME", help="check and print only this profile")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> int:
    if not Path(arguments.file).is_file():
        raise ConfigurationError("there is no such file", path=arguments.file)
    loaded, problems = _checked(arguments.file, arguments.profile)
    others = [name for name in loaded.profiles if name != loaded.profile] if loaded and not arguments.profile else []
    report = {"other_valid_profiles": others, **_report(loaded)} if loaded is not None and not problems else {}
    if arguments.format == "json":
        details = [problem._asdict() for problem in problems]
        print(json_for_terminals({"valid": not problems, "problems": details, **report}))
    elif problems:
        print(f"{count_of(len(problems), 'problem')} in {printable(arguments.file)}\n")
        for problem in problems:
            print(f"  {printable(str(problem))}")
    else:
        print("\n".join(map(printable, _text_of(arguments.file, report))))
    return 1 if problems else 0


def _checked(file: str, profile: str | None) -> tuple[Loaded | None, list[Problem]]:
    """The loaded settings, and every problem of theirs and of the other profiles."""
    try:
        names = profile_names(file)
    except SettingsError as error:
        return None, list(error.located)
    if profile is not None and profile not in names:
        raise ConfigurationError(f"no profile {profile!r}{known_choices(profile, names)}", path="--profile")
    first: Loaded | None = None
    problems: dict[Problem, None] = {}
    for name in [profile] if profile is not None else [None, *names]:
        try:
            loaded = load_settings(file, profile=name)
            build_loaded(loaded)
            first = first or loaded
        except SettingsError as error:
            problems |= dict.fromkeys(error.located)
    return first, list(problems)


def _report(loaded: Loaded) -> dict[str, Any]:
    """What will run, as JSON data without secrets."""
    settings, pipeline = loaded.settings, build_loaded(loaded)
    report = {
        "profile": loaded.profile, "profiles": list(loaded.profiles), "enabled": settings.enabled,
        "agents": {name or "every other handler": _agent(pipeline, name) for name in (*settings.agents, "")},
        "telemetry": _describe_telemetry(settings),
        "storage": [_describe(part) for part in settings.storage if not _emits(part)],
        "redactors": [_describe(redactor) for redactor in settings.redactors],
        "dispatcher": _describe(settings.dispatcher), "agent_span": settings.agent_span,
        "plugins": list(settings.plugins),
        "overrides": [f"{name}={shown} sets {path}" for name, path, shown in loaded.variables],
        "warnings": [*loaded.warnings, *_unscored_criteria(loaded, pipeline), *_missing_keys(loaded)],
    }  # fmt: skip
    secrets = [json.dumps(secret)[1:-1] for secret in loaded.secrets]
    shown: dict[str, Any] = json.loads(hide(json.dumps(report), secrets))
    return shown


def _agent(pipeline: Pipeline, name: str) -> dict[str, Any]:
    entry, plan = pipeline.agents.get(name), pipeline.handler(name)
    criteria = {criterion.name: criterion for criterion in plan.runner.criteria}
    evaluators = [
        {
            "type": evaluator.type, "execution": evaluator.resolved_execution,
            "sampled": None if evaluator.sample_rate is None else f"{setting(evaluator.sample_rate)} of the sampled",
            "criteria": [_describe_criterion(criteria[item.name]) for item in evaluator.criteria()],
        }
        for evaluator in plan.runner.evaluators
    ]  # fmt: skip
    sampler = (entry.sampler if entry is not None else None) or pipeline.defaults.sampler
    return {
        "enabled": pipeline.enabled and plan.enabled, "sampled": _describe(sampler), "evaluators": evaluators,
        "escalated": None if plan.runner.escalation is None else _describe_escalation(plan.runner),
    }  # fmt: skip


def _describe_escalation(runner: EvaluationRunner) -> str:
    escalation = runner.escalation
    assert escalation is not None
    second = [evaluator for evaluator in runner.evaluators if waits(evaluator, escalation)]
    names = [criterion.name for evaluator in second for criterion in evaluator.criteria()]
    if not names:
        return "escalation: no evaluator is escalated"
    rules = "".join(f"; {_describe(rule)}" for rule in escalation.rules)
    return f"escalation to {', '.join(names)}: {setting(escalation.baseline_rate)} of the sampled{rules}"


def _describe_criterion(criterion: EvaluationCriteria) -> str:
    has_range = criterion.minimum is not None and criterion.maximum is not None
    words = [f"{criterion.minimum:g} to {criterion.maximum:g}" if has_range else criterion.scale]
    named = (("passes from {:g}", criterion.threshold), ("weight {:g}", criterion.weight))
    words += [text.format(value) for text, value in named if value is not None]
    words += [] if criterion.objective is None else [f"objective {setting(criterion.objective)}"]
    return f"{criterion.name} ({', '.join(words)})"


def _describe_telemetry(settings: Settings) -> str:
    provider: Any = next(filter(_emits, settings.storage), settings.telemetry)
    variable = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if provider.endpoint:
        target = f"to {provider.endpoint}"
    elif variable:
        target = f"to the application's OpenTelemetry provider, else to {variable} (OTEL_EXPORTER_OTLP_ENDPOINT)"
    else:
        target = "to the application's OpenTelemetry provider; without one, nowhere"
    words = [target, f"signals {', '.join(sorted(provider.signals)) or 'none'}", f"content {provider.emitter.content}"]
    words += [f"detail {provider.detail}"] if provider.detail != "auto" else []
    words += [f"headers {', '.join(sorted(provider.headers))} (values hidden)"] if provider.headers else []
    return "; ".join(words)


def _emits(provider: Any) -> bool:
    """Whether a storage provider emits telemetry, in place of the process's own."""
    return hasattr(type(provider), "emitter")


def _describe(part: Any) -> str:
    return str(part) if isinstance(part, Component) else type(part).__name__


def _unscored_criteria(loaded: Loaded, pipeline: Pipeline) -> list[str]:
    warnings = []
    for name in (None, *loaded.settings.agents):
        scored = [criterion.name for criterion in pipeline.handler(name or "").runner.criteria]
        who = "the evaluators above" if name is None else f"agent {name!r}"
        for criterion in loaded.settings.criteria_of(name):
            if criterion.name not in scored:
                hint = suggestion(criterion.name, scored)
                warnings.append(f"criterion {criterion.name!r} is scored by no evaluator of {who} in this file{hint}")
    return warnings


def _missing_keys(loaded: Loaded) -> list[str]:
    """Missing keys of judges. Only warnings: the process may run in another environment."""
    warnings = problems_of(loaded.settings.evaluators, "evaluators")
    for name, agent in loaded.settings.agents.items():
        warnings += problems_of(agent.evaluators, f"agents.{name}.evaluators")
    return warnings


def _text_of(file: str, report: dict[str, Any]) -> list[str]:
    profile = f"profile {report['profile']}" if report["profile"] else "no profile"
    others = report["other_valid_profiles"]
    also = f"; also valid: {', '.join(others)}" if others else ""
    lines = [f"{file} is valid ({profile}{also}).", ""]
    if not report["enabled"]:
        lines += ["Evaluation is disabled: calls count as disabled.", ""]
    for name, agent in report["agents"].items():
        lines.append(f"{name}: {agent['sampled'] if agent['enabled'] else 'off'}")
        for evaluator in agent["evaluators"]:
            rate = f", {evaluator['sampled']}" if evaluator["sampled"] else ""
            lines.append(f"  {evaluator['type']} [{evaluator['execution']}{rate}]: {'; '.join(evaluator['criteria'])}")
        lines += [f"  {agent['escalated']}"] if agent["escalated"] else []
    lines += ["", f"Telemetry goes {report['telemetry']}"]
    lines += ["Results are stored in:", *(f"  {words}" for words in report["storage"])] if report["storage"] else []
    lines += [f"Redaction of what leaves the process: {', '.join(report['redactors']) or 'none'}"]
    lines += [f"Evaluations run in: {report['dispatcher']}"]
    for title, key in (("Plugins:", "plugins"), ("Overrides in force:", "overrides"), ("Warnings:", "warnings")):
        if report[key]:
            lines += ["", title, *(f"  {line}" for line in report[key])]
    return [mask_text(line) for line in lines]
