"""agenteval_otel scores the answers of LLM agents in production.

It watches an agent and emits the scores of its answers through OpenTelemetry.

    from agenteval_otel import monitor

    @monitor
    async def answer(question: str) -> str: ...

Everything for everyday work is here. Evaluators, samplers, judges, storage providers and errors
come from their packages: ``from agenteval_otel.evaluators import KeywordCoverage``. Names load when
they are first used: importing the package imports nothing heavy.

PYTEST_DONT_REWRITE: a program that has imported the package may start pytest without a warning of
its plugin.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agenteval_otel.config import (
        Settings,
        accounting,
        configure,
        disable,
        enable,
        flush,
        reload,
        shutdown,
    )
    from agenteval_otel.config.erasure import erase
    from agenteval_otel.engine.run import EvaluationRunner
    from agenteval_otel.instrumentation import annotate, evaluation_reference, monitor
    from agenteval_otel.instrumentation.feedback import (
        record_feedback,
        record_ground_truth,
        record_score,
    )
    from agenteval_otel.models import (
        AggregatedEvaluationResult,
        EvaluationCriteria,
        EvaluationInput,
        EvaluationResult,
        Score,
    )
    from agenteval_otel.offline.config import EvaluationRunConfig
    from agenteval_otel.offline.reports.report import report
    from agenteval_otel.offline.run import (
        run_evaluation,
        run_evaluation_sync,
        run_evaluations,
        run_evaluations_sync,
    )
    from agenteval_otel.offline.suite import Suite, SuiteResult

__all__ = [
    "AggregatedEvaluationResult",
    "EvaluationCriteria",
    "EvaluationInput",
    "EvaluationResult",
    "EvaluationRunConfig",
    "EvaluationRunner",
    "Score",
    "Settings",
    "Suite",
    "SuiteResult",
    "accounting",
    "annotate",
    "configure",
    "disable",
    "enable",
    "erase",
    "evaluation_reference",
    "flush",
    "monitor",
    "record_feedback",
    "record_ground_truth",
    "record_score",
    "reload",
    "report",
    "run_evaluation",
    "run_evaluation_sync",
    "run_evaluations",
    "run_evaluations_sync",
    "shutdown",
]

__version__: str

_PACKAGES = {
    "config": (
        "Settings",
        "accounting",
        "configure",
        "disable",
        "enable",
        "flush",
        "reload",
        "shutdown",
    ),
    "config.erasure": ("erase",),
    "instrumentation.feedback": ("record_feedback", "record_ground_truth", "record_score"),
    "instrumentation": ("annotate", "evaluation_reference", "monitor"),
    "models": (
        "AggregatedEvaluationResult",
        "EvaluationCriteria",
        "EvaluationInput",
        "EvaluationResult",
        "Score",
    ),
    "offline.config": ("EvaluationRunConfig",),
    "offline.run": (
        "run_evaluation",
        "run_evaluation_sync",
        "run_evaluations",
        "run_evaluations_sync",
    ),
    "engine.run": ("EvaluationRunner",),
    "offline.suite": ("Suite", "SuiteResult"),
    "offline.reports.report": ("report",),
}
_OTHER_NAMES = {
    "Func": "agenteval_otel.evaluators.Func",
    "LLMJudge": "agenteval_otel.evaluators.LLMJudge",
    "ResponseHealth": "agenteval_otel.evaluators.ResponseHealth",
    "RuleBased": "agenteval_otel.evaluators.RuleBased",
    "aevaluate": "run_evaluation",
    "assert_test": "Suite",
    "evaluate": "run_evaluation, or run_evaluation_sync without an event loop",
    "observe": "monitor",
    "traceable": "monitor",
}
"""Names of other products and of our packages, and what the same is called here."""


def _packages_by_name() -> dict[str, str]:
    packages: dict[str, str] = {}
    for package, names in _PACKAGES.items():
        packages |= dict.fromkeys(names, package)
    return packages


_PACKAGE_OF = _packages_by_name()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from agenteval_otel.runtime.version import scope_version

        return scope_version()
    package = _PACKAGE_OF.get(name)
    if name in _OTHER_NAMES:
        from agenteval_otel.runtime.lazy import no_such_name

        raise no_such_name(__name__, name, _OTHER_NAMES[name])
    if package is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{package}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
