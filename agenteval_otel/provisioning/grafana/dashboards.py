"""The dashboards: overview, each criterion, releases and operations, and their queries with Grafana's variables.

Grafana replaces ``$name``, ``${name}`` and ``[[name]]`` in queries, wherever they stand. A name that looks so is
written with escapes that PromQL and LogQL undo, in descriptions with those of Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agenteval_otel import semconv
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana.boards import BAND, Board, Query, Steps, criterion_uid, passing
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL, MODEL, OUTCOME, joined, label_name, one_of
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
_SCORE = semconv.METRIC_SCORE.prometheus_name
_REASON, _ERROR = label_name(semconv.REASON_CODE), label_name(semconv.ERROR_TYPE)
_INTERVAL = " The band is the 95 percent interval: few results, wide band."
_LOW = 0.1
_LOST_STEPS: Steps = ((None, "green"), (0.01, "red"))
_VERSION = "service_version"
_BY = (CRITERION,)
_LEGEND = "{{" + CRITERION + "}}"
_EACH_VERSION, _EACH_LEGEND = (_VERSION, CRITERION), f"{{{{{_VERSION}}}}} {_LEGEND}"
_JUDGE_MODEL, _JUDGE = label_name(semconv.JUDGE_MODEL), label_name(semconv.JUDGE_NAME)
_PERIOD, _TOKENS = label_name(semconv.JUDGE_PERIOD), label_name(semconv.TOKEN_TYPE)
_SIGNAL, _LOSS_REASON = label_name(semconv.EXPORT_SIGNAL), label_name(semconv.EXPORT_REASON)
_WHERE = ("job", "instance")
_LEVELS = {"0": ("full", "green"), "1": ("reduced", "yellow"), "2": ("no model calls", "orange"), "3": ("off", "red")}
_BREAKER = {"0": ("closed", "green"), "1": ("half open", "yellow"), "2": ("open", "red")}


def files_of(plan: MonitoringPlan) -> GeneratedFiles:
    """The overview, a dashboard for each name of a criterion, releases (if there are criteria), and operations."""
    files = dict(_overview(plan))
    for name in plan.names:
        files |= _criterion(plan, name)
    return {**files, **(_releases(plan) if plan.criteria else {}), **_operations(plan)}


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
    outcomes = _rate(semconv.METRIC_RESPONSES, OUTCOME, matchers=OF_AGENT)
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
    matchers = joined(PROCESS, one_of(CRITERION, (name,)))
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
    baseline, candidate = (joined(matchers, f'{_VERSION}="${name}"') for name in ("baseline", "candidate"))
    return f"({expression(baseline, WHOLE, _BY, **options)})", f"({expression(candidate, WHOLE, _BY, **options)})"


# --- operations: whether the evaluation itself keeps up, what it costs, and what it does to its host ---


def _operations(plan: MonitoringPlan) -> GeneratedFiles:
    board = Board(plan, "operations", "Whether the evaluation itself is well.")
    _queue(board)
    _time(board)
    if plan.judge_models:
        _judges(board, plan)
    _host(board)
    return board.files()


def _by(expression: str, *labels: str) -> Query:
    return Query(expression, " ".join(f"{{{{{label}}}}}" for label in labels))


def _rate(instrument: Instrument, *labels: str, matchers: str = PROCESS) -> Query:
    by = ", ".join(labels)
    return _by(f"sum by ({by}) (rate({instrument.prometheus_name}{{{matchers}}}[{EACH}]))", *labels)


def _latest(instrument: Instrument, *labels: str, how: str = "max") -> Query:
    """A gauge as it stands, of the chosen processes; `how` says what becomes of several."""
    return _by(f"{how} by ({', '.join(labels)}) ({instrument.prometheus_name}{{{PROCESS}}})", *labels)


def _queue(board: Board) -> None:
    board.row("Does it keep up?")
    size, capacity, success = (
        _latest(metric, *_WHERE).expression
        for metric in (semconv.METRIC_QUEUE_BYTES, semconv.METRIC_QUEUE_MAX_BYTES, semconv.METRIC_LAST_SUCCESS)
    )
    lost = joined(PROCESS, f'{OUTCOME}=~"{LOST}"')
    for title, text, unit, query in (
        ("Queue, share in use",
         "Responses that wait or are evaluated, as a share of what the queue may hold. At 1 responses are dropped.",
         "percentunit", _by(f"{size} / {capacity}", *_WHERE)),
        ("Queue, memory", "Estimated memory that waiting responses hold.", "bytes", _by(size, *_WHERE)),
        ("Lost responses by reason", "Responses per second that were dropped or failed.", "reqps",
         _rate(semconv.METRIC_RESPONSES, OUTCOME, matchers=lost)),
        ("Errors of evaluators", "Failed evaluations per second, by criterion and error.", "cps",
         _rate(semconv.METRIC_ERRORS, CRITERION, _ERROR)),
        ("Lost in export", "Spans, events and metrics per second that did not reach the backend.", "cps",
         _rate(semconv.METRIC_EXPORT_LOST, _SIGNAL, _LOSS_REASON)),
        ("Since the last result", "Time since a result was last delivered. Grows without traffic, too.", "s",
         _by(f"time() - {success}", *_WHERE)),
        ("Responses by outcome", "Calls of monitored handlers per second, by outcome.", "reqps",
         _rate(semconv.METRIC_RESPONSES, OUTCOME)),
    ):  # fmt: skip
        board.graph(title, text, unit, query, stacked=unit in ("reqps", "cps"), width=8)


def _time(board: Board) -> None:
    board.row("How long does it take?")
    run = joined(PROCESS, f'{CRITERION}=""')
    for title, text, instrument, matchers in (
        ("Lag", "From the end of the response to its result: 50, 95 and 99 percent of the responses within so long.",
         semconv.METRIC_LAG, PROCESS),
        ("Duration of a run", "Of all evaluators of one response together: 50, 95 and 99 percent within so long.",
         semconv.METRIC_DURATION, run),
    ):  # fmt: skip
        queries = (Query(quantile(instrument, of, matchers=matchers), f"{of * 100:g} %") for of in (0.5, 0.95, 0.99))
        board.graph(title, text, "s", *queries)


def _judges(board: Board, plan: MonitoringPlan) -> None:
    board.row("Judges")
    for title, text, unit, query in (
        ("Calls of judges", "Judge calls per second, by outcome.", "reqps",
         _rate(semconv.METRIC_JUDGE_CALLS, _JUDGE_MODEL, OUTCOME)),
        ("Judge latency", "95 percent of the calls took at most so long, retries included.", "s",
         _by(quantile(semconv.METRIC_JUDGE_DURATION, 0.95, (_JUDGE_MODEL,)), _JUDGE_MODEL)),
        ("Tokens", "Tokens that judges used, a second, by kind.", "cps",
         _rate(semconv.METRIC_JUDGE_TOKENS, _JUDGE_MODEL, _TOKENS)),
        ("Spend an hour", "What judges cost in an hour at this pace, where prices are known.", "currencyUSD",
         _by(f"3600 * {_rate(semconv.METRIC_JUDGE_COST, _JUDGE_MODEL).expression}", _JUDGE_MODEL)),
    ):  # fmt: skip
        board.graph(title, text, unit, query, stacked=unit != "s")
    text = "Circuit breaker of each judge's endpoint, the worst of all processes. Open: the judge is not called."
    steps: Steps = ((None, "green"), (1, "yellow"), (2, "red"))
    breaker = _latest(semconv.METRIC_JUDGE_BREAKER, _JUDGE)
    board.value("Breaker", text, "none", breaker, steps=steps, texts=_BREAKER, width=12, height=6)
    if plan.has_spend_limit:
        text = "What is left for judges in the minute and the day, of the account with the least. At 0 none is called."
        steps = ((None, "red"), (1e-9, "green"))
        left = _latest(semconv.METRIC_JUDGE_BUDGET, _PERIOD, how="min")
        board.value("Budget left", text, "currencyUSD", left, steps=steps, width=12, height=6)


def _host(board: Board) -> None:
    board.row("Is load shed?")
    steps: Steps = ((None, "green"), (1, "yellow"), (2, "orange"), (3, "red"))
    level, text = _latest(semconv.METRIC_SAMPLING_LEVEL, *_WHERE), "How far load shedding has reduced sampling."
    board.value("Sampling level", text, "none", level, steps=steps, texts=_LEVELS, width=8, height=8)
    for title, text, instrument in (
        ("Drain time", "Estimated time until the queued responses are evaluated.", semconv.METRIC_QUEUE_DRAIN_TIME),
        ("Event loop lag", "Greatest lateness of the host's event loops in a minute, where one is known.",
         semconv.METRIC_LOOP_LAG),
    ):  # fmt: skip
        board.graph(title, text, "s", _latest(instrument, *_WHERE), width=8)


# --- queries and texts ---


def guarded(static: str) -> str:
    """Text of a query that comes from names, with nothing in it that Grafana would replace."""
    return static.replace("$", "\\x24").replace("[[", "\\x5b[")


def of_planned(planned: PlannedCriterion) -> str:
    """Matches the results of one criterion, of its own agents as far as they are chosen."""
    return joined(OF_AGENT, guarded(promql.matchers_of(planned)))


def of_names(names: Iterable[str]) -> str:
    return joined(OF_AGENT, guarded(one_of(CRITERION, tuple(names))))


def quantile(instrument: Instrument, of: float, by: tuple[str, ...] = (), matchers: str = PROCESS) -> str:
    labels = ", ".join(("le", *by))
    counted = f"rate({instrument.prometheus_name}_bucket{{{matchers}}}[{EACH}])"
    # Without traffic the quantile is NaN, which is not 0 or more.
    return f"histogram_quantile({of:g}, sum by ({labels}) ({counted})) >= 0"


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
    return events(planned.name, guarded(promql.agents_of(planned)), worst)


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
