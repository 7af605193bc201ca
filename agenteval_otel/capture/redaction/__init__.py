"""Redaction: replaces personal data and secrets in text before it leaves the process.

Runs on the background thread.
"""

from agenteval_otel.capture.redaction.redactor import PatternRedactor, Redactor, default_redactors

__all__ = ["PatternRedactor", "Redactor", "default_redactors"]
