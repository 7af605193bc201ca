"""``agenteval-otel check``: everything that is wrong with a settings file, or what it configures."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agenteval_otel.cli.counts import Counts, capture_reasons, counts_from
from agenteval_otel.components import Component
from agenteval_otel.components.explained import known_choices, suggestion
from agenteval_otel.config.load import (
    Loaded,
    Problem,
    SettingsError,
    hide,
    load_settings,
    located,
    profile_names,
)
from agenteval_otel.config.process import build_loaded
from agenteval_otel.config.settings import Settings
from agenteval_otel.engine.handler import problems_of
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.engine.run import EvaluationRunner, waits
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.shadow import declared_criteria
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.offline.calibration.record import load_records
from agenteval_otel.offline.reports.figures import count_of, setting
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.delays import warnings_of
from agenteval_otel.provisioning.former_names import former_uses
from agenteval_otel.runtime.masking import mask_text, printable
from agenteval_otel.runtime.named_modules import leaving_out_current_folder
from agenteval_otel.sampling import Escalation
from agenteval_otel.semconv import CAPTURE_FAILED, EVALUATED, NOT_WANTED, OTHER
from agenteval_otel.telemetry.target import SIGNALS, OtlpTarget, not_obeyed

if TYPE_CHECKING:
    from agenteval_otel.storage import OtlpStorageProvider

DESCRIPTION = (
    "Read a settings file (YAML, TOML or JSON) as the process would. Its profile, the variables AGENTEVAL_* and "
    "${...} count. Prints every problem with its line, setting and the known choices, or else what will run. Imports "
    "the plugins and functions that the file names, but from this folder only if you name FILE. Checks every profile, "
    "or the one of --profile, which it prints. Exit codes: 0 valid, 1 problems, 2 wrong use."
)


# results and two weights by both verdicts, the score, and the three sums of weighted scores
_SERIES: Final = 10
_LEAST_RATE: Final = 1e-6
_DEFAULT_FILE: Final = "agenteval.yaml"  # as `init` writes it
_NOT_NAMED: Final = (
    "Modules of this folder are only imported for a file that you name: "
    f"agenteval-otel check {_DEFAULT_FILE}"
)
_HEAD_SAMPLERS: Final = ("traceidratio", "parentbased_traceidratio")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="the settings file (default: the file that AGENTEVAL_SETTINGS names, "
        f"else {_DEFAULT_FILE} in this folder)",
    )
    parser.add_argument("--profile", metavar="NAME", help="check and print only this profile")
    parser.add_argument(
        "--monitoring",
        metavar="DIR",
        default="monitoring",
        help="also warn of panels and rules in this folder, where it exists, that read names which are not emitted "
        "any more (default: %(default)s, where provision writes)",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        help="also tell how many answers of a running process were not understood or were judged as "
        "JSON, by its counts as for `explain --from` (a file, `-`, or the address of a page with metrics)",
    )
    parser.add_argument(
        "--send-test",
        action="store_true",
        help="send one test message to every place of `notify`. Exit code 1 if one does not take it",
    )


def run(arguments: argparse.Namespace) -> int:
    named = arguments.file or os.environ.get("AGENTEVAL_SETTINGS", "").strip()
    if named:
        return _check(named, arguments)
    if not Path(_DEFAULT_FILE).exists():
        raise ConfigurationError(
            "expected FILE: AGENTEVAL_SETTINGS names no settings file, and there is no "
            f"{_DEFAULT_FILE} in this folder. `agenteval-otel init` writes one"
        )
    if arguments.send_test:  # it may be an outsider's, with an address that gets our variables
        wrong = f"expected FILE: name {_DEFAULT_FILE} if its places are yours"
        raise ConfigurationError(wrong, path="--send-test")
    with leaving_out_current_folder():
        return _check(_DEFAULT_FILE, arguments, is_named=False)


def _check(file: str, arguments: argparse.Namespace, *, is_named: bool = True) -> int:
    if not Path(file).exists():
        raise ConfigurationError(
            "there is no such file. `agenteval-otel init` writes one", path=file
        )
    loaded, problems = _checked(file, arguments.profile)
    if problems or loaded is None:
        print(f"{count_of(len(problems), 'problem')} in {printable(file)}\n")
        for problem in problems:
            print(f"  {printable(str(problem))}")
        if not is_named and any("cannot be imported" in str(problem) for problem in problems):
            print(f"\n{_NOT_NAMED}")
        return 1
    others = [name for name in loaded.profiles if name != loaded.profile]
    profile = f"profile {loaded.profile}" if loaded.profile else "no profile"
    also = f", also valid: {', '.join(others)}" if others and not arguments.profile else ""
    lines = [f"{file} is valid ({profile}{also}).", "", *_report(loaded, arguments.monitoring)]
    for line in lines:
        print(printable(hide(line, loaded.secrets)))
    if arguments.source is not None:
        for line in _understood(counts_from(arguments.source)):
            print(printable(line))
    return _send_tests(loaded) if arguments.send_test else 0


def _send_tests(loaded: Loaded) -> int:
    """Send a test message to every place, print what became of each, and return the exit code."""
    places = loaded.settings.notify
    if not places:
        raise ConfigurationError("expected places for messages in `notify`", path="--send-test")
    print("\nTest messages:")
    exit_code = 0
    for number, place in enumerate(places):
        problem = place.send_test()
        outcome = f"{place.label}: taken"
        if problem is not None:
            outcome = f"NOT TAKEN: {problem}"
            exit_code = 1
        print(printable(hide(f"  notify[{number}] {outcome}", loaded.secrets)), flush=True)
    return exit_code


def _understood(counts: Counts) -> Iterator[str]:
    """Yield how many answers of a running process were not understood, and why.

    Yield how many were judged as JSON, too.
    """
    totals = counts.totals
    failed = totals[CAPTURE_FAILED]
    wanted = totals.total() - sum(totals[outcome] for outcome in NOT_WANTED)
    yield from ("", "Answers to be evaluated:")
    yield f"  {failed:,} of {wanted:,} were not understood ({CAPTURE_FAILED})"
    yield from (f"    {line}" for line in capture_reasons(counts))
    if counts.as_json is None:
        return
    evaluated = totals[EVALUATED]
    yield f"  {counts.as_json:,} of {evaluated:,} evaluated ones were judged as their JSON"
    if counts.as_json:
        yield "    if users see a text, return it, or give it with capture="


def _checked(file: str, profile: str | None) -> tuple[Loaded | None, list[Problem]]:
    """Return the loaded settings, and every problem of theirs and of the other profiles."""
    try:
        names = profile_names(file)
    except SettingsError as error:
        return None, list(error.located)
    if profile is not None and profile not in names:
        raise ConfigurationError(
            f"no profile {profile!r}{known_choices(profile, names)}", path="--profile"
        )
    first: Loaded | None = None
    problems: dict[Problem, None] = {}
    for name in [profile] if profile is not None else [None, *names]:
        try:
            loaded = load_settings(file, profile=name)
            checked_plan(loaded, build_loaded(loaded))
            first = first or loaded
        except SettingsError as error:
            problems |= dict.fromkeys(error.located)
    return first, list(problems)


def _report(loaded: Loaded, monitoring: str) -> Iterator[str]:
    """Yield what will run, line by line."""
    settings = loaded.settings
    pipeline = build_loaded(loaded)
    if not settings.enabled:
        yield from ("Evaluation is disabled: calls count as disabled.", "")
    for name in (*settings.agents, ""):
        yield from _handler(pipeline, name)
        functions = settings.functions_of(name or None)
        if functions:
            yield f"  functions of decorators: {', '.join(functions)}"
    yield from ("", f"Telemetry goes {_describe_telemetry(settings)}")
    if settings.metric_dimensions:
        yield _describe_dimensions(settings, pipeline)
    stored = [_describe_storage(part) for part in settings.storage if not _emits(part)]
    if stored:
        yield from ("Results are stored in:", *(f"  {words}" for words in stored))
    if settings.notify:
        yield "Messages go to:"
        yield from (f"  {place.in_words}" for place in settings.notify)
    redactors = ", ".join(map(_describe, settings.redactors))
    yield f"Redaction of what leaves the process: {redactors or 'none'}"
    if settings.evaluate_in == "sidecar":
        yield f"Evaluations run in: the sidecar at {mask_text(settings.endpoint)}, which reads its own settings"
    else:
        place = _PLACES.get(settings.dispatcher.type, "")
        yield f"Evaluations run in: {place}{_describe(settings.dispatcher)}"
    overrides = [f"{name}={shown} sets {path}" for name, path, shown in loaded.variables]
    warnings = [*loaded.warnings, *_warnings(loaded, pipeline), *_missing_keys(loaded)]
    warnings += warnings_of(checked_plan(loaded, pipeline))
    warnings += map(str, former_uses(Path(monitoring)))
    capabilities = [part.name for part in pipeline.capabilities]
    built_in = len(capabilities) - len(settings.capabilities)
    for title, lines in (
        ("Plugins:", settings.plugins),
        ("Capabilities besides the built-in ones:", capabilities[built_in:]),
        ("Overrides in force:", overrides),
        ("Warnings:", warnings),
    ):
        if lines:
            yield from ("", title, *(f"  {line}" for line in lines))


_PLACES: Final = {
    "inline": "the call itself, dispatcher: ",
    "pool": "a background thread of each process, dispatcher: ",
}


def _handler(pipeline: Pipeline, name: str) -> Iterator[str]:
    """Yield how the handlers of an agent are sampled, and what scores them.

    Without a name, every other handler is described.
    """
    plan = pipeline.handler(name)
    sampled = _describe(plan.sampler) if pipeline.enabled and plan.enabled else "off"
    others = "every other handler" if pipeline.handlers.agents else "every handler"
    yield f"{name or others}: {sampled}"
    criteria = {criterion.name: criterion for criterion in plan.runner.criteria}
    for evaluator in plan.runner.evaluators:
        rate = ""
        if evaluator.sample_rate is not None:
            rate = f", at most {setting(evaluator.sample_rate)} of all"
        own = [criteria[declared.name] for declared in declared_criteria(evaluator)]
        scored = ", ".join(map(_describe_criterion, own))
        when = "" if evaluator.schedule == "immediate" else ", off-peak"
        yield f"  {evaluator.type} [{evaluator.resolved_execution}{rate}{when}]: {scored or 'what it is asked for'}"
    if plan.runner.escalation is not None:
        yield f"  {_describe_escalation(plan.runner, plan.runner.escalation)}"


def _describe_escalation(runner: EvaluationRunner, escalation: Escalation) -> str:
    second = [evaluator for evaluator in runner.evaluators if waits(evaluator, escalation)]
    names: list[str] = []
    for evaluator in second:
        names += [criterion.name for criterion in declared_criteria(evaluator)]
    if not names:
        return "escalation: no evaluator is escalated"
    rules = "".join(f", and {_describe(rule)}" for rule in escalation.rules)
    return f"escalation to {', '.join(names)}: {setting(escalation.baseline_rate)} of the sampled{rules}"


def _describe_criterion(criterion: EvaluationCriteria) -> str:
    has_range = criterion.minimum is not None and criterion.maximum is not None
    words = [f"{criterion.minimum:g} to {criterion.maximum:g}" if has_range else criterion.scale]
    if criterion.threshold is not None:
        words.append(f"passes from {criterion.threshold:g}")
    if criterion.weight is not None:
        words.append(f"weight {criterion.weight:g}")
    if criterion.objective is not None:
        of_last = "" if criterion.of_last is None else f" of the last {criterion.of_last:,}"
        independent = ", verdicts taken as independent" if criterion.independent else ""
        words.append(f"objective {setting(criterion.objective)}{of_last}{independent}")
    return f"{criterion.name} ({', '.join(words)})"


def _describe_telemetry(settings: Settings) -> str:
    provider: OtlpStorageProvider = next(filter(_emits, settings.storage), settings.telemetry)
    variable = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if provider.endpoint:
        target = f"to {provider.endpoint}"
    elif variable:
        target = f"to the application's OpenTelemetry provider, else to {variable} (OTEL_EXPORTER_OTLP_ENDPOINT)"
    else:
        target = "to the application's OpenTelemetry provider, or nowhere without one"
    words = [
        target,
        f"Signals: {', '.join(sorted(provider.signals)) or 'none'}",
        f"Content: {provider.emitter.content}",
    ]
    if provider.detail != "auto":
        words.append(f"Detail: {provider.detail}")
    if provider.headers:
        words.append(f"Headers: {', '.join(sorted(provider.headers))} (values hidden)")
    return ". ".join(words)


def _describe_dimensions(settings: Settings, pipeline: Pipeline) -> str:
    """Return how many series the metrics with the dimensions may have, for one model of an agent.

    The number is the product of the dimensions' values, the criteria and the series of each.
    """
    criteria = 0
    for name in (None, *settings.agents):
        criteria += len(pipeline.handler(name or "").runner.criteria)
        criteria += len(settings.functions_of(name))
    dimensions = settings.metric_dimensions
    combinations = math.prod(limit + 1 for limit in dimensions.values())
    total = combinations * criteria * _SERIES
    shown = ", ".join(f"{name} ({limit} values)" for name, limit in dimensions.items())
    counted = count_of(criteria, "criterion", "criteria")
    words = f"Metric dimensions: {shown}. {combinations:,} combinations with {OTHER} x {counted}"
    most = settings.names.max_series
    over = f". {most:,} are kept, the rest counts under {OTHER}" if total > most else ""
    return f"{words} x {_SERIES} series = {total:,}{over}"


def _emits(provider: object) -> bool:
    """Tell whether a storage provider emits telemetry, in place of the process's own."""
    return hasattr(type(provider), "emitter")


