"""Mappers: from the spans of a trace to evaluation inputs, one file per span dialect, registered."""

import agenteval_otel.capture.spans.dialects  # noqa: F401  # registers the built-in dialects
from agenteval_otel.capture.spans.base import Role, SpanMapper, span_mapper
from agenteval_otel.capture.spans.span import ReadEvent, ReadSpan
from agenteval_otel.capture.spans.trace import Mapped, TraceReading, read_trace

__all__ = [
    "Mapped",
    "ReadEvent",
    "ReadSpan",
    "Role",
    "SpanMapper",
    "TraceReading",
    "read_trace",
    "span_mapper",
]
