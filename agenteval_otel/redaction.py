"""The public names of `agenteval_otel.capture.redaction`."""

from agenteval_otel.capture.redaction import (
    PatternRedactor,
    Redactor,
    default_redactors,
)

__all__ = [
    "PatternRedactor",
    "Redactor",
    "default_redactors",
]