def _describe_storage(part: object) -> str:
    words = _describe(part)
    place = getattr(part, "place", "")
    return words if not place or "(" in words else f"{words}: {place}"


def _describe(part: object) -> str:
    return str(part) if isinstance(part, Component) else type(part).__name__


def _unscored_criteria(
    loaded: Loaded, pipeline: Pipeline
) -> Iterator[tuple[str | None, str, EvaluationCriteria]]:
    """Yield each criterion that neither an evaluator nor a function scores.

    Each item is the agent, the criterion's path and the criterion itself.
    """
    for name in (None, *loaded.settings.agents):
        scored = _scored(loaded, pipeline, name)
        for index, criterion in enumerate(loaded.settings.criteria_of(name)):
            if criterion.name not in scored:
                yield name, f"{loaded.settings.criteria_path(name)}[{index}]", criterion


def _scored(loaded: Loaded, pipeline: Pipeline, agent: str | None) -> list[str]:
    criteria = pipeline.handler(agent or "").runner.criteria
    return [*(criterion.name for criterion in criteria), *loaded.settings.functions_of(agent)]


def _warnings(loaded: Loaded, pipeline: Pipeline) -> Iterator[str]:
    for name, _, criterion in _unscored_criteria(loaded, pipeline):
        who = "the evaluators above" if name is None else f"agent {name!r}"
        hint = suggestion(criterion.name, _scored(loaded, pipeline, name))
        yield f"criterion {criterion.name!r} is scored by no evaluator of {who} in this file{hint}"
    for name in (None, *loaded.settings.agents):
        yield from _small_rates(loaded.settings, pipeline, name)
    ratio = _head_ratio(os.environ)
    if ratio is not None:
        yield from _head_sampling(loaded.settings, ratio)
    yield from _ignored_variables(loaded.settings)
    if "endpoint" in loaded.settings.model_fields_set and loaded.settings.evaluate_in != "sidecar":
        yield (
            "endpoint is the sidecar's address, which is used with evaluate_in: sidecar alone. "
            "Telemetry goes where telemetry.endpoint says"
        )


