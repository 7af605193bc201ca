"""Several sidecars on one machine: what is written for each, and what they share."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning import files_for
from agenteval_otel.provisioning.collector import files_of

from .plans import criterion, loaded, plan_of

PLAN = plan_of(criterion("tone", objective=0.9))
ONE = files_of(PLAN)
THREE = files_of(PLAN, sidecars="3")
PORTS = [(4327, 4328), (4329, 4330), (4331, 4332)]
ADDRESSES = "[127.0.0.1:4327, 127.0.0.1:4329, 127.0.0.1:4331]"


def pod_of(files: Any) -> dict[str, Any]:
    manifests = yaml.safe_load_all(files["kubernetes/agenteval-sidecar.yaml"])
    by_kind = {manifest["kind"]: manifest for manifest in manifests}
    return {
        "configurations": by_kind["ConfigMap"]["data"],
        "containers": by_kind["Deployment"]["spec"]["template"]["spec"]["initContainers"],
    }


def test_only_the_files_that_name_the_sidecar_change() -> None:
    """One is what is written without the option; several add the balancing and a unit for each."""
    assert files_for("collector", PLAN, {"sidecars": "1"}) == ONE
    assert THREE.keys() - ONE.keys() == {
        "collector/to-sidecars.yaml",
        "systemd/agenteval-sidecar-1.service",
        "systemd/agenteval-sidecar-2.service",
        "systemd/agenteval-sidecar-3.service",
    }
    assert ONE.keys() - THREE.keys() == {"systemd/agenteval-sidecar.service"}
    changed = {name for name in ONE.keys() & THREE.keys() if ONE[name] != THREE[name]}
    assert changed == {"compose.sidecar.yaml", "kubernetes/agenteval-sidecar.yaml"}
    assert not any(re.search(r"@[a-z_]+@|#\+ ", text) for text in THREE.values())


def test_traces_and_events_are_balanced_by_trace_id_over_a_fixed_list() -> None:
    """Each sidecar has a queue behind the balancing, as bounded and as patient as that of a single one."""
    balanced = loaded(THREE["collector/to-sidecars.yaml"])
    (name, exporter), *others = balanced["exporters"].items()
    assert not others
    pipelines = {"traces/sidecar": {"exporters": [name]}, "logs/sidecar": {"exporters": [name]}}
    assert balanced["service"]["pipelines"] == pipelines
    assert exporter["routing_key"] == "traceID"
    addresses = f"${{env:COLLECTOR_SIDECARS:-{ADDRESSES}}}"
    assert f"hostnames: {addresses}\n" in THREE["collector/to-sidecars.yaml"]
    single = loaded(ONE["collector/to-sidecar.yaml"])["exporters"]["otlp_grpc/sidecar"]
    assert exporter["protocol"]["otlp"] == {
        name: value for name, value in single.items() if name != "endpoint"
    }
    assert exporter.keys() == {"routing_key", "resolver", "protocol"}


def test_each_unit_has_ports_and_a_journal_of_its_own() -> None:
    """They run as one user in one folder, where what judges share may be; nothing else differs."""
    single = ONE["systemd/agenteval-sidecar.service"]
    (started,) = re.findall(r"^ExecStart=.*", single, re.M)
    for place, (grpc_port, http_port) in enumerate(PORTS, start=1):
        unit = THREE[f"systemd/agenteval-sidecar-{place}.service"]
        command = started.replace(
            " --durable", f" --grpc-port {grpc_port} --http-port {http_port} --durable"
        )
        assert f"{command}/{place}\n" in unit
        assert f"serve, {place} of 3)" in unit
        assert "\nUser=agenteval-sidecar\nDynamicUser=yes\nStateDirectory=agenteval\n" in unit
        assert "enable --now agenteval-sidecar-{1..3}\n" in unit
    assert "\nUser=" not in single


def test_compose_runs_each_with_one_key_and_one_folder() -> None:
    """The Collector names them all; a key that decides alike has to be set; no port is published."""
    composed = loaded(THREE["compose.sidecar.yaml"])
    (single,) = (
        service
        for name, service in loaded(ONE["compose.sidecar.yaml"])["services"].items()
        if name == "sidecar"
    )
    collector = composed["services"].pop("collector")
    addresses = "[sidecar-1:4327, sidecar-2:4327, sidecar-3:4327]"
    assert collector["environment"]["COLLECTOR_SIDECARS"] == addresses
    assert "COLLECTOR_SIDECAR_ENDPOINT" not in collector["environment"]
    assert collector["command"][-1] == "--config=/etc/to-sidecars.yaml"
    assert "./collector/to-sidecars.yaml:/etc/to-sidecars.yaml:ro" in collector["volumes"]
    assert list(composed["services"]) == ["sidecar-1", "sidecar-2", "sidecar-3"]
    for service in composed["services"].values():
        key = service["environment"].pop("AGENTEVAL_SAMPLING__KEY")
        assert key.startswith("${AGENTEVAL_SAMPLING__KEY:?")
        assert service["volumes"].pop() == "sidecars:/state"
        assert service == single
    assert composed["volumes"] == {"sidecars": None}


def test_a_pod_has_a_container_with_ports_and_a_probe_for_each() -> None:
    """The Collector's third configuration is in the ConfigMap, and laid over the others last."""
    pod = pod_of(THREE)
    collector, *sidecars = pod["containers"]
    assert pod["configurations"]["to-sidecars.yaml"] == THREE["collector/to-sidecars.yaml"]
    assert collector["args"] == [f"--config=/etc/otelcol/{name}" for name in pod["configurations"]]
    _, single = pod_of(ONE)["containers"]
    for place, (sidecar, (grpc_port, http_port)) in enumerate(
        zip(sidecars, PORTS, strict=True), start=1
    ):
        assert sidecar["name"] == f"agenteval-sidecar-{place}"
        assert sidecar["args"] == [
            "--host=127.0.0.1",
            f"--grpc-port={grpc_port}",
            f"--http-port={http_port}",
        ]
        assert f"'127.0.0.1', {http_port}, " in sidecar["livenessProbe"]["exec"]["command"][-1]
        differing = {key for key in single if single[key] != sidecar[key]}
        assert differing <= {"name", "args", "livenessProbe"}


@pytest.mark.parametrize("wrong", ["0", "-1", "65", "1000000000000", "two", "", "1.5", "\u0663"])
def test_what_is_no_number_of_sidecars_is_refused(wrong: str) -> None:
    """None, too many, no number: nothing is written, and the message has the range."""
    with pytest.raises(ConfigurationError, match="sidecars: must be a number from 1 to 64"):
        files_of(PLAN, sidecars=wrong)
