"""Alerts about the monitoring itself: blind, failing, dropping, shedding load, out of budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.rules import (
    HALF_HOUR,
    HOUR,
    QUICK_STEP_S,
    SERVICE,
    SERVICE_TEXT,
    STEPS,
    Alert,
    Scenario,
    Series,
    by,
    counter,
    figure,
    gauge,
    label_text,
    registered,
    scenario,
    window,
)
from agenteval_otel.provisioning.promql import (
    AGENT,
    CRITERION,
    LABEL,
    OUTCOME,
    increase,
    joined,
    label_name,
    one_of,
)

SCRAPE_JOB: Final = "agenteval"
"""The job of prometheus.yml that scrapes the Collector."""
_LEAST_COUNT: Final = 10
"""Calls, failures or losses below which no share of them raises an alert."""
_EXPECTED: Final = 15
"""Results that chance does not keep away: e^-15 where each comes by itself."""
_NEVER_EVALUATED: Final = 200
"""Answers of which some would have a result, were more than one in twenty to have any."""
_LOSS_SHARE: Final = 0.05
_ERROR_SHARE: Final = 0.1
_REFUSED_SHARE: Final = 0.5

_JUDGE = label_name(names.JUDGE_MODEL)
_JUDGE_NAME = label_name(names.JUDGE_NAME)
_CHECK = label_name(names.JUDGE_CHECK)
_PERIOD = label_name(names.JUDGE_PERIOD)
_SIGNAL = label_name(names.EXPORT_SIGNAL)
_BY_AGENT = (*SERVICE, AGENT)
# Evaluators that are tried are in no alert; settings may not know those that decorators bring.
_PRESENT = f'{CRITERION}!~".+[.]shadow"'
_DUE = one_of(OUTCOME, names.NOT_WANTED, sign="!~")
_DUE_HERE = one_of(OUTCOME, (*names.NOT_WANTED, names.SENT), sign="!~")
_SHARE = "{{ $value | humanizePercentage }}"
_JOB: Final = SERVICE_TEXT
_THE_AGENT = label_text(AGENT)
_THE_CRITERION = label_text(CRITERION)
_THE_JUDGE = label_text(_JUDGE)
_JUDGE_CALLED = label_text(_JUDGE_NAME)
_THE_SIGNAL = label_text(_SIGNAL)
_THE_CHECK = label_text(_CHECK)
_AGENT = f"{_THE_AGENT} ({_JOB})"

# Of the scenarios: counts around the minimum, and growth per step that is enough for every minimum.
_FEW: Final = _LEAST_COUNT - 0.5
_ENOUGH: Final = _LEAST_COUNT + 0.5
_PLENTY: Final = 12.0


def _blind_expression(plan: MonitoringPlan, never: int) -> str:
    """Return the expression for results that are missing.

    It is true if there is no result although the last day's results per answer predict enough of
    them, or if there is none in a whole day.

    The last day's answers include those that evaluators skip on purpose (no ground truth, no tool
    calls).
    """
    due_answers = joined(_scored_agents(plan), _DUE_HERE)

    def answers(size: str) -> str:
        return increase(names.METRIC_RESPONSES, due_answers, window(plan, size), _BY_AGENT)

    def results(size: str, kept: tuple[str, ...] = _BY_AGENT) -> str:
        return increase(names.METRIC_RESULTS, _PRESENT, window(plan, size), kept)

    # Of the criterion with the most results: those of several criteria come and stay away together.
    # Not more than the settings evaluate now.
    most = f"max {by(_BY_AGENT)} ({results('1d', (*_BY_AGENT, CRITERION))})"
    each = f"clamp_max({most} / {answers('1d')}, {figure(plan.seen_share)})"
    conditions = []
    for size in ("3m", "30m"):
        conditions.append(f"{answers(size)} * {each} >= {_EXPECTED}\nunless {results(size)} > 0")
    conditions.append(f"{answers('1d')} >= {never}\nunless {results('1d')} > 0")
    return "\nor ".join(conditions)


@registered
def _blind(plan: MonitoringPlan) -> Iterator[Alert]:
    name = "AgentevalMonitorBlind"
    share = plan.seen_share
    never = math.ceil(round(_NEVER_EVALUATED / share, 6))
    plenty = 2.0 * _EXPECTED / 3 / share
    ended = STEPS - 60  # a step is a minute

    def answers(outcome: str = names.EVALUATED, growth: float = plenty) -> Series:
        return _answers(plan, outcome, growth)

    def without_results(outcome: str) -> Series:
        return answers(outcome, 2.0 * never / STEPS)

    def thin(expected: float, step: int = STEPS) -> tuple[Series, ...]:
        """Return series of which at that step so many results are expected of half an hour.

        Each answer had a result until an hour ago.
        """
        growth = expected / 30 * step / ended
        return answers(growth=growth / share), _results(plan, growth, ended)

    ended_1m_ago = _results(plan, plenty, STEPS - 1)
    ended_5m_ago = _results(plan, plenty * share, STEPS - 5)
    few_ended_5m_ago = _results(plan, plenty * share / 20, STEPS - 5)
    too_few = answers(growth=0.98 * never / STEPS)
    just_enough = answers(growth=1.02 * never / STEPS)
    few_an_hour_ago = thin(_EXPECTED + 0.5)
    fewer_an_hour_ago = thin(_EXPECTED - 0.5, ended + 30)
    scenarios = (
        scenario("results arrive", "", answers(), _results(plan, plenty)),
        scenario("results ended a minute ago", "", answers(), ended_1m_ago),
        scenario("results ended five minutes ago", name, answers(), ended_5m_ago),
        scenario("few answers, results ended an hour ago", name, *few_an_hour_ago),
        scenario("fewer answers, results ended an hour ago", "", *fewer_an_hour_ago),
        scenario("most answers are skipped", "", answers(), few_ended_5m_ago),
        scenario("without results, too few", "", too_few),
        scenario("without results, just enough", name, just_enough),
        scenario("all are shed", name, without_results(names.SHED)),
        scenario("none is sampled", "", without_results(names.NOT_SAMPLED)),
        scenario("disabled", "", without_results(names.DISABLED)),
        scenario("already monitored", "", without_results(names.ALREADY_MONITORED)),
        scenario("sent to the sidecar", "", without_results(names.SENT)),
    )
    description = (
        f"The agent {_THE_AGENT} answers, and no answer has got a score for three minutes or longer, where "
        f"at least {_EXPECTED} were to be expected, or none in a day. Their quality is unknown, and no "
        "alert about quality can fire."
    )
    yield Alert(
        name=name,
        for_s=60.0,
        keep_s=300.0,
        severity="page",
        step_s=QUICK_STEP_S,
        expression=_blind_expression(plan, never),
        summary=f"No result for {_AGENT} although it answers",
        description=description,
        scenarios=scenarios,
    )


@registered
def _service_silent(plan: MonitoringPlan) -> Iterator[Alert]:
    """Yield the alert for a service whose metrics end."""
    name = "AgentevalServiceSilent"
    series = names.METRIC_RESPONSES.prometheus_name
    before = f"group {by(SERVICE)} (present_over_time({series}[{window(plan, '1d')}]))"

    def responses(values: str) -> Series:
        return gauge(names.METRIC_RESPONSES, values, {OUTCOME: names.EVALUATED})

    gone_for_3m = responses(f"0x{STEPS - 4} stale _x3")
    just_gone = responses(f"0x{STEPS - 1} stale _x0")
    there = responses(f"0x{STEPS}")
    scenarios = (
        scenario("gone for three minutes", name, gone_for_3m),
        scenario("just gone", "", just_gone),
        scenario("there", "", there),
    )
    description = (
        f"{_JOB} sent metrics of agenteval_otel within the last day and sends none now: its last process "
        "has ended, or cannot reach the Collector. No other alert about it can fire."
    )
    yield Alert(
        name=name,
        expression=f"{before}\nunless group {by(SERVICE)} ({series})",
        for_s=60.0,
        severity="ticket",
        summary=f"{_JOB} sends no metrics any more",
        step_s=QUICK_STEP_S,
        description=description,
        scenarios=scenarios,
    )


@registered
def _collector_down(plan: MonitoringPlan) -> Iterator[Alert]:
    """Yield the alert for a Collector that Prometheus cannot scrape."""
    name = "AgentevalCollectorDown"
    unreachable = Series("up", {}, f"1x{STEPS - 3} 0x2")
    of_another_job = Series("up", {}, f"0x{STEPS}")
    scenarios = (
        scenario(SCRAPE_JOB, name, unreachable),
        scenario("another job", "", of_another_job),
    )
    description = (
        "Metrics of every service behind the Collector {{ $labels.instance }} are missing. Alerts about "
        "them cannot fire."
    )
    yield Alert(
        name=name,
        expression=f'up{{job="{SCRAPE_JOB}"}} == 0',
        for_s=60.0,
        severity="page",
        step_s=QUICK_STEP_S,
        summary="Prometheus cannot scrape the Collector {{ $labels.instance }}",
        description=description,
        scenarios=scenarios,
    )


@registered
def _losing(plan: MonitoringPlan) -> Iterator[Alert]:
    """Yield the alerts for answers that are lost.

    They fire if more than a few answers, and more than a small share of those that should be
    evaluated, ended so.
    """
    size = window(plan, "30m")
    due = increase(names.METRIC_RESPONSES, _DUE, size, _BY_AGENT)

    def series(outcome: str, count: float, share: float) -> tuple[Series, ...]:
        growth = count / HALF_HOUR
        lost = _answers(plan, outcome, growth)
        evaluated = _answers(plan, names.EVALUATED, growth / share - growth)
        not_sampled = _answers(plan, names.NOT_SAMPLED, 1_000.0)
        return lost, evaluated, not_sampled, _results(plan, _PLENTY)

    losses = (
        (
            "AgentevalQueueDropping",
            (names.DROPPED_QUEUE_FULL,),
            "are dropped by a full queue",
            "were dropped because the queue was full. They are losses, not a sample: slow and busy moments are missing "
            "from every rate.",
        ),
        (
            "AgentevalSidecarAway",
            (names.DROPPED_UNSENT,),
            "do not reach the sidecar",
            "did not reach the sidecar: it was away, refused them or had no room. They are losses, not a sample.",
        ),
        (
            "AgentevalPipelineFailing",
            (names.PIPELINE_FAILED, names.CAPTURE_FAILED),
            "cannot be captured or evaluated",
            "failed before any evaluator saw them.",
        ),
    )
    for name, outcomes, summary, what in losses:
        lost = increase(names.METRIC_RESPONSES, one_of(OUTCOME, outcomes), size, _BY_AGENT)
        expression = _above(_LOSS_SHARE, lost, f"{due} > 0")
        scenarios = _around(_LOSS_SHARE, name, outcomes, series)
        description = (
            f"In the last 30 minutes {_SHARE} of the answers of the agent {_THE_AGENT} that should have "
            f"been evaluated {what}"
        )
        yield Alert(
            name=name,
            for_s=600.0,
            severity="ticket",
            expression=expression,
            summary=f"{_SHARE} of the answers of {_AGENT} {summary}",
            description=description,
            scenarios=scenarios,
        )


@registered
def _export_losing(plan: MonitoringPlan) -> Iterator[Alert]:
    name = "AgentevalExportLosing"
    labels = {_SIGNAL: "logs", label_name(names.EXPORT_REASON): "no_room"}
    lost = increase(names.METRIC_EXPORT_LOST, "", window(plan, "30m"), (*SERVICE, _SIGNAL))
    too_few = counter(names.METRIC_EXPORT_LOST, labels, _FEW / HALF_HOUR)
    just_enough = counter(names.METRIC_EXPORT_LOST, labels, _ENOUGH / HALF_HOUR)
    scenarios = (
        scenario("too few are lost", "", too_few),
        scenario("just enough are lost", name, just_enough),
    )
    description = (
        f"In the last 30 minutes {{{{ $value | humanize }}}} items of the signal {_THE_SIGNAL} of {_JOB} "
        "did not arrive: traces and logs have gaps that no score explains."
    )
    yield Alert(
        name=name,
        for_s=300.0,
        severity="ticket",
        expression=f"{lost} >= {_LEAST_COUNT}",
        summary=f"{_THE_SIGNAL} of {_JOB} are lost on the way to the backend",
        description=description,
        scenarios=scenarios,
    )


@registered
def _errors(plan: MonitoringPlan) -> Iterator[Alert]:
    name = "AgentevalEvaluationErrors"
    size = window(plan, "1h")
    kept = (*SERVICE, CRITERION)
    errors = increase(names.METRIC_ERRORS, _PRESENT, size, kept)
    results = increase(names.METRIC_RESULTS, _PRESENT, size, kept)

    def series(error: str, count: float, share: float) -> tuple[Series, ...]:
        growth = count / HOUR
        labels = {CRITERION: plan.example, label_name(names.ERROR_TYPE): error}
        failing = counter(names.METRIC_ERRORS, labels, growth)
        if share == 1.0:
            return (failing,)
        return failing, _results(plan, growth / share - growth)

    expression = _above(_ERROR_SHARE, errors, f"{errors} + {results} or {errors} > 0")
    scenarios = _around(_ERROR_SHARE, name, ["timeout"], series)
    description = (
        f"In the last hour {_SHARE} of the evaluations of the criterion {_THE_CRITERION} ended in an error "
        "without a score. An error is not a bad score: it is missing from every rate."
    )
    yield Alert(
        name=name,
        for_s=600.0,
        severity="ticket",
        scenarios=scenarios,
        expression=expression,
        summary=f"{_SHARE} of the evaluations of {_THE_CRITERION} fail ({_JOB})",
        description=description,
    )


@registered
def _reduced(plan: MonitoringPlan) -> Iterator[Alert]:
    name = "AgentevalSamplingReduced"
    level = names.METRIC_SAMPLING_LEVEL
    least = f"min_over_time({level.prometheus_name}[{window(plan, '30m')}])"
    reduced = gauge(level, f"1x{STEPS}")
    no_model_calls = gauge(level, f"2x{STEPS}")
    full_again = gauge(level, f"2x{STEPS - 1} 0")
    scenarios = (
        scenario("reduced", "", reduced),
        scenario("no model calls", name, no_model_calls),
        scenario("no model calls, and full again", "", full_again),
    )
    description = (
        f"Load shedding has kept the sampling level of a process of {_JOB} at {{{{ $value }}}} for half an "
        "hour (2: no model calls, 3: off): judged criteria get no scores there."
    )
    yield Alert(
        name=name,
        expression=f"max {by(SERVICE)} ({least}) >= 2",
        for_s=600.0,
        severity="ticket",
        summary=f"{_JOB} has evaluated without model calls, or not at all, for half an hour",
        description=description,
        scenarios=scenarios,
    )


@registered
def _judge_failing(plan: MonitoringPlan) -> Iterator[Alert]:
    if not plan.judge_models:
        return
    name = "AgentevalJudgeFailing"
    size = window(plan, "1h")
    kept = (*SERVICE, _JUDGE)
    not_called = ("cached", "budget", "budget_exhausted", "cancelled")
    is_called = one_of(OUTCOME, not_called, sign="!~")
    is_failed = one_of(OUTCOME, ("answered", *not_called), sign="!~")
    failed = increase(names.METRIC_JUDGE_CALLS, is_failed, size, kept)
    calls = increase(names.METRIC_JUDGE_CALLS, is_called, size, kept)

    def series(outcome: str, count: float, share: float) -> tuple[Series, ...]:
        return (
            _calls(outcome, count),
            _calls("answered", count / share - count),
            _calls("cached", 10_000.0),
        )

    expression = _above(_ERROR_SHARE, failed, f"{calls} > 0")
    scenarios = _around(_ERROR_SHARE, name, ("timeout", "breaker_open"), series)
    description = (
        f"In the last hour {_SHARE} of the calls of the judge {_THE_JUDGE} returned no verdict, including "
        "those that its open breaker refused. Judged criteria have fewer scores, and those may not be "
        "typical."
    )
    yield Alert(
        name=name,
        for_s=600.0,
        severity="ticket",
        expression=expression,
        scenarios=scenarios,
        summary=f"{_SHARE} of the calls of the judge {_THE_JUDGE} fail ({_JOB})",
        description=description,
    )


@registered
def _breaker_open(plan: MonitoringPlan) -> Iterator[Alert]:
    if not plan.judge_models:
        return
    name = "AgentevalJudgeBreakerOpen"
    state = names.METRIC_JUDGE_BREAKER
    labels = {_JUDGE_NAME: "a judge"}
    least = f"min_over_time({state.prometheus_name}[{window(plan, '30m')}])"
    closed = gauge(state, f"0x{STEPS}", labels)
    half_open_in_turns = gauge(state, "2 1 " * (STEPS // 2) + "2", labels)
    closed_in_turns = gauge(state, "2 0 " * (STEPS // 2) + "2", labels)
    scenarios = (
        scenario("closed", "", closed),
        scenario("open and half open in turns", name, half_open_in_turns),
        scenario("closed now and then", "", closed_in_turns),
    )
    description = (
        f"The circuit breaker of the judge {_JUDGE_CALLED} was never closed in half an hour: its endpoint "
        "fails at each try, and its criteria get no scores."
    )
    yield Alert(
        name=name,
        expression=f"max {by((*SERVICE, _JUDGE_NAME))} ({least}) >= 1",
        for_s=300.0,
        severity="ticket",
        summary=f"The circuit breaker of the judge {_JUDGE_CALLED} has been open for half an hour ({_JOB})",
        description=description,
        scenarios=scenarios,
    )


@registered
def _judge_drifted(plan: MonitoringPlan) -> Iterator[Alert]:
    if not plan.judge_models:
        return
    name = "AgentevalJudgeDrifted"
    untrusted = names.METRIC_JUDGE_UNTRUSTED
    kept = (*SERVICE, CRITERION, _JUDGE, _CHECK)
    labels = {CRITERION: "a criterion", _JUDGE: "a judge"}

    def checked(check: str, values: str) -> Series:
        return gauge(untrusted, values, {**labels, _CHECK: check})

    trusted = checked("canary", f"0x{STEPS}")
    distrusted = checked("canary", f"0x{STEPS - 6} 1x5")
    trusted_again = checked("people", f"1x{STEPS - 6} 0x5")
    drifted = checked("drift", f"1x{STEPS}")
    scenarios = (
        scenario("trusted", "", trusted),
        scenario("distrusted", name, distrusted),
        scenario("trusted again", "", trusted_again),
        scenario("of one of two checks", name, trusted, drifted),
    )
    description = (
        f"Too many of the last comparisons of the check {_THE_CHECK} disagree with the judge {_THE_JUDGE} "
        f"on the criterion {_THE_CRITERION} to be chance (canary: known answers, repeat and position: its "
        "own answer, people: feedback), or its scores are spread differently (drift). Its scores are marked "
        "untrusted until it agrees again. Do not decide by them."
    )
    yield Alert(
        name=name,
        expression=f"max {by(kept)} ({untrusted.prometheus_name}{{{_PRESENT}}}) > 0",
        for_s=60.0,
        keep_s=300.0,
        severity="ticket",
        summary=f"The judge {_THE_JUDGE} is not trusted with {_THE_CRITERION} any more: {_THE_CHECK} ({_JOB})",
        description=description,
        scenarios=scenarios,
    )


@registered
def _budget_spent(plan: MonitoringPlan) -> Iterator[Alert]:
    if not plan.has_spend_limit:
        return
    name = "AgentevalBudgetSpent"
    size = window(plan, "1h")
    budget = names.METRIC_JUDGE_BUDGET
    left = f'{budget.prometheus_name}{{{_PERIOD}="day"}}'
    outcomes = ("budget", "budget_exhausted")
    is_refused = one_of(OUTCOME, outcomes)
    is_wanted = one_of(OUTCOME, ("cached",), sign="!~")
    refused = increase(names.METRIC_JUDGE_CALLS, is_refused, size, SERVICE)
    wanted = increase(names.METRIC_JUDGE_CALLS, is_wanted, size, SERVICE)
    often = f"{refused} / ({wanted} > 0) > {_REFUSED_SHARE} and {refused} >= {_LEAST_COUNT}"
    day = {_PERIOD: "day"}
    day_left = gauge(budget, f"5x{STEPS}", day)
    day_spent = gauge(budget, f"5x{STEPS - HOUR} 0x{HOUR - 1}", day)
    minute_spent = gauge(budget, f"0x{STEPS}", {_PERIOD: "minute"})

    def series(outcome: str, count: float, share: float) -> tuple[Series, ...]:
        return _calls(outcome, count), _calls("answered", count / share - count)

    scenarios = (
        scenario("the day's budget is left", "", day_left),
        scenario("the day's budget is spent", name, day_spent),
        scenario("the minute's budget is spent", "", minute_spent),
        *_around(_REFUSED_SHARE, name, outcomes, series),
    )
    description = (
        f"The daily limit for judges of {_JOB} is used up, or more than half of the last hour's calls were "
        "skipped to stay within it: judged criteria have few or no scores until the limit is renewed."
    )
    yield Alert(
        name=name,
        for_s=300.0,
        severity="ticket",
        expression=f"min {by(SERVICE)} ({left}) <= 0\nor {often}",
        summary=f"The judges' budget of {_JOB} is spent",
        description=description,
        scenarios=scenarios,
    )


def _above(limit: float, count: str, of: str) -> str:
    """Return the expression for a count that is more than a few, and more than this share."""
    return f"{count} / ({of}) > {limit}\nand {count} >= {_LEAST_COUNT}"


def _around(
    limit: float,
    name: str,
    outcomes: Iterable[str],
    series: Callable[[str, float, float], tuple[Series, ...]],
) -> tuple[Scenario, ...]:
    """Return scenarios around an alert's limit and its minimum.

    They have a count of each bad outcome, and its share of all.
    """
    cases = (
        ("a small share", "", 50.0, 0.95 * limit),
        ("a large share", name, 50.0, 1.05 * limit),
        ("too few", "", _FEW, (1.0 + limit) / 2),
        ("just enough", name, _ENOUGH, (1.0 + limit) / 2),
        ("nothing else", name, 50.0, 1.0),
    )
    scenarios = []
    for outcome in outcomes:
        for case, fires, count, share in cases:
            counters = series(outcome, count, share)
            scenarios.append(scenario(f"{outcome}: {case}", fires, *counters))
    return tuple(scenarios)


def _scored_agents(plan: MonitoringPlan) -> str:
    """Return a matcher of the agents that have any criterion.

    Others are not expected to have results.
    """
    for_others = [planned for planned in plan.criteria if not planned.agents]
    named: set[str] = set()
    for planned in plan.criteria:
        named.update(planned.agents)
    if not for_others:
        return one_of(AGENT, tuple(sorted(named)))
    without = set(for_others[0].other_agents)
    for planned in for_others:
        without.intersection_update(planned.other_agents)
    left_out = tuple(sorted(without - named))
    return one_of(AGENT, left_out, sign="!~") if left_out else ""


def _answers(plan: MonitoringPlan, outcome: str, growth: float) -> Series:
    return counter(names.METRIC_RESPONSES, {AGENT: _example_agent(plan), OUTCOME: outcome}, growth)


def _results(plan: MonitoringPlan, growth: float, steps: int = STEPS) -> Series:
    labels = {CRITERION: plan.example, AGENT: _example_agent(plan), LABEL: names.LABEL_PASS}
    return counter(names.METRIC_RESULTS, labels, growth, steps)


def _example_agent(plan: MonitoringPlan) -> str:
    agents = [planned.agents for planned in plan.criteria]
    return agents[0][0] if all(agents) else "any agent"


def _calls(outcome: str, per_hour: float) -> Series:
    return counter(names.METRIC_JUDGE_CALLS, {_JUDGE: "a judge", OUTCOME: outcome}, per_hour / HOUR)
