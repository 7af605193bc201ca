"""What Grafana reads at its start: data sources that lead from one to the next, and where the dashboards are.

Grafana replaces ``$NAME`` and ``${NAME}`` in these files by variables of its environment, so its own placeholders are
written with two dollars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agenteval_otel.provisioning.files import yaml_text
from agenteval_otel.provisioning.plan import MonitoringPlan

PROMETHEUS, LOKI, JAEGER, TEMPO, ALERTMANAGER = (
    f"agenteval-{name}" for name in ("prometheus", "loki", "jaeger", "tempo", "alertmanager")
)
"""The uids of the data sources."""

_EXPORTED_EVERY_S = 60.0
_TRACES = (("jaeger", JAEGER), ("tempo", TEMPO))


def data_sources(plan: MonitoringPlan, urls: Mapping[str, str]) -> str:
    """The data sources as a provisioning file; `urls` by the type of the data source."""
    found = [_prometheus(plan), _loki(), _jaeger(), _tempo(), _alertmanager()]
    for one in found:
        one["url"] = urls[one["type"]]
    says = (
        "Data sources of Grafana: from an exemplar to its trace, from a span to the events of its trace, and back.\n"
        "$$ stands for one dollar; a single one names a variable of Grafana's environment."
    )
    return yaml_text({"apiVersion": 1, "datasources": found}, command="grafana", says=says)


def dashboard_provider(path: str) -> str:
    """Where Grafana finds the dashboards, as a provisioning file."""
    provider = {
        "name": "agenteval", "folder": "agenteval", "type": "file", "disableDeletion": False,
        "allowUiUpdates": False, "updateIntervalSeconds": 30, "options": {"path": path},
    }  # fmt: skip
    says = "The folder of Grafana that holds the dashboards of agenteval."
    return yaml_text({"apiVersion": 1, "providers": [provider]}, command="grafana", says=says)


def _source(name: str, kind: str, uid: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "uid": uid, "access": "proxy", "url": "", "editable": False,
            "jsonData": settings}  # fmt: skip


def _prometheus(plan: MonitoringPlan) -> dict[str, Any]:
    """Its interval is that of the applications' exports: what is between two of them shows nothing new."""
    to_traces = [
        {"name": "trace_id", "datasourceUid": uid, "urlDisplayLabel": f"Trace in {kind.title()}"}
        for kind, uid in _TRACES
    ]
    return _source(
        "agenteval Prometheus", "prometheus", PROMETHEUS, httpMethod="POST", prometheusType="Prometheus",
        timeInterval=plan.duration(_EXPORTED_EVERY_S), manageAlerts=True, alertmanagerUid=ALERTMANAGER,
        exemplarTraceIdDestinations=to_traces,
    ) | {"isDefault": False}  # fmt: skip


def _loki() -> dict[str, Any]:
    """The trace's id is structured metadata, which counts as a label here."""
    to_traces = [
        {"name": f"Trace in {kind.title()}", "matcherType": "label", "matcherRegex": "^trace_id$",
         "datasourceUid": uid, "url": "$${__value.raw}", "urlDisplayLabel": f"Trace in {kind.title()}"}
        for kind, uid in _TRACES
    ]  # fmt: skip
    return _source("agenteval Loki", "loki", LOKI, maxLines=1000, derivedFields=to_traces)


def _to_events() -> dict[str, Any]:
    """From a span to all events of its trace: results come after the span, late ones long after it."""
    return {
        "datasourceUid": LOKI, "spanStartTimeShift": "-5m", "spanEndTimeShift": "1h", "customQuery": True,
        "tags": [{"key": "service.name", "value": "service_name"}],
        "query": '{$${__tags}} | trace_id="$${__trace.traceId}"',
    }  # fmt: skip


def _jaeger() -> dict[str, Any]:
    return _source(
        "agenteval Jaeger", "jaeger", JAEGER, tracesToLogsV2=_to_events(), nodeGraph={"enabled": True},
    )  # fmt: skip


def _tempo() -> dict[str, Any]:
    return _source(
        "agenteval Tempo", "tempo", TEMPO, tracesToLogsV2=_to_events(), nodeGraph={"enabled": True},
    )  # fmt: skip


def _alertmanager() -> dict[str, Any]:
    return _source("agenteval Alertmanager", "alertmanager", ALERTMANAGER, implementation="prometheus")
