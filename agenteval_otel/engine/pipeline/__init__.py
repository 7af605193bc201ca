"""The pipeline around the engine.

It consists of the queue, the background thread, load shedding, flush and shutdown.
"""

from agenteval_otel.engine.pipeline.dispatcher import Dispatcher, InlineDispatcher, process_each
from agenteval_otel.engine.pipeline.exit import EXIT_TIMEOUT_S, handle_sigterm
from agenteval_otel.engine.pipeline.pipeline import Pipeline
from agenteval_otel.engine.pipeline.pool import PoolDispatcher

__all__ = [
    "EXIT_TIMEOUT_S",
    "Dispatcher",
    "InlineDispatcher",
    "Pipeline",
    "PoolDispatcher",
    "handle_sigterm",
    "process_each",
]
