"""Patterns: the users' regular expressions, searched within a time limit that lets other threads run meanwhile."""

from agenteval_otel.patterns.expressions import DEFAULT_LIMIT_S, JsPattern, check_flags, compile_pattern
from agenteval_otel.patterns.lazy import lazily

__all__ = ["DEFAULT_LIMIT_S", "JsPattern", "check_flags", "compile_pattern", "lazily"]
