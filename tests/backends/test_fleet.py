"""Eight worker processes against one with the same answers, on the real Prometheus and ten times as fast:
how soon the page of a drop comes.

Every time of the generated files is scaled by 0.1, and a verdict a second becomes ten. Six agents fall
to 85 %, six to 50 %.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import pytest

from agenteval_otel.provisioning.prometheus.summed import INTERVAL_S

from .applications import SHARED
from .programs import finish, started, wait_for_what_was_sent
from .provisioned import alerting

pytestmark = [pytest.mark.backend, pytest.mark.live, pytest.mark.timeout(400)]

TIME_SCALE, SPEED = 0.1, 10
HEALTHY_S, DROP_S = 40, 75
PROCESSES = 8
EXPORT_S = 60
START_S = 20.0
"""By then all processes are ready."""
SETTINGS = {
    "evaluators": [
        {
            "type": "RuleBased",
            "rules": [{"criterion": "price_named", "type": "includes", "keywords": ["EUR"]}],
        }
    ],
    "criteria": {"default": [{"name": "price_named", "objective": 0.95}]},
}
Delays = dict[str, dict[str, float]]


@pytest.fixture(scope="module", name="delays")
def delays_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delays]:
    """By service and agent: seconds from the drop until its alert fires, times the speed. That is
    also the number of verdicts in all processes.
    """
    folder = tmp_path_factory.mktemp("fleet")
    with alerting(folder, SETTINGS, time_scale=TIME_SCALE, every_s=0.5) as stack:
        begins_at = time.time() + START_S
        finish(
            *(
                started(
                    "-m",
                    "tests.backends.applications",
                    "sharing",
                    *map(str, (HEALTHY_S, DROP_S, SPEED, index, processes, begins_at)),
                    OTEL_SERVICE_NAME=service,
                    OTEL_EXPORTER_OTLP_ENDPOINT=stack.collector.grpc_endpoint,
                    OTEL_METRIC_EXPORT_INTERVAL=str(1_000 * EXPORT_S // SPEED),
                )
                for service, processes in (("one", 1), ("eight", PROCESSES))
                for index in range(processes)
            )
        )
        wait_for_what_was_sent(stack.collector, stack.prometheus)
        firing = 'ALERTS{alertname="AgentevalObjectiveBreached",alertstate="firing"}'
        delays: Delays = {"one": {}, "eight": {}}
        for sample in stack.prometheus.query(f"min_over_time(timestamp({firing})[5m:250ms])"):
            delay_s = SPEED * (sample.value - begins_at - HEALTHY_S)
            delays[sample.labels["job"]][sample.labels["gen_ai_agent_name"]] = delay_s
        yield delays


@pytest.mark.parametrize("rate", [0.85, 0.5])
def test_eight_processes_page_as_soon_as_one(delays: Delays, rate: float) -> None:
    """Every drop is a page, and none comes before it. Eight take at most an export and an evaluation of
    the rule longer, because their exports come at different times.
    """
    medians = {}
    for service, of_agents in delays.items():
        found = sorted(of_agents[agent] for agent, own in SHARED.items() if own == rate)
        print(service, rate, [f"{delay:.0f}" for delay in found])
        assert found[0] > 0
        medians[service] = median(found)
    assert medians["eight"] <= medians["one"] + EXPORT_S + INTERVAL_S