def _ignored_variables(settings: Settings) -> Iterator[str]:
    """Name the variables that our own exporter does not obey, if there is a receiver for it."""
    provider: OtlpStorageProvider = next(filter(_emits, settings.storage), settings.telemetry)
    target = OtlpTarget(provider.endpoint, provider.protocol)
    ignored = not_obeyed(os.environ)
    if provider.protocol is not None:
        ignored = [variable for variable in ignored if "_PROTOCOL=" not in variable]
    if ignored and any(map(target.is_configured, SIGNALS)):
        yield (
            f"without providers of the application, our own exporter does not obey {', '.join(ignored)}: "
            "unset them, or set up providers, which do"
        )


def _small_rates(settings: Settings, pipeline: Pipeline, name: str | None) -> Iterator[str]:
    """Warn of evaluators whose results may stand for more than a million answers each."""
    plan = pipeline.handler(name or "")
    sampled = plan.least_probability
    sampled = 1.0 if sampled is None else sampled
    shedding = settings.load_shedding
    reduced = shedding.min_rate if shedding.enabled else 1.0
    reduced *= settings.sampling.upstream_ratio or 1.0
    for step in plan.runner.steps:
        own = step.evaluator.sample_rate
        least = reduced * (sampled if own is None else min(sampled, own))
        if step.second:
            least *= plan.baseline_rate
        if 0.0 < least < _LEAST_RATE:
            who = "every other handler" if name is None else f"agent {name!r}"
            yield (
                f"{step.evaluator.label} of {who}: the rates of sampler, load shedding, escalation and upstream "
                f"multiply to {least:.1g} at the least, so one result may stand for {1 / least:,.0f} answers"
            )


