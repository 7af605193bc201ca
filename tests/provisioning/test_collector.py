"""What is generated for the Collector and its neighbours: what a plan decides, and the structure of
what cannot be run.

Collector, Loki and Prometheus are run with these files in tests/backends, where Compose and
Kubernetes are checked by their schemas; Azure, Jaeger 2 and Tempo are held against what their
makers document.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agenteval_otel import semconv
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.collector import CONTENT, files_of

from .plans import criterion, loaded, plan_of

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
PLAN = plan_of(
    criterion("tone", objective=0.9),
    criterion("clarity-2.x", scale="numeric", threshold=0.5),
    criterion("length", scale="numeric"),
)
FILES = files_of(PLAN)


def tree(text: str) -> Any:
    (document,) = yaml.safe_load_all(text)
    return document


def seconds(duration: str) -> float:
    result = re.fullmatch(r"([\d.]+)([ms])", duration)
    assert result, duration
    return float(result[1]) * SECONDS[result[2]]


@pytest.mark.parametrize("name", COLLECTORS)
def test_every_collector_guards_itself_and_content(name: str) -> None:
    """The memory limiter is first, content goes before anything leaves, what leaves waits in a
    bounded queue on disk. The Collector itself checks the rest (tests/backends)."""
    config = tree(FILES[name])
    pipelines = config["service"]["pipelines"]
    assert set(pipelines) == {"traces", "logs", "metrics"}
    for signal, pipeline in pipelines.items():
        assert pipeline["processors"][0] == "memory_limiter"
        assert pipeline["processors"][-1] == "batch"
        assert ("transform/content" in pipeline["processors"]) == (signal != "metrics")
    for kind, exporter in config["exporters"].items():
        if kind not in ("debug", "file", "prometheus"):
            assert exporter["sending_queue"]["storage"] == "file_storage/queue", kind
            assert exporter["sending_queue"]["queue_size"] > 0


def test_content_is_known_by_its_names() -> None:
    """Attributes that hold texts, of the conventions and of others, are in every Collector's
    patterns, and no others that we emit."""
    texts = {
        semconv.EXPLANATION,
        semconv.USER_PROMPT,
        semconv.FULL_RESPONSE,
        semconv.INPUT,
        semconv.INPUT_MESSAGES,
        semconv.OUTPUT_MESSAGES,
        semconv.TOOL_DEFINITIONS,
    }
    for name in (
        *texts,
        "gen_ai.system_instructions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.prompt",
        "gen_ai.prompt.0.content",
        "gen_ai.completion.0.content",
        "input.value",
        "traceloop.entity.output",
    ):
        (pattern,) = [pattern for pattern in CONTENT if re.fullmatch(pattern, name)]
        for collector in COLLECTORS:
            assert FILES[collector].count(pattern) == 3, name  # spans, their events, log records
    ours = {value for value in vars(semconv).values() if isinstance(value, str) and "." in value}
    ours |= {
        semconv.criterion_score("tone"),
        semconv.criterion_label("content"),
        "gen_ai.usage.input_tokens",
    }
    assert {
        name for name in ours if any(re.fullmatch(pattern, name) for pattern in CONTENT)
    } == texts


def test_tail_sampling_knows_the_criteria_that_can_fail() -> None:
    """A policy for each criterion with a verdict, none for one without; then errors, evaluations
    and a share.
    """
    rest = ["errors", "evaluated", "the-rest"]
    policies = tree(FILES["collector/tail-sampling.yaml"])["processors"]["tail_sampling"][
        "policies"
    ]
    assert [policy["name"] for policy in policies] == ["fails-tone", "fails-clarity-2.x", *rest]
    assert policies[1]["string_attribute"] == {
        "key": "gen_ai.evaluation.clarity-2.x.label",
        "values": ["fail"],
    }
    config = tree(files_of(MonitoringPlan())["collector/gateway.yaml"])
    assert [policy["name"] for policy in config["processors"]["tail_sampling"]["policies"]] == rest


def test_a_decision_waits_for_judges_and_series_for_two_exports() -> None:
    """Longer where a model is asked; both shrink with the time scale, neither below what still
    works.
    """
    judged = PLAN.model_copy(update={"judge_models": ("m",)})
    decisions, expirations = [], []
    for item in (
        PLAN,
        judged,
        judged.model_copy(update={"time_scale": 0.5}),
        judged.model_copy(update={"time_scale": 0.0005}),
    ):
        config = tree(files_of(item)["collector/tail-sampling.yaml"])
        decisions.append(seconds(config["processors"]["tail_sampling"]["decision_wait"]))
        expirations.append(seconds(config["exporters"]["prometheus"]["metric_expiration"]))
    assert decisions == [15.0, 60.0, 30.0, 1.0]
    assert expirations == [150.0, 150.0, 75.0, 3.0]


def test_azure_is_told_in_its_exporter_s_words() -> None:
    """Only settings that the exporter has, its secret from the environment, no other backend beside
    it.
    """
    config = tree(FILES["collector/azure-monitor.yaml"])
    exporter = config["exporters"]["azuremonitor"]
    assert exporter.keys() <= AZURE
    assert exporter["connection_string"] == "${env:APPLICATIONINSIGHTS_CONNECTION_STRING}"
    assert set(config["exporters"]) == {"azuremonitor", "prometheus", "debug"}
    assert all(
        "azuremonitor" in pipeline["exporters"]
        for pipeline in config["service"]["pipelines"].values()
    )


# --- Compose, Kubernetes, Tempo ---

SHIPPED = Path(__file__).resolve().parents[2] / "collector-config"
IMAGE = re.compile(r"[a-z-]+(/[a-z-]+)?:v?\d+\.\d+\.\d+")
FINISHES = "owners"
COMPOSE: dict[str, Any] = loaded(FILES["compose.yaml"])
MANIFESTS = {
    item["kind"]: item for item in yaml.safe_load_all(FILES["kubernetes/collector-sidecar.yaml"])
}


def test_compose_has_everything_pinned_and_watched() -> None:
    """Eight programs, each image of one version, restarted and, by itself or by the one that asks,
    healthy; no port is open to the network, and none is used twice."""
    services = COMPOSE["services"]
    assert set(services) == {
        "collector",
        "owners",
        "health",
        "jaeger",
        "tempo",
        "loki",
        "prometheus",
        "alertmanager",
        "grafana",
    }
    requested = " ".join(services["health"]["healthcheck"]["test"])
    for name, service in services.items():
        assert IMAGE.fullmatch(service["image"]), name
        assert name == FINISHES or service["restart"] == "unless-stopped"
        assert name == FINISHES or "healthcheck" in service or f"http://{name}:" in requested, name
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len(published) == len(set(published)) == 7


def test_compose_names_what_is_there() -> None:
    """Mounted files are shipped, and the Collector's variables are ones that its settings read."""
    services = COMPOSE["services"]
    for service in services.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("./"):
                assert (SHIPPED / source).exists(), source
                assert mount.endswith(":ro")
    environment = services["collector"]["environment"]
    assert environment.keys() <= set(re.findall(r"\$\{env:([A-Z_]+)", FILES["otel-collector.yaml"]))
    hosts = {
        re.sub(r"^http://", "", value).split(":")[0]
        for name, value in environment.items()
        if name.endswith("_ENDPOINT")
    }
    assert hosts == {"jaeger", "tempo", "loki"}


