"""What titles and descriptions say of a criterion, with nothing in it that Grafana would take for its own."""

from __future__ import annotations

from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.scoring.scales import BOOLEAN_SCALES

WEIGHTED = " Each answer counts for as many as it stands for (1/probability), where its probability is known."
"""Said of every estimate that weighs."""


def markdown(text: str) -> str:
    """Text as it stands for a description, which Grafana reads as Markdown with variables."""
    return "".join(
        char if char.isalnum() or char in " ,.:;'-\n" or ord(char) > 127 else f"&#{ord(char)};" for char in text
    )


def shown(planned: PlannedCriterion, plan: MonitoringPlan) -> str:
    """What a criterion is called in titles; numbered where agents have different ones of that name."""
    same = [criterion for criterion in plan.criteria if criterion.name == planned.name]
    return planned.name if len(same) == 1 else f"{planned.name} ({same.index(planned) + 1} of {len(same)})"


def asked_of(planned: PlannedCriterion) -> str:
    """What a criterion is, and what is asked of it, for descriptions."""
    criterion = planned.criterion
    parts = [f"{criterion.description.rstrip('. ')}." if criterion.description.strip() else "", _scale(planned)]
    if criterion.threshold is not None:
        parts.append(f"Passes from {criterion.threshold:g} on.")
    if planned.objective is not None:
        parts.append(f"Objective: {planned.objective * 100:g} percent of the results pass.")
    if planned.agents:
        parts.append(f"For the agents {', '.join(planned.agents)}.")
    elif planned.other_agents:
        parts.append(f"For all agents but {', '.join(planned.other_agents)}.")
    return markdown(" ".join(filter(None, parts)))


def _scale(planned: PlannedCriterion) -> str:
    criterion = planned.criterion
    if criterion.minimum is not None and criterion.maximum is not None:
        return f"Scored from {criterion.minimum:g}, worst, to {criterion.maximum:g}, best; shown from 0 to 1."
    if criterion.scale == "likert5":
        return "Scored from 1 to 5, 5 is best; shown from 0 to 1."
    if criterion.scale == "numeric":
        return "Scored by a number, more is better; shown from 0 to 1."
    return "Passes or fails." if criterion.scale in BOOLEAN_SCALES else f"Scored on the scale {criterion.scale}."
