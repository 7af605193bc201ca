"""Dashboards about quality: the overview, each criterion on its own, and one release beside another."""

from __future__ import annotations

from collections.abc import Callable

from agenteval_otel import semconv
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana.boards import BAND, Board, Query, Steps, criterion_uid, passing
from agenteval_otel.provisioning.grafana.expressions import (
    EACH,
    LOST,
    OF_AGENT,
    PROCESS,
    SAMPLED,
    WEIGHTED,
    WHOLE,
    criterion_text,
    criterion_title,
    events,
    failing,
    of_names,
    of_planned,
    quantile,
    rate,
    share,
)
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL, MODEL, OUTCOME

_SCORE = semconv.METRIC_SCORE.prometheus_name
_REASON, _ERROR = promql.label_name(semconv.REASON_CODE), promql.label_name(semconv.ERROR_TYPE)
_INTERVAL = " The band is the 95 percent interval: few results, wide band."
_LOW = 0.1
_LOST_STEPS: Steps = ((None, "green"), (0.01, "red"))
_VERSION = "service_version"
_BY = (CRITERION,)
_LEGEND = "{{" + CRITERION + "}}"
_EACH_VERSION, _EACH_LEGEND = (_VERSION, CRITERION), f"{{{{{_VERSION}}}}} {_LEGEND}"


def files_of(plan: MonitoringPlan) -> GeneratedFiles:
    """The overview, a dashboard for each name of a criterion, and that of releases, which needs criteria."""
    files = dict(_overview(plan))
    for name in plan.names:
        files |= _criterion(plan, name)
    return files | _releases(plan) if plan.criteria else files


# --- overview ---


def _overview(plan: MonitoringPlan) -> GeneratedFiles:
    board = Board(plan, "overview", "Quality now, against its objectives.")
    board.choose_agents()
    if plan.criteria:
        board.row("Quality in the time shown")
        for planned in plan.criteria:
            _now(board, plan, planned)
        _over_time(board, plan)
    _traffic(board)
    return board.files()


def _now(board: Board, plan: MonitoringPlan, planned: PlannedCriterion) -> None:
    matchers, link = of_planned(planned), f"/d/{criterion_uid(planned.name)}?${{__url_time_range}}&${{__all_variables}}"
    title, text = criterion_title(planned, plan), f"{criterion_text(planned)}{WEIGHTED}"
    if planned.has_verdicts:
        title += "" if planned.objective is None else f" ≥ {planned.objective * 100:g} %"
        text, steps = f"Share of results that pass. {text}", passing(planned.objective)
        query = Query(promql.pass_rate(matchers, WHOLE), "pass rate")
    else:
        title, text, steps = f"{title}: mean score", f"Mean score. {text}", passing(None)
        query = Query(promql.weighted_mean(matchers, WHOLE), "mean")
    board.value(title, text, "percentunit", query, steps=steps, link=link, width=4, height=4)


def _over_time(board: Board, plan: MonitoringPlan) -> None:
    board.row("Quality over time")
    every, judged = of_names(plan.names), of_names(plan.names_with_verdicts)
    for title, text, unit, expression in (
        ("Pass rate", f"Share of results that pass, by criterion.{WEIGHTED}", "percentunit",
         promql.pass_rate(judged, EACH, _BY)),
        ("Mean score", f"Mean of the scores by criterion, from 0, worst, to 1, best.{WEIGHTED}", "percentunit",
         promql.weighted_mean(every, EACH, _BY)),
        ("Failing results", "Results that fail, by criterion.", "short",
         promql.verdict_count(judged, EACH, _BY, label=semconv.LABEL_FAIL)),
        ("Results", "Results with a score or a label, by criterion.", "short",
         promql.increase(semconv.METRIC_RESULTS, every, EACH, _BY)),
    ):  # fmt: skip
        if plan.names_with_verdicts or title not in ("Pass rate", "Failing results"):
            board.graph(title, text, unit, Query(expression, _LEGEND), stacked=unit == "short", sparse=True)


def _traffic(board: Board) -> None:
    board.row("What it speaks for")
    calls = promql.increase(semconv.METRIC_RESPONSES, OF_AGENT, WHOLE)
    sampled, evaluated = share(SAMPLED, window=WHOLE), share(semconv.EVALUATED, window=WHOLE)
    lost = share(LOST, SAMPLED, window=WHOLE)
    for title, text, unit, query in (
        ("Responses", "Calls of monitored handlers in the time shown.", "short", Query(calls, "responses")),
        ("Sampling rate", "Share of the calls that were sampled.", "percentunit", Query(sampled, "picked")),
        ("Coverage", "Share of all calls that were evaluated to the end.", "percentunit",
         Query(evaluated, "evaluated")),
    ):  # fmt: skip
        board.value(title, text, unit, query, width=6, height=4)
    text = "Share of the sampled calls that were dropped or failed. Red from 1 percent."
    board.value("Lost", text, "percentunit", Query(lost, "lost"), steps=_LOST_STEPS, width=6, height=4)
    outcomes = Query(rate(semconv.METRIC_RESPONSES, (OUTCOME,), OF_AGENT), "{{" + OUTCOME + "}}")
    text = "Calls of monitored handlers per second, by outcome."
    board.graph("Responses by outcome", text, "reqps", outcomes, stacked=True)
    both = (Query(share(SAMPLED), "sampling rate"), Query(share(semconv.EVALUATED), "coverage"))
    text = "Share of the calls that were sampled, and that were evaluated to the end. The gap was lost."
    board.graph("Sampling rate and coverage", text, "percentunit", *both)


