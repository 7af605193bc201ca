"""Objectives: whether criteria hold theirs, watched in the process; who is told when they do not.

The last step on the route of an answer: what was saved is looked at once more. For those who have no alerts elsewhere;
it needs no backend. What is told are numbers and names, never content.
"""

from agenteval_otel.objectives.callbacks import Callback
from agenteval_otel.objectives.crossing import ObjectiveCrossing
from agenteval_otel.objectives.functions import load_callback
from agenteval_otel.objectives.settings import BreachSettings
from agenteval_otel.objectives.watch import Objectives, ObjectiveSettings

__all__ = ["BreachSettings", "Callback", "ObjectiveCrossing", "ObjectiveSettings", "Objectives", "load_callback"]
