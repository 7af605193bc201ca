"""Instrumentation: how answers of the application's handlers reach the pipeline."""

from agenteval_otel.instrumentation.annotation import annotate
from agenteval_otel.instrumentation.decorator import monitor

__all__ = ["annotate", "monitor"]
