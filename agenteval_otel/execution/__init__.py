"""Where an evaluator runs, and for how long: ``inline``, ``thread``, ``process`` or ``async``.

`Executor` starts evaluations and watches what evaluators do. ``inline`` evaluators are called by the engine itself.
``thread`` runs them on a bounded number of daemon threads. ``process`` sends them to a worker process, which a fork
server forks. ``async`` runs one task for each evaluation. An evaluator that overruns its limit or ends its process too
often is quarantined: it fails at once.
"""

from agenteval_otel.execution.executor import Executor, forget_processes
from agenteval_otel.execution.state import MAX_STRIKES

__all__ = ["MAX_STRIKES", "Executor", "forget_processes"]
