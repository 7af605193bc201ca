"""The overview: how good the answers are now, against what is asked, and how much of the traffic that speaks for."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana import boards
from agenteval_otel.provisioning.grafana.expressions import (
    EACH,
    OF_AGENT,
    WHOLE,
    of_names,
    of_planned,
    rate,
    share,
)  # fmt: skip
from agenteval_otel.provisioning.grafana.panels import Query, graph, passing, sized, sparse, stacked, value
from agenteval_otel.provisioning.grafana.wording import WEIGHTED, asked_of, shown
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import CRITERION, OUTCOME, increase, pass_rate, verdict_count, weighted_mean

LOST = "dropped_.*|" + "|".join((semconv.RATE_LIMITED, semconv.CAPTURE_FAILED, semconv.PIPELINE_FAILED))
"""Outcomes of calls that should have been evaluated and were not."""
_PICKED = "|".join(
    outcome for outcome in semconv.OUTCOMES if outcome not in (semconv.NOT_SAMPLED, semconv.SHED, semconv.DISABLED)
)


def files_of(plan: MonitoringPlan) -> GeneratedFiles:
    """The dashboard of the whole."""
    made = boards.board("agenteval: overview", "agenteval-overview", "Quality now, against its objectives.")
    made.with_variable(boards.agents())
    if plan.criteria:
        _now(made, plan)
        _over_time(made, plan)
    _traffic(made)
    return {"dashboards/overview.json": boards.text_of(made)}


def _now(made: Dashboard, plan: MonitoringPlan) -> None:
    made.with_row(boards.row("Quality in the time shown"))
    for planned in plan.criteria:
        matchers, link = of_planned(planned), boards.link_to(boards.criterion_uid(planned.name))
        title, says = shown(planned, plan), f"{asked_of(planned)}{WEIGHTED}"
        if planned.has_verdicts:
            objective = "" if planned.objective is None else f" ≥ {planned.objective * 100:g} %"
            says, steps = f"Share of results that pass. {says}", passing(planned.objective)
            query = Query(pass_rate(matchers, WHOLE), "pass rate")
            panel = value(f"{title}{objective}", says, "percentunit", query, steps=steps, link=link)
        else:
            query = Query(weighted_mean(matchers, WHOLE), "mean")
            panel = value(f"{title}: mean score", f"Mean score. {says}", "percentunit", query, link=link)
        made.with_panel(sized(panel, 4, 4))


def _over_time(made: Dashboard, plan: MonitoringPlan) -> None:
    made.with_row(boards.row("Quality over time"))
    legend, by = "{{" + CRITERION + "}}", (CRITERION,)
    judged = tuple(dict.fromkeys(criterion.name for criterion in plan.criteria if criterion.has_verdicts))
    if judged:
        query = Query(pass_rate(of_names(judged), EACH, by), legend)
        says = f"Share of results that pass, by criterion.{WEIGHTED}"
        made.with_panel(sized(sparse(graph("Pass rate", says, "percentunit", query, between=(0, 1)), plan), 12))
    query = Query(weighted_mean(of_names(plan.names), EACH, by), legend)
    says = f"Mean of the scores by criterion, from 0, worst, to 1, best.{WEIGHTED}"
    made.with_panel(sized(sparse(graph("Mean score", says, "percentunit", query, between=(0, 1)), plan), 12))
    if judged:
        query = Query(verdict_count(of_names(judged), EACH, by, label=semconv.LABEL_FAIL), legend)
        panel = stacked("Failing results", "Results that fail, by criterion.", "short", query)
        made.with_panel(sized(sparse(panel, plan), 12))
    query = Query(increase(semconv.METRIC_RESULTS, of_names(plan.names), EACH, by), legend)
    panel = stacked("Results", "Results with a score or a label, by criterion.", "short", query)
    made.with_panel(sized(sparse(panel, plan), 12))


def _traffic(made: Dashboard) -> None:
    made.with_row(boards.row("What it speaks for"))
    counted = increase(semconv.METRIC_RESPONSES, OF_AGENT, WHOLE)
    panels = (
        value("Responses", "Calls of monitored handlers in the time shown.", "short", Query(counted, "responses")),
        value("Sampling rate", "Share of the calls that were sampled.", "percentunit",
              Query(share(_PICKED, window=WHOLE), "picked")),
        value("Coverage", "Share of all calls that were evaluated to the end.", "percentunit",
              Query(share(semconv.EVALUATED, window=WHOLE), "evaluated")),
        value("Lost", "Share of the sampled calls that were dropped or failed. Red from 1 percent.",
              "percentunit", Query(share(LOST, _PICKED, window=WHOLE), "lost"), steps=((None, "green"), (0.01, "red"))),
    )  # fmt: skip
    for panel in panels:
        made.with_panel(sized(panel, 6, 4))
    outcomes = Query(rate(semconv.METRIC_RESPONSES, (OUTCOME,), OF_AGENT), "{{" + OUTCOME + "}}")
    says = "Calls of monitored handlers per second, by outcome."
    made.with_panel(sized(stacked("Responses by outcome", says, "reqps", outcomes), 12))
    both = (Query(share(_PICKED), "sampling rate"), Query(share(semconv.EVALUATED), "coverage"))
    says = "Share of the calls that were sampled, and that were evaluated to the end. The gap was lost."
    made.with_panel(sized(graph("Sampling rate and coverage", says, "percentunit", *both, between=(0, 1)), 12))
