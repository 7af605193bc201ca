"""Compose, Kubernetes, Tempo: what is generated and cannot be run here, held against the structure its makers document.

Where Docker's client has Compose, it reads the file itself.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.collector import files_of

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "collector-config"
README = SHIPPED / "README.md"
IMAGE = re.compile(r"[a-z-]+(/[a-z-]+)?:v?\d+\.\d+\.\d+")
# Of the Compose specification, those that are used.
OF_A_SERVICE = {"image", "command", "environment", "volumes", "ports", "depends_on", "healthcheck", "mem_limit", "init",
                "restart"}  # fmt: skip
OF_A_CHECK = {"test", "interval", "timeout", "retries", "start_period"}
WAITED_FOR = {"service_started", "service_healthy", "service_completed_successfully"}
FINISHES = "owners"


@pytest.fixture(scope="module", name="compose")
def compose_fixture() -> dict[str, Any]:
    composed: dict[str, Any] = yaml.safe_load(files_of(MonitoringPlan())["compose.yaml"])
    return composed


@pytest.fixture(scope="module", name="manifests")
def manifests_fixture() -> dict[str, dict[str, Any]]:
    """The Kubernetes objects by their kind."""
    text = files_of(MonitoringPlan())["kubernetes/collector-sidecar.yaml"]
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}


def test_compose_has_everything_pinned_and_watched(compose: dict[str, Any]) -> None:
    """Eight programs, each image of one version, each restarted and, itself or by the one that asks, healthy."""
    services = compose["services"]
    assert set(services) == {
        "collector", "owners", "health", "jaeger", "tempo", "loki", "prometheus", "alertmanager", "grafana",
    }  # fmt: skip
    for name, service in services.items():
        assert service.keys() <= OF_A_SERVICE, name
        assert IMAGE.fullmatch(service["image"]), name
        assert name == FINISHES or service["restart"] == "unless-stopped"
        assert service.get("healthcheck", {}).keys() <= OF_A_CHECK
    asked = " ".join(services["health"]["healthcheck"]["test"])
    for name in set(services) - {FINISHES}:
        assert "healthcheck" in services[name] or f"http://{name}:" in asked, name


def test_compose_opens_ports_on_this_machine_only(compose: dict[str, Any]) -> None:
    """Nothing there asks who somebody is, so nothing is open to the network, and no port twice."""
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len(published) == len(set(published)) == 7


def test_compose_names_what_is_there(compose: dict[str, Any]) -> None:
    """Volumes are declared, used and kept; mounted files are shipped; whoever is waited for is a service."""
    services, used = compose["services"], set()
    for service in services.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("./"):
                assert (SHIPPED / source).exists(), source
                assert mount.endswith(":ro")
            else:
                used.add(source)
        needed = service.get("depends_on", [])
        assert set(needed) <= set(services)
        assert isinstance(needed, list) or {one["condition"] for one in needed.values()} <= WAITED_FOR
    assert used == set(compose["volumes"])
    assert {"queue", "badger", "tempo", "loki", "prometheus", "alertmanager", "grafana"} == used


def test_compose_s_collector_knows_its_neighbours(compose: dict[str, Any]) -> None:
    """Its addresses are services of the file, its variables ones that its configuration reads."""
    environment = compose["services"]["collector"]["environment"]
    read = set(re.findall(r"\$\{env:([A-Z_]+)", files_of(MonitoringPlan())["otel-collector.yaml"]))
    assert environment.keys() <= read
    hosts = {re.sub(r"^http://", "", value).split(":")[0]
             for name, value in environment.items() if name.endswith("_ENDPOINT")}  # fmt: skip
    assert hosts == {"jaeger", "tempo", "loki"}


def test_prometheus_of_compose_differs_in_its_neighbours_only() -> None:
    """The same text, with the names that the others have there."""
    files = files_of(MonitoringPlan())
    alone, composed = (yaml.safe_load(files[f"prometheus/{name}.yml"]) for name in ("prometheus", "prometheus-compose"))
    assert composed["scrape_configs"][0].pop("static_configs") == [{"targets": ["collector:8889"]}]
    assert composed["alerting"]["alertmanagers"].pop() == {"static_configs": [{"targets": ["alertmanager:9093"]}]}
    assert alone["scrape_configs"][0].pop("static_configs") == [{"targets": ["127.0.0.1:8889"]}]
    assert alone["alerting"]["alertmanagers"].pop() == {"static_configs": [{"targets": ["127.0.0.1:9093"]}]}
    assert alone == composed


def test_compose_itself_reads_the_file() -> None:
    """Docker's client, where it has Compose, takes the file as it stands."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose here: the file is held against the specification's structure only")
    read = subprocess.run(
        [docker, "compose", "--file", str(SHIPPED / "compose.yaml"), "config", "--quiet"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert read.returncode == 0, read.stderr


def test_kubernetes_runs_the_shipped_configuration_as_a_sidecar(manifests: dict[str, dict[str, Any]]) -> None:
    """The configuration is in the ConfigMap to the letter; the Collector is up first and ends last."""
    (config,) = manifests["ConfigMap"]["data"].values()
    assert config == files_of(MonitoringPlan())["otel-collector.yaml"]
    assert set(manifests) == {"Secret", "ConfigMap", "Deployment"}
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["envFrom"] == [{"secretRef": {"name": manifests["Secret"]["metadata"]["name"]}}]
    names = {variable["name"] for variable in sidecar["env"]} | manifests["Secret"]["stringData"].keys()
    assert names <= set(re.findall(r"\$\{env:([A-Z_]+)", config))


def test_kubernetes_gives_it_probes_limits_and_no_rights(manifests: dict[str, dict[str, Any]]) -> None:
    """Started, alive and ready are asked for at its health port; memory has an end; it runs as nobody in particular."""
    deployment = manifests["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert ports[sidecar[probe]["httpGet"]["port"]] == 13133
    assert sidecar["resources"]["limits"]["memory"] == "256Mi"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert sidecar["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert deployment["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert {mount["name"] for mount in sidecar["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert all(IMAGE.fullmatch(one["image"]) for one in (*pod["initContainers"], *pod["containers"]))


def test_tempo_listens_where_it_is_looked_for(compose: dict[str, Any]) -> None:
    """Its ports are those of the Collector's exporter and of the check; its folder is the volume."""
    tempo = yaml.safe_load(files_of(MonitoringPlan())["tempo/tempo.yaml"])
    assert set(tempo) == {"server", "distributor", "ingester", "compactor", "storage"}
    receiver = tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert compose["services"]["collector"]["environment"]["COLLECTOR_TEMPO_ENDPOINT"] == receiver.replace(
        "0.0.0.0", "tempo"
    )
    check = " ".join(compose["services"]["health"]["healthcheck"]["test"])
    assert f"http://tempo:{tempo['server']['http_listen_port']}/ready" in check
    mounted = compose["services"]["tempo"]["volumes"][1].split(":")[1]
    assert tempo["storage"]["trace"]["local"]["path"].startswith(mounted)


def test_images_are_of_one_version_everywhere(compose: dict[str, Any], manifests: dict[str, dict[str, Any]]) -> None:
    """An image has the same version in Compose, in Kubernetes and in the README's commands."""
    versions: dict[str, set[str]] = {}
    texts = [README.read_text(), *files_of(MonitoringPlan()).values()]
    for image, _ in (
        (match.group(), 0) for text in texts for match in re.finditer(r"\b[a-z]+/[a-z-]+:v?\d[\d.]+\d", text)
    ):
        name, _, version = image.partition(":")
        versions.setdefault(name, set()).add(version)
    assert {name: len(found) for name, found in versions.items()} == dict.fromkeys(versions, 1)
    assert len(versions) == 7
