"""The runner: evaluators on inputs, live and offline."""

from agenteval_otel.runner.aggregated import aggregate
from agenteval_otel.runner.batch import run_evaluations, run_evaluations_sync
from agenteval_otel.runner.config import EvaluationRunConfig
from agenteval_otel.runner.lanes import Lanes
from agenteval_otel.runner.offline import run_evaluation, run_evaluation_sync
from agenteval_otel.runner.run import EvaluationRunner, RunOutcome
from agenteval_otel.runner.suite import Suite
from agenteval_otel.runner.suite_result import SuiteResult, SuiteScore

__all__ = [
    "EvaluationRunConfig",
    "EvaluationRunner",
    "Lanes",
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
