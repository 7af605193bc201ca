"""What rules are made of: alerts and their registry, windows, names of recorded series, and their form in YAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.scenarios import Scenario
from agenteval_otel.provisioning.promql import AGENT, CRITERION

GROUP: Final = ("job", AGENT, CRITERION)
"""The labels of an alert about quality: a criterion of an agent of a service, over all its instances."""

WINDOWS_S: Final = {"30m": 1_800.0, "1h": 3_600.0, "2h": 7_200.0, "6h": 21_600.0, "1d": 86_400.0}
"""Windows by their name in recorded series, which the time scale does not change."""

EVALUATED_EVERY_S: Final = 60.0
LEAST_WINDOW_S: Final = 2.0
"""No window is scaled below this: a counter's increase needs two samples."""
_LEAST_INTERVAL_S = 1.0


class Alert(NamedTuple):
    """One alerting rule: everything about it but its runbook, which is ``docs/runbooks/{page}``.

    Attributes:
        name: Its name, ``Agenteval`` first; several rules may share it if their labels differ.
        expression: PromQL; while it returns a series, the alert is pending or fires.
        for_s: How long the expression must hold, before the time scale.
        severity: ``page`` wakes somebody, ``ticket`` waits for the morning.
        summary: One line, a template of Prometheus.
        description: What is measured and what it means, a template.
        scenarios: Tests: what makes it fire, and what does not. Alerts may share some.
        labels: Further labels, the same for everything that the rule returns.
        is_quality: It is about the answers; others are about the monitoring itself.
    """

    name: str
    expression: str
    for_s: float
    severity: Literal["page", "ticket"]
    summary: str
    description: str
    scenarios: tuple[Scenario, ...]
    labels: Mapping[str, str] = {}
    is_quality: bool = False

    @property
    def page(self) -> str:
        """The file of its runbook: the name in lower case, words joined by hyphens."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.name).lower() + ".md"

    def rule(self, plan: MonitoringPlan, runbooks: str) -> dict[str, Any]:
        """As Prometheus reads it; `runbooks` is the address of the runbooks' folder."""
        waits = {"for": plan.duration(self.for_s)} if self.for_s else {}
        return {
            "alert": self.name, "expr": self.expression, **waits,
            "labels": {"severity": self.severity, **{name: literal(value) for name, value in self.labels.items()}},
            "annotations": {
                "summary": self.summary, "description": self.description,
                "runbook_url": literal(f"{runbooks.rstrip('/')}/{self.page}"),
            },
        }  # fmt: skip


AlertFactory = Callable[[MonitoringPlan], list[Alert]]
_FACTORIES: Final[list[AlertFactory]] = []


def registered(factory: AlertFactory) -> AlertFactory:
    """Register a function that returns an alert's rules for a plan; none where the plan does not need it."""
    _FACTORIES.append(factory)
    return factory


def registered_alerts(plan: MonitoringPlan) -> list[Alert]:
    """Every rule for the plan, in the order of registration; none without criteria."""
    return [alert for factory in _FACTORIES for alert in factory(plan)] if plan.criteria else []


def recorded(what: str, name: str = "") -> str:
    """The name of a recorded series: ``agenteval:evaluation_fail:ratio_6h`` of ``evaluation_fail:ratio`` and ``6h``."""
    return f"agenteval:{what}_{name}" if name else f"agenteval:{what}"


def window(plan: MonitoringPlan, name: str) -> str:
    """A window of `WINDOWS_S` in PromQL, scaled."""
    return plan.duration(WINDOWS_S[name], at_least_s=LEAST_WINDOW_S)


def group(plan: MonitoringPlan, name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """A file with one group of rules, or none where there are no rules."""
    interval = plan.duration(EVALUATED_EVERY_S, at_least_s=_LEAST_INTERVAL_S)
    return {"groups": [{"name": name, "interval": interval, "rules": rules}] if rules else []}


def figure(value: float) -> str:
    """A number in expressions and labels: the shortest text that reads back as the same."""
    return repr(int(value)) if value == int(value) else repr(value)


def literal(text: str) -> str:
    """Text that Prometheus's templates leave as it is."""
    return text.replace("{{", '{{ "{{" }}')
