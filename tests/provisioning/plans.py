"""Plans that tests provision from: with everything, with nothing, and with names that mean something to somebody."""

from __future__ import annotations

from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.provisioning import MonitoringPlan, PlannedCriterion

__all__ = ["AWKWARD", "FULL", "PLAIN", "planned"]

AWKWARD = ('the "best" \\agent', "$job", "${instance} [[agent]]", "{{le}}", "日本 ü", "a.b|c", "new\nline")
"""Names of agents that quoting, regular expressions, Grafana's variables and legends could trip over."""


def planned(
    name: str, *, agents: tuple[str, ...] = (), calls_model: bool = False, **fields: object
) -> PlannedCriterion:
    """A criterion of a plan; `fields` are those of `EvaluationCriteria`."""
    criterion = EvaluationCriteria.model_validate({"name": name, **fields})
    return PlannedCriterion(criterion=criterion, agents=agents, calls_model=calls_model)


FULL = MonitoringPlan(
    criteria=(
        planned("Helpful.v2", agents=AWKWARD, scale="likert5", threshold=4, objective=0.9, calls_model=True,
                description='Says "$job", [[x]] and {{y}} <b>plainly</b>'),
        planned("polite", other_agents=AWKWARD[:3], objective=0.85),
        planned("speed", scale="seconds"),
        planned("tone", scale="numeric", threshold=0.25),
    ),
    agents=AWKWARD, judge_models=("judge-1",), has_spend_limit=True,
)  # fmt: skip
"""With threshold and objective, with an objective alone, with neither and no verdicts, with a threshold alone."""

PLAIN = MonitoringPlan(criteria=(planned("seen", scale="numeric"),))
"""One criterion without verdicts, no judges."""
