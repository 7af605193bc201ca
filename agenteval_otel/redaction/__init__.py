"""Redaction: replaces personal data and secrets in text before it leaves the process. Runs on the background thread.

`redactor` holds the contract and the built-in redactor, `scan` finds candidates, `secrets`, `personal` and `phones`
examine them, `outgoing` applies redactors to whole inputs and results.
"""

from agenteval_otel.redaction.redactor import PatternRedactor, Redactor, default_redactors

__all__ = ["PatternRedactor", "Redactor", "default_redactors"]
