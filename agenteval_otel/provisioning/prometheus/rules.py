"""What rules are made of.

It is alerts and their registry, windows, names of recorded series, and tests for promtool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import AGENT, CRITERION, ENVIRONMENT, quoted
from agenteval_otel.semconv import OTHER, Instrument

SERVICE: Final = (ENVIRONMENT, "job")
"""The labels of a service: one in two environments is two services."""
GROUP: Final = (*SERVICE, AGENT, CRITERION)
"""The labels of an alert about quality: a criterion of an agent of a service, over all its
instances.
"""

SERVICE_TEXT: Final = (
    f"{{{{ $labels.job }}}}{{{{ with $labels.{ENVIRONMENT} }}}} in {{{{ . }}}}{{{{ end }}}}"
)
"""The service in texts of alerts, with its environment where that is known."""

_WINDOWS_S: Final = {
    "3m": 180.0,
    "5m": 300.0,
    "15m": 900.0,
    "30m": 1_800.0,
    "1h": 3_600.0,
    "2h": 7_200.0,
    "6h": 21_600.0,
    "1d": 86_400.0,
    "7d": 604_800.0,
}
"""Windows by their name in recorded series, which the time scale does not change."""
SHOWN: Final = ("5m", "15m", "1h", "6h", "1d", "7d")
"""Windows that dashboards offer."""

# Scenarios last 26 hours, for the longest window and the waiting time; the rest is in steps.
STEP_S: Final = 600
QUICK_STEP_S: Final = 60
"""Of alerts with windows of minutes, whose scenarios last 156 minutes."""
STEPS: Final = 156
HALF_HOUR = 3
HOUR = 6
DAY = 144


# Jaeger's search for the failing answers of the last hour.
_SEARCH: Final = (
    f"/search?lookback=1h&service={{{{ reReplaceAll `^.*/` `` $labels.job | urlquery }}}}&tags=%7B%22gen_ai.evaluation."
    f"{{{{ $labels.{CRITERION} | urlquery }}}}.label%22%3A%22fail%22%7D"
)

_LEAST_LOOK_BACK_S: Final = 60


def _failing_answers(seconds: int) -> str:
    """Return the address of the failing answers up to the alert, a template, without its beginning.

    Its times are those of the evaluation, as the alert's are. A window by its name would end with
    the newest result, and show other answers when a message is read late.
    """
    agent = (
        f'{{{{ with $labels.{AGENT} }}}}{{{{ if ne . "{OTHER}" }}}}agent={{{{ . | urlquery }}}}&'
        "{{ end }}{{ end }}"
    )
    criterion = f"criterion={{{{ $labels.{CRITERION} | urlquery }}}}"
    since = _moment(f"time() - {seconds}")
    until = _moment("time()")
    return f"/answers?{agent}{criterion}&outcome=fail&time=evaluated&since={since}&until={until}"


def _moment(expression: str) -> str:
    """Return a template of a number of PromQL, in whole seconds."""
    return f'{{{{ query "{expression}" | first | value | printf "%.0f" }}}}'


class Series(NamedTuple):
    """Describes a series of a scenario.

    It has its labels besides ``job``, and its values in promtool's notation.
    """

    name: str
    labels: Mapping[str, str]
    values: str


class Scenario(NamedTuple):
    """Describes a day of a service, and the alerts that fire at its end.

    The service's name, the label ``job``, says what happens.
    """

    job: str
    series: tuple[Series, ...]
    fires: frozenset[str]


def scenario(job: str, fires: str, *series: Series) -> Scenario:
    """Return a scenario at whose end these alerts fire, separated by spaces."""
    return Scenario(job, series, frozenset(fires.split()))


class Links(NamedTuple):
    """Holds the addresses with which links of alerts begin.

    Attributes:
        runbooks: Of the runbooks' folder. None: no links.
        traces: Of Jaeger. None: no links.
        pages: Of the pages in the browser. Empty: no links.
    """

    runbooks: str | None
    traces: str | None
    pages: str


class Alert(NamedTuple):
    """One alerting rule: everything about it but its runbook, which is ``docs/runbooks/{page}``.

    Attributes:
        name: ``Agenteval`` first. Several rules may share it if their labels differ.
        expression: PromQL. While it returns a series, the alert is pending or fires.
        for_s: How long the expression must hold, before the time scale.
        fleet_scenarios: Tests of several processes, in steps of half a minute.
        keep_s: How long it keeps firing after the expression last matched: a match within that time
            is the same incident.
        step_s: Length of a step of its scenarios.
        severity: ``page`` wakes the person on call, ``ticket`` waits for the morning.
        summary: One line, a template of Prometheus.
        description: What is measured and what it means, a template.
        scenarios: Its tests. Empty where another alert has them too.
        labels: Further labels, the same for everything that the rule returns.
        is_quality: It is about the answers. Others are about the monitoring itself.
        looks_back_s: How far back the answers lie that it is about, before the time scale.
    """

    name: str
    expression: str
    for_s: float
    severity: Literal["page", "ticket"]
    summary: str
    description: str
    scenarios: tuple[Scenario, ...]
    fleet_scenarios: tuple[Scenario, ...] = ()
    labels: Mapping[str, str] = {}
    is_quality: bool = False
    keep_s: float = 0.0
    step_s: int = STEP_S
    looks_back_s: float = 3_600.0

    @property
    def page(self) -> str:
        """Return the file of its runbook: the name in lower case, words joined by hyphens."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.name).lower() + ".md"

    def rule(self, plan: MonitoringPlan, links: Links) -> dict[str, Any]:
        """Return the alert as Prometheus reads it."""
        annotations = {"summary": self.summary, "description": self.description}
        if links.runbooks is not None:
            annotations["runbook_url"] = literal(f"{links.runbooks.rstrip('/')}/{self.page}")
        if links.traces is not None and self.is_quality:
            annotations["traces_url"] = literal(links.traces.rstrip("/")) + _SEARCH
        if links.pages and self.is_quality:
            seconds = max(_LEAST_LOOK_BACK_S, round(self.looks_back_s * plan.time_scale))
            annotations["answers_url"] = literal(links.pages) + _failing_answers(seconds)
        if self.is_quality and plan.is_judged:
            annotations["estimate"] = _estimate(plan)
        times = {"for": self.for_s, "keep_firing_for": self.keep_s}
        waits = {name: plan.duration(seconds) for name, seconds in times.items() if seconds}
        labels: dict[str, str] = {"severity": self.severity}
        labels |= {name: literal(value) for name, value in self.labels.items()}
        return {
            "alert": self.name,
            "expr": self.expression,
            **waits,
            "labels": labels,
            "annotations": annotations,
        }

    def test(self, plan: MonitoringPlan) -> dict[str, Any]:
        """Return its scenarios as a test of promtool. At their end exactly these alerts fire."""
        input_series = []
        firing = []
        for scenario in self.scenarios:
            for series in scenario.series:
                labels = {"job": scenario.job, "instance": "1", **series.labels}
                selector = f"{series.name}{_braces(labels)}"
                input_series.append({"series": selector, "values": series.values})
            for name in sorted(scenario.fires):
                sample = _braces({"alertname": name, "job": scenario.job})
                firing.append({"labels": sample, "value": 1})
        at_the_end = {
            "expr": 'group by (alertname, job) (ALERTS{alertstate="firing"})',
            "eval_time": plan.duration(STEPS * self.step_s),
            "exp_samples": firing,
        }
        return {
            "name": self.name,
            "interval": plan.duration(self.step_s),
            "input_series": input_series,
            "promql_expr_test": [at_the_end],
        }


