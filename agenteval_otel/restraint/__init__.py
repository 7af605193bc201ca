"""Restraint: the package looks at what it costs its host, and samples less before it costs too much."""

from agenteval_otel.restraint.control import Restraint
from agenteval_otel.restraint.settings import RestraintSettings

__all__ = ["Restraint", "RestraintSettings"]
