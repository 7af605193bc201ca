"""Redaction: what is personal or secret is taken out of text before it leaves the process.

`base` holds the contract, `redactor` the redactor that is built in; `scan` finds the places to look at, `secrets`,
`numbers`, `phones` and `contacts` take the closer look. Runs on the pool's thread.
"""

from agenteval_otel.capture.redaction.base import Redactor
from agenteval_otel.capture.redaction.redactor import KINDS, PatternRedactor, default_redactors, load_redactors

__all__ = ["KINDS", "PatternRedactor", "Redactor", "default_redactors", "load_redactors"]
