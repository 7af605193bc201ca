"""The shipped configuration that feeds a sidecar, over the shipped Collectors: what gets through,
what comes of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from opentelemetry.trace import StatusCode

from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.trace import read_trace
from tests.mappers.support import NAMES, recording, spans_in, spans_of
from tests.promises.served import messages

from .collector import Collector
from .faults import LOOPBACK, free_ports
from .fixtures import running
from .prometheus import Prometheus, scraping
from .sdk import SHIPPED, sdk_to
from .sidecar import Sidecar
from .test_shipped_collector import validated

pytestmark = pytest.mark.backend

TO_SIDECAR = SHIPPED.parent / "collector" / "to-sidecar.yaml"
BASES = ["otel-collector.yaml", "collector/tail-sampling.yaml", "collector/gateway.yaml"]
LIMIT_S = 60.0
TOKEN = "0123456789abcdef"
SECRET = {"secret": "4711"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
MONITORED = {"agenteval.evaluation.sampled": True}
CHAT = {"gen_ai.operation.name": "chat"}
RESULTS = "agenteval_evaluation_results_total"
PROCESS = "job", "deployment_environment_name"
ANSWER = AGENT | {
    "gen_ai.input.messages": messages("user", "When?"),
    "gen_ai.output.messages": messages("assistant", "At nine."),
}


class Feeding(Collector):
    """A shipped Collector with the sidecar's configuration over it."""

    def send_recording(self, name: str) -> None:
        """Post what was recorded, in JSON."""
        recorded = recording(name)
        for signal, key in (("traces", "resourceSpans"), ("logs", "resourceLogs")):
            if recorded.get(key):
                body = json.dumps({key: recorded[key]}).encode()
                request = Request(
                    f"{self.http_endpoint}/v1/{signal}", body, {"Content-Type": "application/json"}
                )
                urlopen(request, timeout=10).close()


class Behind(Collector):
    """In the sidecar's place, a Collector that writes down what it is sent."""

    def read_spans(self, ids: set[tuple[int, int]] | None = None) -> list[ReadSpan]:
        """All, or those of a recording: log records belong to spans that are there."""
        text = self.file.read_text() if self.file.exists() else ""
        lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        spans = spans_in(
            {
                key: [group for line in lines for group in line.get(key, ())]
                for key in ("resourceSpans", "resourceLogs")
            }
        )
        return [span for span in spans if ids is None or (span.trace_id, span.span_id) in ids]


def feeding(binary: Path, folder: Path, *, base: str = BASES[0], **environment: str) -> Feeding:
    """One that is not yet started; its ordinary ways end in a file and in its log."""
    ordinary = {"COLLECTOR_TRACES_TO": "[debug, file]", "COLLECTOR_LOGS_TO": "[debug, file]"}
    files = (SHIPPED.parent / base, TO_SIDECAR)
    return Feeding(binary, folder, config=files, environment={**ordinary, **environment})


@pytest.fixture(scope="module", name="behind")
def behind_fixture(
    collector_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Behind]:
    with running(Behind(collector_binary, tmp_path_factory.mktemp("behind"))) as started:
        yield started


@pytest.fixture(scope="module", name="front")
def front_fixture(
    collector_binary: Path, behind: Behind, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Feeding]:
    """It feeds the one behind, with the spans of all services but billing."""
    made = feeding(
        collector_binary,
        tmp_path_factory.mktemp("front"),
        COLLECTOR_SIDECAR_ENDPOINT=f"127.0.0.1:{behind.ports.grpc}",
        COLLECTOR_SIDECAR_SERVICES="[^b].*",
    )
    with running(made) as started:
        yield started


def answers_in(spans: list[ReadSpan]) -> list[dict[str, Any]]:
    """The inputs of all answers that the spans show, by the order of their start."""
    traces: dict[int, list[ReadSpan]] = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    answers = [answer for trace in traces.values() for answer in read_trace(trace).answers]
    return [
        answer.input.model_dump()
        for answer in sorted(answers, key=lambda answer: answer.span.start_ns)
    ]


def ids_of(spans: list[ReadSpan]) -> set[tuple[int, int]]:
    return {(span.trace_id, span.span_id) for span in spans}


@pytest.mark.parametrize("base", BASES)
def test_the_overlay_is_valid_over_every_collector(collector_binary: Path, base: str) -> None:
    """Laid over each shipped Collector it passes the Collector's own validation."""
    assert validated(collector_binary, SHIPPED.parent / base, TO_SIDECAR) == ""


def test_every_recorded_answer_is_read_the_same_behind_the_collector(
    front: Feeding, behind: Behind
) -> None:
    """Spans, their events and log records of every dialect get through with all that mappers read
    of them.
    """
    for name in NAMES:
        front.send_recording(name)
    for name in NAMES:
        ids, answers = ids_of(spans_of(name)), answers_in(spans_of(name))
        # Log records come by themselves, after their span or before it.
        behind.wait_for(lambda seen: answers_in(seen.read_spans(ids)) == answers, LIMIT_S)  # noqa: B023
        assert ids_of(behind.read_spans(ids)) == ids


