"""``agenteval-otel provision``: write rules, alerts, dashboards and Collector configurations.

They are for the criteria of the settings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agenteval_otel.cli.check import checked_plan
from agenteval_otel.cli.figures import number_between
from agenteval_otel.config.load import load_settings
from agenteval_otel.config.process import build_loaded
from agenteval_otel.engine.objectives import Objective
from agenteval_otel.engine.objectives.simulation import allowed_failures
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.offline.reports.figures import count_of, setting
from agenteval_otel.provisioning import (
    ALL,
    TARGETS,
    MonitoringPlan,
    PlannedCriterion,
    files_for,
    options_of,
)
from agenteval_otel.provisioning.delays import warnings_of
from agenteval_otel.provisioning.files import differing, left_over, write
from agenteval_otel.provisioning.former_names import former_uses
from agenteval_otel.runtime.masking import printable

DESCRIPTION = (
    "Write dashboards, alerts and Collector configurations for the criteria of a settings file. They are Grafana "
    "dashboards, Prometheus rules and alerts, Alertmanager routes and Collector configurations, by scales, thresholds "
    "and objectives. A criterion gets a quality alert if it has an objective or a threshold. Existing files that were "
    "not generated are kept (see --force). Without the extra grafana, `all` writes everything but grafana/. Exit code "
    "0: written or up to date. Exit code 1: with --check, a file differs or is obsolete. Exit code 2: could not run, "
    "or with --check not compare all."
)
_ALERTING = ("prometheus", ALL)
_METAVARS = {
    "queries": "KIND",
    "idle": "HOURS",
    "scrape": "HOST:PORT",
    "alertmanager": "HOST:PORT",
    "sidecars": "N",
}
_NO_RUNBOOKS = (
    "Alerts do not link to their runbooks: publish the runbooks of the documentation, "
    "and pass --runbooks URL"
)
_OBSOLETE = "is obsolete: no setting needs it any more. Remove it"
_NEXT = {
    "grafana": "mount {0}/grafana/provisioning at /etc/grafana/provisioning, and {0}/grafana/dashboards at "
    "/var/lib/grafana/dashboards",
    "prometheus": "promtool check rules {0}/prometheus/rules/*.yaml && promtool test rules {0}/prometheus/tests/*.yaml",
    "alertmanager": "amtool check-config {0}/alertmanager/alertmanager.yml",
    "collector": "otelcol-contrib validate --config={0}/otel-collector.yaml",
    ALL: "docker compose --file {0}/compose.yaml up --detach",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    targets = ". ".join(f"{name}: {target.summary}" for name, target in TARGETS.items())
    parser.add_argument("target", choices=(*TARGETS, ALL), help=f"{targets}. {ALL}: all of these")
    parser.add_argument(
        "--settings", metavar="FILE", help="the settings file (default: AGENTEVAL_SETTINGS)"
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="a profile of it (default: AGENTEVAL_PROFILE)"
    )
    parser.add_argument(
        "--output", metavar="DIR", default="monitoring", help="default: %(default)s"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing. Exit code 1 if a file is missing, differs or is obsolete. Names each panel and rule in "
        "DIR, also of your own, that reads a name which is not emitted any more",
    )
    parser.add_argument(
        "--force", action="store_true", help="overwrite files that were not generated"
    )
    parser.add_argument(
        "--time-scale",
        type=number_between(1e-9, 1_000, "a number above 0, at most 1000"),
        default=1.0,
        metavar="X",
        help="multiply every window and waiting time of the alerts: 0.002 makes a day three minutes, for a live test",
    )
    for name, meaning in options_of(ALL).items():
        of_targets = ", ".join(target for target in TARGETS if name in options_of(target))
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar=_METAVARS.get(name, "URL"),
            help=f"{of_targets}: {meaning}",
        )


def run(arguments: argparse.Namespace) -> int:
    target: str = arguments.target
    options = {name: getattr(arguments, name) for name in options_of(ALL)}
    for name, value in options.items():
        if value is not None and name not in options_of(target):
            users = ", ".join(other for other in TARGETS if name in options_of(other))
            raise ConfigurationError(
                f"is an option of {users}, not of {target}", path=f"--{name.replace('_', '-')}"
            )
    plan = plan_of(arguments.settings, arguments.profile, time_scale=arguments.time_scale)
    files, missing = _files(target, plan, options)
    folder = Path(arguments.output)
    obsolete = [f"{folder / name}: {_OBSOLETE}" for name in left_over(folder, files)]
    if arguments.check:
        differs = differing(folder, files)
        lines: list[str] = []
        for name in differs:
            path = folder / name
            lines.append(f"{path}: {'differs' if path.exists() else 'is missing'}")
        former = map(str, former_uses(folder))
        up_to_date = f"{len(files) - len(differs)} of {len(files)} files are up to date"
        _print([*lines, *obsolete, *former, up_to_date])
        _warn(missing, "not compared")
        if missing:
            return 2
        return 1 if differs or obsolete else 0
    written = write(folder, files, force=arguments.force)
    unchanged = f"{len(files) - len(written)} of {len(files)} unchanged"
    _print([*(f"wrote {folder / name}" for name in written), *obsolete, unchanged])
    after = _NEXT[target]
    if plan.time_scale != 1.0:  # scaled rules have no tests
        after, _, _ = after.partition(" && ")
    report = ["", *_summary(plan, target)]
    if target in _ALERTING:
        warnings = [f"  {line}" for line in warnings_of(plan)]
        if warnings:
            report += ["", "Warnings:", *warnings]
        if options["runbooks"] is None:
            report += ["", _NO_RUNBOOKS]
    report += ["", f"Next: {after.format(folder)}"]
    _print(report)
    _warn(missing, "not written")
    return 0


def _files(
    target: str, plan: MonitoringPlan, options: dict[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """Return the files of the target, and what is missing.

    Files of `all` are missing if an extra is not installed.
    """
    files: dict[str, str] = {}
    missing = []
    for name in TARGETS if target == ALL else (target,):
        try:
            files |= files_for(name, plan, options)
        except ConfigurationError as error:
            if target != ALL or not isinstance(error.__context__, ModuleNotFoundError):
                raise
            missing.append(f"{TARGETS[name].folder}: {error}")
    return files, missing


def _warn(missing: Sequence[str], what: str) -> None:
    sys.stdout.flush()  # on a terminal the files come first
    for line in missing:
        print(f"\n{what}: {line}", file=sys.stderr)


def plan_of(
    settings: str | None, profile: str | None, *, time_scale: float = 1.0
) -> MonitoringPlan:
    """Return the plan of a settings file, by default of the file that AGENTEVAL_SETTINGS names."""
    loaded = load_settings(settings, profile=profile)
    if loaded.file is None:
        raise ConfigurationError(
            "no settings file is named, nor does AGENTEVAL_SETTINGS name one", path="--settings"
        )
    plan = checked_plan(loaded, build_loaded(loaded), time_scale=time_scale)
    addresses = [place.pages_url for place in loaded.settings.notify if place.pages_url]
    return plan.model_copy(update={"pages": addresses[0]}) if addresses else plan


def _summary(plan: MonitoringPlan, target: str) -> Iterator[str]:
    agents = f", {count_of(len(plan.agents), 'agent')} named" if plan.agents else ""
    judges = f", judged by {', '.join(plan.judge_models)}" if plan.judge_models else ""
    yield f"{count_of(len(plan.names), 'criterion', 'criteria')}{agents}{judges}"
    for criterion in plan.criteria if target in _ALERTING else ():
        where = ""
        if criterion.agents:
            where = f" of {', '.join(criterion.agents)}"
        elif criterion.other_agents:
            where = f" of all but {', '.join(criterion.other_agents)}"
        yield f"  {criterion.name}{where}: {_alerts_of(criterion)}"


def _alerts_of(criterion: PlannedCriterion) -> str:
    if criterion.cannot_be_missed:
        return "no alert: an objective of 0 cannot be missed"
    if criterion.is_alerted and criterion.of_last is not None:
        allowed = allowed_failures(Objective(criterion.objective or 0.0, criterion.of_last))
        last = f"of the last {criterion.of_last:,} verdicts"
        if allowed:
            return f"alerts once more than {allowed:,} {last} fail"
        return f"alerts once any {last} fails"
    if criterion.is_alerted:
        return f"alerts on its objective of {setting(criterion.objective or 0)}"
    if criterion.objective and not criterion.has_verdicts:
        return "no alert: it has an objective, but no threshold that decides what passes"
    if criterion.alerted_threshold is not None:
        return "alerts where its mean falls below its threshold"
    if criterion.criterion.threshold is not None:
        return "no alert: its mean cannot be compared with its threshold. Give it an objective"
    return "no alert: it has neither an objective nor a threshold"


def _print(lines: Sequence[str]) -> None:
    print("\n".join(map(printable, lines)))
