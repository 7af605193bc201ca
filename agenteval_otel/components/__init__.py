"""Components: parts that configuration chooses by ``type``, and errors with path and known choices.

Every extension point (evaluators, samplers, storage providers, ...) is a contract: a direct subclass of `Component`.
An implementation names its type in the class line (``class RuleBased(Evaluator, type="RuleBased")``) and is then known
to its contract's registry. Nothing here runs while answers are evaluated.
"""

from agenteval_otel.components.component import Component, ListOf

__all__ = [
    "Component",
    "ListOf",
]
