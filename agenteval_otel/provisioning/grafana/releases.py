"""Releases: one version of the service beside another, criterion by criterion, and how sure the difference is."""

from __future__ import annotations

from collections.abc import Callable

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana.boards import Board
from agenteval_otel.provisioning.grafana.expressions import EACH, WEIGHTED, WHOLE, of_names
from agenteval_otel.provisioning.grafana.panels import Query, graph, stacked, tabular
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import (
    CRITERION,
    increase,
    joined,
    mean_half_width,
    pass_rate,
    pass_rate_bound,
    weighted_mean,
)  # fmt: skip

_VERSION = "service_version"
_BY = (CRITERION,)
_EACH_VERSION, _EACH_LEGEND = (_VERSION, CRITERION), f"{{{{{_VERSION}}}}} {{{{{CRITERION}}}}}"


def files_of(plan: MonitoringPlan) -> GeneratedFiles:
    """The dashboard of versions; without criteria there is none."""
    if not plan.criteria:
        return {}
    board = Board(plan, "agenteval: releases", "agenteval-releases", "One version of the service beside another.")
    board.choose_agents()
    board.choose_versions()
    if plan.names_with_verdicts:
        _pass_rates(board, of_names(plan.names_with_verdicts))
    _means(board, of_names(plan.names))
    return {"dashboards/releases.json": board.text()}


def _pass_rates(board: Board, matchers: str) -> None:
    board.row("Pass rate")
    before, after = _of_versions(matchers, lambda version: pass_rate(version, WHOLE, _BY))
    before_low, after_low = _of_versions(matchers, lambda version: pass_rate_bound(version, WHOLE, _BY, upper=False))
    before_high, after_high = _of_versions(matchers, lambda version: pass_rate_bound(version, WHOLE, _BY, upper=True))
    text = f"Candidate less baseline, with the ends of its 95 percent interval (Newcombe's). Above 0: better.{WEIGHTED}"
    columns = (
        Query(before, "baseline"), Query(after, "candidate"), Query(f"{after} - {before}", "difference"),
        Query(f"{after} - {before} - sqrt(({after} - {after_low}) ^ 2 + ({before_high} - {before}) ^ 2)", "at least"),
        Query(f"{after} - {before} + sqrt(({after_high} - {after}) ^ 2 + ({before} - {before_low}) ^ 2)", "at most"),
    )  # fmt: skip
    board.add(tabular("Pass rate: difference", text, "percentunit", (CRITERION, "criterion"), *columns), 24)
    text = f"Share of results that pass, by version and criterion.{WEIGHTED}"
    query = Query(pass_rate(matchers, EACH, _EACH_VERSION), _EACH_LEGEND)
    board.add(graph("Pass rate by version", text, "percentunit", query, between=(0, 1)), 12, sparse=True)
    query = Query(increase(semconv.METRIC_RESULTS, matchers, EACH, (_VERSION,)), f"{{{{{_VERSION}}}}}")
    text = "Results of each version: when it was in use, and how many there are to compare."
    board.add(stacked("Results by version", text, "short", query), 12, sparse=True)


def _means(board: Board, matchers: str) -> None:
    board.row("Mean score")
    before, after = _of_versions(matchers, lambda version: weighted_mean(version, WHOLE, _BY))
    before_half, after_half = _of_versions(matchers, lambda version: mean_half_width(version, WHOLE, _BY))
    difference, half = f"{after} - {before}", f"sqrt({before_half} ^ 2 + {after_half} ^ 2)"
    text = f"Candidate less baseline, with the ends of its 95 percent interval. Above 0: better.{WEIGHTED}"
    columns = (
        Query(before, "baseline"), Query(after, "candidate"), Query(difference, "difference"),
        Query(f"{difference} - {half}", "at least"), Query(f"{difference} + {half}", "at most"),
    )  # fmt: skip
    board.add(tabular("Mean score: difference", text, "percentunit", (CRITERION, "criterion"), *columns), 24)
    query = Query(weighted_mean(matchers, EACH, _EACH_VERSION), _EACH_LEGEND)
    text = f"Mean of the scores by version and criterion, from 0, worst, to 1, best.{WEIGHTED}"
    board.add(graph("Mean score by version", text, "percentunit", query, between=(0, 1)), 24, sparse=True)


def _of_versions(matchers: str, expression: Callable[[str], str]) -> tuple[str, str]:
    baseline, candidate = (joined(matchers, f'{_VERSION}="${name}"') for name in ("baseline", "candidate"))
    return f"({expression(baseline)})", f"({expression(candidate)})"
