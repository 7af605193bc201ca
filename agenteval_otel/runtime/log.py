"""The logger's former place: kept until dispatch, pipeline, restraint, runner and storage/otlp are rewritten."""

from agenteval_otel.runtime.log import log

__all__ = ["log"]
