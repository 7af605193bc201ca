"""Plans for tests, and promtool run on what comes of them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.provisioning import MonitoringPlan, PlannedCriterion

__all__ = ["EVERYTHING", "HOSTILE", "criterion", "plan_of", "promtool", "written"]


def criterion(name: str, agents: tuple[str, ...] = (), other_agents: tuple[str, ...] = (), **fields: Any) -> Any:
    """A planned criterion."""
    return PlannedCriterion(
        criterion=EvaluationCriteria(name=name, **fields), agents=agents, other_agents=other_agents
    )  # fmt: skip


def plan_of(*criteria: PlannedCriterion, **fields: Any) -> MonitoringPlan:
    """A plan of these criteria."""
    return MonitoringPlan(criteria=criteria, **fields)


HOSTILE = """a "quoted" \\back\\slash {{ $value }} {{"${1} | a.b* [x] 'single' `tick` ünïcode 漢字 \u2028 \ufffd %s"""
"""A name that breaks out of everything that does not escape it."""

EVERYTHING = plan_of(
    criterion("helpful", scale="numeric", threshold=0.7, objective=0.95),
    criterion("no_secrets", objective=1.0),
    criterion("tone", scale="likert5", threshold=4.0),
    criterion("correctness", scale="numeric"),
    judge_models=("a-model",), has_spend_limit=True,
)  # fmt: skip
"""A plan that has every alert."""


def written(files: Mapping[str, str], folder: Path) -> Path:
    """The files in a folder, which it gives."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def promtool(binary: Path, *arguments: str | Path) -> tuple[int, str]:
    """Exit code and output."""
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr
