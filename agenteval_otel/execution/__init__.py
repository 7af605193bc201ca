"""Where an evaluator runs, and for how long: ``inline``, ``thread``, ``process`` or ``async``.

``inline`` evaluators are called by the engine itself, all others are started by `Executor`. One that overruns its limit
or ends its process too often is quarantined: it fails at once.
"""

from agenteval_otel.execution.executor import Executor, forget_processes
from agenteval_otel.execution.state import MAX_STRIKES

__all__ = ["MAX_STRIKES", "Executor", "forget_processes"]