def test_kubernetes_runs_the_shipped_configuration_as_a_sidecar() -> None:
    """The configuration is that of the ConfigMap; the Collector starts first, with probes, limits
    and no rights.
    """
    (config,) = MANIFESTS["ConfigMap"]["data"].values()
    assert config == FILES["otel-collector.yaml"]
    assert set(MANIFESTS) == {"Secret", "ConfigMap", "Deployment"}
    pod = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["envFrom"] == [{"secretRef": {"name": MANIFESTS["Secret"]["metadata"]["name"]}}]
    names = {variable["name"] for variable in sidecar["env"]} | MANIFESTS["Secret"][
        "stringData"
    ].keys()
    assert names <= set(re.findall(r"\$\{env:([A-Z_]+)", config))
    ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert ports[sidecar[probe]["httpGet"]["port"]] == 13133
    assert sidecar["resources"]["limits"]["memory"] == "256Mi"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert sidecar["securityContext"]["allowPrivilegeEscalation"] is False
    assert all(IMAGE.fullmatch(container["image"]) for container in (sidecar, *pod["containers"]))


def test_jaeger_listens_and_stores_where_it_is_looked_for() -> None:
    """The storage is one; ports are those of the Collector's exporter, of Grafana and of the check,
    the folder is the volume."""
    config, service = tree(FILES["jaeger/jaeger.yaml"]), COMPOSE["services"]["jaeger"]
    (storage,) = config["extensions"]["jaeger_storage"]["backends"]
    query = config["extensions"]["jaeger_query"]
    assert (
        config["exporters"]["jaeger_storage_exporter"]["trace_storage"]
        == query["storage"]["traces"]
        == storage
    )
    collector = COMPOSE["services"]["collector"]["environment"]
    receiver = at(
        "jaeger",
        config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"],
        service["environment"],
    )
    assert collector["COLLECTOR_TRACES_ENDPOINT"] == receiver == "jaeger:14317"
    pages = at("jaeger", query["http"]["endpoint"], service["environment"])
    assert (
        f'url: "http://{pages}"'
        in (SHIPPED / "grafana/provisioning/datasources/agenteval.yaml").read_text()
    )
    health = at(
        "127.0.0.1",
        config["extensions"]["healthcheckv2"]["http"]["endpoint"],
        service["environment"],
    )
    assert service["healthcheck"]["test"][-1] == f"http://{health}/status"
    assert f"badger:{service['environment']['JAEGER_DATA']}" in service["volumes"]


