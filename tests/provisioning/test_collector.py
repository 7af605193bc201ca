"""What is generated for the Collector and its neighbours: what a plan decides, and the structure of what cannot be run.

Collector, Jaeger, Loki and Prometheus are run with these files in tests/backends; Azure, Tempo, Compose and Kubernetes
are held against what their makers document.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agenteval_otel import semconv
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.collector import CONTENT, files_of

from .plans import criterion, plan_of

COLLECTORS = [
    "otel-collector.yaml",
    "collector/tail-sampling.yaml",
    "collector/gateway.yaml",
    "collector/gateway-agent.yaml",
    "collector/azure-monitor.yaml",
]
# The exporter's own settings, and those that it shares with other exporters.
AZURE = {"connection_string", "endpoint", "maxbatchsize", "maxbatchinterval", "spaneventsenabled", "sending_queue",
         "shutdown_timeout", "custom_events_enabled"}  # fmt: skip
SECONDS = {"s": 1.0, "m": 60.0}


@pytest.fixture(scope="module", name="plan")
def plan_fixture() -> MonitoringPlan:
    return plan_of(
        criterion("tone", objective=0.9), criterion("clarity-2.x", scale="numeric", threshold=0.5),
        criterion("length", scale="numeric"),
    )  # fmt: skip


def tree(text: str) -> Any:
    (document,) = yaml.safe_load_all(text)
    return document


def seconds(duration: str) -> float:
    result = re.fullmatch(r"([\d.]+)([ms])", duration)
    assert result, duration
    return float(result[1]) * SECONDS[result[2]]


@pytest.mark.parametrize("name", COLLECTORS)
def test_every_collector_guards_itself_and_content(plan: MonitoringPlan, name: str) -> None:
    """The memory limiter is first everywhere, content goes before anything leaves, every part named is declared."""
    config = tree(files_of(plan)[name])
    pipelines = config["service"]["pipelines"]
    assert set(pipelines) == {"traces", "logs", "metrics"}
    for signal, pipeline in pipelines.items():
        assert pipeline["processors"][0] == "memory_limiter"
        assert pipeline["processors"][-1] == "batch"
        assert ("transform/content" in pipeline["processors"]) == (signal != "metrics")
        assert set(pipeline["processors"]) <= set(config["processors"])
        assert set(pipeline["receivers"]) <= set(config["receivers"])
        exporters = pipeline["exporters"]
        assert set(exporters if isinstance(exporters, list) else default(exporters)) <= set(config["exporters"])
    assert set(config["service"]["extensions"]) == set(config["extensions"])


def default(variable: str) -> list[str]:
    """The list that a variable has when it is not set."""
    result = re.fullmatch(r"\$\{env:[A-Z_]+:-(\[.*\])\}", variable)
    assert result, variable
    names: list[str] = yaml.safe_load(result[1])
    return names


def test_everything_that_leaves_for_a_backend_waits_on_disk(plan: MonitoringPlan) -> None:
    """Every exporter over the network has a bounded queue in the file storage, and tries again."""
    for name in COLLECTORS:
        for kind, exporter in tree(files_of(plan)[name])["exporters"].items():
            if kind in ("debug", "file", "prometheus"):
                continue
            assert exporter["sending_queue"]["storage"] == "file_storage/queue", (name, kind)
            assert exporter["sending_queue"]["queue_size"] > 0


@pytest.mark.parametrize(
    "name",
    [
        semconv.EXPLANATION,
        semconv.USER_PROMPT,
        semconv.FULL_RESPONSE,
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.prompt",
        "gen_ai.completion.0.content",
        "input.value",
        "traceloop.entity.output",
    ],
)
def test_content_is_known_by_its_names(plan: MonitoringPlan, name: str) -> None:
    """Attributes that hold texts, of the conventions and of others, are in the patterns, and in every Collector."""
    (pattern,) = [pattern for pattern in CONTENT if re.fullmatch(pattern, name)]
    for collector in COLLECTORS:
        assert files_of(plan)[collector].count(pattern) == 3  # spans, their events, log records


def test_no_name_that_we_emit_is_taken_for_content() -> None:
    """Whatever semconv names, but for the three that hold texts, passes."""
    ours = {value for value in vars(semconv).values() if isinstance(value, str) and "." in value}
    ours |= {semconv.criterion_score("tone"), semconv.criterion_label("content"), "gen_ai.usage.input_tokens"}
    taken = {name for name in ours if any(re.fullmatch(pattern, name) for pattern in CONTENT)}
    assert taken == {semconv.EXPLANATION, semconv.USER_PROMPT, semconv.FULL_RESPONSE}


def test_tail_sampling_knows_the_criteria_that_can_fail(plan: MonitoringPlan) -> None:
    """A policy for each criterion with a verdict, none for one without; then errors, evaluations and a share."""
    policies = tree(files_of(plan)["collector/tail-sampling.yaml"])["processors"]["tail_sampling"]["policies"]
    assert [policy["name"] for policy in policies] == [
        "fails-tone", "fails-clarity-2.x", "errors", "evaluated", "the-rest",
    ]  # fmt: skip
    assert policies[1]["string_attribute"] == {"key": "gen_ai.evaluation.clarity-2.x.label", "values": ["fail"]}


def test_without_criteria_there_is_a_collector_all_the_same() -> None:
    """Settings without a threshold: nothing can fail, and the other policies remain."""
    config = tree(files_of(MonitoringPlan())["collector/gateway.yaml"])
    names = [policy["name"] for policy in config["processors"]["tail_sampling"]["policies"]]
    assert names == ["errors", "evaluated", "the-rest"]


def test_a_decision_waits_for_judges_and_series_for_two_exports(plan: MonitoringPlan) -> None:
    """Longer where a model is asked; both shrink with the time scale, neither below what still works."""
    judged = plan.model_copy(update={"judge_models": ("m",)})
    decisions, expirations = [], []
    for item in (plan, judged, judged.model_copy(update={"time_scale": 0.5}),
                judged.model_copy(update={"time_scale": 0.0005})):  # fmt: skip
        config = tree(files_of(item)["collector/tail-sampling.yaml"])
        decisions.append(seconds(config["processors"]["tail_sampling"]["decision_wait"]))
        expirations.append(seconds(config["exporters"]["prometheus"]["metric_expiration"]))
    assert decisions == [15.0, 60.0, 30.0, 1.0]
    assert expirations == [150.0, 150.0, 75.0, 3.0]


def test_azure_is_told_in_its_exporter_s_words(plan: MonitoringPlan) -> None:
    """Only settings that the exporter has, its secret from the environment, no other backend beside it."""
    config = tree(files_of(plan)["collector/azure-monitor.yaml"])
    exporter = config["exporters"]["azuremonitor"]
    assert exporter.keys() <= AZURE
    assert exporter["connection_string"] == "${env:APPLICATIONINSIGHTS_CONNECTION_STRING}"
    assert set(config["exporters"]) == {"azuremonitor", "prometheus", "debug"}
    assert all("azuremonitor" in pipeline["exporters"] for pipeline in config["service"]["pipelines"].values())


# --- Compose, Kubernetes, Tempo ---

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
    requested = " ".join(services["health"]["healthcheck"]["test"])
    for name in set(services) - {FINISHES}:
        assert "healthcheck" in services[name] or f"http://{name}:" in requested, name


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
        assert isinstance(needed, list) or {item["condition"] for item in needed.values()} <= WAITED_FOR
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
    """The configuration is that of the ConfigMap; the Collector starts first, with probes, limits and no rights."""
    (config,) = manifests["ConfigMap"]["data"].values()
    assert config == files_of(MonitoringPlan())["otel-collector.yaml"]
    assert set(manifests) == {"Secret", "ConfigMap", "Deployment"}
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["envFrom"] == [{"secretRef": {"name": manifests["Secret"]["metadata"]["name"]}}]
    names = {variable["name"] for variable in sidecar["env"]} | manifests["Secret"]["stringData"].keys()
    assert names <= set(re.findall(r"\$\{env:([A-Z_]+)", config))
    ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert ports[sidecar[probe]["httpGet"]["port"]] == 13133
    assert sidecar["resources"]["limits"]["memory"] == "256Mi"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert sidecar["securityContext"]["allowPrivilegeEscalation"] is False
    assert {mount["name"] for mount in sidecar["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert all(IMAGE.fullmatch(container["image"]) for container in (sidecar, *pod["containers"]))


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
    assert {name: len(result) for name, result in versions.items()} == dict.fromkeys(versions, 1)
    assert len(versions) == 7
