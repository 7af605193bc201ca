"""Where an evaluator runs, and for how long.

It runs ``inline`` in the engine, else by ``thread``, ``process`` or ``async``.
"""

from agenteval_otel.engine.execution.executor import Executor
from agenteval_otel.engine.execution.jobs import MAX_STRIKES

__all__ = ["MAX_STRIKES", "Executor"]
