"""Eight worker processes against one with the same answers, on the real Prometheus and ten times as fast:
how soon the page of a drop comes.

Every time of the generated files is scaled by 0.1, and a verdict a second becomes ten. Six agents fall
to 85 %, six to 50 %.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
import yaml

from agenteval_otel.cli import main
from agenteval_otel.provisioning.prometheus.summed import INTERVAL_S

from .applications import SHARED
from .collector import Collector
from .fixtures import running
from .programs import finish, started, wait_for_what_was_sent
from .prometheus import Prometheus, scraping

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
def delays_fixture(
    collector_binary: Path, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Delays]:
    """By service and agent: seconds from the drop until its alert fires, times the speed. That is
    also the number of verdicts in all processes.
    """
    folder = tmp_path_factory.mktemp("fleet")
    settings, made = folder / "agenteval.yaml", folder / "made"
    settings.write_text(yaml.safe_dump(SETTINGS))
    asked = ["--settings", str(settings), "--output", str(made), "--time-scale", str(TIME_SCALE)]
    assert main(["provision", "all", *asked]) == 0
    for name in ("collector", "prometheus"):
        (folder / name).mkdir()
    collector = Collector(
        collector_binary,
        folder / "collector",
        config=made / "otel-collector.yaml",
        environment={"COLLECTOR_TRACES_TO": "[debug]", "COLLECTOR_LOGS_TO": "[debug]"},
    )
    with running(collector):
        config = scraping(
            made / "prometheus/prometheus.yml",
            port=collector.ports.prometheus,
            every_s=0.5,
            rules=made / "prometheus/rules",
        )
        prometheus = Prometheus(prometheus_binary, folder / "prometheus", config=config)
        with running(prometheus):
            begins_at = time.time() + START_S
            finish(
                *(
                    started(
                        "-m",
                        "tests.backends.applications",
                        "sharing",
                        *map(str, (HEALTHY_S, DROP_S, SPEED, index, processes, begins_at)),
                        OTEL_SERVICE_NAME=service,
                        OTEL_EXPORTER_OTLP_ENDPOINT=collector.grpc_endpoint,
                        OTEL_METRIC_EXPORT_INTERVAL=str(1_000 * EXPORT_S // SPEED),
                    )
                    for service, processes in (("one", 1), ("eight", PROCESSES))
                    for index in range(processes)
                )
            )
            wait_for_what_was_sent(collector, prometheus)
            firing = 'ALERTS{alertname="AgentevalObjectiveBreached",alertstate="firing"}'
            first = prometheus.query(f"min_over_time(timestamp({firing})[5m:250ms])")
            yield {
                service: {
                    sample.labels["gen_ai_agent_name"]: SPEED
                    * (sample.value - begins_at - HEALTHY_S)
                    for sample in first
                    if sample.labels["job"] == service
                }
                for service in ("one", "eight")
            }


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
