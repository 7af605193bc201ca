"""What stands around the shipped Collector: Prometheus' own check, Compose's reader of files, Kubernetes' schemas."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from .sdk import SHIPPED

pytestmark = pytest.mark.backend

COMPOSE = SHIPPED.parent / "compose.yaml"


def checked(binary: Path, *arguments: str | Path) -> str:
    """What a program printed that had nothing against a file."""
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


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
