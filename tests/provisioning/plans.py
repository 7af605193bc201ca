"""Plans that tests provision from, and promtool run on the files."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.provisioning import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.prometheus import files_of

HOSTILE = """a "quoted" \\back\\slash {{ $value }} {{"${1} | a.b* [x] 'single' `tick` ünïcode 漢字 \u2028 \ufffd %s"""
"""A name that breaks out of everything that does not escape it."""
AWKWARD = (
    'the "best" \\agent',
    "$job",
    "${instance} [[agent]]",
    "{{le}}",
    "日本 ü",
    "a.b|c",
    "new\nline",
)
"""Names of agents that quoting, regular expressions, Grafana's variables and legends could trip
over.
"""


def criterion(
    name: str,
    agents: tuple[str, ...] = (),
    other_agents: tuple[str, ...] = (),
    calls_model: bool = False,
    **fields: Any,
) -> PlannedCriterion:
    """A planned criterion; `fields` are those of `EvaluationCriteria`."""
    return PlannedCriterion(
        criterion=EvaluationCriteria(name=name, **fields),
        agents=agents,
        other_agents=other_agents,
        calls_model=calls_model,
    )


def plan_of(*criteria: PlannedCriterion, **fields: Any) -> MonitoringPlan:
    """A plan of these criteria."""
    return MonitoringPlan(criteria=criteria, **fields)


EVERYTHING = plan_of(
    criterion("helpful", scale="numeric", threshold=0.7, objective=0.95),
    criterion("no_secrets", objective=1.0),
    criterion("tone", scale="likert5", threshold=4.0),
    criterion("correctness", scale="numeric"),
    judge_models=("a-model",),
    has_spend_limit=True,
)
"""A plan that has every alert."""


@cache
def rules_of_everything() -> Mapping[str, str]:
    """Prometheus' files for it, made once: YAML is written slowly."""
    return files_of(EVERYTHING)


FULL = plan_of(
    criterion(
        "Helpful.v2",
        agents=AWKWARD,
        scale="likert5",
        threshold=4,
        objective=0.9,
        calls_model=True,
        description='Says "$job", [[x]] and {{y}} <b>plainly</b>',
    ),
    criterion("polite", other_agents=AWKWARD[:3], objective=0.85),
    criterion("speed", scale="seconds"),
    criterion("tone", scale="numeric", threshold=0.25),
    agents=AWKWARD,
    judge_models=("judge-1",),
    has_spend_limit=True,
    dimensions=("agenteval.tag.tenant",),
)
"""With threshold and objective, with an objective alone, with neither and no verdicts, with a
threshold alone.
"""

PLAIN = plan_of(criterion("seen", scale="numeric"))
"""One criterion without verdicts, no judges."""


def written(files: Mapping[str, str], folder: Path) -> Path:
    """The files in a folder, which it returns."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def loaded(text: str) -> Any:
    """The tree of a YAML text, by the parser in C where there is one: rules are long."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def accepted(binary: Path, *arguments: str | Path) -> str:
    """The output of promtool or amtool, which has to find nothing wrong."""
    code, output = promtool(binary, *arguments)
    assert code == 0, output
    return output


def promtool(binary: Path, *arguments: str | Path) -> tuple[int, str]:
    """Exit code and output."""
    done = subprocess.run(
        [binary, *map(str, arguments)], capture_output=True, text=True, timeout=280, check=False
    )
    return done.returncode, done.stdout + done.stderr
