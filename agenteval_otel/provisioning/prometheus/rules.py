"""What rules are made of: windows, names of recorded series, alerts, and how both are written for Prometheus."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from agenteval_otel.models.value import Value
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import AGENT, CRITERION

GROUP: Final = ("job", AGENT, CRITERION)
"""What an alert about quality is about: a criterion of an agent of a service, over all its instances."""

WINDOWS_S: Final = {"30m": 1_800.0, "1h": 3_600.0, "2h": 7_200.0, "6h": 21_600.0, "1d": 86_400.0}
"""Windows by the name that recorded series have them under, whatever the time scale makes of them."""

EVALUATED_EVERY_S: Final = 60.0
LEAST_WINDOW_S: Final = 2.0
"""No window is scaled below this: a counter's increase needs two samples."""
_LEAST_INTERVAL_S = 1.0


class Alert(Value):
    """One rule that alerts.

    Attributes:
        name: Its name, ``Agenteval`` first; several rules may share it, then their labels differ.
        expression: PromQL; where it gives a series, the alert is pending or fires.
        for_s: How long it has to hold, before the time scale.
        severity: ``page`` wakes somebody, ``ticket`` waits for the morning.
        summary: One line, a template of Prometheus.
        description: What is measured and what it means, a template.
        labels: Further labels, each the same for all that the rule gives.
    """

    name: str
    expression: str
    for_s: float
    severity: Literal["page", "ticket"]
    summary: str
    description: str
    labels: dict[str, str] = {}

    @property
    def page(self) -> str:
        """The file of its runbook: the name in small letters, words joined by hyphens."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.name).lower() + ".md"

    def rule(self, plan: MonitoringPlan, runbooks: str) -> dict[str, Any]:
        """As Prometheus reads it; `runbooks` is where the runbooks' folder is."""
        held = {"for": plan.duration(self.for_s)} if self.for_s else {}
        return {
            "alert": self.name, "expr": self.expression, **held,
            "labels": {"severity": self.severity, **{name: literal(value) for name, value in self.labels.items()}},
            "annotations": {
                "summary": self.summary, "description": self.description,
                "runbook_url": literal(f"{runbooks.rstrip('/')}/{self.page}"),
            },
        }  # fmt: skip


def recorded(what: str, name: str = "") -> str:
    """The name of a recorded series: ``agenteval:evaluation_fail:ratio_6h`` of ``evaluation_fail:ratio`` and ``6h``."""
    return f"agenteval:{what}_{name}" if name else f"agenteval:{what}"


def window(plan: MonitoringPlan, name: str) -> str:
    """A window of `WINDOWS_S` as PromQL has it, scaled."""
    return plan.duration(WINDOWS_S[name], at_least_s=LEAST_WINDOW_S)


def group(plan: MonitoringPlan, name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """A file of one group of rules; of none where there are no rules."""
    interval = plan.duration(EVALUATED_EVERY_S, at_least_s=_LEAST_INTERVAL_S)
    return {"groups": [{"name": name, "interval": interval, "rules": rules}] if rules else []}


def figure(value: float) -> str:
    """A number as it stands in expressions and labels: the shortest that reads back as the same."""
    return repr(int(value)) if value == int(value) else repr(value)


def literal(text: str) -> str:
    """Text that Prometheus's templates leave as it is."""
    return text.replace("{{", '{{ "{{" }}')
