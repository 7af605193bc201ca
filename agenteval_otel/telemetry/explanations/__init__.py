"""Explanations: what became of a call, what broke, what an evaluator's error says; in words, with what to do.

Written once, here: `agenteval-otel explain` prints them and `docs/troubleshooting.md` is generated from them. Nothing
on the route of an answer imports this.
"""

from agenteval_otel.telemetry.explanations.base import Explanation
from agenteval_otel.telemetry.explanations.errors import ERROR_TYPES, explanation_of_error
from agenteval_otel.telemetry.explanations.failures import FAILURES, LOST_REASONS, explanation_of_failure
from agenteval_otel.telemetry.explanations.outcomes import NO_CALLS, OUTCOMES

__all__ = [
    "ERROR_TYPES",
    "FAILURES",
    "LOST_REASONS",
    "NO_CALLS",
    "OUTCOMES",
    "Explanation",
    "explanation_of_error",
    "explanation_of_failure",
]
