"""Processes whose clocks are wrong: what they say of an objective is scraped with Prometheus's own
time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from agenteval_otel.provisioning.collector import files_of
from agenteval_otel.semconv import METRIC_OBJECTIVE_BREACH as BREACH
from tests.provisioning.plans import EVERYTHING

from .collector import Collector
from .fixtures import running
from .provisioned import NOWHERE

pytestmark = pytest.mark.backend

HOUR_S = 3_600.0


@pytest.fixture(scope="module", name="expiring")
def expiring_fixture(
    collector_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collector]:
    """The generated Collector, which forgets a series after three seconds instead of two and a half
    minutes.
    """
    folder = tmp_path_factory.mktemp("clocks")
    config = folder / "otel-collector.yaml"
    config.write_text(files_of(EVERYTHING.model_copy(update={"time_scale": 1e-3}))[config.name])
    made = Collector(collector_binary, folder, config=config, environment=NOWHERE)
    with running(made) as started:
        yield started


def export(collector: Collector, service: str, value: int, clock_off_s: float) -> None:
    """The state of a process's detector, with the time of its clock."""
    now = time.time_ns() + int(clock_off_s * 1e9)
    gauge = Gauge([NumberDataPoint({}, now, now, value)])
    scope = ScopeMetrics(
        InstrumentationScope("test"), [Metric(BREACH.name, "", BREACH.unit, gauge)], ""
    )
    resource = Resource({"service.name": service, "service.instance.id": "1"})
    data = MetricsData([ResourceMetrics(resource, [scope], "")])
    exporter = OTLPMetricExporter(f"{collector.http_endpoint}/v1/metrics")
    assert exporter.export(data) is MetricExportResult.SUCCESS


def scraped(collector: Collector, service: str) -> list[str]:
    """Value, and timestamp if there is one, of the gauge of a service."""
    return re.findall(
        rf'^{BREACH.prometheus_name}{{.*job="{service}".*}} (.*)$', collector.scrape(), re.MULTILINE
    )


@pytest.mark.parametrize(("service", "clock_off_s"), [("ahead", HOUR_S), ("behind", -HOUR_S)])
def test_a_breach_is_seen_whatever_the_clock_says(
    expiring: Collector, service: str, clock_off_s: float
) -> None:
    """An hour ahead or behind: the scrape has the value and no timestamp, and follows the next
    value.
    """
    for value in (0, 1):
        export(expiring, service, value, clock_off_s)
        assert expiring.wait_for(
            lambda seen, wanted=f"{value}.0": scraped(seen, service) == [wanted]
        )  # type: ignore[misc]


def test_a_clock_that_is_set_back_is_followed_once_its_series_has_expired(
    expiring: Collector,
) -> None:
    """The Collector ignores values older than the last one; when it has forgotten that, it takes
    them.
    """
    export(expiring, "set back", 0, 0.0)
    assert expiring.wait_for(lambda seen: scraped(seen, "set back") == ["0.0"])

    def follows(seen: Collector) -> bool:
        export(seen, "set back", 1, -HOUR_S)
        return scraped(seen, "set back") == ["1.0"]

    assert expiring.wait_for(follows, 30.0)