AlertFactory = Callable[[MonitoringPlan], Iterator[Alert]]
_FACTORIES: Final[list[AlertFactory]] = []


def registered(factory: AlertFactory) -> AlertFactory:
    """Register a function that yields an alert's rules for a plan.

    It yields none if the plan needs none.
    """
    _FACTORIES.append(factory)
    return factory


def alerts_of(plan: MonitoringPlan) -> list[Alert]:
    """Return every alert that the plan needs, in the order of registration.

    There are no alerts without criteria that alerts look at.
    """
    if not plan.example:
        return []
    alerts: list[Alert] = []
    for factory in _FACTORIES:
        alerts.extend(factory(plan))
    return alerts


def recorded(what: str, name: str = "", *, level: str = "agenteval") -> str:
    """Return the name of a recorded series: ``agenteval:pass_rate:1d`` of ``pass_rate`` and ``1d``."""
    return ":".join(filter(None, (level, what, name)))


def window(plan: MonitoringPlan, name: str) -> str:
    return plan.duration(_WINDOWS_S[name], at_least_s=2.0)  # a counter's increase needs two samples


def figure(value: float) -> str:
    """Return a number in expressions and labels: the shortest text that reads back as the same."""
    if value == int(value):
        return repr(int(value))
    return repr(value)


def literal(text: str) -> str:
    """Return text that Prometheus's templates leave as it is."""
    return text.replace("{{", '{{ "{{" }}')


def gauge(instrument: Instrument, values: str, labels: Mapping[str, str] = {}) -> Series:
    return Series(instrument.prometheus_name, labels, values)


def counter(
    metric: Instrument | str, labels: Mapping[str, str], growth: float, steps: int = STEPS
) -> Series:
    """Return a counter that grows by so much a step for so many steps. Then it stays the same."""
    return changing_counter(metric, labels, (growth, steps))


def changing_counter(
    metric: Instrument | str, labels: Mapping[str, str], *pieces: tuple[float, int]
) -> Series:
    """Return a `counter` of several pieces: growth a step, and steps."""
    remaining_steps = STEPS - sum(steps for _, steps in pieces)
    value = 0.0
    values = ["0"]
    for growth, steps in (*pieces, (0.0, remaining_steps)):
        if steps:
            values.append(f"{value + growth:.12g}+{growth:.12g}x{steps - 1}")
            value += growth * steps
    name = metric if isinstance(metric, str) else metric.prometheus_name
    return Series(name, labels, " ".join(values))


def by(labels: Sequence[str]) -> str:
    """Return the clause that keeps these labels in an aggregation."""
    return f"by ({', '.join(labels)})"


def label_text(label: str) -> str:
    """Return the value of an alert's label, as a template of Prometheus."""
    return f"{{{{ $labels.{label} }}}}"


def _estimate(plan: MonitoringPlan) -> str:
    """Return which estimate an alert about quality goes by, as a template.

    The template has the corrected estimate too if there is a record.
    """
    text = "Decided by verdicts as the judge says, not corrected for its errors."
    if not plan.is_calibrated:
        return text
    labels = f"{CRITERION}=%q, {AGENT}=%q, job=%q"
    values = f"$labels.{CRITERION} $labels.{AGENT} $labels.job"
    query = f"printf `{recorded('corrected_pass_rate', '1d')}{{{labels}}}` {values} | query"
    share = "{{ . | first | value | humanizePercentage }}"
    return f"{text}{{{{ with {query} }}}} Corrected by the calibration record {share} pass (1 day).{{{{ end }}}}"


def _braces(labels: Mapping[str, str]) -> str:
    pairs = [f"{name}={quoted(value)}" for name, value in labels.items()]
    return "{" + ", ".join(pairs) + "}"