def test_tempo_listens_where_it_is_looked_for() -> None:
    """Its ports are those of the Collector's exporter and of the check; its folder is the volume."""
    tempo, services = loaded(FILES["tempo/tempo.yaml"]), COMPOSE["services"]
    environment = services["tempo"]["environment"]
    receiver = tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert services["collector"]["environment"]["COLLECTOR_TEMPO_ENDPOINT"] == at(
        "tempo", receiver, environment
    )
    check = " ".join(services["health"]["healthcheck"]["test"])
    assert (
        f"http://tempo:{filled_in(tempo['server']['http_listen_port'], environment)}/ready" in check
    )
    assert (
        f"tempo:{filled_in(tempo['storage']['trace']['local']['path'], environment)}".removesuffix(
            "/blocks"
        )
        in (services["tempo"]["volumes"])
    )


@pytest.mark.parametrize(
    "name", [*COLLECTORS, "jaeger/jaeger.yaml", "tempo/tempo.yaml", "loki/loki.yaml"]
)
def test_every_listener_is_on_loopback_unless_a_variable_opens_it(name: str) -> None:
    """Outside of a container nothing is open to the network, and every port can be another."""
    listeners = re.findall(
        r"^ *(?:http_listen_address|grpc_listen_address|endpoint): (\$\{.*_HOST.*)$",
        FILES[name],
        re.M,
    )
    assert len(listeners) >= 2
    assert {filled_in(listener, {}).rsplit(":", 1)[0] for listener in listeners} == {"127.0.0.1"}
    assert all("PORT" in listener for listener in listeners if ":$" in listener)
    assert "0.0.0.0" not in re.sub("#.*", "", FILES[name])


def filled_in(text: str, environment: dict[str, str]) -> str:
    """A setting with its variables or their defaults, as the Collector, Jaeger, Loki and Tempo read
    it.
    """
    return re.sub(
        r"\$\{(?:env:)?(\w+):-([^}]*)\}", lambda match: environment.get(match[1], match[2]), text
    )


def at(name: str, endpoint: str, environment: dict[str, str]) -> str:
    """Where a listener of a service of Compose, open to the others, is found by this name."""
    return filled_in(endpoint, environment).replace("0.0.0.0", name)


