"""Alerts about the monitoring itself: blind, failing, dropping, shedding load, out of budget.

Quality that is not measured raises no alert about quality; these do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.rules import Alert, window
from agenteval_otel.provisioning.promql import AGENT, CRITERION, OUTCOME, increase, joined

LEAST_COUNT: Final = 10
"""Calls, failures or losses below which no share of them is told of."""
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
_THE_AGENT = f"{{{{ $labels.{AGENT} }}}}"
_THE_CRITERION = f"{{{{ $labels.{CRITERION} }}}}"
_THE_JUDGE = f"{{{{ $labels.{_JUDGE} }}}}"
_JUDGE_CALLED = f"{{{{ $labels.{_JUDGE_NAME} }}}}"
_AGENT = f"{_THE_AGENT} ({_JOB})"


def monitor_alerts(plan: MonitoringPlan) -> list[Alert]:
    """All alerts about the monitoring that the plan gives reason to; without criteria none."""
    if not plan.criteria:
        return []
    alerts = [
        _blind(plan), _vanished(plan), _queue_dropping(plan), _pipeline_failing(plan), _export_losing(plan),
        _errors(plan), _reduced(plan),
    ]  # fmt: skip
    if plan.judge_models:
        alerts += [_judge_failing(plan), _breaker_open(plan)]
    if plan.has_spend_limit:
        alerts.append(_budget_spent(plan))
    return alerts


def least_answers(plan: MonitoringPlan) -> int:
    """How many answers without a result are no chance: more where evaluators pass over some on purpose."""
    return math.ceil(round(LEAST_COUNT / plan.seen_share, 6))


def _blind(plan: MonitoringPlan) -> Alert:
    size = window(plan, "30m")
    agents = _scored_agents(plan)
    taken = increase(names.METRIC_RESPONSES, joined(agents, _outcomes(*_NOT_TAKEN, sign="!~")), size, _BY_AGENT)
    results = increase(names.METRIC_RESULTS, "", size, _BY_AGENT)
    return Alert(
        name="AgentevalMonitorBlind", for_s=600.0, severity="page",
        expression=f"{taken} >= {least_answers(plan)}\nunless {results} > 0",
        summary=f"No result for {_AGENT} although it answers",
        description=(
            f"In the last 30 minutes {{{{ $value | humanize }}}} answers of the agent {_THE_AGENT} were to be "
            "evaluated, and not one got a score: whether they are good is not known, no alert about quality can fire."
        ),
    )  # fmt: skip


def _vanished(plan: MonitoringPlan) -> Alert:
    series = names.METRIC_RESPONSES.prometheus_name
    before, now = (f"group by (job) (present_over_time({series}[{window(plan, name)}]))" for name in ("1d", "30m"))
    return Alert(
        name="AgentevalTelemetryVanished", expression=f"{before}\nunless {now}", for_s=300.0, severity="ticket",
        summary=f"{_JOB} sends no metrics any more",
        description=(
            f"{_JOB} sent metrics of agenteval_otel within the last day, and for half an hour nothing came: it "
            "has ended, or the way to Prometheus is broken. Without metrics no other alert can fire."
        ),
    )  # fmt: skip


def _queue_dropping(plan: MonitoringPlan) -> Alert:
    return Alert(
        name="AgentevalQueueDropping", for_s=600.0, severity="ticket",
        expression=_lost(plan, names.DROPPED_QUEUE_FULL),
        summary=f"{_SHARE} of the answers of {_AGENT} are dropped by a full queue",
        description=(
            f"In the last 30 minutes {_SHARE} of the answers of the agent {_THE_AGENT} that should have been "
            "evaluated were dropped, because the queue was full. They are losses, not a sample: what is slow or busy "
            "is missing from every rate."
        ),
    )  # fmt: skip


def _pipeline_failing(plan: MonitoringPlan) -> Alert:
    return Alert(
        name="AgentevalPipelineFailing", for_s=600.0, severity="ticket",
        expression=_lost(plan, names.PIPELINE_FAILED, names.CAPTURE_FAILED),
        summary=f"{_SHARE} of the answers of {_AGENT} cannot be captured or evaluated",
        description=(
            f"In the last 30 minutes {_SHARE} of the answers of the agent {_THE_AGENT} that should have been "
            "evaluated met something that broke before any evaluator saw them."
        ),
    )  # fmt: skip


def _export_losing(plan: MonitoringPlan) -> Alert:
    lost = increase(names.METRIC_EXPORT_LOST, "", window(plan, "30m"), ("job", _SIGNAL))
    return Alert(
        name="AgentevalExportLosing", for_s=300.0, severity="ticket", expression=f"{lost} >= {LEAST_COUNT}",
        summary=f"{{{{ $labels.{_SIGNAL} }}}} of {_JOB} are lost on the way to the backend",
        description=(
            f"In the last 30 minutes {{{{ $value | humanize }}}} items of the signal {{{{ $labels.{_SIGNAL} }}}} of "
            f"{_JOB} were made and did not arrive: traces and logs have gaps that no score explains."
        ),
    )  # fmt: skip


def _errors(plan: MonitoringPlan) -> Alert:
    size, by = window(plan, "1h"), ("job", CRITERION)
    errors = increase(names.METRIC_ERRORS, "", size, by)
    results = increase(names.METRIC_RESULTS, "", size, by)
    return Alert(
        name="AgentevalEvaluationErrors", for_s=600.0, severity="ticket",
        expression=f"{errors} / ({errors} + {results} or {errors} > 0) > {ERROR_SHARE}\nand {errors} >= {LEAST_COUNT}",
        summary=f"{_SHARE} of the evaluations of {_THE_CRITERION} fail ({_JOB})",
        description=(
            f"In the last hour {_SHARE} of the evaluations of the criterion {_THE_CRITERION} ended in an error "
            "and gave no score. An error is not a bad score: it is missing from every rate."
        ),
    )  # fmt: skip


def _reduced(plan: MonitoringPlan) -> Alert:
    level = f"min_over_time({names.METRIC_SAMPLING_LEVEL.prometheus_name}[{window(plan, '30m')}])"
    return Alert(
        name="AgentevalSamplingReduced", expression=f"max by (job) ({level}) >= 2", for_s=600.0, severity="ticket",
        summary=f"{_JOB} has evaluated without model calls, or not at all, for half an hour",
        description=(
            f"Load shedding has kept the sampling level of a process of {_JOB} at {{{{ $value }}}} for half an hour "
            "(2: no model calls, 3: off): judged criteria get no scores there."
        ),
    )  # fmt: skip


def _judge_failing(plan: MonitoringPlan) -> Alert:
    size, by = window(plan, "1h"), ("job", _JUDGE)
    failed = increase(names.METRIC_JUDGE_CALLS, _outcomes("answered", *_NOT_ASKED, sign="!~"), size, by)
    asked = increase(names.METRIC_JUDGE_CALLS, _outcomes(*_NOT_ASKED, sign="!~"), size, by)
    return Alert(
        name="AgentevalJudgeFailing", for_s=600.0, severity="ticket",
        expression=f"{failed} / ({asked} > 0) > {ERROR_SHARE}\nand {failed} >= {LEAST_COUNT}",
        summary=f"{_SHARE} of the questions to the judge {_THE_JUDGE} fail ({_JOB})",
        description=(
            f"In the last hour {_SHARE} of the questions to the judge {_THE_JUDGE} got no verdict; what its "
            "open breaker refused counts. Judged criteria have fewer scores, and those that come may not be typical."
        ),
    )  # fmt: skip


def _breaker_open(plan: MonitoringPlan) -> Alert:
    state = f"min_over_time({names.METRIC_JUDGE_BREAKER.prometheus_name}[{window(plan, '30m')}])"
    return Alert(
        name="AgentevalJudgeBreakerOpen", expression=f"max by (job, {_JUDGE_NAME}) ({state}) >= 1", for_s=300.0,
        severity="ticket",
        summary=f"The judge {_JUDGE_CALLED} has been left alone for half an hour ({_JOB})",
        description=(
            f"The circuit breaker of the judge {_JUDGE_CALLED} was not closed once in half an hour: its "
            "endpoint fails each time that it is tried, and its criteria get no scores."
        ),
    )  # fmt: skip


def _budget_spent(plan: MonitoringPlan) -> Alert:
    size = window(plan, "1h")
    left = f'{names.METRIC_JUDGE_BUDGET.prometheus_name}{{{_PERIOD}="day"}}'
    refused = increase(names.METRIC_JUDGE_CALLS, _outcomes("budget", "budget_exhausted"), size, ("job",))
    wanted = increase(names.METRIC_JUDGE_CALLS, _outcomes("cached", sign="!~"), size, ("job",))
    often = f"{refused} / ({wanted} > 0) > {REFUSED_SHARE} and {refused} >= {LEAST_COUNT}"
    return Alert(
        name="AgentevalBudgetSpent", for_s=300.0, severity="ticket",
        expression=f"min by (job) ({left}) <= 0\nor {often}",
        summary=f"The judges' budget of {_JOB} is spent",
        description=(
            f"Nothing is left of the day's limit for judges of {_JOB}, or more than half of the last hour's questions "
            "were left out to keep within it: judged criteria have few scores, or none, until the limit is renewed."
        ),
    )  # fmt: skip


_NOT_TAKEN = (names.NOT_SAMPLED, names.DISABLED)
_NOT_ASKED = ("cached", "budget", "budget_exhausted", "cancelled")


def _outcomes(*outcomes: str, sign: str = "=~") -> str:
    return promql.one_of(OUTCOME, outcomes, sign=sign)


def _lost(plan: MonitoringPlan, *outcomes: str) -> str:
    """More than a few answers, and more than a small share of those that were to be evaluated, ended so."""
    size = window(plan, "30m")
    lost = increase(names.METRIC_RESPONSES, _outcomes(*outcomes), size, _BY_AGENT)
    taken = increase(names.METRIC_RESPONSES, _outcomes(*_NOT_TAKEN, sign="!~"), size, _BY_AGENT)
    return f"{lost} / ({taken} > 0) > {LOSS_SHARE}\nand {lost} >= {LEAST_COUNT}"


def _scored_agents(plan: MonitoringPlan) -> str:
    """A matcher of the agents that have any criterion; of one without, nobody expects results."""
    of_every_other = [one for one in plan.criteria if not one.agents]
    named: Sequence[str] = sorted({agent for one in plan.criteria for agent in one.agents})
    if not of_every_other:
        return promql.one_of(AGENT, tuple(named))
    without = set(of_every_other[0].other_agents).intersection(*(one.other_agents for one in of_every_other))
    left_out = tuple(sorted(without - set(named)))
    return promql.one_of(AGENT, left_out, sign="!~") if left_out else ""
