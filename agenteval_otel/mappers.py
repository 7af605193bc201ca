"""The public names of `agenteval_otel.capture.spans`."""

from agenteval_otel.capture.spans import (
    Mapped,
    ReadEvent,
    ReadSpan,
    Role,
    SpanMapper,
    TraceReading,
    read_trace,
    span_mapper,
)

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