def _head_ratio(variables: Mapping[str, str]) -> float | None:
    """Return the ratio of the SDK's head sampler if variables set one below 1."""
    if variables.get("OTEL_TRACES_SAMPLER", "").strip() not in _HEAD_SAMPLERS:
        return None
    try:
        ratio = float(variables.get("OTEL_TRACES_SAMPLER_ARG", "1"))
    except ValueError:
        return None
    return ratio if 0.0 <= ratio < 1.0 else None


def _head_sampling(settings: Settings, ratio: float) -> Iterator[str]:
    if settings.sampling.only_recorded or "trace_id" in settings.sampling.trust:
        return
    yield (
        f"OTEL_TRACES_SAMPLER records {setting(ratio)} of the traces, and evaluation chooses by its own key: most "
        "evaluated answers have no recorded trace. Set sampling.only_recorded: true, or sampling.trust: [trace_id] "
        "where the edge replaces the trace ids that clients send"
    )


def checked_plan(loaded: Loaded, pipeline: Pipeline, *, time_scale: float = 1.0) -> MonitoringPlan:
    """Return the plan of the settings.

    Raises:
        SettingsError: An objective could never raise an alert: nothing scores its criterion, or it
            has `of_last` and no threshold decides which scores pass.
    """
    settings = loaded.settings
    calibrations = None
    if settings.calibration is not None:
        calibrations = load_records(settings.calibration, missing_ok=True)
    plan = MonitoringPlan.of(
        pipeline,
        functions_of=settings.functions_of,
        drain_s=settings.sidecar.drain_s,
        time_scale=time_scale,
        calibrations=calibrations,
    )
    problems = _unscored_objectives(loaded, pipeline)
    for item in plan.criteria:
        if item.of_last is None or item.has_verdicts:
            continue
        wrong = f"nothing says which scores pass on the scale {item.criterion.scale!r}. Give {item.name!r} a threshold"
        for agent in item.agents or (None,):
            for at, criterion in enumerate(settings.criteria_of(agent)):
                if criterion.name == item.name:
                    problems[f"{settings.criteria_path(agent)}[{at}].of_last"] = wrong
    if problems:
        raise located(
            ConfigurationError.of(list(problems.items())), loaded.tree, secrets=loaded.secrets
        )
    return plan


