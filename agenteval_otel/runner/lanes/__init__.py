"""Lanes: where an evaluator runs, and for how long.

``free`` runs inline, and is moved when it is seen to hold the interpreter. ``model`` runs as a task with a time limit
and a limit on how many run at once. ``cpu`` runs in a child process (`runner.child`); what cannot be made again there
runs on a daemon thread of its own, held to a share of the processor's time. An evaluator that keeps overrunning its
limit, or keeps ending its process, is quarantined: it fails at once.
"""

from agenteval_otel.runner.lanes.lanes import CPU_TIMEOUT_S, MODEL_TIMEOUT_S, Lanes
from agenteval_otel.runner.lanes.records import MAX_STUCK

__all__ = ["CPU_TIMEOUT_S", "MAX_STUCK", "MODEL_TIMEOUT_S", "Lanes"]