# --- one criterion: spread, certainty of its pass rate, worst traces ---


def _criterion(plan: MonitoringPlan, name: str) -> GeneratedFiles:
    """Agents' different criteria of one name follow one another."""
    text = "One criterion: spread, pass rate, agents, models, worst traces."
    board = Board(plan, name, text, of_criterion=True)
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
    return board.files()


def _pass_rate(board: Board, planned: PlannedCriterion) -> None:
    matchers, steps = of_planned(planned), passing(planned.objective)
    text = f"Share of results that pass. {criterion_text(planned)}{WEIGHTED}"
    now = Query(promql.pass_rate(matchers, WHOLE), "pass rate")
    board.value("Pass rate", text, "percentunit", now, steps=steps, width=4, height=8)
    line = "" if planned.objective is None else " The dashed line is the objective."
    board.graph(
        "Pass rate over time", f"Share of results that pass.{_INTERVAL}{line}{WEIGHTED}", "percentunit",
        Query(promql.pass_rate_bound(matchers, EACH, upper=True), BAND[0]),
        Query(promql.pass_rate_bound(matchers, EACH, upper=False), BAND[1]),
        Query(promql.pass_rate(matchers, EACH), "pass rate"), steps=steps, width=20, sparse=True,
    )  # fmt: skip


def _scores(board: Board, planned: PlannedCriterion) -> None:
    matchers = of_planned(planned)
    mean, half = f"({promql.weighted_mean(matchers, EACH)})", f"({promql.mean_half_width(matchers, EACH)})"
    line = "" if planned.threshold is None else " The dashed line is the threshold of a single score."
    board.graph(
        "Mean score over time", f"Mean score, from 0, worst, to 1, best.{_INTERVAL}{line}{WEIGHTED}", "percentunit",
        Query(f"clamp_max({mean} + {half}, 1)", BAND[0]), Query(f"clamp_min({mean} - {half}, 0)", BAND[1]),
        Query(promql.weighted_mean(matchers, EACH), "mean"), steps=passing(planned.threshold), sparse=True,
    )  # fmt: skip
    buckets = Query(f"sum by (le) (increase({_SCORE}_bucket{{{matchers}}}[{EACH}]))", "{{le}}")
    text = "How many results had which score; unweighted. Points are exemplars: a click on one leads to its trace."
    board.distribution("Distribution of scores", text, "percentunit", buckets)


def _parts(board: Board, planned: PlannedCriterion) -> None:
    matchers = of_planned(planned)
    for label, heading in ((AGENT, "agent"), (MODEL, "model")):
        by = (label,)
        if planned.has_verdicts:
            columns = [
                Query(promql.pass_rate(matchers, WHOLE, by), "pass rate"),
                Query(promql.pass_rate_bound(matchers, WHOLE, by, upper=False), "at least"),
                Query(promql.pass_rate_bound(matchers, WHOLE, by, upper=True), "at most"),
            ]
            text = f"Pass rate with its 95 percent interval in the time shown, by {heading}.{WEIGHTED}"
        else:
            columns = [Query(promql.plain_mean(matchers, WHOLE, by), "mean score")]
            text = f"Mean score in the time shown, by {heading}; unweighted."
        board.tabular(f"By {heading}", text, (label, heading), *columns)


def _traces(board: Board, planned: PlannedCriterion) -> None:
    matchers = of_planned(planned)
    lowest = Query(quantile(semconv.METRIC_SCORE, _LOW, matchers=matchers), "lowest tenth")
    text = "A tenth of the scores are at or below the line. The lowest points are the worst traces: a click opens one."
    board.graph("Worst scores, with their traces", text, "percentunit", lowest, exemplars=True, sparse=True)
    if planned.has_verdicts:
        title, text = "Verdicts", "Results that pass and that fail; unweighted."
        counts = Query(promql.verdict_count(matchers, EACH, (LABEL,)), "{{" + LABEL + "}}")
        worst, list_title = "results that fail", "Failing results"
    else:
        title, text = "Results", "Results with a score or a label; unweighted."
        counts = Query(promql.increase(semconv.METRIC_RESULTS, matchers, EACH), "results")
        worst, list_title = "results in the lower half of the scale", "Lowest results"
    board.graph(title, text, "short", counts, stacked=True, sparse=True)
    reasons = f"sum by ({_REASON}) (count_over_time({failing(planned)} [$__auto]))"
    board.log_graph("Reasons", f"Events of {worst}, by the evaluator's reason.", Query(reasons, "{{" + _REASON + "}}"))
    text = f"Events of {worst}, the newest first. Opened, each leads to its trace."
    board.events_list(list_title, text, Query(failing(planned)))


