"""The overview: how good the answers are now, against what is asked, and how much of the traffic that speaks for."""

from __future__ import annotations

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana.boards import Board, criterion_uid, link_to
from agenteval_otel.provisioning.grafana.expressions import (
    EACH,
    OF_AGENT,
    WEIGHTED,
    WHOLE,
    criterion_text,
    criterion_title,
    of_names,
    of_planned,
    rate,
    share,
)  # fmt: skip
from agenteval_otel.provisioning.grafana.panels import Query, graph, passing, stacked, value
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import CRITERION, OUTCOME, increase, pass_rate, verdict_count, weighted_mean

LOST = "dropped_.*|" + "|".join((semconv.RATE_LIMITED, semconv.CAPTURE_FAILED, semconv.PIPELINE_FAILED))
"""Outcomes of calls that should have been evaluated and were not."""
_SAMPLED = "|".join(
    outcome for outcome in semconv.OUTCOMES if outcome not in (semconv.NOT_SAMPLED, semconv.SHED, semconv.DISABLED)
)


def files_of(plan: MonitoringPlan) -> GeneratedFiles:
    board = Board(plan, "agenteval: overview", "agenteval-overview", "Quality now, against its objectives.")
    board.choose_agents()
    if plan.criteria:
        _now(board, plan)
        _over_time(board, plan)
    _traffic(board)
    return {"dashboards/overview.json": board.text()}


def _now(board: Board, plan: MonitoringPlan) -> None:
    board.row("Quality in the time shown")
    for planned in plan.criteria:
        matchers, link = of_planned(planned), link_to(criterion_uid(planned.name))
        title, text = criterion_title(planned, plan), f"{criterion_text(planned)}{WEIGHTED}"
        if planned.has_verdicts:
            objective = "" if planned.objective is None else f" ≥ {planned.objective * 100:g} %"
            query = Query(pass_rate(matchers, WHOLE), "pass rate")
            panel = value(f"{title}{objective}", f"Share of results that pass. {text}", "percentunit", query,
                          steps=passing(planned.objective), link=link)  # fmt: skip
        else:
            query = Query(weighted_mean(matchers, WHOLE), "mean")
            panel = value(f"{title}: mean score", f"Mean score. {text}", "percentunit", query, link=link)
        board.add(panel, 4, 4)


def _over_time(board: Board, plan: MonitoringPlan) -> None:
    board.row("Quality over time")
    legend, by = "{{" + CRITERION + "}}", (CRITERION,)
    every, judged = of_names(plan.names), of_names(plan.names_with_verdicts)
    if plan.names_with_verdicts:
        query = Query(pass_rate(judged, EACH, by), legend)
        text = f"Share of results that pass, by criterion.{WEIGHTED}"
        board.add(graph("Pass rate", text, "percentunit", query, between=(0, 1)), 12, sparse=True)
    query = Query(weighted_mean(every, EACH, by), legend)
    text = f"Mean of the scores by criterion, from 0, worst, to 1, best.{WEIGHTED}"
    board.add(graph("Mean score", text, "percentunit", query, between=(0, 1)), 12, sparse=True)
    if plan.names_with_verdicts:
        query = Query(verdict_count(judged, EACH, by, label=semconv.LABEL_FAIL), legend)
        board.add(stacked("Failing results", "Results that fail, by criterion.", "short", query), 12, sparse=True)
    query = Query(increase(semconv.METRIC_RESULTS, every, EACH, by), legend)
    text = "Results with a score or a label, by criterion."
    board.add(stacked("Results", text, "short", query), 12, sparse=True)


def _traffic(board: Board) -> None:
    board.row("What it speaks for")
    calls = increase(semconv.METRIC_RESPONSES, OF_AGENT, WHOLE)
    sampled, evaluated = share(_SAMPLED, window=WHOLE), share(semconv.EVALUATED, window=WHOLE)
    lost = share(LOST, _SAMPLED, window=WHOLE)
    for panel in (
        value("Responses", "Calls of monitored handlers in the time shown.", "short", Query(calls, "responses")),
        value("Sampling rate", "Share of the calls that were sampled.", "percentunit", Query(sampled, "picked")),
        value("Coverage", "Share of all calls that were evaluated to the end.", "percentunit",
              Query(evaluated, "evaluated")),
        value("Lost", "Share of the sampled calls that were dropped or failed. Red from 1 percent.", "percentunit",
              Query(lost, "lost"), steps=((None, "green"), (0.01, "red"))),
    ):  # fmt: skip
        board.add(panel, 6, 4)
    outcomes = Query(rate(semconv.METRIC_RESPONSES, (OUTCOME,), OF_AGENT), "{{" + OUTCOME + "}}")
    text = "Calls of monitored handlers per second, by outcome."
    board.add(stacked("Responses by outcome", text, "reqps", outcomes), 12)
    both = (Query(share(_SAMPLED), "sampling rate"), Query(share(semconv.EVALUATED), "coverage"))
    text = "Share of the calls that were sampled, and that were evaluated to the end. The gap was lost."
    board.add(graph("Sampling rate and coverage", text, "percentunit", *both, between=(0, 1)), 12)
