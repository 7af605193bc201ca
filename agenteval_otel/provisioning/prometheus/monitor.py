"""Alerts about the monitoring itself: blind, failing, dropping, shedding load, out of budget.

Quality that is not measured raises no alert about quality; these do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.rules import (
    DAY,
    HALF_HOUR,
    HOUR,
    STEPS,
    Alert,
    Scenario,
    Series,
    counter,
    gauge,
    registered,
    scenarios_of,
    window,
)  # fmt: skip
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL, OUTCOME, increase, joined

LEAST_COUNT: Final = 10
"""Calls, failures or losses below which no share of them raises an alert."""
LOSS_SHARE: Final = 0.05
ERROR_SHARE: Final = 0.1
REFUSED_SHARE: Final = 0.5

_JUDGE = promql.label_name(names.JUDGE_MODEL)
_JUDGE_NAME = promql.label_name(names.JUDGE_NAME)
_PERIOD = promql.label_name(names.JUDGE_PERIOD)
_SIGNAL = promql.label_name(names.EXPORT_SIGNAL)
_BY_AGENT = ("job", AGENT)
_SHARE = "{{ $value | humanizePercentage }}"
_JOB = "{{ $labels.job }}"
_THE_AGENT, _THE_CRITERION, _THE_JUDGE, _JUDGE_CALLED = (
    f"{{{{ $labels.{label} }}}}" for label in (AGENT, CRITERION, _JUDGE, _JUDGE_NAME)
)
_AGENT = f"{_THE_AGENT} ({_JOB})"
_NOT_DUE = (names.NOT_SAMPLED, names.DISABLED)
_NOT_CALLED = ("cached", "budget", "budget_exhausted", "cancelled")

# Of the scenarios: counts around the minimum, and growth per step that is enough for every minimum.
_FEW: Final = LEAST_COUNT - 0.5
_ENOUGH: Final = LEAST_COUNT + 0.5
_PLENTY: Final = 12.0


@registered
def _blind(plan: MonitoringPlan) -> list[Alert]:
    name, size = "AgentevalMonitorBlind", window(plan, "30m")
    due = increase(
        names.METRIC_RESPONSES, joined(_scored_agents(plan), _outcomes(*_NOT_DUE, sign="!~")), size, _BY_AGENT
    )
    results = increase(names.METRIC_RESULTS, "", size, _BY_AGENT)
    least = math.ceil(round(LEAST_COUNT / plan.seen_share, 6))  # more where evaluators skip some on purpose
    plenty = max(_PLENTY, 2.0 * least / HALF_HOUR)

    def answers(outcome: str = names.EVALUATED, growth: float = plenty) -> Series:
        return _answers(plan, outcome, growth)

    return [Alert(
        name=name, for_s=600.0, severity="page", expression=f"{due} >= {least}\nunless {results} > 0",
        summary=f"No result for {_AGENT} although it answers",
        description=(
            f"In the last 30 minutes {{{{ $value | humanize }}}} answers of the agent {_THE_AGENT} should have been "
            "evaluated, and none got a score: their quality is unknown, and no alert about quality can fire."
        ),
        scenarios=scenarios_of(
            name,
            ("results arrive", False, (answers(), _results(plan, plenty))),
            ("results end two hours ago", True, (answers(), _results(plan, plenty, STEPS - 2 * HOUR))),
            ("answers without results, too few", False, answers(growth=(least - 0.5) / HALF_HOUR)),
            ("answers without results, just enough", True, answers(growth=(least + 0.5) / HALF_HOUR)),
            ("all are shed", True, answers(names.SHED)),
            ("none is sampled", False, answers(names.NOT_SAMPLED)),
            ("disabled", False, answers(names.DISABLED)),
        ),
    )]  # fmt: skip


@registered
def _vanished(plan: MonitoringPlan) -> list[Alert]:
    name, series = "AgentevalTelemetryVanished", names.METRIC_RESPONSES.prometheus_name
    before, now = (f"group by (job) (present_over_time({series}[{window(plan, size)}]))" for size in ("1d", "30m"))

    def gap(steps: int) -> Series:
        return gauge(names.METRIC_RESPONSES, f"0x{STEPS - steps} _x{steps}", {OUTCOME: names.EVALUATED})

    return [Alert(
        name=name, expression=f"{before}\nunless {now}", for_s=300.0, severity="ticket",
        summary=f"{_JOB} sends no metrics any more",
        description=(
            f"{_JOB} sent metrics of agenteval_otel within the last day, but none for half an hour: it has ended, or "
            "the way to Prometheus is broken. Without metrics no other alert can fire."
        ),
        scenarios=scenarios_of(
            name,
            ("gone for an hour", True, gap(HOUR)),
            ("gone for a few minutes", False, gap(1)),
            ("gone for more than a day", False, gap(DAY + HOUR)),
        ),
    )]  # fmt: skip


@registered
def _queue_dropping(plan: MonitoringPlan) -> list[Alert]:
    return _losing(
        plan, "AgentevalQueueDropping", (names.DROPPED_QUEUE_FULL,),
        f"{_SHARE} of the answers of {_AGENT} are dropped by a full queue",
        "were dropped because the queue was full. They are losses, not a sample: slow and busy moments are missing "
        "from every rate.",
    )  # fmt: skip


@registered
def _pipeline_failing(plan: MonitoringPlan) -> list[Alert]:
    return _losing(
        plan, "AgentevalPipelineFailing", (names.PIPELINE_FAILED, names.CAPTURE_FAILED),
        f"{_SHARE} of the answers of {_AGENT} cannot be captured or evaluated",
        "failed before any evaluator saw them.",
    )  # fmt: skip


def _losing(plan: MonitoringPlan, name: str, outcomes: tuple[str, ...], summary: str, what: str) -> list[Alert]:
    """More than a few answers, and more than a small share of those that should be evaluated, ended so."""
    size = window(plan, "30m")
    lost = increase(names.METRIC_RESPONSES, _outcomes(*outcomes), size, _BY_AGENT)
    due = increase(names.METRIC_RESPONSES, _outcomes(*_NOT_DUE, sign="!~"), size, _BY_AGENT)

    def series(outcome: str, count: float, share: float) -> tuple[Series, ...]:
        growth = count / HALF_HOUR
        return (
            _answers(plan, outcome, growth), _answers(plan, names.EVALUATED, growth / share - growth),
            _answers(plan, names.NOT_SAMPLED, 1_000.0), _results(plan, _PLENTY),
        )  # fmt: skip

    return [Alert(
        name=name, for_s=600.0, severity="ticket", summary=summary,
        expression=f"{lost} / ({due} > 0) > {LOSS_SHARE}\nand {lost} >= {LEAST_COUNT}",
        description=f"In the last 30 minutes {_SHARE} of the answers of the agent {_THE_AGENT} that should have been "
                    f"evaluated {what}",
        scenarios=_shares(name, LOSS_SHARE, outcomes, series),
    )]  # fmt: skip


@registered
def _export_losing(plan: MonitoringPlan) -> list[Alert]:
    name, labels = "AgentevalExportLosing", {_SIGNAL: "logs", promql.label_name(names.EXPORT_REASON): "no_room"}
    lost = increase(names.METRIC_EXPORT_LOST, "", window(plan, "30m"), ("job", _SIGNAL))
    return [Alert(
        name=name, for_s=300.0, severity="ticket", expression=f"{lost} >= {LEAST_COUNT}",
        summary=f"{{{{ $labels.{_SIGNAL} }}}} of {_JOB} are lost on the way to the backend",
        description=(
            f"In the last 30 minutes {{{{ $value | humanize }}}} items of the signal {{{{ $labels.{_SIGNAL} }}}} of "
            f"{_JOB} did not arrive: traces and logs have gaps that no score explains."
        ),
        scenarios=scenarios_of(name, *(
            (job, fires, counter(names.METRIC_EXPORT_LOST, labels, (count / HALF_HOUR, STEPS)))
            for job, fires, count in (("too few are lost", False, _FEW), ("just enough are lost", True, _ENOUGH))
        )),
    )]  # fmt: skip


@registered
def _errors(plan: MonitoringPlan) -> list[Alert]:
    name, size, by = "AgentevalEvaluationErrors", window(plan, "1h"), ("job", CRITERION)
    errors = increase(names.METRIC_ERRORS, "", size, by)
    results = increase(names.METRIC_RESULTS, "", size, by)

    def series(error: str, count: float, share: float) -> tuple[Series, ...]:
        growth = count / HOUR
        labels = {CRITERION: plan.criteria[0].name, promql.label_name(names.ERROR_TYPE): error}
        scored = () if share == 1.0 else (_results(plan, growth / share - growth),)
        return counter(names.METRIC_ERRORS, labels, (growth, STEPS)), *scored

    return [Alert(
        name=name, for_s=600.0, severity="ticket",
        scenarios=_shares(name, ERROR_SHARE, ["timeout"], series),
        expression=f"{errors} / ({errors} + {results} or {errors} > 0) > {ERROR_SHARE}\nand {errors} >= {LEAST_COUNT}",
        summary=f"{_SHARE} of the evaluations of {_THE_CRITERION} fail ({_JOB})",
        description=(
            f"In the last hour {_SHARE} of the evaluations of the criterion {_THE_CRITERION} ended in an error "
            "without a score. An error is not a bad score: it is missing from every rate."
        ),
    )]  # fmt: skip


@registered
def _reduced(plan: MonitoringPlan) -> list[Alert]:
    name, level = "AgentevalSamplingReduced", names.METRIC_SAMPLING_LEVEL
    least = f"min_over_time({level.prometheus_name}[{window(plan, '30m')}])"
    return [Alert(
        name=name, expression=f"max by (job) ({least}) >= 2", for_s=600.0, severity="ticket",
        summary=f"{_JOB} has evaluated without model calls, or not at all, for half an hour",
        description=(
            f"Load shedding has kept the sampling level of a process of {_JOB} at {{{{ $value }}}} for half an hour "
            "(2: no model calls, 3: off): judged criteria get no scores there."
        ),
        scenarios=scenarios_of(
            name,
            ("reduced", False, gauge(level, f"1x{STEPS}")),
            ("no model calls", True, gauge(level, f"2x{STEPS}")),
            ("no model calls, and full again", False, gauge(level, f"2x{STEPS - 1} 0")),
        ),
    )]  # fmt: skip


@registered
def _judge_failing(plan: MonitoringPlan) -> list[Alert]:
    if not plan.judge_models:
        return []
    name, size, by = "AgentevalJudgeFailing", window(plan, "1h"), ("job", _JUDGE)
    failed = increase(names.METRIC_JUDGE_CALLS, _outcomes("answered", *_NOT_CALLED, sign="!~"), size, by)
    calls = increase(names.METRIC_JUDGE_CALLS, _outcomes(*_NOT_CALLED, sign="!~"), size, by)

    def series(outcome: str, count: float, share: float) -> tuple[Series, ...]:
        return _calls(outcome, count), _calls("answered", count / share - count), _calls("cached", 10_000.0)

    return [Alert(
        name=name, for_s=600.0, severity="ticket",
        scenarios=_shares(name, ERROR_SHARE, ("timeout", "breaker_open"), series),
        expression=f"{failed} / ({calls} > 0) > {ERROR_SHARE}\nand {failed} >= {LEAST_COUNT}",
        summary=f"{_SHARE} of the calls of the judge {_THE_JUDGE} fail ({_JOB})",
        description=(
            f"In the last hour {_SHARE} of the calls of the judge {_THE_JUDGE} returned no verdict, including those "
            "that its open breaker refused. Judged criteria have fewer scores, and those may not be typical."
        ),
    )]  # fmt: skip


@registered
def _breaker_open(plan: MonitoringPlan) -> list[Alert]:
    if not plan.judge_models:
        return []
    name, state, labels = "AgentevalJudgeBreakerOpen", names.METRIC_JUDGE_BREAKER, {_JUDGE_NAME: "a judge"}
    least = f"min_over_time({state.prometheus_name}[{window(plan, '30m')}])"
    return [Alert(
        name=name, expression=f"max by (job, {_JUDGE_NAME}) ({least}) >= 1", for_s=300.0, severity="ticket",
        summary=f"The circuit breaker of the judge {_JUDGE_CALLED} has been open for half an hour ({_JOB})",
        description=(
            f"The circuit breaker of the judge {_JUDGE_CALLED} was never closed in half an hour: its endpoint fails "
            "at each try, and its criteria get no scores."
        ),
        scenarios=scenarios_of(
            name,
            ("closed", False, gauge(state, f"0x{STEPS}", labels)),
            ("open and half open in turns", True, gauge(state, "2 1 " * (STEPS // 2) + "2", labels)),
            ("closed now and then", False, gauge(state, "2 0 " * (STEPS // 2) + "2", labels)),
        ),
    )]  # fmt: skip


@registered
def _budget_spent(plan: MonitoringPlan) -> list[Alert]:
    if not plan.has_spend_limit:
        return []
    name, size, budget = "AgentevalBudgetSpent", window(plan, "1h"), names.METRIC_JUDGE_BUDGET
    left = f'{budget.prometheus_name}{{{_PERIOD}="day"}}'
    refused = increase(names.METRIC_JUDGE_CALLS, _outcomes("budget", "budget_exhausted"), size, ("job",))
    wanted = increase(names.METRIC_JUDGE_CALLS, _outcomes("cached", sign="!~"), size, ("job",))
    often = f"{refused} / ({wanted} > 0) > {REFUSED_SHARE} and {refused} >= {LEAST_COUNT}"

    def series(outcome: str, count: float, share: float) -> tuple[Series, ...]:
        return _calls(outcome, count), _calls("answered", count / share - count)

    return [Alert(
        name=name, for_s=300.0, severity="ticket", expression=f"min by (job) ({left}) <= 0\nor {often}",
        summary=f"The judges' budget of {_JOB} is spent",
        description=(
            f"The daily limit for judges of {_JOB} is used up, or more than half of the last hour's calls were "
            "skipped to stay within it: judged criteria have few or no scores until the limit is renewed."
        ),
        scenarios=(
            *scenarios_of(
                name,
                ("the day's budget is left", False, gauge(budget, f"5x{STEPS}", {_PERIOD: "day"})),
                ("the day's budget is spent", True, gauge(budget, f"5x{STEPS - HOUR} 0x{HOUR - 1}", {_PERIOD: "day"})),
                ("the minute's budget is spent", False, gauge(budget, f"0x{STEPS}", {_PERIOD: "minute"})),
            ),
            *_shares(name, REFUSED_SHARE, ("budget", "budget_exhausted"), series),
        ),
    )]  # fmt: skip


def _shares(
    name: str, limit: float, outcomes: Iterable[str], series: Callable[[str, float, float], tuple[Series, ...]]
) -> tuple[Scenario, ...]:
    """Around an alert's limit and its minimum: a count of each bad outcome, and its share of all."""
    cases = (
        ("a small share", False, 50.0, 0.95 * limit), ("a large share", True, 50.0, 1.05 * limit),
        ("too few", False, _FEW, (1.0 + limit) / 2), ("just enough", True, _ENOUGH, (1.0 + limit) / 2),
        ("nothing else", True, 50.0, 1.0),
    )  # fmt: skip
    return scenarios_of(name, *(
        (f"{outcome}: {case}", fires, series(outcome, count, share))
        for outcome in outcomes for case, fires, count, share in cases
    ))  # fmt: skip


