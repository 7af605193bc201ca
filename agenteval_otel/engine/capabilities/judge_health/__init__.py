"""Judge health: whether judges still judge as they did.

It is measured by questions with known answers, repeats, people and scores.
"""

from agenteval_otel.engine.capabilities.judge_health.settings import JudgeHealthSettings
from agenteval_otel.engine.capabilities.judge_health.watch import JudgeHealth

__all__ = ["JudgeHealth", "JudgeHealthSettings"]
