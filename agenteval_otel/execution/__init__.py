"""Where an evaluator runs, and for how long: ``inline`` in the engine, else ``thread``, ``process``
or ``async``.
"""

from agenteval_otel.execution.executor import Executor
from agenteval_otel.execution.jobs import MAX_STRIKES

__all__ = ["MAX_STRIKES", "Executor"]
