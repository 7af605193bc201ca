"""One dashboard for each criterion: how its scores are spread, how sure its pass rate is, and the worst traces.

Threshold and objective are the criterion's own, so each has a dashboard of its own instead of a variable.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana import boards
from agenteval_otel.provisioning.grafana.expressions import (
    EACH,
    PROCESS,
    WHOLE,
    events,
    failing,
    of_planned,
    quantile,
)  # fmt: skip
from agenteval_otel.provisioning.grafana.panels import (
    BAND,
    Query,
    distribution,
    events_list,
    graph,
    log_graph,
    passing,
    sized,
    sparse,
    stacked,
    tabular,
    value,
)  # fmt: skip
from agenteval_otel.provisioning.grafana.wording import WEIGHTED, asked_of, shown
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.promql import (
    AGENT,
    CRITERION,
    LABEL,
    MODEL,
    increase,
    joined,
    label_name,
    mean_half_width,
    one_of,
    pass_rate,
    pass_rate_bound,
    verdict_count,
    weighted_mean,
)  # fmt: skip

_SCORE = semconv.METRIC_SCORE.prometheus_name
_REASON, _ERROR = label_name(semconv.REASON_CODE), label_name(semconv.ERROR_TYPE)
_INTERVAL = " The band is the 95 percent interval: few results, wide band."
_LOW = 0.1


def files_of(plan: MonitoringPlan) -> GeneratedFiles:
    """A dashboard for each name of a criterion; agents' different criteria of one name follow one another on it."""
    files = {}
    for name in plan.names:
        says = "One criterion: spread, pass rate, agents, models, worst traces."
        made = boards.board(f"agenteval: {name}", boards.criterion_uid(name), says, of_criterion=True)
        boards.with_events(made.with_variable(boards.agents()))
        for planned in plan.criteria:
            if planned.name == name:
                _estimates(made, planned, plan)
                _parts(made, planned)
                _traces(made, planned, plan)
        _failures(made, name, plan)
        files[f"dashboards/criterion-{boards.criterion_slug(name)}.json"] = boards.text_of(made)
    return files


def _estimates(made: Dashboard, planned: PlannedCriterion, plan: MonitoringPlan) -> None:
    title, says, matchers = shown(planned, plan), asked_of(planned), of_planned(planned)
    made.with_row(boards.row(title))
    if planned.has_verdicts:
        steps = passing(planned.objective)
        now = Query(pass_rate(matchers, WHOLE), "pass rate")
        panel = value("Pass rate", f"Share of results that pass. {says}{WEIGHTED}", "percentunit", now, steps=steps)
        made.with_panel(sized(panel, 4, 8))
        ends = [Query(pass_rate_bound(matchers, EACH, upper=upper), end)
                for upper, end in zip((True, False), BAND, strict=True)]  # fmt: skip
        line = "" if planned.objective is None else " The dashed line is the objective."
        made.with_panel(sized(sparse(graph(
            "Pass rate over time", f"Share of results that pass.{_INTERVAL}{line}{WEIGHTED}", "percentunit",
            *ends, Query(pass_rate(matchers, EACH), "pass rate"), steps=steps, between=(0, 1),
        ), plan), 20))  # fmt: skip
    mean, half = f"({weighted_mean(matchers, EACH)})", f"({mean_half_width(matchers, EACH)})"
    ends = [Query(f"clamp_max({mean} + {half}, 1)", BAND[0]), Query(f"clamp_min({mean} - {half}, 0)", BAND[1])]
    line = "" if planned.threshold is None else " The dashed line is the threshold of a single score."
    made.with_panel(sized(sparse(graph(
        "Mean score over time", f"Mean score, from 0, worst, to 1, best.{_INTERVAL}{line}{WEIGHTED}", "percentunit",
        *ends, Query(weighted_mean(matchers, EACH), "mean"), steps=passing(planned.threshold), between=(0, 1),
    ), plan), 12))  # fmt: skip
    buckets = Query(f"sum by (le) (increase({_SCORE}_bucket{{{matchers}}}[{EACH}]))", "{{le}}")
    says = "How many results had which score; unweighted. Points are exemplars: a click on one leads to its trace."
    made.with_panel(sized(sparse(distribution("Distribution of scores", says, "percentunit", buckets), plan), 12))


