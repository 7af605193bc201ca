"""Instrumentation: the doors through which answers enter the route."""

from agenteval_otel.instrumentation.annotation import annotate
from agenteval_otel.instrumentation.decorator import monitor

__all__ = ["annotate", "monitor"]