def _outcomes(*outcomes: str, sign: str = "=~") -> str:
    return promql.one_of(OUTCOME, outcomes, sign=sign)


def _scored_agents(plan: MonitoringPlan) -> str:
    """A matcher of the agents that have any criterion; others are not expected to have results."""
    for_others = [planned for planned in plan.criteria if not planned.agents]
    named = sorted({agent for planned in plan.criteria for agent in planned.agents})
    if not for_others:
        return promql.one_of(AGENT, tuple(named))
    without = set(for_others[0].other_agents).intersection(*(planned.other_agents for planned in for_others))
    left_out = tuple(sorted(without - set(named)))
    return promql.one_of(AGENT, left_out, sign="!~") if left_out else ""


def _answers(plan: MonitoringPlan, outcome: str, growth: float) -> Series:
    return counter(names.METRIC_RESPONSES, {AGENT: _example_agent(plan), OUTCOME: outcome}, (growth, STEPS))


def _results(plan: MonitoringPlan, growth: float, steps: int = STEPS) -> Series:
    labels = {CRITERION: plan.criteria[0].name, AGENT: _example_agent(plan), LABEL: names.LABEL_PASS}
    return counter(names.METRIC_RESULTS, labels, (growth, steps))


def _example_agent(plan: MonitoringPlan) -> str:
    agents = [planned.agents for planned in plan.criteria]
    return agents[0][0] if all(agents) else "any agent"


def _calls(outcome: str, per_hour: float) -> Series:
    return counter(names.METRIC_JUDGE_CALLS, {_JUDGE: "a judge", OUTCOME: outcome}, (per_hour / HOUR, STEPS))
