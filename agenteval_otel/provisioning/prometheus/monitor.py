"""Alerts about the monitoring itself: blind, failing, dropping, shedding load, out of budget.

Quality that is not measured raises no alert about quality; these do.
"""

from __future__ import annotations

import math
from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.rules import Alert, registered, window
from agenteval_otel.provisioning.prometheus.scenarios import (
    DAY,
    HALF_HOUR,
    HOUR,
    STEPS,
    Row,
    Series,
    counter,
    gauge,
    table,
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
_NOT_TAKEN = (names.NOT_SAMPLED, names.DISABLED)
_NOT_ASKED = ("cached", "budget", "budget_exhausted", "cancelled")

# Of the scenarios: counts around the minimum, and verdicts a step where that is enough for every minimum.
_FEW: Final = LEAST_COUNT - 0.5
_ENOUGH: Final = LEAST_COUNT + 0.5
_PLENTY: Final = 12.0


@registered
def _blind(plan: MonitoringPlan) -> list[Alert]:
    name, size = "AgentevalMonitorBlind", window(plan, "30m")
    taken = increase(
        names.METRIC_RESPONSES, joined(_scored_agents(plan), _outcomes(*_NOT_TAKEN, sign="!~")), size, _BY_AGENT
    )
    results = increase(names.METRIC_RESULTS, "", size, _BY_AGENT)
    agent, criterion = _example(plan)
    least = _least_answers(plan)
    plenty = max(_PLENTY, 2.0 * least / HALF_HOUR)

    def answers(outcome: str = names.EVALUATED, growth: float = plenty) -> Series:
        return _answers(agent, outcome, (growth, STEPS))

    def scored(steps: int, of: str = agent) -> tuple[Series, ...]:
        return answers(), _results(of, criterion, (plenty, steps))

    rows: tuple[Row, ...] = (
        ("answers get results", False, scored(STEPS)),
        ("answers never get results", True, answers()),
        ("results end two hours ago", True, scored(STEPS - 2 * HOUR)),
        ("results end a few minutes ago", False, scored(STEPS - 1)),
        ("results of another agent", True, scored(STEPS, f"not {agent}")),
        ("answers without results, too few", False, answers(growth=(least - 0.5) / HALF_HOUR)),
        ("answers without results, just enough", True, answers(growth=(least + 0.5) / HALF_HOUR)),
        ("all is shed", True, answers(names.SHED)),
        ("all is not_sampled", False, answers(names.NOT_SAMPLED)),
        ("all is disabled", False, answers(names.DISABLED)),
        ("nobody asks", False, answers(growth=0.0)),
    )
    return [Alert(
        name=name, for_s=600.0, severity="page", scenarios=table(name, "{}", *rows),
        expression=f"{taken} >= {least}\nunless {results} > 0",
        summary=f"No result for {_AGENT} although it answers",
        description=(
            f"In the last 30 minutes {{{{ $value | humanize }}}} answers of the agent {_THE_AGENT} should have been "
            "evaluated, and none got a score: their quality is unknown, and no alert about quality can fire."
        ),
    )]  # fmt: skip


@registered
def _vanished(plan: MonitoringPlan) -> list[Alert]:
    name, series = "AgentevalTelemetryVanished", names.METRIC_RESPONSES.prometheus_name
    before, now = (f"group by (job) (present_over_time({series}[{window(plan, size)}]))" for size in ("1d", "30m"))
    labels = {AGENT: _example(plan)[0], OUTCOME: names.EVALUATED}
    gaps = (("an hour", HOUR, True), ("a few minutes", 1, False), ("more than a day", DAY + HOUR, False))
    return [Alert(
        name=name, expression=f"{before}\nunless {now}", for_s=300.0, severity="ticket",
        summary=f"{_JOB} sends no metrics any more",
        description=(
            f"{_JOB} sent metrics of agenteval_otel within the last day, but none for half an hour: it has ended, or "
            "the way to Prometheus is broken. Without metrics no other alert can fire."
        ),
        scenarios=table(name, "no metrics for {}", *(
            (gap, fires, gauge(names.METRIC_RESPONSES, f"0x{STEPS - steps} _x{steps}", labels))
            for gap, steps, fires in gaps
        )),
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
    size, (agent, criterion) = window(plan, "30m"), _example(plan)
    lost = increase(names.METRIC_RESPONSES, _outcomes(*outcomes), size, _BY_AGENT)
    taken = increase(names.METRIC_RESPONSES, _outcomes(*_NOT_TAKEN, sign="!~"), size, _BY_AGENT)

    def series(outcome: str, count: float, share: float) -> tuple[Series, ...]:
        growth = count / HALF_HOUR
        return (
            _answers(agent, outcome, (growth, STEPS)),
            _answers(agent, names.EVALUATED, (growth / share - growth, STEPS)),
            _answers(agent, names.NOT_SAMPLED, (1_000.0, STEPS)), _results(agent, criterion, (_PLENTY, STEPS)),
        )  # fmt: skip

    return [Alert(
        name=name, for_s=600.0, severity="ticket", summary=summary,
        expression=f"{lost} / ({taken} > 0) > {LOSS_SHARE}\nand {lost} >= {LEAST_COUNT}",
        description=f"In the last 30 minutes {_SHARE} of the answers of the agent {_THE_AGENT} that should have been "
                    f"evaluated {what}",
        scenarios=tuple(scenario for outcome in outcomes for scenario in table(
            name, outcome + ": {}",
            ("a small share", False, series(outcome, 45.0, 0.045)),
            ("a large share", True, series(outcome, 55.0, 0.055)),
            ("too few", False, series(outcome, _FEW, 0.5)),
            ("just enough", True, series(outcome, _ENOUGH, 0.5)),
        )),
    )]  # fmt: skip


@registered
def _export_losing(plan: MonitoringPlan) -> list[Alert]:
    name, labels = "AgentevalExportLosing", {_SIGNAL: "logs", promql.label_name(names.EXPORT_REASON): "no_room"}
    lost = increase(names.METRIC_EXPORT_LOST, "", window(plan, "30m"), ("job", _SIGNAL))
    counts = (("none", 0.0, False), ("too few", _FEW, False), ("just enough", _ENOUGH, True))
    return [Alert(
        name=name, for_s=300.0, severity="ticket", expression=f"{lost} >= {LEAST_COUNT}",
        summary=f"{{{{ $labels.{_SIGNAL} }}}} of {_JOB} are lost on the way to the backend",
        description=(
            f"In the last 30 minutes {{{{ $value | humanize }}}} items of the signal {{{{ $labels.{_SIGNAL} }}}} of "
            f"{_JOB} did not arrive: traces and logs have gaps that no score explains."
        ),
        scenarios=table(name, "lost in export: {}", *(
            (case, fires, counter(names.METRIC_EXPORT_LOST, labels, (count / HALF_HOUR, STEPS)))
            for case, count, fires in counts
        )),
    )]  # fmt: skip


@registered
def _errors(plan: MonitoringPlan) -> list[Alert]:
    name, size, by = "AgentevalEvaluationErrors", window(plan, "1h"), ("job", CRITERION)
    errors = increase(names.METRIC_ERRORS, "", size, by)
    results = increase(names.METRIC_RESULTS, "", size, by)
    criterion = _example(plan)[1]
    labels = {CRITERION: criterion, promql.label_name(names.ERROR_TYPE): "timeout"}

    def failed(per_hour: float, begins: int = 0) -> Series:
        return counter(names.METRIC_ERRORS, labels, (per_hour / HOUR, STEPS - begins), begins=begins)

    def both(errors: float, scored: float) -> tuple[Series, ...]:
        return failed(errors), _results("an agent", criterion, (scored / HOUR, STEPS))

    rows: tuple[Row, ...] = (
        ("a small share", False, both(95.0, 905.0)), ("a large share", True, both(105.0, 895.0)),
        ("too few", False, both(_FEW, 10.0)), ("just enough", True, both(_ENOUGH, 10.0)),
        ("nothing else", True, failed(_ENOUGH)),
        ("for two hours now", True, failed(_ENOUGH, begins=STEPS - 2 * HOUR)),
    )  # fmt: skip
    return [Alert(
        name=name, for_s=600.0, severity="ticket", scenarios=table(name, "errors: {}", *rows),
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
    cases = (
        ("full", f"0x{STEPS}", False), ("reduced", f"1x{STEPS}", False), ("no model calls", f"2x{STEPS}", True),
        ("off", f"3x{STEPS}", True), ("no model calls for a moment", f"0x{STEPS - 1} 2", False),
        ("no model calls, and full again", f"2x{STEPS - 1} 0", False),
    )  # fmt: skip
    return [Alert(
        name=name, expression=f"max by (job) ({least}) >= 2", for_s=600.0, severity="ticket",
        summary=f"{_JOB} has evaluated without model calls, or not at all, for half an hour",
        description=(
            f"Load shedding has kept the sampling level of a process of {_JOB} at {{{{ $value }}}} for half an hour "
            "(2: no model calls, 3: off): judged criteria get no scores there."
        ),
        scenarios=table(name, "sampling is {}", *((case, fires, gauge(level, at)) for case, at, fires in cases)),
    )]  # fmt: skip


@registered
def _judge_failing(plan: MonitoringPlan) -> list[Alert]:
    if not plan.judge_models:
        return []
    name, size, by = "AgentevalJudgeFailing", window(plan, "1h"), ("job", _JUDGE)
    failed = increase(names.METRIC_JUDGE_CALLS, _outcomes("answered", *_NOT_ASKED, sign="!~"), size, by)
    calls = increase(names.METRIC_JUDGE_CALLS, _outcomes(*_NOT_ASKED, sign="!~"), size, by)
    rows: tuple[Row, ...] = (
        ("fails: a small share", False, (_calls("timeout", 95.0), _calls("answered", 905.0))),
        ("fails: a large share", True, (_calls("timeout", 105.0), _calls("answered", 895.0))),
        ("fails: too few", False, (_calls("timeout", _FEW), _calls("answered", 10.0))),
        ("fails: just enough", True, (_calls("timeout", _ENOUGH), _calls("answered", 10.0))),
        ("fails: refused by the breaker", True, (_calls("breaker_open", 105.0), _calls("answered", 895.0))),
        ("fails: nothing is answered", True, (_calls("authentication", 20.0), _calls("answered", 0.0))),
        ("fails: much is cached", True, (_calls("timeout", 105.0), _calls("answered", 895.0), _CACHED)),
        ("is not called", False, (_calls("timeout", 0.0), _calls("answered", 0.0), _CACHED)),
    )
    return [Alert(
        name=name, for_s=600.0, severity="ticket", scenarios=table(name, "judge {}", *rows),
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
    name, state = "AgentevalJudgeBreakerOpen", names.METRIC_JUDGE_BREAKER
    least = f"min_over_time({state.prometheus_name}[{window(plan, '30m')}])"
    cases = (
        ("closed", f"0x{STEPS}", False),
        ("open", f"2x{STEPS}", True),
        ("open and half open in turns", "2 1 " * (STEPS // 2) + "2", True),
        ("open for ten minutes", f"0x{STEPS - 1} 2", False),
        ("closed now and then", "2 0 " * (STEPS // 2) + "2", False),
    )
    return [Alert(
        name=name, expression=f"max by (job, {_JUDGE_NAME}) ({least}) >= 1", for_s=300.0, severity="ticket",
        summary=f"The circuit breaker of the judge {_JUDGE_CALLED} has been open for half an hour ({_JOB})",
        description=(
            f"The circuit breaker of the judge {_JUDGE_CALLED} was never closed in half an hour: its endpoint fails "
            "at each try, and its criteria get no scores."
        ),
        scenarios=table(name, "breaker is {}", *(
            (case, fires, gauge(state, values, {_JUDGE_NAME: "a judge"})) for case, values, fires in cases
        )),
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
    cases = (("half", 49.0, 51.0, False), ("more than half", 51.0, 49.0, True), ("too few", _FEW, 1.0, False),
             ("just enough", _ENOUGH, 1.0, True))  # fmt: skip
    rows: tuple[Row, ...] = (
        ("budget is left", False, gauge(budget, f"5x{STEPS}", {_PERIOD: "day"})),
        ("budget is spent", True, gauge(budget, f"5x{STEPS - HOUR} 0x{HOUR - 1}", {_PERIOD: "day"})),
        ("budget of the minute is spent", False, gauge(budget, f"0x{STEPS}", {_PERIOD: "minute"})),
        *(
            (f"{outcome} refuses {case}", fires, (_calls(outcome, no), _calls("answered", yes), _CACHED))
            for case, no, yes, fires in cases for outcome in ("budget", "budget_exhausted")
        ),
    )  # fmt: skip
    return [Alert(
        name=name, for_s=300.0, severity="ticket", scenarios=table(name, "{}", *rows),
        expression=f"min by (job) ({left}) <= 0\nor {often}",
        summary=f"The judges' budget of {_JOB} is spent",
        description=(
            f"The daily limit for judges of {_JOB} is used up, or more than half of the last hour's calls were "
            "skipped to stay within it: judged criteria have few or no scores until the limit is renewed."
        ),
    )]  # fmt: skip


def _outcomes(*outcomes: str, sign: str = "=~") -> str:
    return promql.one_of(OUTCOME, outcomes, sign=sign)


def _least_answers(plan: MonitoringPlan) -> int:
    """How many answers without a result are no coincidence: more where evaluators skip some on purpose."""
    return math.ceil(round(LEAST_COUNT / plan.seen_share, 6))


def _scored_agents(plan: MonitoringPlan) -> str:
    """A matcher of the agents that have any criterion; others are not expected to have results."""
    for_others = [planned for planned in plan.criteria if not planned.agents]
    named = sorted({agent for planned in plan.criteria for agent in planned.agents})
    if not for_others:
        return promql.one_of(AGENT, tuple(named))
    without = set(for_others[0].other_agents).intersection(*(planned.other_agents for planned in for_others))
    left_out = tuple(sorted(without - set(named)))
    return promql.one_of(AGENT, left_out, sign="!~") if left_out else ""


def _example(plan: MonitoringPlan) -> tuple[str, str]:
    """An agent and a criterion for the scenarios; the agent is one that no setting names where that is possible."""
    first = plan.criteria[0]
    for_others = next((planned for planned in plan.criteria if not planned.agents), first)
    if for_others.agents:
        return for_others.agents[0], first.name
    named = {name for planned in plan.criteria for name in (*planned.agents, *planned.other_agents)} | set(plan.agents)
    return next(name for count in range(len(named) + 1) if (name := "any agent" + "'" * count) not in named), first.name


def _answers(agent: str, outcome: str, *pieces: tuple[float, int]) -> Series:
    return counter(names.METRIC_RESPONSES, {AGENT: agent, OUTCOME: outcome}, *pieces)


def _results(agent: str, criterion: str, *pieces: tuple[float, int]) -> Series:
    return counter(names.METRIC_RESULTS, {CRITERION: criterion, AGENT: agent, LABEL: names.LABEL_PASS}, *pieces)


def _calls(outcome: str, per_hour: float) -> Series:
    return counter(names.METRIC_JUDGE_CALLS, {_JUDGE: "a judge", OUTCOME: outcome}, (per_hour / HOUR, STEPS))


_CACHED: Final = _calls("cached", 10_000.0)
