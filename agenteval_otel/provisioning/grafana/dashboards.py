"""The dashboards of quality: overview, one criterion, releases.

Their queries use Grafana's variables.

Their rates and means are recorded series (`promql.estimates`) of the window that is chosen. The raw
variant does without them: short queries of the counters, and Grafana's expressions over these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agenteval_otel import semconv
from agenteval_otel.models.intervals import FEWEST_BASELINE, FEWEST_UNITS
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana.boards import (
    BAND,
    COUNT,
    EACH,
    LIMIT,
    LOST,
    SERVICE,
    SERVICES,
    WHOLE,
    WINDOW,
    Board,
    BoardOptions,
    Column,
    PanelLink,
    PanelQuery,
    Steps,
    quantile,
    uid_of,
)
from agenteval_otel.provisioning.grafana.operations import operations, rate
from agenteval_otel.provisioning.grafana.texts import criterion_text
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import (
    AGENT,
    CRITERION,
    ENVIRONMENT,
    FEW,
    LABEL,
    MODEL,
    OUTCOME,
    VERSION,
    Z,
    joined,
    label_name,
)

# Between backticks nothing is escaped twice.
_CHOSEN_AGENT = f"{AGENT}=~`${{agent:regex}}`"
OF_AGENT = f"{SERVICE}, {_CHOSEN_AGENT}"
OF_CRITERION = f'{OF_AGENT}, {CRITERION}="$criterion"'
_NORMALIZED = label_name(semconv.SCORE_NORMALIZED)
_LATE = label_name(semconv.EVALUATION_LATE)
_ANSWERED = label_name(semconv.RESPONSE_ENDED_AT)
# The time that Grafana shows of an event is that of the evaluation.
_WITH_BOTH_TIMES = (
    f"line_format `{{{{__line__}}}}{{{{if .{_ANSWERED}}}}}, answered {{{{.{_ANSWERED}}}}}{{{{end}}}}"
    f"{{{{if .{_LATE}}}}}, late: {{{{.{_LATE}}}}}{{{{end}}}}`"
)
_SUITE = label_name(semconv.TEST_SUITE)
WEIGHTED = " Each answer counts for as many as it stands for (1/probability), where its probability is known."
SAMPLED = "|".join(
    outcome for outcome in semconv.OUTCOMES if outcome not in (*semconv.NOT_WANTED, semconv.SHED)
)
COVERED = f"{semconv.EVALUATED}|{semconv.SENT}"
_OWN_ANSWERS = f'{OUTCOME}!="{semconv.ALREADY_MONITORED}"'
_SCORE = semconv.METRIC_SCORE.prometheus_name
_REASON = label_name(semconv.REASON_CODE)
_ERROR = label_name(semconv.ERROR_TYPE)
_IN_WINDOW = " Each point is of the answers evaluated in the $window before it."
_BAND = (
    f"{_IN_WINDOW} The band is the 95 percent interval, by conversation. The bars count the {COUNT} behind it. "
    f"Few of them make a wide band. Fewer than {FEWEST_UNITS} conversations or traces, or {FEWEST_BASELINE} answers "
    "that sampling did not prefer, make none."
)
_ONE_SERVICE = " The band is drawn where one service is chosen, and each service has a line."
_COUNTED = f" The column `{COUNT}` says how many stand behind a row."
_LOW = 0.1
_LOST_STEPS: Steps = ((None, "green"), (0.01, "red"))
_BREACHES: Steps = ((None, "green"), (1, "red"))
_STATES = {"0": ("no breach", "green"), "1": ("breach", "red")}
_ROWS = {**SERVICES, AGENT: "agent", CRITERION: "criterion"}
_LEGEND = f"{{{{{CRITERION}}}}} {{{{{AGENT}}}}}"
_OF_SERVICE = f"{{{{job}}}} {{{{{ENVIRONMENT}}}}}"
# The row's service and not the chosen ones: bands are of one.
_DETAILS = (
    f"/d/{uid_of('criterion')}?${{__url_time_range}}&${{prometheus_datasource:queryparam}}&${{window:queryparam}}"
    "&${environment:queryparam}&${agent:queryparam}&var-job=${__data.fields.service:percentencode}"
    "&var-criterion=${__value.raw:percentencode}"
)
# A criterion without an objective has no number here, which has the colour of the first step.
_TO_OBJECTIVE: Steps = (
    (None, "transparent"),
    (-1.0, "rgba(255, 152, 48, 0.3)"),
    (0.0, "rgba(115, 191, 105, 0.2)"),
)
_MEANS = "Mean scores: for criteria without verdicts, and for how far answers fail"


def files_of(plan: MonitoringPlan, options: BoardOptions) -> GeneratedFiles:
    """Return the overview, one criterion and releases (if there are criteria), and operations."""
    files: dict[str, str] = {}
    files |= _overview(plan, options)
    if plan.criteria:
        files |= _criterion(plan, options)
        files |= _releases(plan, options)
    files |= operations(plan, options)
    return files


# --- overview ---


def _overview(plan: MonitoringPlan, options: BoardOptions) -> GeneratedFiles:
    board = Board(plan, "overview", "Quality now, against its objectives.", options)
    board.mark_versions()
    board.choose_agents()
    board.choose_window()
    _at_a_glance(board)
    if plan.criteria:
        board.row("Quality in the last $window")
        _now(board)
        board.row("Quality over time")
        _over_time(board)
        board.row(_MEANS, is_collapsed=bool(plan.names_with_verdicts))
        _means_of_all(board)
    _traffic(board)
    if plan.criteria:
        board.row("Criteria")
        board.markdown(
            "Criteria",
            "What is scored, by the settings.",
            "\n\n".join(map(criterion_text, plan.criteria)),
        )
    return board.files()


def _at_a_glance(board: Board) -> None:
    breaches = PanelQuery(f"sum(max by ({', '.join(_ROWS)}) ({_breach()}))", "breaches")
    text = "Objectives in breach now, as a process detected them. The table below shows the answers behind each."
    board.value("Breaches", text, "short", breaches, steps=_BREACHES, width=4, height=4)
    calls = PanelQuery(promql.increase(semconv.METRIC_RESPONSES, OF_AGENT, WHOLE), "responses")
    text = "Calls of monitored handlers in the time shown."
    board.value("Responses", text, "short", calls, width=5, height=4)
    sampled = PanelQuery(share(SAMPLED, window=WHOLE), "sampled")
    text = "Share of the responses that were sampled."
    board.value("Sampling rate", text, "percentunit", sampled, width=5, height=4)
    evaluated = PanelQuery(share(COVERED, window=WHOLE), "evaluated")
    text = "Share of all responses that were evaluated to the end, or sent to the sidecar."
    board.value("Coverage", text, "percentunit", evaluated, width=5, height=4)
    lost = PanelQuery(share(LOST, SAMPLED, window=WHOLE), "lost")
    text = "Share of the sampled responses that were dropped or failed. Red from 1 percent."
    board.value("Lost", text, "percentunit", lost, steps=_LOST_STEPS, width=5, height=4)


def _now(board: Board) -> None:
    rows = tuple(_ROWS)
    state = Column(f"max by ({', '.join(rows)}) ({_breach()})", "objective is", texts=_STATES)
    limit = Column(f"max by ({', '.join(rows)}) (agenteval:objective{{{OF_AGENT}}})", "objective")
    text = f"Share of answers that pass, with its 95 percent interval.{WEIGHTED}{_COUNTED}{_which(board)}"
    corrected = _corrected(board, rows)
    columns = [*_rates(board, OF_AGENT, rows), *corrected]
    if not board.is_raw:
        text += " A row is orange where its rate is below the objective, which may be chance, else green."
        columns += [limit, _to_objective(OF_AGENT, rows)]
    columns += [state, _answers(board, OF_AGENT, rows)]
    links = _links(board, "${__data.fields.criterion:percentencode}", _ROW_AGENT, at_point=False)
    board.tabular("Pass rate", text, _ROWS, *columns, link=_DETAILS, links=links)


def _to_objective(matchers: str, by: Sequence[str]) -> Column:
    difference = f"{_series('pass_rate', matchers)} - agenteval:objective{{{matchers}}}"
    expression = f"max by ({', '.join(by)}) ({difference})"
    return Column(expression, "to objective", row_steps=_TO_OBJECTIVE)


def _means_of_all(board: Board) -> None:
    rows = tuple(_ROWS)
    text = f"Mean of the scores, from 0, worst, to 1, best, with its 95 percent interval.{WEIGHTED}{_COUNTED}"
    columns = [*_means(board, OF_AGENT, rows), _scored(board, OF_AGENT, rows)]
    board.tabular("Mean score", text, _ROWS, *columns, link=_DETAILS)
    text = (
        f"Mean of the scores, from 0, worst, to 1, best.{_IN_WINDOW} How many those are: the table "
        f"above.{WEIGHTED}"
    )
    query = PanelQuery(_estimate(board, "mean_score", OF_AGENT, rows), f"{_LEGEND} {_OF_SERVICE}")
    board.graph("Mean score over time", text, "percentunit", query, width=24)


_ROW_AGENT = "${__data.fields.agent:percentencode}"
_TIME_SHOWN = "since=${__from:date:seconds}&until=${__to:date:seconds}"


def _links(
    board: Board, criterion: str, agent: str, *, at_point: bool = True
) -> tuple[PanelLink, ...]:
    """Return links to the failing answers in the pages, if there are pages.

    The list has the newest answer first, so up to a point it begins with that of the point.
    """
    if not board.pages:
        return ()
    begins = (
        f"{board.pages}/answers?agent={agent}&criterion={criterion}&outcome=fail&time=evaluated"
    )
    links = [PanelLink("Failing answers in the time shown", f"{begins}&{_TIME_SHOWN}")]
    if at_point:
        until = "until=${__value.time:date:seconds}"
        links.insert(0, PanelLink("Failing answers up to this point", f"{begins}&{until}"))
    return tuple(links)


def _which(board: Board) -> str:
    """Return which estimate a panel shows if judges are asked. Else the text is empty."""
    if not board.plan.is_judged:
        return ""
    if board.is_raw or not board.plan.is_calibrated:
        return " As the judges say: not corrected for their errors."
    return " `pass rate` is as the judges say. `corrected` is without their errors, where a calibration record exists."


def _corrected(board: Board, rows: Sequence[str]) -> list[Column]:
    if board.is_raw or not board.plan.is_calibrated:
        return []
    ends = {"": "corrected", "_low": "corrected, at least", "_high": "corrected, at most"}
    return [
        Column(_estimate(board, f"corrected_pass_rate{end}", OF_AGENT, rows), title)
        for end, title in ends.items()
    ]


def _over_time(board: Board) -> None:
    rows = tuple(_ROWS)
    legend = f"{_LEGEND} {_OF_SERVICE}"
    labels = "${__field.labels.%s:percentencode}"
    links = _links(board, labels % CRITERION, labels % AGENT)
    query = PanelQuery(_estimate(board, "pass_rate", OF_AGENT, rows), legend)
    text = f"Share of answers that pass.{_IN_WINDOW} How many those are: the table above.{WEIGHTED}"
    board.graph("Pass rate over time", text, "percentunit", query, width=24, links=links)
    failed = promql.verdict_count(OF_AGENT, EACH, rows, label=semconv.LABEL_FAIL)
    results = promql.increase(semconv.METRIC_RESULTS, OF_AGENT, EACH, rows)
    for title, text, expression in (
        ("Failing results", "Results that fail, unweighted.", failed),
        ("Results", "Results with a score or a label, unweighted.", results),
    ):
        query = PanelQuery(expression, legend)
        board.graph(title, text, "short", query, stacked=True, sparse=True, links=links)


def _traffic(board: Board) -> None:
    board.row("What it speaks for")
    outcomes = rate(semconv.METRIC_RESPONSES, OUTCOME, matchers=OF_AGENT)
    text = "Calls of monitored handlers per second, by outcome."
    board.graph("Responses by outcome", text, "reqps", outcomes, stacked=True)
    both = (PanelQuery(share(SAMPLED), "sampling rate"), PanelQuery(share(COVERED), "coverage"))
    text = (
        "Share of the responses that were sampled, and that were evaluated to the end or sent to the sidecar. The gap "
        "was lost."
    )
    board.graph("Sampling rate and coverage", text, "percentunit", *both)


# --- one criterion: certainty of its pass rate, spread, worst traces ---


def _criterion(plan: MonitoringPlan, options: BoardOptions) -> GeneratedFiles:
    text = "One criterion: pass rate, spread, agents, models, worst traces."
    board = Board(plan, "criterion", text, options)
    board.mark_versions()
    board.choose_criterion()
    board.choose_window()
    for attribute in plan.dimensions:
        board.choose_dimension(_variable(attribute), label_name(attribute), OF_CRITERION)
    board.choose_events()
    has_verdicts = bool(plan.names_with_verdicts)
    board.row("$criterion over time")
    _pass_rate_of_agents(board)
    _parts(board)
    board.row(_MEANS, is_collapsed=has_verdicts)
    _mean_of_agents(board)
    for attribute in plan.dimensions:
        _by_dimension(board, attribute, plan)
    _scores(board, plan)
    _failures(board, calls_model=any(planned.calls_model for planned in plan.criteria))
    return board.files()


def _pass_rate_of_agents(board: Board) -> None:
    text = f"Share of answers that pass. The dashed line is the objective.{_BAND}{WEIGHTED}"
    lines = _pass_rate_math()
    if not board.is_raw:
        text += _ONE_SERVICE
        lines = _recorded("pass_rate", "objective", "pass rate", "answers")
    links = _links(board, "${criterion:percentencode}", "${agent:percentencode}")
    board.graph(
        "Pass rate of $agent",
        text,
        "percentunit",
        *lines,
        width=24,
        for_each="agent",
        links=links,
    )


def _mean_of_agents(board: Board) -> None:
    line = "The dashed line is the threshold of its alert"
    text = f"Mean score, from 0, worst, to 1, best. {line}.{_BAND}{WEIGHTED}"
    lines = _mean_math()
    if not board.is_raw:
        text += _ONE_SERVICE
        lines = _recorded("mean_score", "threshold", "mean", "scored")
    board.graph("Mean score of $agent", text, "percentunit", *lines, width=24, for_each="agent")


def _recorded(word: str, limit: str, legend: str, counted: str) -> list[PanelQuery]:
    upper, lower = BAND
    services = f"max by ({', '.join(SERVICES)})"
    limits = f"max(agenteval:{limit}{{{OF_CRITERION}}})"
    return [
        PanelQuery(_of_one_service(_series(f"{word}_high", OF_CRITERION)), upper),
        PanelQuery(_of_one_service(_series(f"{word}_low", OF_CRITERION)), lower),
        PanelQuery(f"{services} ({_series(word, OF_CRITERION)})", f"{legend} {_OF_SERVICE}"),
        PanelQuery(limits, LIMIT),
        PanelQuery(f"sum({_series(counted, OF_CRITERION)})", COUNT),
    ]


def _of_one_service(series: str) -> str:
    """Return the series if no other service has it: two bands would be filled as one."""
    return f"{series} and on () count({series}) == 1"


def _inputs(*words: str) -> list[PanelQuery]:
    return [PanelQuery(promql.sum_of(word, OF_CRITERION, WINDOW), word, "input") for word in words]


def _pass_rate_math() -> list[PanelQuery]:
    """Return the queries that compute as `promql.estimates`.

    Comparisons are 0 or 1, and nothing is filtered.
    """
    both = "(${passed} + ${failed})"
    squares = "(${passed_w2} + ${failed_w2})"
    apart = f"(${{failed}} ** 2 * ${{passed_w2}} + ${{passed}} ** 2 * ${{failed_w2}}) / {both} ** 4"
    fails = "(1 - ${rate})"
    residuals = f"(${{unit_failed_w2}} - 2 * {fails} * ${{unit_failed}} + {fails} ** 2 * ${{unit_weight_w2}})"
    enough_passed = f"(${{passed}} * {both} / {squares} >= {FEW})"
    enough_failed = f"(${{failed}} * {both} / {squares} >= {FEW})"
    enough = f"{enough_passed} * {enough_failed}"
    by_unit = f"{residuals} * {_unbiased('answers')} / {both} ** 2"
    exact = "(${rate} * (1 - ${rate}) + 1e-9) / (${variance} + 1e-18)"  # of no variance: very many
    total = f"(${{verdicts}} + {Z * Z:.4f})"
    wider = f"(1 - ${{enough}}) * {Z * Z:.4f} * ${{verdicts}} * (${{rate}} - 0.5) ** 2 / {total}"
    spread = f"${{verdicts}} * ${{rate}} * (1 - ${{rate}}) + {Z * Z / 4:.4f} + {wider}"
    root = f"{Z} * ({spread}) ** 0.5"

    def end(sign: str) -> str:
        return f"(${{verdicts}} * ${{rate}} + {Z * Z / 2:.4f} {sign} {root}) / {total}"

    return [
        *_inputs("passed", "failed", "passed_w2", "failed_w2", "answers", "units"),
        *_inputs("unit_weight_w2", "unit_failed", "unit_failed_w2", "preferred"),
        PanelQuery(f"${{passed}} / {both}", "rate", "math"),
        PanelQuery(enough, "enough", "hidden math"),
        PanelQuery(apart, "apart", "hidden math"),
        PanelQuery(by_unit, "by_unit", "hidden math"),
        PanelQuery(_larger("apart", "by_unit"), "variance", "hidden math"),
        PanelQuery(f"{both} ** 2 / {squares}", "of_answers", "hidden math"),
        PanelQuery(f"{both} ** 2 / ${{unit_weight_w2}}", "of_units", "hidden math"),
        PanelQuery(_smaller("of_answers", "of_units"), "kish", "hidden math"),
        PanelQuery(exact, "exact", "hidden math"),
        PanelQuery(_smaller("exact", "kish"), "fewer", "hidden math"),
        PanelQuery("${enough} * ${exact} + (1 - ${enough}) * ${fewer}", "verdicts", "hidden math"),
        PanelQuery(_shown("answers"), "shown", "hidden math"),
        PanelQuery(end("+"), "above", "hidden math"),
        PanelQuery(end("-"), "below", "hidden math"),
        PanelQuery("(${above} + 1 - abs(${above} - 1)) / 2 + ${shown}", BAND[0], "math"),
        PanelQuery("(${below} + abs(${below})) / 2 + ${shown}", BAND[1], "math"),
        PanelQuery(promql.verdict_count(OF_CRITERION, WINDOW), COUNT),
    ]


def _mean_math() -> list[PanelQuery]:
    residuals = (
        "(${unit_score_w2} - 2 * ${mean} * ${unit_score} + ${mean} ** 2 * ${unit_weight_w2})"
    )
    apart = "${score_squared_w2} - 2 * ${mean} * ${score_w2} + ${mean} ** 2 * ${weight_w2}"
    half = f"{Z} * abs(${{spread}}) ** 0.5 / ${{weight}} + ${{shown}}"
    return [
        *_inputs("weight", "score", "scored", "units", "preferred"),
        *_inputs("unit_weight_w2", "unit_score", "unit_score_w2"),
        *_inputs("weight_w2", "score_w2", "score_squared_w2"),
        PanelQuery("${score} / ${weight}", "mean", "math"),
        PanelQuery(apart, "apart", "hidden math"),
        PanelQuery(f"{residuals} * {_unbiased('scored')}", "by_unit", "hidden math"),
        PanelQuery(_larger("apart", "by_unit"), "spread", "hidden math"),
        PanelQuery(_shown("scored"), "shown", "hidden math"),
        PanelQuery(half, "half", "hidden math"),
        PanelQuery("${mean} + ${half}", BAND[0], "math"),
        PanelQuery("${mean} - ${half}", BAND[1], "math"),
        PanelQuery(promql.score_count(OF_CRITERION, WINDOW), COUNT),
    ]


def _unbiased(count: str) -> str:
    """Return the factor that removes the bias of a variance by units."""
    few = "((${units} < 2) * (2 - ${units}))"
    return f"(1 + (${{units}} + 0.5 < ${{{count}}}) / (${{units}} - 1 + {few}))"


def _shown(count: str) -> str:
    """Return 0, or no number if no interval may be shown."""
    enough = f"(${{{count}}} - ${{preferred}} >= {FEWEST_BASELINE})"
    return f"0 / ((${{units}} >= {FEWEST_UNITS}) * {enough})"


def _smaller(left: str, right: str) -> str:
    return f"(${{{left}}} + ${{{right}}} - abs(${{{left}}} - ${{{right}}})) / 2"


def _larger(left: str, right: str) -> str:
    return f"(${{{left}}} + ${{{right}}} + abs(${{{left}}} - ${{{right}}})) / 2"


def _parts(board: Board) -> None:
    board.row("By agent and model in the last $window")
    agents = {**SERVICES, AGENT: "agent"}
    by_agent = tuple(agents)
    columns = [*_rates(board, OF_CRITERION, by_agent)]
    if not board.is_raw:
        columns.append(_to_objective(OF_CRITERION, by_agent))
    columns.append(_answers(board, OF_CRITERION, by_agent))
    text = f"Pass rate with its 95 percent interval.{WEIGHTED}{_COUNTED}"
    links = _links(board, "${criterion:percentencode}", _ROW_AGENT, at_point=False)
    board.tabular("By agent", text, agents, *columns, width=12, links=links)
    models = {**agents, MODEL: "model"}
    by_model = tuple(models)
    level = "agenteval_model"
    rates = _rates(board, OF_CRITERION, by_model, level=level)
    text = f"Pass rate with its 95 percent interval. Answers count one by one.{WEIGHTED}{_COUNTED}"
    answers = _answers(board, OF_CRITERION, by_model, level=level)
    board.tabular("By model", text, models, *rates, answers, width=12)


def _by_dimension(board: Board, attribute: str, plan: MonitoringPlan) -> None:
    name = _variable(attribute)
    label = label_name(attribute)
    matchers = joined(OF_CRITERION, *_dimensions(plan))
    keys = {**SERVICES, label: name}
    by = tuple(keys)
    for title, word, columns, counted in (
        ("Pass rate", "pass_rate", _rates, _answers),
        ("Mean score", "mean_score", _means, _scored),
    ):
        is_second = word == "mean_score" and bool(plan.names_with_verdicts)
        board.row(f"{title} by {name} in the last $window", is_collapsed=is_second)
        text = f"{title} with its 95 percent interval.{WEIGHTED}{_COUNTED}"
        shown = (
            *columns(board, matchers, by, level=label),
            counted(board, matchers, by, level=label),
        )
        board.tabular(f"{title} by {name}", text, keys, *shown, width=12)
        legend = f"{{{{{label}}}}} {_OF_SERVICE}"
        query = PanelQuery(_estimate(board, word, matchers, by, level=label), legend)
        text = f"{title}.{_IN_WINDOW} How many: the table above."
        board.graph(f"{title} by {name} over time", text, "percentunit", query)


def _variable(attribute: str) -> str:
    return label_name(attribute.removeprefix("agenteval.").removeprefix("tag."))


def _dimensions(plan: MonitoringPlan) -> tuple[str, ...]:
    """Return matchers of the chosen values of the dimensions, for selectors and for LogQL alike."""
    return tuple(
        f"{label_name(attribute)}=~`${{{_variable(attribute)}:regex}}`"
        for attribute in plan.dimensions
    )


def _scores(board: Board, plan: MonitoringPlan) -> None:
    chosen = _dimensions(plan)
    matchers = joined(OF_CRITERION, *chosen)
    board.row("Scores and their traces")
    by_bucket = f"sum by (le) (increase({_SCORE}_bucket{{{matchers}}}[{EACH}]))"
    buckets = PanelQuery(by_bucket, "{{le}}")
    text = "How many answers had which score, unweighted. Points are exemplars: a click on one leads to its trace."
    board.distribution("Distribution of scores", text, "percentunit", buckets)
    lowest = PanelQuery(quantile(semconv.METRIC_SCORE, _LOW, matchers=matchers), "lowest tenth")
    text = (
        "A tenth of the evaluated answers score at or below the line, unweighted. Where bad answers are sampled more "
        "often, fewer of all answers do. "
        "The lowest points are the worst traces: a click opens one."
    )
    board.graph(
        "Worst scores, with their traces", text, "percentunit", lowest, exemplars=True, sparse=True
    )
    counts = PanelQuery(
        promql.increase(semconv.METRIC_RESULTS, matchers, EACH, (LABEL,)), f"{{{{{LABEL}}}}}"
    )
    board.graph(
        "Results", "Results by label, unweighted.", "short", counts, stacked=True, sparse=True
    )
    reasons = f"sum by ({_REASON}) (count_over_time({_failing(*chosen)} [$__auto]))"
    worst = "results that fail, or without a label lie in the lower half of the scale"
    board.log_graph(
        "Reasons",
        f"Events of {worst}, by the evaluator's reason.",
        PanelQuery(reasons, f"{{{{{_REASON}}}}}"),
    )
    text = (
        f"Events of {worst}, the newest first by the time of the evaluation. The line says when the "
        "answer was given. Opened, each leads to its trace."
    )
    board.events_list(
        "Worst results", text, PanelQuery(f"{_failing(*chosen)} | {_WITH_BOTH_TIMES}")
    )


def _failures(board: Board, *, calls_model: bool) -> None:
    board.row("The evaluator itself")
    matchers = f'{SERVICE}, {CRITERION}="$criterion"'
    errors = PanelQuery(
        promql.increase(semconv.METRIC_ERRORS, matchers, EACH, (_ERROR,)), f"{{{{{_ERROR}}}}}"
    )
    text = "Evaluations that broke, by error. They are no scores and count in no rate above. Empty is good."
    board.graph("Errors of the evaluator", text, "short", errors, stacked=True, sparse=True)
    broken = PanelQuery(events(f'{_ERROR}!=""', _WITH_BOTH_TIMES))
    board.events_list("Events of these errors", "Evaluations that broke. Empty is good.", broken)
    if calls_model:
        durations = (
            PanelQuery(quantile(semconv.METRIC_DURATION, of, matchers=matchers), f"{of * 100:g} %")
            for of in (0.5, 0.95)
        )
        text = "How long an evaluation took that asks a model: half and 95 percent of them at most so long."
        board.graph("Duration", text, "s", *durations)


# --- releases: how versions differ, criterion by criterion, and how sure the difference is ---


def _releases(plan: MonitoringPlan, options: BoardOptions) -> GeneratedFiles:
    board = Board(plan, "releases", "One version of the service beside another.", options)
    board.mark_versions()
    board.choose_agents()
    board.choose_window()
    board.choose_versions()
    rows = tuple(_ROWS)
    for title, word, counted in (
        ("Pass rate", "pass_rate", _answers),
        ("Mean score", "mean_score", _scored),
    ):
        is_second = word == "mean_score" and bool(plan.names_with_verdicts)
        board.row(title, is_collapsed=is_second)
        if board.is_raw:
            text = f"{title} of both versions in the last $window.{WEIGHTED}"
            columns = _sides(board, word, rows)
        else:
            text = (
                "Candidate less baseline in the last $window, with its 95 percent interval. "
                f"Above 0: better.{WEIGHTED}"
            )
            columns = [*_sides(board, word, rows), *_differences(word, rows)]
        counts = []
        for version in _VERSIONS:
            matchers = _of_version(version)
            heading = f"{COUNT} {version}"
            counts.append(counted(board, matchers, rows, heading, level="agenteval_version"))
        text += f" The columns `{COUNT} …` say how many stand behind it."
        table_title = f"{title} of both" if board.is_raw else f"{title}: difference"
        board.tabular(table_title, text, _ROWS, *columns, *counts)
        query = PanelQuery(
            _estimate(board, word, OF_AGENT, (VERSION, *rows), level="agenteval_version"),
            f"{{{{{VERSION}}}}} {_LEGEND} {_OF_SERVICE}",
        )
        text = f"{title} by version.{_IN_WINDOW} How many those are: the table above.{WEIGHTED}"
        board.graph(f"{title} by version", text, "percentunit", query)
        query = PanelQuery(
            promql.increase(semconv.METRIC_RESULTS, OF_AGENT, EACH, (VERSION, *SERVICES)),
            f"{{{{{VERSION}}}}} {_OF_SERVICE}",
        )
        if word == "pass_rate":
            text = "Results of each version: when it was in use, and how many there are to compare."
            board.graph("Results by version", text, "short", query, stacked=True, sparse=True)
    return board.files()


_VERSIONS: Final = ("baseline", "candidate")


def _of_version(name: str) -> str:
    return f'{OF_AGENT}, {VERSION}="${name}"'


def _sides(board: Board, word: str, by: Sequence[str]) -> list[Column]:
    return [
        Column(_estimate(board, word, _of_version(name), by, level="agenteval_version"), name)
        for name in _VERSIONS
    ]


def _differences(word: str, by: Sequence[str]) -> list[Column]:
    """Return the columns of Newcombe's interval of pass rates.

    For means the squares of both halves add up, which is the same expression.
    """
    before = _series(word, _of_version("baseline"), "agenteval_version")
    after = _series(word, _of_version("candidate"), "agenteval_version")
    high_before = _series(f"{word}_high", _of_version("baseline"), "agenteval_version")
    high_after = _series(f"{word}_high", _of_version("candidate"), "agenteval_version")
    # Without matchers of their own: the labels of the other side select the same series.
    low = f"agenteval_version:{word}_low:{WINDOW}"
    rate = f"agenteval_version:{word}:{WINDOW}"
    ignoring = f"ignoring ({VERSION})"
    labels = ", ".join(by)
    difference = f"{after} - {ignoring} {before}"
    below = f"sqrt(({after} - {low}) ^ 2 + {ignoring} ({high_before} - {rate}) ^ 2)"
    above = f"sqrt(({high_after} - {rate}) ^ 2 + {ignoring} ({before} - {low}) ^ 2)"
    headings = {
        "difference": difference,
        "at least": f"{difference} - {below}",
        "at most": f"{difference} + {above}",
    }
    return [
        Column(f"max by ({labels}) ({expression})", heading)
        for heading, expression in headings.items()
    ]


# --- queries and texts ---


def _series(word: str, matchers: str, level: str = "agenteval") -> str:
    """Return a recorded estimate of the chosen window."""
    return f"{level}:{word}:{WINDOW}{{{matchers}}}"


def _estimate(
    board: Board, word: str, matchers: str, by: Sequence[str], *, level: str = "agenteval"
) -> str:
    """Return a recorded estimate with these labels.

    Raw, it is the ratio of the sums of weights, which know no other weight.
    """
    if not board.is_raw:
        return f"max by ({', '.join(by)}) ({_series(word, matchers, level)})"
    if word == "mean_score":
        scores = promql.increase(semconv.METRIC_WEIGHTED_SCORE, matchers, WINDOW, by)
        weights = promql.increase(semconv.METRIC_WEIGHT, matchers, WINDOW, by)
        return f"{scores} / ({weights} > 0)"
    is_pass = f'{LABEL}=~"{semconv.LABEL_PASS}"'
    is_verdict = f'{LABEL}=~"{semconv.LABEL_PASS}|{semconv.LABEL_FAIL}"'
    passed = promql.increase(semconv.METRIC_WEIGHT, joined(matchers, is_pass), WINDOW, by)
    both = promql.increase(semconv.METRIC_WEIGHT, joined(matchers, is_verdict), WINDOW, by)
    return f"{passed} / ({both} > 0)"


def _with_ends(
    board: Board, word: str, heading: str, matchers: str, by: Sequence[str], level: str
) -> list[Column]:
    titles = {word: heading}
    if not board.is_raw:
        titles |= {f"{word}_low": "at least", f"{word}_high": "at most"}
    return [
        Column(_estimate(board, name, matchers, by, level=level), title)
        for name, title in titles.items()
    ]


def _rates(
    board: Board, matchers: str, by: Sequence[str], *, level: str = "agenteval"
) -> list[Column]:
    return _with_ends(board, "pass_rate", "pass rate", matchers, by, level)


def _means(
    board: Board, matchers: str, by: Sequence[str], *, level: str = "agenteval"
) -> list[Column]:
    return _with_ends(board, "mean_score", "mean score", matchers, by, level)


def _answers(
    board: Board,
    matchers: str,
    by: Sequence[str],
    heading: str = COUNT,
    *,
    level: str = "agenteval",
) -> Column:
    """Return the column of how many results passed or failed."""
    if board.is_raw:
        return Column(promql.verdict_count(matchers, WINDOW, by), heading, "short")
    return Column(_estimate(board, "answers", matchers, by, level=level), heading, "short")


def _scored(
    board: Board,
    matchers: str,
    by: Sequence[str],
    heading: str = COUNT,
    *,
    level: str = "agenteval",
) -> Column:
    if board.is_raw:
        return Column(promql.score_count(matchers, WINDOW, by), heading, "short")
    return Column(_estimate(board, "scored", matchers, by, level=level), heading, "short")


def _breach() -> str:
    return f"{semconv.METRIC_OBJECTIVE_BREACH.prometheus_name}{{{OF_AGENT}}}"


def share(outcomes: str, of_outcomes: str = "", *, window: str = EACH) -> str:
    """Return the share of calls with one of the outcomes, among the calls with `of_outcomes`.

    Both are patterns. By default `of_outcomes` are all outcomes except ``already_monitored``.
    """
    is_counted = f'{OUTCOME}=~"{outcomes}"'
    is_among = f'{OUTCOME}=~"{of_outcomes}"' if of_outcomes else _OWN_ANSWERS
    counted = promql.increase(semconv.METRIC_RESPONSES, joined(OF_AGENT, is_counted), window)
    among = promql.increase(semconv.METRIC_RESPONSES, joined(OF_AGENT, is_among), window)
    return f"({counted} or 0 * {among}) / ({among} > 0)"


def events(*stages: str) -> str:
    """Return the query of the events of the criterion's results, LogQL, with further stages.

    The variable says whether late results, or replayed ones, are among them.
    """
    named = (
        f'event_name="{semconv.EVENT_RESULT}"',
        f'{CRITERION}="$criterion"',
        _CHOSEN_AGENT,
        f"{_LATE}=~`${{late:raw}}`",
        f'{_SUITE}=""',
    )
    return '{service_name=~"$service"} | ' + " | ".join((*named, *stages))


def _failing(*stages: str) -> str:
    """Return the query of the events of results that fail.

    Results without a label count as failing if they are in the lower half.
    """
    return events(
        *stages, f'{LABEL}="{semconv.LABEL_FAIL}" or ({LABEL}="" and {_NORMALIZED} < 0.5)'
    )
