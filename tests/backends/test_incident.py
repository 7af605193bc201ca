"""A drop and a recovery on the real stack, twenty times as fast: who is notified, how often, and
how soon.

Every time of the generated files is scaled by 0.05, and a verdict a second becomes twenty: 90 s are
30 minutes. The quality of services falls, in one process or four, with a restart in the incident,
in one of two environments.
"""

from __future__ import annotations

from collections.abc import Iterator
from subprocess import Popen
from typing import NamedTuple

import pytest

from .programs import finish, started, wait_for_what_was_sent
from .provisioned import alerting
from .webhook import PostedAlert, Webhook

pytestmark = [pytest.mark.backend, pytest.mark.live, pytest.mark.timeout(580)]

TIME_SCALE, SPEED = 0.05, 20
HEALTHY_S, DROP_S, RECOVERED_S = 20, 90, 100
RESOLVED_LIMIT_S = 200.0
REMINDER_S = 3_500
"""Scaled seconds after which Alertmanager repeats a page that lasts: its repeat_interval is an
hour.
"""
SETTINGS = {
    "evaluators": ["ResponseHealth"],
    "agents": {
        "flights": {
            "evaluators": [
                {
                    "type": "RuleBased",
                    "rules": [
                        {"criterion": "price_named", "type": "includes", "keywords": ["EUR"]}
                    ],
                }
            ],
            "criteria": [{"name": "price_named", "objective": 0.95}],
        }
    },
}
BREACHED, SILENT = "AgentevalObjectiveBreached", "AgentevalServiceSilent"


FALLING = ("falls far", "falls", "four fall far", "four fall", "restarts")


class Incident(NamedTuple):
    """Who was notified of what, and when each service fell or ended."""

    webhook: Webhook
    fell_at: dict[str, float]

    def after_s(self, alert: PostedAlert) -> float:
        """Scaled seconds from the drop or the end of the alert's service."""
        return SPEED * (alert.at - self.fell_at[alert.labels["job"]])


def phases(rate: float) -> str:
    return f"{HEALTHY_S}:0.98,{DROP_S}:{rate},{RECOVERED_S}:0.99"


@pytest.fixture(scope="module", name="incident")
def incident_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """The stack and its services, until all have ended and every page is resolved."""
    folder = tmp_path_factory.mktemp("incident")
    with alerting(folder, SETTINGS, time_scale=TIME_SCALE) as (collector, prometheus, hook):

        def service(
            name: str,
            phases: str,
            per_second: float = SPEED,
            environment: str = "production",
            seed: int = 0,
        ) -> Popen[str]:
            return started(
                "-m",
                "tests.backends.applications",
                "changing",
                phases,
                str(per_second),
                f"{name} {seed}",
                OTEL_SERVICE_NAME=name,
                OTEL_EXPORTER_OTLP_ENDPOINT=collector.grpc_endpoint,
                OTEL_METRIC_EXPORT_INTERVAL="500",
                OTEL_RESOURCE_ATTRIBUTES=f"deployment.environment.name={environment}",
            )

        names = ["falls far", "falls", *["four fall far", "four fall"] * 4, "staging", "ends"]
        programs = [
            service("falls far", phases(0.3)),
            service("falls", phases(0.85)),
            *(
                service(name, phases(rate), SPEED / 4, seed=seed)
                for seed in range(4)
                for name, rate in (("four fall far", 0.3), ("four fall", 0.85))
            ),
            service("falls far", phases(0.98), environment="staging"),
            service("ends", f"{HEALTHY_S}:0.98,0:0"),
        ]
        (first,) = finish(service("restarts", f"{HEALTHY_S}:0.98,20:0.3"))
        programs.append(service("restarts", f"{DROP_S - 20}:0.3,{RECOVERED_S}:0.99"))
        outputs = [*zip(names, finish(*programs), strict=False), ("restarts", first)]
        wait_for_what_was_sent(collector, prometheus)
        prometheus.wait_for(
            lambda _: (
                sum(alert.status == "resolved" and alert.name == BREACHED for alert in hook.alerts)
                >= len(FALLING)
            ),
            RESOLVED_LIMIT_S,
        )
        # When the second phase of each began: the drop, or the end.
        yield Incident(
            hook,
            {name: float(output.splitlines()[1].split()[1]) for name, output in reversed(outputs)},
        )


@pytest.mark.parametrize("job", FALLING)
def test_an_incident_is_one_page_and_one_resolve(incident: Incident, job: str) -> None:
    """While it lasts and after it: no repetition, no ticket, also where a process restarts in it."""
    posts = [
        alert
        for alert in incident.webhook.alerts
        if alert.labels["job"] == job and "Objective" in alert.name
    ]
    print(job, [(alert.name, alert.status, f"{incident.after_s(alert):.0f} s") for alert in posts])
    # Four processes have a quarter of the verdicts each: by the time of their recovery Alertmanager
    # may remind.
    ends = incident.after_s(posts[0]) + REMINDER_S
    posts = [alert for alert in posts if alert.status != "firing" or incident.after_s(alert) < ends]
    assert [(alert.name, alert.status) for alert in posts] == [
        (BREACHED, "firing"),
        (BREACHED, "resolved"),
    ]
    assert 0 < incident.after_s(posts[0]) < SPEED * DROP_S < incident.after_s(posts[1])


def test_another_environment_is_another_service(incident: Incident) -> None:
    """What falls in production is not notified about staging."""
    breached = [
        alert for alert in incident.webhook.firing(job="falls far") if alert.name == BREACHED
    ]
    assert {alert.labels["deployment_environment_name"] for alert in breached} == {"production"}


def test_a_service_that_ends_is_noticed(incident: Incident) -> None:
    """While the others go on."""
    silent = next(alert for alert in incident.webhook.firing(job="ends") if alert.name == SILENT)
    print("ends", f"{incident.after_s(silent):.0f} s")
    assert 0 < incident.after_s(silent) < SPEED * DROP_S