def test_what_lies_between_passes_bare_and_what_leads_nowhere_stays_out(
    front: Feeding, behind: Behind
) -> None:
    """A plain span between an agent and its model call keeps them one answer, without its
    attributes and events. Calls of databases, other services, the sidecar's own spans, results and
    ordinary log lines are not sent.
    """
    with ExitStack() as stack:
        shop, sidecar, billing = (
            stack.enter_context(sdk_to(front, service=name))
            for name in ("shop", "agenteval-sidecar", "billing")
        )
        for other in (sidecar, billing):
            with other.tracers.get_tracer("other").start_as_current_span(
                "stays out", attributes=AGENT
            ):
                other.loggers.get_logger("other").emit(
                    event_name="gen_ai.user.message", body="stays out"
                )
        tracer, logger = shop.tracers.get_tracer("shop"), shop.loggers.get_logger("shop")
        between_attributes, query = SECRET | MONITORED, SECRET | {"db.system.name": "postgresql"}
        with (
            tracer.start_as_current_span("agent", attributes=AGENT),
            tracer.start_as_current_span("between", attributes=between_attributes) as span,
        ):
            span.add_event("secret", SECRET)
            span.set_status(StatusCode.ERROR, "4711")
            tracer.start_span("SELECT", attributes=query).end()
            with tracer.start_as_current_span("chat", attributes=CHAT | {"db.system": "pinecone"}):
                logger.emit(event_name="gen_ai.evaluation.result", body="stays out")
                logger.emit(body="stays out: 4711")
                logger.emit(event_name="gen_ai.user.message", body={"content": "Hi"})

    (between,) = behind.wait_for(
        lambda seen: [span for span in seen.spans("shop") if span.name == "between"], LIMIT_S
    )
    (event,) = behind.wait_for(lambda seen: seen.logs("shop"), LIMIT_S)
    # so all have gone their ordinary way
    front.wait_for(lambda seen: len(seen.logs("shop")) == 3, LIMIT_S)
    front.wait_for(lambda seen: seen.spans("billing") and seen.spans("agenteval-sidecar"), LIMIT_S)

    spans = behind.spans("shop")
    assert {span.name for span in spans} == {"agent", "between", "chat"}
    assert between.attributes == MONITORED
    assert event.name == "gen_ai.user.message"
    assert SECRET["secret"] not in json.dumps([span for span in spans if span.name == "between"])
    read = [span for span in behind.read_spans() if span.resource.get("service.name") == "shop"]
    assert (
        len(answers_in(read)),
        [len(span.events) for span in read if span.name == "between"],
    ) == (1, [0])
    assert behind.spans("billing") + behind.spans("agenteval-sidecar") == []
    assert behind.logs("shop") == [event]
    assert not behind.logs("billing")


def test_scores_come_back_with_the_evaluated_service(
    collector_binary: Path, prometheus_binary: Path, tmp_path: Path
) -> None:
    """Two services, whose traces tail sampling drops, are scored by one sidecar with a token: two
    services in Prometheus, in one job. What is sent before the sidecar is there waits for it."""
    (port,) = free_ports(1)
    front = feeding(
        collector_binary,
        tmp_path / "front",
        base=BASES[1],
        COLLECTOR_KEEP_REST_PERCENT="0",
        COLLECTOR_KEEP_EVALUATED_PERCENT="0",
        COLLECTOR_SIDECAR_ENDPOINT=f"{LOOPBACK}:{port}",
        COLLECTOR_SIDECAR_AUTHORIZATION=f"Bearer {TOKEN}",
    )
    config = scraping(
        SHIPPED.parent / "prometheus/prometheus.yml", port=front.ports.prometheus, every_s=0.5
    )
    with (
        running(front),
        running(
            Prometheus(prometheus_binary, tmp_path / "prometheus", config=config)
        ) as prometheus,
    ):
        front.send_recording("genai_agent")
        with sdk_to(front, service="shop") as sdk:
            sdk.tracers.get_tracer("shop").start_span("invoke_agent clerk", attributes=ANSWER).end()
        sidecar = Sidecar(
            tmp_path / "sidecar",
            {"evaluators": ["ResponseHealth"], "sidecar": {"quiet_s": 0.5}},
            endpoint=front.grpc_endpoint,
            environment={
                "AGENTEVAL_SIDECAR__TOKEN": TOKEN,
                "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=ops",
            },
        )
        sidecar.ports.grpc = port
        with running(sidecar):
            with pytest.raises(HTTPError, match="401"):
                urlopen(f"{sidecar.http_endpoint}/v1/traces", b"", timeout=10)
            results = prometheus.wait_for(
                lambda seen: len(all_ := seen.query(f"{RESULTS} > 0")) == 2 and all_, LIMIT_S
            )
            (answers,) = prometheus.wait_for(
                lambda seen: seen.query(
                    f"sum by ({', '.join(PROCESS)}) (agenteval_responses_total) == 2"
                ),
                LIMIT_S,
            )

    # Alerts compare answers with results by the process that evaluates.
    assert {tuple(result.labels[label] for label in PROCESS) for result in results} == {
        ("agenteval-sidecar", "ops")
    }
    assert tuple(answers.labels[label] for label in PROCESS) == ("agenteval-sidecar", "ops")
    evaluated = {
        result.labels["service_name"]: result.labels.get("evaluated_environment")
        for result in results
    }
    assert evaluated == {"shop": None, "weather": "staging"}


def test_the_probe_of_the_image_and_of_the_pod_says_how_it_is(tmp_path: Path) -> None:
    """The command that both have succeeds while the sidecar runs, and fails without it."""
    sidecar = Sidecar(tmp_path, {}, endpoint="http://127.0.0.1:9")
    pod = list(
        yaml.safe_load_all((SHIPPED.parent / "kubernetes/agenteval-sidecar.yaml").read_text())
    )[-1]
    (probe,) = [
        container["livenessProbe"]["exec"]["command"]
        for container in pod["spec"]["template"]["spec"]["initContainers"]
        if "exec" in container["livenessProbe"]
    ]
    assert json.dumps(probe) in (SHIPPED.parent / "sidecar/Dockerfile").read_text()

    def status() -> int:
        command = [
            sys.executable,
            *(part.replace("4328", str(sidecar.ports.http)) for part in probe[1:]),
        ]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode

    with running(sidecar):
        assert status() == 0
    assert status() == 1
