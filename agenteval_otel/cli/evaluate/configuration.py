"""The configuration of the command: a settings file with its profile, or a run configuration in the originals' form."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from agenteval_otel.components import choices, near
from agenteval_otel.config.assemble import build_loaded
from agenteval_otel.config.files import read_file
from agenteval_otel.config.load import load_settings, located
from agenteval_otel.config.tree import Section, plain
from agenteval_otel.engine import EvaluationRunConfig
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationCriteria

__all__ = ["configuration_of", "criteria_of", "idle_criteria"]

_ORIGINAL = ("evaluatorConfigs", "evaluator_configs")


def configuration_of(arguments: argparse.Namespace) -> tuple[EvaluationRunConfig, list[str]]:
    """What to run, by the options of the command and the file that they name; and `idle_criteria` of that.

    Raises:
        ConfigurationError: With everything that is wrong, and where in the file.
    """
    chosen: dict[str, Any] = {"tags": tuple(arguments.tags), "execution": tuple(arguments.execution)}
    tree = _run_configuration(arguments.settings)
    if tree is None:
        fields, named = _from_settings(arguments)
        config = EvaluationRunConfig(**fields, **chosen)
        return config, idle_criteria(config, named)
    for option in ("profile", "agent"):
        if getattr(arguments, option) is not None:
            raise ConfigurationError("a run configuration has none; settings files do", path=f"--{option}")
    tree.take("$schema")
    said: Mapping[str, Any] = plain(tree)
    try:
        config = EvaluationRunConfig.model_validate({**said, **{name: one for name, one in chosen.items() if one}})
    except ConfigurationError as error:
        raise located(error, tree) from None
    return config, idle_criteria(config, config.criteria)


def _run_configuration(path: str | None) -> Section | None:
    """The file's mapping, where it is a run configuration and not a settings file."""
    if path is None:
        return None
    if not os.path.exists(path):
        raise ConfigurationError("there is no such file", path=path)
    try:
        tree = read_file(path)
    except ConfigurationError:
        return None  # told by who reads it as settings, with everything else that is wrong
    return tree if any(name in tree for name in _ORIGINAL) else None


def _from_settings(arguments: argparse.Namespace) -> tuple[dict[str, Any], Sequence[EvaluationCriteria]]:
    """The fields of the run configuration, and the criteria set as the file has it."""
    loaded = load_settings(arguments.settings, profile=arguments.profile)
    settings, agent = loaded.settings, arguments.agent
    if agent is not None and agent not in settings.agents:
        raise ConfigurationError(f"no agent {agent!r}{choices(agent, sorted(settings.agents))}", path="--agent")
    runner = build_loaded(loaded).handler(agent or "").runner
    fields = {
        "evaluators": runner.evaluators, "criteria": runner.criteria, "redactors": settings.redactors,
        "aggregation": settings.aggregation, "ground_truth": settings.ground_truth,
    }  # fmt: skip
    return fields, settings.criteria_of(agent)


def idle_criteria(config: EvaluationRunConfig, named: Sequence[EvaluationCriteria]) -> list[str]:
    """The criteria that a configuration names and no evaluator of it scores, each with what may have been meant."""
    scored = sorted({criterion.name for evaluator in config.evaluators for criterion in evaluator.criteria()})
    names = dict.fromkeys(criterion.name for criterion in named)
    return [f"{name}{near(name, scored)}" for name in names if name not in scored]


def criteria_of(config: EvaluationRunConfig) -> list[EvaluationCriteria]:
    """The criteria that the chosen evaluators score, each once, as the configuration has them."""
    configured = {criterion.name: criterion for criterion in config.criteria}
    declared: dict[str, EvaluationCriteria] = {}
    for evaluator in config.selection.evaluators:
        for criterion in evaluator.criteria():
            declared.setdefault(criterion.name, configured.get(criterion.name, criterion))
    return list(declared.values())
