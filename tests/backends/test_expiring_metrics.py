"""Applications come and go: their series expire in the Collector while Prometheus scrapes, and
nobody is woken.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .collector import Collector
from .fixtures import running
from .programs import finish, started, wait_for_what_was_sent
from .prometheus import Prometheus, scraping
from .provisioned import NOWHERE, provision
from .sdk import SHIPPED

pytestmark = [pytest.mark.backend, pytest.mark.live]

FOLDER = SHIPPED.parent
SERVICE = "comes-and-goes"
EXPIRES = "2s"
GONE_LIMIT_S = 30.0
RESULTS = f'agenteval_evaluation_results_total{{job="{SERVICE}"}}'


def test_series_that_expire_and_come_back(
    collector_binary: Path, prometheus_binary: Path, tmp_path: Path
) -> None:
    """After two short runs with a gap: no alert, no rate beyond 0 to 1, no NaN among what the rules
    recorded.
    """
    shipped = tmp_path / "collector.yaml"
    text = SHIPPED.read_text()
    before = [line for line in text.splitlines() if line.strip().startswith("metric_expiration:")]
    assert len(before) == 1
    shipped.write_text(text.replace(before[0], f"{before[0].split(':')[0]}: {EXPIRES}"))
    made = provision(tmp_path, FOLDER / "agenteval.yaml", time_scale=0.0005)
    with running(
        Collector(collector_binary, tmp_path / "collector", config=shipped, environment=NOWHERE)
    ) as collector:
        config = scraping(
            FOLDER / "prometheus/prometheus.yml",
            port=collector.ports.prometheus,
            every_s=0.5,
            rules=made / "prometheus/rules",
        )
        config["global"]["evaluation_interval"] = "1s"
        with running(Prometheus(prometheus_binary, tmp_path / "data", config=config)) as prometheus:
            for number in (1, 2):
                finish(
                    started(
                        "-m",
                        "agenteval_otel",
                        "demo",
                        "--seconds=6",
                        "--no-drop",
                        OTEL_SERVICE_NAME=SERVICE,
                        OTEL_EXPORTER_OTLP_ENDPOINT=collector.grpc_endpoint,
                        OTEL_METRIC_EXPORT_INTERVAL="500",
                    )
                )
                wait_for_what_was_sent(collector, prometheus)
                # Of each run: on a busy machine they may be gone already.
                runs = f"count by (instance) (max_over_time({RESULTS}[10m]))"
                assert len(prometheus.query(runs)) == number
                prometheus.wait_for(lambda seen: not seen.query(RESULTS), GONE_LIMIT_S)
            alerts = {
                item["alertname"] for item in prometheus.firing() if item.get("job") == SERVICE
            }
            # It has ended, so on a busy machine it is silent for long enough by now.
            assert alerts <= {"AgentevalServiceSilent"}
            rates = f'{{__name__=~"agenteval:(pass_rate|mean_score).*", job="{SERVICE}"}}'
            recorded, past = (
                prometheus.query(rates),
                prometheus.query(f"last_over_time({rates}[10m])"),
            )
            assert past, "the rules had something to record"
            assert all(0 <= sample.value <= 1 for sample in (*recorded, *past)), (
                "NaN compares false"
            )