def _failures(board: Board, name: str, *, calls_model: bool) -> None:
    board.row("The evaluator itself")
    matchers = promql.joined(PROCESS, promql.one_of(CRITERION, (name,)))
    errors = Query(promql.increase(semconv.METRIC_ERRORS, matchers, EACH, (_ERROR,)), "{{" + _ERROR + "}}")
    text = "Evaluations that broke, by error; they are no scores and count in nothing above. Empty is good."
    board.graph("Errors of the evaluator", text, "short", errors, stacked=True, sparse=True)
    broken = Query(events(name, f'{_ERROR}!=""'))
    board.events_list("Events of these errors", "Evaluations that broke. Empty is good.", broken)
    if calls_model:
        durations = (
            Query(quantile(semconv.METRIC_DURATION, of, matchers=matchers), f"{of * 100:g} %") for of in (0.5, 0.95)
        )
        text = "How long an evaluation took that asks a model: half and 95 percent of them at most so long."
        board.graph("Duration", text, "s", *durations)


# --- releases: how versions differ, criterion by criterion, and how sure the difference is ---


def _releases(plan: MonitoringPlan) -> GeneratedFiles:
    board = Board(plan, "releases", "One version of the service beside another.")
    board.choose_agents()
    board.choose_versions()
    if plan.names_with_verdicts:
        _pass_rates(board, of_names(plan.names_with_verdicts))
    _means(board, of_names(plan.names))
    return board.files()


def _pass_rates(board: Board, matchers: str) -> None:
    board.row("Pass rate")
    before, after = _of_versions(matchers, promql.pass_rate)
    before_low, after_low = _of_versions(matchers, promql.pass_rate_bound, upper=False)
    before_high, after_high = _of_versions(matchers, promql.pass_rate_bound, upper=True)
    _differences(
        board, "Pass rate", " (Newcombe's)", before, after,
        f"sqrt(({after} - {after_low}) ^ 2 + ({before_high} - {before}) ^ 2)",
        f"sqrt(({after_high} - {after}) ^ 2 + ({before} - {before_low}) ^ 2)",
    )  # fmt: skip
    text = f"Share of results that pass, by version and criterion.{WEIGHTED}"
    query = Query(promql.pass_rate(matchers, EACH, _EACH_VERSION), _EACH_LEGEND)
    board.graph("Pass rate by version", text, "percentunit", query, sparse=True)
    query = Query(promql.increase(semconv.METRIC_RESULTS, matchers, EACH, (_VERSION,)), f"{{{{{_VERSION}}}}}")
    text = "Results of each version: when it was in use, and how many there are to compare."
    board.graph("Results by version", text, "short", query, stacked=True, sparse=True)


def _means(board: Board, matchers: str) -> None:
    board.row("Mean score")
    before, after = _of_versions(matchers, promql.weighted_mean)
    before_half, after_half = _of_versions(matchers, promql.mean_half_width)
    half = f"sqrt({before_half} ^ 2 + {after_half} ^ 2)"
    _differences(board, "Mean score", "", before, after, half, half)
    query = Query(promql.weighted_mean(matchers, EACH, _EACH_VERSION), _EACH_LEGEND)
    text = f"Mean of the scores by version and criterion, from 0, worst, to 1, best.{WEIGHTED}"
    board.graph("Mean score by version", text, "percentunit", query, width=24, sparse=True)


def _differences(board: Board, title: str, method: str, before: str, after: str, below: str, above: str) -> None:
    difference = f"{after} - {before}"
    columns = (
        Query(before, "baseline"), Query(after, "candidate"), Query(difference, "difference"),
        Query(f"{difference} - {below}", "at least"), Query(f"{difference} + {above}", "at most"),
    )  # fmt: skip
    text = f"Candidate less baseline, with the ends of its 95 percent interval{method}. Above 0: better.{WEIGHTED}"
    board.tabular(f"{title}: difference", text, (CRITERION, "criterion"), *columns, width=24)


def _of_versions(matchers: str, expression: Callable[..., str], **options: bool) -> tuple[str, str]:
    baseline, candidate = (promql.joined(matchers, f'{_VERSION}="${name}"') for name in ("baseline", "candidate"))
    return f"({expression(baseline, WHOLE, _BY, **options)})", f"({expression(candidate, WHOLE, _BY, **options)})"
