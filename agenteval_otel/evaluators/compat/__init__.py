"""Forms of other frameworks, rewritten into ours when a document is loaded."""

from __future__ import annotations

from agenteval_otel.evaluators.compat.agentdock import ENTRIES, load_entries, load_evaluators

__all__ = ["ENTRIES", "load_entries", "load_evaluators"]
