"""What stands around the shipped Collector: Prometheus' own check, Compose's reader of files,
Kubernetes' schemas.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .sdk import SHIPPED

pytestmark = pytest.mark.backend

COMPOSE = SHIPPED.parent / "compose.yaml"


def checked(binary: Path, *arguments: str | Path) -> str:
    """What a program printed that had nothing against a file."""
    done = subprocess.run(
        [binary, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-compose.yml"])
def test_promtool_accepts_prometheus_with_its_rules(promtool_binary: Path, name: str) -> None:
    """Both configurations pass Prometheus' own check as they stand, the rule files that they name
    among them.
    """
    assert "rule files found" in checked(
        promtool_binary, "check", "config", SHIPPED.parent / "prometheus" / name
    )


def test_compose_reads_the_shipped_file(compose_binary: Path) -> None:
    """It is right by the schema of the Compose specification, its variables filled in."""
    services = yaml.safe_load(checked(compose_binary, COMPOSE))["services"]
    assert (
        services["collector"]["depends_on"]["owners"]["condition"]
        == "service_completed_successfully"
    )
    assert len(services) == 9


def test_compose_reads_the_sidecar_beside_it(compose_binary: Path) -> None:
    """Over the stack it adds one service and an argument of the Collector's, and takes nothing
    away.

    This reader of files looks for no variables outside of them, so the token that has to be set
    stays a name.
    """
    alone = yaml.safe_load(checked(compose_binary, COMPOSE))["services"]
    overlay = COMPOSE.with_name("compose.sidecar.yaml")
    services = yaml.safe_load(checked(compose_binary, "-no-interpolation", COMPOSE, overlay))[
        "services"
    ]
    assert services.keys() - alone.keys() == {"sidecar"}
    assert services["collector"]["command"] == [
        *alone["collector"]["command"],
        "--config=/etc/to-sidecar.yaml",
    ]
    targets = {volume["target"] for volume in services["collector"]["volumes"]}
    assert targets == {"/etc/otel-collector.yaml", "/etc/to-sidecar.yaml", "/queue"}
    assert services["sidecar"]["networks"].keys() == {"sidecar"}
    assert {name for name, service in services.items() if "sidecar" in service["networks"]} == {
        "sidecar",
        "collector",
    }
    assert "ports" not in services["sidecar"]


@pytest.mark.parametrize("name", ["collector-sidecar.yaml", "agenteval-sidecar.yaml"])
def test_kubernetes_schemas_accept_the_manifest(
    kubernetes_validate_binary: Path, name: str
) -> None:
    """Every object has the fields of its kind and no others."""
    checked(
        kubernetes_validate_binary,
        "-m",
        "kubernetes_validate",
        "--strict",
        SHIPPED.parent / "kubernetes" / name,
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_knows_every_line_of_the_unit(tmp_path: Path) -> None:
    """Nothing is unknown to it or ignored, and it finds the service well closed."""
    unit, program = (
        tmp_path / "agenteval-sidecar.service",
        Path(sys.executable).with_name("agenteval-otel"),
    )
    text = (SHIPPED.parent / "systemd" / unit.name).read_text()
    unit.write_text(text.replace("/opt/agenteval/bin/agenteval-otel", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    arguments = ("security", "--offline=yes", "--threshold=20", unit)
    assert "Overall exposure level" in checked(Path("systemd-analyze"), *arguments)
