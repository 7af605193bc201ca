"""Queries and texts of panels: PromQL and LogQL with Grafana's variables in them, titles and descriptions of criteria.

Grafana replaces ``$name``, ``${name}`` and ``[[name]]`` in queries, wherever they stand. A name that looks so is
written with escapes that PromQL and LogQL undo, in descriptions with those of Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable

from agenteval_otel import semconv
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.promql import (
    AGENT,
    CRITERION,
    LABEL,
    agents_of,
    joined,
    label_name,
    matchers_of,
    one_of,
)
from agenteval_otel.scoring.scales import BOOLEAN_SCALES
from agenteval_otel.semconv import Instrument

EACH, WHOLE = "$__rate_interval", "$__range"
"""Windows: of a point of a graph, and of a single value, which is what the dashboard shows."""
PROCESS = 'job=~"$job", instance=~"$instance"'
# Between backticks nothing is escaped twice; what Grafana does for double quotes leaves those in names alone.
_CHOSEN_AGENT = f"{AGENT}=~`${{agent:regex}}`"
OF_AGENT = f"{PROCESS}, {_CHOSEN_AGENT}"
_NORMALIZED = label_name(semconv.SCORE_NORMALIZED)
WEIGHTED = " Each answer counts for as many as it stands for (1/probability), where its probability is known."
LOST = "dropped_.*|" + "|".join((semconv.RATE_LIMITED, semconv.CAPTURE_FAILED, semconv.PIPELINE_FAILED))
"""Outcomes of calls that should have been evaluated and were not."""
SAMPLED = "|".join(
    outcome for outcome in semconv.OUTCOMES if outcome not in (semconv.NOT_SAMPLED, semconv.SHED, semconv.DISABLED)
)


def guarded(static: str) -> str:
    """Text of a query that comes from names, with nothing in it that Grafana would replace."""
    return static.replace("$", "\\x24").replace("[[", "\\x5b[")


def of_planned(planned: PlannedCriterion) -> str:
    """Matches the results of one criterion, of its own agents as far as they are chosen."""
    return joined(OF_AGENT, guarded(matchers_of(planned)))


def of_names(names: Iterable[str]) -> str:
    return joined(OF_AGENT, guarded(one_of(CRITERION, tuple(names))))


def rate(instrument: Instrument, by: tuple[str, ...], matchers: str = PROCESS) -> str:
    return f"sum by ({', '.join(by)}) (rate({instrument.prometheus_name}{{{matchers}}}[{EACH}]))"


def latest(instrument: Instrument, by: tuple[str, ...], *, how: str = "max") -> str:
    """A gauge as it stands, of the chosen processes; `how` says what becomes of several."""
    return f"{how} by ({', '.join(by)}) ({instrument.prometheus_name}{{{PROCESS}}})"


def quantile(instrument: Instrument, of: float, by: tuple[str, ...] = (), matchers: str = PROCESS) -> str:
    labels = ", ".join(("le", *by))
    counted = f"rate({instrument.prometheus_name}_bucket{{{matchers}}}[{EACH}])"
    return f"histogram_quantile({of:g}, sum by ({labels}) ({counted}))"


def share(outcomes: str, of_outcomes: str = ".*", *, window: str = EACH) -> str:
    """The share of calls that ended in one of the outcomes, of those that ended in one of others; both patterns."""
    name, outcome = semconv.METRIC_RESPONSES.prometheus_name, label_name(semconv.OUTCOME)
    some, all_ = (
        f'sum(increase({name}{{{OF_AGENT}, {outcome}=~"{pattern}"}}[{window}]))' for pattern in (outcomes, of_outcomes)
    )
    return f"({some} or 0 * {all_}) / ({all_} > 0)"


def events(name: str, *stages: str) -> str:
    """The events of a criterion's results, LogQL, with further stages."""
    named = (f'event_name="{semconv.EVENT_RESULT}"', one_of(CRITERION, (name,)), _CHOSEN_AGENT)
    return '{service_name=~"$service"} | ' + " | ".join(filter(None, (*named, *stages)))


def failing(planned: PlannedCriterion) -> str:
    """The events of results that fail; of a criterion without verdicts those in the lower half."""
    worst = f'{LABEL}="{semconv.LABEL_FAIL}"' if planned.has_verdicts else f"{_NORMALIZED} < 0.5"
    return events(planned.name, guarded(agents_of(planned)), worst)


def markdown(text: str) -> str:
    """Text as it stands for a description, which Grafana reads as Markdown with variables."""
    return "".join(
        char if char.isalnum() or char in " ,.:;'-\n" or ord(char) > 127 else f"&#{ord(char)};" for char in text
    )


def criterion_title(planned: PlannedCriterion, plan: MonitoringPlan) -> str:
    """A criterion's name; numbered where agents have different criteria of that name."""
    same = [criterion for criterion in plan.criteria if criterion.name == planned.name]
    return planned.name if len(same) == 1 else f"{planned.name} ({same.index(planned) + 1} of {len(same)})"


def criterion_text(planned: PlannedCriterion) -> str:
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
