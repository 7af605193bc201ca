"""The runner: evaluators on inputs, live and offline."""

from agenteval_otel.runner.lanes import Lanes
from agenteval_otel.runner.offline import EvaluationRunConfig, aggregate, run_evaluation, run_evaluation_sync
from agenteval_otel.runner.run import EvaluationRunner, RunOutcome

__all__ = [
    "EvaluationRunConfig",
    "EvaluationRunner",
    "Lanes",
    "RunOutcome",
    "aggregate",
    "run_evaluation",
    "run_evaluation_sync",
]
