"""Releases: one version of the service beside another, criterion by criterion, and how sure the difference is."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana import boards
from agenteval_otel.provisioning.grafana.expressions import EACH, WHOLE, of_names
from agenteval_otel.provisioning.grafana.panels import Query, graph, sized, sparse, stacked, tabular
from agenteval_otel.provisioning.grafana.wording import WEIGHTED
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
_KEY = (CRITERION, "criterion")
_BASELINE, _CANDIDATE = f'{_VERSION}="$baseline"', f'{_VERSION}="$candidate"'


def files_of(plan: MonitoringPlan) -> GeneratedFiles:
    """The dashboard of versions; without criteria there is none."""
    if not plan.criteria:
        return {}
    made = boards.board("agenteval: releases", "agenteval-releases", "One version of the service beside another.")
    boards.versions(made.with_variable(boards.agents()))
    judged = tuple(dict.fromkeys(criterion.name for criterion in plan.criteria if criterion.has_verdicts))
    if judged:
        _pass_rates(made, of_names(judged), plan)
    _means(made, of_names(plan.names), plan)
    return {"dashboards/releases.json": boards.text_of(made)}


def _pass_rates(made: Dashboard, matchers: str, plan: MonitoringPlan) -> None:
    made.with_row(boards.row("Pass rate"))

    def ends(version: str) -> tuple[str, str, str]:
        of_version = joined(matchers, version)
        low, high = (pass_rate_bound(of_version, WHOLE, _BY, upper=upper) for upper in (False, True))
        return f"({pass_rate(of_version, WHOLE, _BY)})", f"({low})", f"({high})"

    before, before_low, before_high = ends(_BASELINE)
    after, after_low, after_high = ends(_CANDIDATE)
    says = f"Candidate less baseline, with the ends of its 95 percent interval (Newcombe's). Above 0: better.{WEIGHTED}"
    columns = (
        Query(before, "baseline"), Query(after, "candidate"), Query(f"{after} - {before}", "difference"),
        Query(f"{after} - {before} - sqrt(({after} - {after_low}) ^ 2 + ({before_high} - {before}) ^ 2)", "at least"),
        Query(f"{after} - {before} + sqrt(({after_high} - {after}) ^ 2 + ({before} - {before_low}) ^ 2)", "at most"),
    )  # fmt: skip
    made.with_panel(sized(tabular("Pass rate: difference", says, "percentunit", _KEY, *columns), 24))
    by = (_VERSION, CRITERION)
    says = f"Share of results that pass, by version and criterion.{WEIGHTED}"
    query = Query(pass_rate(matchers, EACH, by), f"{{{{{_VERSION}}}}} {{{{{CRITERION}}}}}")
    made.with_panel(sized(sparse(graph("Pass rate by version", says, "percentunit", query, between=(0, 1)), plan), 12))
    query = Query(increase(semconv.METRIC_RESULTS, matchers, EACH, (_VERSION,)), f"{{{{{_VERSION}}}}}")
    says = "Results of each version: when it was in use, and how many there are to compare."
    made.with_panel(sized(sparse(stacked("Results by version", says, "short", query), plan), 12))


def _means(made: Dashboard, matchers: str, plan: MonitoringPlan) -> None:
    made.with_row(boards.row("Mean score"))
    before, after = (joined(matchers, version) for version in (_BASELINE, _CANDIDATE))
    means = [f"({weighted_mean(share, WHOLE, _BY)})" for share in (before, after)]
    halves = [f"({mean_half_width(share, WHOLE, _BY)})" for share in (before, after)]
    difference, half = f"{means[1]} - {means[0]}", f"sqrt({halves[0]} ^ 2 + {halves[1]} ^ 2)"
    says = f"Candidate less baseline, with the ends of its 95 percent interval. Above 0: better.{WEIGHTED}"
    columns = (
        Query(means[0], "baseline"), Query(means[1], "candidate"), Query(difference, "difference"),
        Query(f"{difference} - {half}", "at least"), Query(f"{difference} + {half}", "at most"),
    )  # fmt: skip
    made.with_panel(sized(tabular("Mean score: difference", says, "percentunit", _KEY, *columns), 24))
    by = (_VERSION, CRITERION)
    query = Query(weighted_mean(matchers, EACH, by), f"{{{{{_VERSION}}}}} {{{{{CRITERION}}}}}")
    says = f"Mean of the scores by version and criterion, from 0, worst, to 1, best.{WEIGHTED}"
    panel = graph("Mean score by version", says, "percentunit", query, between=(0, 1))
    made.with_panel(sized(sparse(panel, plan), 24))
