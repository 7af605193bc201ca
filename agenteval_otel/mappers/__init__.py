"""Mappers: from the spans of a trace to evaluation inputs, one file per span dialect, registered."""

import agenteval_otel.mappers.dialects  # noqa: F401  # registers the built-in dialects
from agenteval_otel.mappers.base import Role, SpanMapper, span_mapper
from agenteval_otel.mappers.span import ReadEvent, ReadSpan
from agenteval_otel.mappers.trace import Mapped, TraceReading, read_trace

__all__ = [
    "Mapped", "ReadEvent", "ReadSpan", "Role", "SpanMapper", "TraceReading", "read_trace",
    "span_mapper",
]  # fmt: skip
