"""Alertmanager's configuration for the alerts of the plan: receivers, and which alerts mute others."""

from __future__ import annotations

import re
from typing import Any, Final
from zoneinfo import available_timezones

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning.files import GeneratedFiles, expect_urls, yaml_text
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus import Alert, alerts_of
from agenteval_otel.provisioning.prometheus.rules import GROUP, SERVICE, literal

_HOURS: Final = re.compile(r"((?:[01]\d|2[0-3]):[0-5]\d)-((?:[01]\d|2[0-3]):[0-5]\d)(?: +(\S+))?")
_SILENT: Final = "AgentevalServiceSilent"
_HEAD: Final = """Receivers of the alerts. `{receiver}` gets all of them. For others add receivers
(email_configs, slack_configs, pagerduty_configs, ...) and name them in the routes."""
_HEAD_WITHOUT_WEBHOOK: Final = """Nothing is sent yet: pass `--webhook URL`, or configure this receiver, such as
webhook_configs: [{url: "http://127.0.0.1:9000/alerts"}]."""


def files_of(
    plan: MonitoringPlan, *, webhook: str | None = None, idle: str | None = None
) -> GeneratedFiles:
    """Return Alertmanager's configuration.

    `webhook` is an HTTP address to post alerts to. Without it nothing is sent. In the hours `idle`
    (``22:00-06:00``, with a time zone after it or in UTC) a service may be silent.
    """
    expect_urls(webhook=webhook)
    receiver = "nobody" if webhook is None else "webhook"
    receiver_entry: dict[str, Any] = {"name": receiver}
    if webhook is not None:
        receiver_entry["webhook_configs"] = [{"url": literal(webhook), "send_resolved": True}]
    inhibitions = _inhibitions(alerts_of(plan))
    # One message per criterion of an agent, whatever alerts it has; alerts about a whole service
    # come together.
    page = {
        "matchers": ['severity="page"'],
        "receiver": receiver,
        **_times(plan, 10.0, 60.0, 3_600.0),
    }
    routes = [page]
    if idle is not None:
        silence = {
            "matchers": [f'alertname="{_SILENT}"'],
            "receiver": receiver,
            "mute_time_intervals": ["idle"],
        }
        routes.append(silence)
    route = {
        "receiver": receiver,
        "group_by": list(GROUP),
        **_times(plan, 30.0, 300.0, 86_400.0),
        "routes": routes,
    }
    tree: dict[str, Any] = {"route": route}
    if idle is not None:
        tree["time_intervals"] = [{"name": "idle", "time_intervals": [_idle_hours(idle)]}]
    if inhibitions:
        tree["inhibit_rules"] = inhibitions
    tree["receivers"] = [receiver_entry]
    head = _HEAD.format(receiver=receiver)
    if not webhook:
        head += f"\n{_HEAD_WITHOUT_WEBHOOK}"
    return {"alertmanager.yml": yaml_text(tree, command="alertmanager", head=head)}


def _idle_hours(text: str) -> dict[str, Any]:
    match = _HOURS.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(
            f"must be hours such as '22:00-06:00' or '22:00-06:00 Europe/Berlin', found {text!r}",
            path="idle",
        )
    start, end, zone = match.groups()
    if zone is not None and zone not in available_timezones():
        raise ConfigurationError(
            f"must end in a time zone such as Europe/Berlin, found {zone!r}", path="idle"
        )
    # Alertmanager's ranges end at midnight.
    ranges = [(start, end)]
    if start >= end:
        ranges = [(start, "24:00")]
        if end != "00:00":
            ranges.append(("00:00", end))
    times = [{"start_time": first, "end_time": last} for first, last in ranges]
    hours: dict[str, Any] = {"times": times}
    if zone:
        hours["location"] = zone
    return hours


def _times(
    plan: MonitoringPlan, wait_s: float, interval_s: float, repeat_s: float
) -> dict[str, str]:
    # Not scaled below a second, so that a live test does not repeat its messages all the time.
    seconds = {"group_wait": wait_s, "group_interval": interval_s, "repeat_interval": repeat_s}
    return {name: plan.duration(value, at_least_s=1.0) for name, value in seconds.items()}


def _inhibitions(alerts: list[Alert]) -> list[dict[str, Any]]:
    """Return the alerts that are muted while another fires: a repetition of it, or its consequence."""
    names = sorted({alert.name for alert in alerts})
    quality = dict.fromkeys(alert.name for alert in alerts if alert.is_quality)
    of_service = [name for name in names if name not in (_SILENT, "AgentevalCollectorDown")]
    muted_by = (
        ("AgentevalObjectiveBreached", ["AgentevalObjectiveBurnSlow"], GROUP),
        ("AgentevalMonitorBlind", [*quality], GROUP[:3]),
        (_SILENT, of_service, SERVICE),
        ("AgentevalCollectorDown", [_SILENT], ()),
    )
    inhibitions = []
    for source, muted, equal_labels in muted_by:
        targets = [name for name in muted if name in names]
        if source in names and targets:
            inhibition = {
                "source_matchers": [f'alertname="{source}"'],
                "target_matchers": [f'alertname=~"{"|".join(targets)}"'],
                "equal": list(equal_labels),
            }
            inhibitions.append(inhibition)
    return inhibitions