def _parts(made: Dashboard, planned: PlannedCriterion) -> None:
    matchers = of_planned(planned)
    for label, heading in ((AGENT, "agent"), (MODEL, "model")):
        by = (label,)
        columns: tuple[Query, ...]
        if planned.has_verdicts:
            columns = (
                Query(pass_rate(matchers, WHOLE, by), "pass rate"),
                Query(pass_rate_bound(matchers, WHOLE, by, upper=False), "at least"),
                Query(pass_rate_bound(matchers, WHOLE, by, upper=True), "at most"),
            )
            says = f"Pass rate with its 95 percent interval in the time shown, by {heading}.{WEIGHTED}"
        else:
            columns = (Query(_plain_mean(matchers, by), "mean score"),)
            says = f"Mean score in the time shown, by {heading}; unweighted."
        made.with_panel(sized(tabular(f"By {heading}", says, "percentunit", (label, heading), *columns), 12))


def _plain_mean(matchers: str, by: tuple[str, ...]) -> str:
    """By the histogram, which knows the models; the weighted sums do not."""
    total, count = (f"sum by ({by[0]}) (increase({_SCORE}_{what}{{{matchers}}}[{WHOLE}]))" for what in ("sum", "count"))
    return f"{total} / ({count} > 0)"


def _traces(made: Dashboard, planned: PlannedCriterion, plan: MonitoringPlan) -> None:
    lowest = Query(quantile(semconv.METRIC_SCORE, _LOW, matchers=of_planned(planned)), "lowest tenth")
    says = "A tenth of the scores are at or below the line. The lowest points are the worst traces: a click opens one."
    panel = graph("Worst scores, with their traces", says, "percentunit", lowest, exemplars=True, between=(0, 1))
    made.with_panel(sized(sparse(panel, plan), 12))
    if planned.has_verdicts:
        counted = Query(verdict_count(of_planned(planned), EACH, (LABEL,)), "{{" + LABEL + "}}")
        panel = stacked("Verdicts", "Results that pass and that fail; unweighted.", "short", counted)
    else:
        counted = Query(increase(semconv.METRIC_RESULTS, of_planned(planned), EACH), "results")
        panel = stacked("Results", "Results with a score or a label; unweighted.", "short", counted)
    made.with_panel(sized(sparse(panel, plan), 12))
    worst = "results that fail" if planned.has_verdicts else "results in the lower half of the scale"
    reasons = f"sum by ({_REASON}) (count_over_time({failing(planned)} [$__auto]))"
    says = f"Events of {worst}, by the evaluator's reason."
    made.with_panel(sized(log_graph("Reasons", says, "short", Query(reasons, "{{" + _REASON + "}}")), 12))
    says = f"Events of {worst}, the newest first. Opened, each leads to its trace."
    made.with_panel(sized(events_list("Failing results" if planned.has_verdicts else "Lowest results", says,
                                      Query(failing(planned))), 12))  # fmt: skip


def _failures(made: Dashboard, name: str, plan: MonitoringPlan) -> None:
    """Where the evaluator itself breaks: no scores, so nothing of it is above."""
    made.with_row(boards.row("The evaluator itself"))
    matchers, by = joined(PROCESS, one_of(CRITERION, (name,))), (_ERROR,)
    errors = Query(increase(semconv.METRIC_ERRORS, matchers, EACH, by), "{{" + _ERROR + "}}")
    says = "Evaluations that broke, by error; they are no scores and count in nothing above. Empty is good."
    made.with_panel(sized(sparse(stacked("Errors of the evaluator", says, "short", errors), plan), 12))
    broken = Query(events(name, f'{_ERROR}!=""'))
    made.with_panel(sized(events_list("Events of these errors", "Evaluations that broke. Empty is good.", broken), 12))
    if any(criterion.calls_model for criterion in plan.criteria if criterion.name == name):
        took = tuple(Query(quantile(semconv.METRIC_DURATION, of, matchers=matchers), f"{of * 100:g} %")
                     for of in (0.5, 0.95))  # fmt: skip
        says = "How long an evaluation took that asks a model: half and 95 percent of them at most so long."
        made.with_panel(sized(graph("Duration", says, "s", *took), 12))
