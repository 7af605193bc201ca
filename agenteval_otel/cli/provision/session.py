"""One run of ``provision``, from the settings to the files and to what is told."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from agenteval_otel.config.assemble import build_loaded
from agenteval_otel.config.load import load_settings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.masking import printable
from agenteval_otel.provisioning import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.files import differing, left_over, write
from agenteval_otel.provisioning.prometheus.recording import alerted_thresholds
from agenteval_otel.provisioning.targets import ALL, TARGETS, files_for, options_of

__all__ = ["plan_for", "provision"]

_ALERTING = ("prometheus", ALL)
_LEFT_OVER = "is left over: no setting asks for it any more; remove it"
_NEXT = {
    "grafana": "mount {0}/grafana/provisioning and {0}/grafana/dashboards: docs/dashboards.md",
    "prometheus": "promtool check rules {0}/prometheus/rules/*.yaml && promtool test rules {0}/prometheus/tests/*.yaml",
    "alertmanager": "amtool check-config {0}/alertmanager/alertmanager.yml",
    "collector": "otelcol-contrib validate --config={0}/otel-collector.yaml",
    ALL: "docker compose --file {0}/compose.yaml up --detach",
}


def provision(arguments: argparse.Namespace) -> int:
    """Write the files of the target, or compare them; gives the exit code.

    Raises:
        ConfigurationError: What is wrong with the settings, an option, an extra or the folder.
    """
    target: str = arguments.target
    options = {name: getattr(arguments, name) for name in options_of(ALL)}
    for name, value in options.items():
        if value is not None and name not in options_of(target):
            users = ", ".join(one for one in TARGETS if name in options_of(one))
            raise ConfigurationError(f"is an option of {users}, not of {target}", path=f"--{name.replace('_', '-')}")
    plan = plan_for(arguments)
    files, folder = files_for(target, plan, options), Path(arguments.output)
    if arguments.check:
        return _compare(folder, differing(folder, files), left_over(folder, files), len(files))
    written = write(folder, files, force=arguments.force)
    unasked = (f"{folder / name}: {_LEFT_OVER}" for name in left_over(folder, files))
    unchanged = f"{len(files) - len(written)} of {len(files)} unchanged"
    _tell([*(f"wrote {folder / name}" for name in written), *unasked, unchanged])
    # With scaled time there are no tests to run.
    after = _NEXT[target] if plan.time_scale == 1.0 else _NEXT[target].partition(" && ")[0]
    _tell(["", *_summary(plan, target), "", f"Next: {after.format(folder)}"])
    return 0


def plan_for(arguments: argparse.Namespace) -> MonitoringPlan:
    """The plan of the settings that the arguments name.

    Raises:
        ConfigurationError: No file is named: the defaults would write over what a forgotten one has given. A
            `SettingsError` has everything that is wrong in it.
    """
    loaded = load_settings(arguments.settings, profile=arguments.profile)
    if loaded.file is None:
        raise ConfigurationError("no settings file is named, nor does AGENTEVAL_SETTINGS name one", path="--settings")
    return MonitoringPlan.of(build_loaded(loaded), time_scale=arguments.time_scale)


def _compare(folder: Path, differs: Sequence[str], unasked: Sequence[str], count: int) -> int:
    told = [f"{folder / name}: {'differs' if (folder / name).exists() else 'is missing'}" for name in differs]
    told += [f"{folder / name}: {_LEFT_OVER}" for name in unasked]
    _tell([*told, f"{count - len(differs)} of {count} files are as the settings say"])
    return 1 if differs or unasked else 0


def _summary(plan: MonitoringPlan, target: str) -> Iterator[str]:
    """What was found in the settings, and what follows for alerts."""
    yield f"{_counted(len(plan.names), 'criterion', 'criteria')}{_of_agents(plan)}{_of_judges(plan)}"
    if target not in _ALERTING:
        return
    for one in plan.criteria:
        yield f"  {one.name}{_where(one)}: {_alerts_of(one, has_limit=one in alerted_thresholds(plan))}"


def _alerts_of(one: PlannedCriterion, *, has_limit: bool) -> str:
    if one.is_alerted:
        return f"alerts on its objective of {(one.objective or 0) * 100:g} %"
    if one.objective and not one.has_verdicts:
        return "no alert: it has an objective, but no threshold that says what passes"
    if has_limit:
        return "alerts where its mean falls below its threshold"
    if one.criterion.threshold is not None:
        return "no alert: no mean can be held against its threshold; give it an objective"
    return "no alert: it has neither an objective nor a threshold"


def _where(one: PlannedCriterion) -> str:
    if one.agents:
        return f" of {', '.join(one.agents)}"
    return f" of all but {', '.join(one.other_agents)}" if one.other_agents else ""


def _of_agents(plan: MonitoringPlan) -> str:
    return f", {_counted(len(plan.agents), 'agent', 'agents')} named" if plan.agents else ""


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _of_judges(plan: MonitoringPlan) -> str:
    return f", judged by {', '.join(plan.judge_models)}" if plan.judge_models else ""


def _tell(lines: Sequence[str]) -> None:
    print("\n".join(map(printable, lines)))
