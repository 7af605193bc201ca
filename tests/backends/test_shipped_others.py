"""What stands around the shipped Collector: Jaeger on disk, Prometheus' own check, the reader of Docker Compose."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from .fixtures import running
from .jaeger import Jaeger
from .sdk import SHIPPED, Sent
from .test_shipped_collector import LIMIT_S

pytestmark = pytest.mark.backend

COMPOSE = SHIPPED.parent / "compose.yaml"


def checked(binary: Path, *arguments: str | Path) -> str:
    """What a program printed that had nothing against a file."""
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_jaeger_has_its_traces_after_a_restart(jaeger_binary: Path, tmp_path: Path) -> None:
    """With jaeger.yaml traces are on disk: what was there before the restart is there after it."""
    jaeger = Jaeger(jaeger_binary, tmp_path, config=SHIPPED.parent / "jaeger" / "jaeger.yaml")
    with running(jaeger):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"http://{jaeger.otlp_endpoint}")))
        span = provider.get_tracer("t").start_span("before")
        span.end()
        provider.shutdown()
        trace_id = Sent.of(span).trace_id
        assert jaeger.wait_for(lambda seen: seen.trace(trace_id), LIMIT_S)

        jaeger.stop()
        jaeger.start()

        result = jaeger.wait_for(lambda seen: seen.trace(trace_id), LIMIT_S)
        assert [item.name for item in result.spans] == ["before"]


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-compose.yml"])
def test_promtool_accepts_prometheus_with_its_rules(promtool_binary: Path, name: str) -> None:
    """Both configurations pass Prometheus' own check as they stand, the rule files that they name among them."""
    assert "rule files found" in checked(promtool_binary, "check", "config", SHIPPED.parent / "prometheus" / name)


def test_compose_reads_the_shipped_file(compose_binary: Path) -> None:
    """It is right by the schema of the Compose specification, its variables filled in."""
    services = yaml.safe_load(checked(compose_binary, COMPOSE))["services"]
    assert services["collector"]["depends_on"]["owners"]["condition"] == "service_completed_successfully"
    assert len(services) == 9


def test_kubernetes_schemas_accept_the_manifest(kubernetes_validate_binary: Path) -> None:
    """Every object has the fields of its kind and no others."""
    manifest = SHIPPED.parent / "kubernetes" / "collector-sidecar.yaml"
    checked(kubernetes_validate_binary, "-m", "kubernetes_validate", "--strict", manifest)
