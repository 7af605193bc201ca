"""The runner: evaluators on inputs, live and offline.

Its names are imported when they are asked for: monitored processes need neither run configurations nor suites.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agenteval_otel.runner.aggregated import aggregate
    from agenteval_otel.runner.batch import run_evaluations, run_evaluations_sync
    from agenteval_otel.runner.config import EvaluationRunConfig
    from agenteval_otel.runner.offline import run_evaluation, run_evaluation_sync
    from agenteval_otel.runner.run import EvaluationRunner, RunOutcome
    from agenteval_otel.runner.suite import Suite
    from agenteval_otel.runner.suite_result import SuiteResult, SuiteScore

__all__ = [
    "EvaluationRunConfig",
    "EvaluationRunner",
    "RunOutcome",
    "Suite",
    "SuiteResult",
    "SuiteScore",
    "aggregate",
    "run_evaluation",
    "run_evaluation_sync",
    "run_evaluations",
    "run_evaluations_sync",
]

_MODULES = {
    "aggregated": ("aggregate",),
    "batch": ("run_evaluations", "run_evaluations_sync"),
    "config": ("EvaluationRunConfig",),
    "offline": ("run_evaluation", "run_evaluation_sync"),
    "run": ("EvaluationRunner", "RunOutcome"),
    "suite": ("Suite",),
    "suite_result": ("SuiteResult", "SuiteScore"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
