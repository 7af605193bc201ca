"""The pipeline: the queue, the background thread, load shedding, flush and shutdown around the engine."""

from agenteval_otel.pipeline.exit import EXIT_TIMEOUT_S, handle_sigterm
from agenteval_otel.pipeline.pipeline import Pipeline

__all__ = ["EXIT_TIMEOUT_S", "Pipeline", "handle_sigterm"]
