"""What dashboards say of a criterion, in words, as Markdown."""

from __future__ import annotations

from agenteval_otel.models.scoring.scales import BOOLEAN_SCALES
from agenteval_otel.offline.calibration.record import NOT_MEASURED
from agenteval_otel.provisioning.plan import PlannedCriterion


def markdown(text: str) -> str:
    """Return text as it stands for a panel, which Grafana reads as Markdown with variables."""
    return "".join(char if _is_plain(char) else f"&#{ord(char)};" for char in text)


def _is_plain(char: str) -> bool:
    return char.isalnum() or char in " ,.:;'-\n" or ord(char) > 127


def criterion_text(planned: PlannedCriterion) -> str:
    criterion = planned.criterion
    parts = [
        f"{criterion.description.rstrip('. ')}." if criterion.description.strip() else "",
        _scale(planned),
    ]
    if criterion.threshold is not None:
        parts.append(f"Passes from {criterion.threshold:g} on.")
    if planned.objective is not None:
        parts.append(f"Objective: {planned.objective * 100:g} percent of the results pass.")
    if planned.calls_model:
        record = planned.calibration
        known = NOT_MEASURED if record is None else record.sentence
        parts.append(f"Agreement with people: {known}.")
    if planned.is_shadow:
        parts.append("A trial of an evaluator: in no overall score, objective or alert.")
    if planned.agents:
        parts.append(f"For the agents {', '.join(planned.agents)}.")
    elif planned.other_agents:
        parts.append(f"For all agents but {', '.join(planned.other_agents)}.")
    return f"**{markdown(planned.name)}** {markdown(' '.join(filter(None, parts)))}"


def _scale(planned: PlannedCriterion) -> str:
    criterion = planned.criterion
    if criterion.minimum is not None and criterion.maximum is not None:
        return f"Scored from {criterion.minimum:g}, worst, to {criterion.maximum:g}, best, and shown from 0 to 1."
    if criterion.scale == "likert5":
        return "Scored from 1 to 5, 5 is best, and shown from 0 to 1."
    if criterion.scale == "numeric":
        return "Scored by a number, more is better, and shown from 0 to 1."
    if criterion.scale in BOOLEAN_SCALES:
        return "Passes or fails."
    return f"Scored on the scale {criterion.scale}."
