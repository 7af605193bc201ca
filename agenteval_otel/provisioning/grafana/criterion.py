"""One dashboard for each criterion: how its scores are spread, how sure its pass rate is, and the worst traces.

Threshold and objective are the criterion's own, so each has a dashboard of its own instead of a variable.
"""

from __future__ import annotations

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana.boards import CRITERION_TAG, Board, criterion_slug, criterion_uid
from agenteval_otel.provisioning.grafana.expressions import (
    EACH,
    PROCESS,
    WEIGHTED,
    WHOLE,
    criterion_text,
    criterion_title,
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
    stacked,
    tabular,
    value,
)  # fmt: skip
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
    plain_mean,
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
        text = "One criterion: spread, pass rate, agents, models, worst traces."
        board = Board(plan, f"agenteval: {name}", criterion_uid(name), text, tag=CRITERION_TAG)
        board.choose_agents()
        board.choose_events()
        same = [planned for planned in plan.criteria if planned.name == name]
        for planned in same:
            board.row(criterion_title(planned, plan))
            if planned.has_verdicts:
                _pass_rate(board, planned)
            _scores(board, planned)
            _parts(board, planned)
            _traces(board, planned)
        _failures(board, name, calls_model=any(planned.calls_model for planned in same))
        files[f"dashboards/criterion-{criterion_slug(name)}.json"] = board.text()
    return files


def _pass_rate(board: Board, planned: PlannedCriterion) -> None:
    matchers, steps = of_planned(planned), passing(planned.objective)
    text = f"Share of results that pass. {criterion_text(planned)}{WEIGHTED}"
    now = Query(pass_rate(matchers, WHOLE), "pass rate")
    board.add(value("Pass rate", text, "percentunit", now, steps=steps), 4, 8)
    line = "" if planned.objective is None else " The dashed line is the objective."
    board.add(graph(
        "Pass rate over time", f"Share of results that pass.{_INTERVAL}{line}{WEIGHTED}", "percentunit",
        Query(pass_rate_bound(matchers, EACH, upper=True), BAND[0]),
        Query(pass_rate_bound(matchers, EACH, upper=False), BAND[1]),
        Query(pass_rate(matchers, EACH), "pass rate"), steps=steps, between=(0, 1),
    ), 20, sparse=True)  # fmt: skip


def _scores(board: Board, planned: PlannedCriterion) -> None:
    matchers = of_planned(planned)
    mean, half = f"({weighted_mean(matchers, EACH)})", f"({mean_half_width(matchers, EACH)})"
    line = "" if planned.threshold is None else " The dashed line is the threshold of a single score."
    board.add(graph(
        "Mean score over time", f"Mean score, from 0, worst, to 1, best.{_INTERVAL}{line}{WEIGHTED}", "percentunit",
        Query(f"clamp_max({mean} + {half}, 1)", BAND[0]), Query(f"clamp_min({mean} - {half}, 0)", BAND[1]),
        Query(weighted_mean(matchers, EACH), "mean"), steps=passing(planned.threshold), between=(0, 1),
    ), 12, sparse=True)  # fmt: skip
    buckets = Query(f"sum by (le) (increase({_SCORE}_bucket{{{matchers}}}[{EACH}]))", "{{le}}")
    text = "How many results had which score; unweighted. Points are exemplars: a click on one leads to its trace."
    board.add(distribution("Distribution of scores", text, "percentunit", buckets), 12, sparse=True)


def _parts(board: Board, planned: PlannedCriterion) -> None:
    matchers = of_planned(planned)
    for label, heading in ((AGENT, "agent"), (MODEL, "model")):
        by = (label,)
        if planned.has_verdicts:
            columns = [
                Query(pass_rate(matchers, WHOLE, by), "pass rate"),
                Query(pass_rate_bound(matchers, WHOLE, by, upper=False), "at least"),
                Query(pass_rate_bound(matchers, WHOLE, by, upper=True), "at most"),
            ]
            text = f"Pass rate with its 95 percent interval in the time shown, by {heading}.{WEIGHTED}"
        else:
            columns = [Query(plain_mean(matchers, WHOLE, by), "mean score")]
            text = f"Mean score in the time shown, by {heading}; unweighted."
        board.add(tabular(f"By {heading}", text, "percentunit", (label, heading), *columns), 12)


def _traces(board: Board, planned: PlannedCriterion) -> None:
    matchers = of_planned(planned)
    lowest = Query(quantile(semconv.METRIC_SCORE, _LOW, matchers=matchers), "lowest tenth")
    text = "A tenth of the scores are at or below the line. The lowest points are the worst traces: a click opens one."
    panel = graph("Worst scores, with their traces", text, "percentunit", lowest, exemplars=True, between=(0, 1))
    board.add(panel, 12, sparse=True)
    if planned.has_verdicts:
        counts = Query(verdict_count(matchers, EACH, (LABEL,)), "{{" + LABEL + "}}")
        panel = stacked("Verdicts", "Results that pass and that fail; unweighted.", "short", counts)
    else:
        counts = Query(increase(semconv.METRIC_RESULTS, matchers, EACH), "results")
        panel = stacked("Results", "Results with a score or a label; unweighted.", "short", counts)
    board.add(panel, 12, sparse=True)
    worst = "results that fail" if planned.has_verdicts else "results in the lower half of the scale"
    reasons = f"sum by ({_REASON}) (count_over_time({failing(planned)} [$__auto]))"
    text = f"Events of {worst}, by the evaluator's reason."
    board.add(log_graph("Reasons", text, "short", Query(reasons, "{{" + _REASON + "}}")), 12)
    title = "Failing results" if planned.has_verdicts else "Lowest results"
    text = f"Events of {worst}, the newest first. Opened, each leads to its trace."
    board.add(events_list(title, text, Query(failing(planned))), 12)


def _failures(board: Board, name: str, *, calls_model: bool) -> None:
    board.row("The evaluator itself")
    matchers = joined(PROCESS, one_of(CRITERION, (name,)))
    errors = Query(increase(semconv.METRIC_ERRORS, matchers, EACH, (_ERROR,)), "{{" + _ERROR + "}}")
    text = "Evaluations that broke, by error; they are no scores and count in nothing above. Empty is good."
    board.add(stacked("Errors of the evaluator", text, "short", errors), 12, sparse=True)
    broken = Query(events(name, f'{_ERROR}!=""'))
    board.add(events_list("Events of these errors", "Evaluations that broke. Empty is good.", broken), 12)
    if calls_model:
        duration = (Query(quantile(semconv.METRIC_DURATION, of, matchers=matchers), f"{of * 100:g} %")
                    for of in (0.5, 0.95))  # fmt: skip
        text = "How long an evaluation took that asks a model: half and 95 percent of them at most so long."
        board.add(graph("Duration", text, "s", *duration), 12)
