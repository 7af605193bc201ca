"""Objectives: detects in the process when a criterion breaches its objective or recovers.

Then it calls back.
"""

from agenteval_otel.engine.objectives.crossings import Callback, ObjectiveCrossing, load_callback
from agenteval_otel.engine.objectives.track import BreachSettings, Objective

__all__ = [
    "BreachSettings",
    "Callback",
    "Objective",
    "ObjectiveCrossing",
    "load_callback",
]