def test_prometheus_finds_another_collector_and_alertmanager_by_option() -> None:
    """A second stack on a machine has other ports; Compose's has its names, and is the same but for
    them. What is no address is refused.
    """
    second = files_of(PLAN, scrape="127.0.0.1:8899", alertmanager="[::1]:9193")
    alone = loaded(second["prometheus/prometheus.yml"])
    assert alone["scrape_configs"][0]["static_configs"] == [{"targets": ["127.0.0.1:8899"]}]
    assert alone["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["[::1]:9193"]}]}]
    assert {name for name in FILES if second[name] != FILES[name]} == {"prometheus/prometheus.yml"}
    own = files_of(PLAN, scrape="collector:8889", alertmanager="alertmanager:9093")
    composed = loaded(FILES["prometheus/prometheus-compose.yml"])
    assert composed == loaded(own["prometheus/prometheus.yml"])
    for wrong in ("http://127.0.0.1:9", "127.0.0.1", '127.0.0.1:9"]', ""):
        with pytest.raises(ConfigurationError, match="scrape: must be a host and a port"):
            files_of(PLAN, scrape=wrong)


def test_images_are_of_one_version_everywhere() -> None:
    """An image has the same version in Compose, in Kubernetes and in the quick start's commands."""
    quick_start = (SHIPPED.parent / "docs/quick-start.md").read_text()
    texts = "\n".join([quick_start, *FILES.values()])
    images = set(re.findall(r"\b[a-z]+/[a-z-]+:v?\d[\d.]+\d", texts))
    assert len(images) == len({image.partition(":")[0] for image in images}) == 7


# --- The sidecar ---


def test_the_sidecar_of_compose_is_closed() -> None:
    """Nothing is published; a client has to show a token, which the Collector does; it runs with no
    rights.
    """
    services = loaded(FILES["compose.sidecar.yaml"])["services"]
    sidecar, token = (
        services["sidecar"],
        "${AGENTEVAL_SIDECAR__TOKEN:?make one with openssl rand -hex 16}",
    )
    assert IMAGE.fullmatch(sidecar["image"])
    assert "ports" not in sidecar
    assert sidecar["environment"]["AGENTEVAL_SIDECAR__TOKEN"] == token
    assert (
        services["collector"]["environment"]["COLLECTOR_SIDECAR_AUTHORIZATION"] == f"Bearer {token}"
    )
    variables = set(re.findall(r"\$\{env:([A-Z_]+)", FILES["collector/to-sidecar.yaml"]))
    assert services["collector"]["environment"].keys() <= variables
    assert (sidecar["read_only"], sidecar["cap_drop"]) == (True, ["ALL"])
    assert "\nUSER 10001:10001\n" in FILES["sidecar/Dockerfile"]


def test_what_waits_for_the_sidecar_is_bounded() -> None:
    """In memory and in the queue of the overlay, which the Collector's own check does not look at."""
    config = tree(FILES["collector/to-sidecar.yaml"])
    for pipeline in config["service"]["pipelines"].values():
        assert pipeline["processors"][0] == "memory_limiter"
    (exporter,) = config["exporters"].values()
    assert exporter["sending_queue"]["queue_size"] == 64 * 1024 * 1024


def test_kubernetes_runs_the_sidecar_on_the_pods_loopback() -> None:
    """The configurations are the shipped ones; the sidecar ends before the Collector, to which its
    scores go; no probe of it keeps the application from starting or from its requests."""
    manifests = {
        item["kind"]: item
        for item in yaml.safe_load_all(FILES["kubernetes/agenteval-sidecar.yaml"])
    }
    shipped = {
        "otel-collector.yaml": "otel-collector.yaml",
        "to-sidecar.yaml": "collector/to-sidecar.yaml",
    }
    assert manifests["ConfigMap"]["data"] == {name: FILES[path] for name, path in shipped.items()}
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    collector, sidecar = pod["initContainers"]
    assert [container["name"] for container in (collector, sidecar)] == [
        "collector",
        "agenteval-sidecar",
    ]
    assert collector["args"] == [f"--config=/etc/otelcol/{name}" for name in shipped]
    (alone,) = MANIFESTS["Deployment"]["spec"]["template"]["spec"]["initContainers"]
    assert collector | {"args": alone["args"]} == alone
    assert sidecar["args"] == ["--host=127.0.0.1", "--grpc-port=4327", "--http-port=4328"]
    assert [key for key in sidecar if key.endswith("Probe")] == ["livenessProbe"]


def test_every_supervisor_waits_for_the_sidecar_to_drain() -> None:
    """Longer than `sidecar.drain_s`, in systemd, Compose and Kubernetes."""
    files = files_of(PLAN.model_copy(update={"drain_s": 44.5}))
    assert "TimeoutStopSec=55\n" in files["systemd/agenteval-sidecar.service"]
    assert (
        loaded(files["compose.sidecar.yaml"])["services"]["sidecar"]["stop_grace_period"] == "55s"
    )
    assert "terminationGracePeriodSeconds: 85\n" in files["kubernetes/agenteval-sidecar.yaml"]