def _unscored_objectives(loaded: Loaded, pipeline: Pipeline) -> dict[str | None, str]:
    """Return problems by their path: objectives on criteria that nothing scores."""
    settings = loaded.settings
    agents = (None, *loaded.settings.agents)
    unscored = [(path, criterion) for _, path, criterion in _unscored_criteria(loaded, pipeline)]
    scored: dict[str, None] = {}  # in order
    for agent in agents:
        scored |= dict.fromkeys(_scored(loaded, pipeline, agent))
    problems: dict[str | None, str] = {}
    for path, criterion in unscored:
        # Handlers may share a criterion. It is a problem only if none of them scores it.
        sharing = [
            agent for agent in agents if path.startswith(f"{settings.criteria_path(agent)}[")
        ]
        unscored_by = [other for other, _ in unscored if other == path]
        if criterion.objective and len(unscored_by) == len(sharing):
            problems[path] = (
                f"has an objective, and no evaluator in this file scores {criterion.name!r}"
                f"{known_choices(criterion.name, list(scored))}. List a function that a decorator brings in `functions`"
            )
    return problems


def _missing_keys(loaded: Loaded) -> list[str]:
    """Return the missing keys of judges and storage.

    They are only warnings: the process may run in another environment.
    """
    settings = loaded.settings
    warnings = problems_of(settings.evaluators, "evaluators")
    warnings += problems_of(settings.storage, "storage")
    for name, agent in settings.agents.items():
        warnings += problems_of(agent.evaluators, f"agents.{name}.evaluators")
    return warnings
