"""Several sidecars behind the shipped Collector's balancing: each trace scored once and whole, also
while one of them is restarted.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenteval_otel import semconv
from agenteval_otel.config.load import load_settings
from agenteval_otel.config.process import build_loaded
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.collector import files_of
from benchmarks.sidecar_load import Batch, batches
from tests.promises.served import add_span, messages, new_trace_id

from .collector import Collector
from .faults import LOOPBACK, free_ports
from .fixtures import running
from .received import Record
from .sdk import SHIPPED
from .sidecar import Sidecar
from .test_shipped_collector import validated
from .test_shipped_others import checked

pytestmark = [pytest.mark.backend, pytest.mark.timeout(400)]

LIMIT_S = 120.0
GROUP = 5
"""Requests over which the spans of 512 traces are shuffled."""
SETTINGS = {"evaluators": ["ResponseHealth"], "sidecar": {"quiet_s": 4.0}}
BACKENDS = {"COLLECTOR_TRACES_TO": "[debug]", "COLLECTOR_LOGS_TO": "[debug, file]"}


@pytest.fixture(scope="module", name="written")
def written_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `provision collector --sidecars 2` writes for the shipped settings."""
    loaded = load_settings(SHIPPED.parent / "agenteval.yaml")
    plan = MonitoringPlan.of(build_loaded(loaded))
    folder = tmp_path_factory.mktemp("sidecars")
    for name, text in files_of(plan, sidecars="2").items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def configurations(written: Path) -> list[Path]:
    names = ("otel-collector.yaml", "collector/to-sidecar.yaml", "collector/to-sidecars.yaml")
    return [written / name for name in names]


class Scored(NamedTuple):
    """A score that came back, of the trace with this number.

    The agent's span has the conversation's id, and the model call's the response's: a score of the
    whole trace has both.
    """

    number: int
    is_whole: bool
    is_marked: bool

    @classmethod
    def of(cls, event: Record) -> Scored:
        number = int(event.trace_id[:16], 16)
        conversation = event.attributes.get(semconv.CONVERSATION_ID, "")
        response = event.attributes.get(semconv.RESPONSE_ID, "")
        has_both = conversation.startswith(f"{number:08x}-") and f"-{number:08x}" in response
        return cls(number, has_both, semconv.EVALUATION_INCOMPLETE in event.attributes)


class Pair(NamedTuple):
    """A Collector, and the two sidecars that it balances over, whose scores come back to it."""

    front: Collector
    sidecars: list[Sidecar]

    def post(self, body: bytes) -> None:
        headers = {"Content-Type": "application/x-protobuf"}
        request = Request(f"{self.front.http_endpoint}/v1/traces", body, headers)
        urlopen(request, timeout=30).close()

    def send(self, requests: Iterator[Batch], count: int) -> list[int]:
        """Send so many requests, and return the numbers of the traces that they complete."""
        completed: list[int] = []
        for batch in islice(requests, count):
            self.post(batch.body)
            completed += batch.completes
        return completed

    def results(self) -> list[Scored]:
        return [
            Scored.of(event) for event in self.front.logs() if event.name == semconv.EVENT_RESULT
        ]

    def whole(self) -> Counter[int]:
        """How many scores each trace has that are of all of it."""
        return Counter(scored.number for scored in self.results() if scored.is_whole)

    def marked(self) -> Counter[int]:
        """How many scores of each trace say that more of it was to come."""
        return Counter(scored.number for scored in self.results() if scored.is_marked)

    def evaluated(self) -> dict[str, float]:
        """How many answers each process has evaluated, by its instance in Prometheus' page."""
        return self._by_instance(r'agenteval_responses_total\{.*agenteval_outcome="evaluated".*')

    def waiting(self) -> list[float]:
        """How many traces wait in each sidecar."""
        return list(self._by_instance(r"agenteval_queue_size\{.*").values())

    def _by_instance(self, series: str) -> dict[str, float]:
        line = re.compile(series + r'instance="([^"]+)".*\} (\S+)')
        return {match[1]: float(match[2]) for match in line.finditer(self.front.scrape())}

    def wait_for_scores(self, numbers: list[int]) -> None:
        """Wait until each of these traces has a score that calls itself whole, and no more come."""
        sent = set(numbers)
        self.front.wait_for(
            lambda _: (
                not sent.difference(
                    scored.number for scored in self.results() if not scored.is_marked
                )
            ),
            LIMIT_S,
        )
        self.front.wait_until_settled(lambda _: len(self.results()), looks=40, timeout_s=LIMIT_S)


@contextmanager
def balanced(binary: Path, written: Path, folder: Path, *, is_durable: bool) -> Iterator[Pair]:
    ports = free_ports(2)
    addresses = ", ".join(f"{LOOPBACK}:{port}" for port in ports)
    front = Collector(
        binary,
        folder / "front",
        config=configurations(written),
        environment={**BACKENDS, "COLLECTOR_SIDECARS": f"[{addresses}]"},
    )
    with running(front):
        sidecars = []
        for place, port in enumerate(ports, start=1):
            settings = {**SETTINGS, "sidecar": dict(SETTINGS["sidecar"])}  # type: ignore[call-overload]
            if is_durable:
                settings["sidecar"]["durable"] = str(folder / f"journal-{place}")
            sidecar = Sidecar(folder / f"sidecar-{place}", settings, endpoint=front.grpc_endpoint)
            sidecar.ports.grpc = port
            sidecars.append(sidecar)
        with running(sidecars[0]), running(sidecars[1]):
            yield Pair(front, sidecars)


@pytest.mark.parametrize(
    "base", ["otel-collector.yaml", "collector/tail-sampling.yaml", "collector/gateway.yaml"]
)
def test_the_balancing_is_valid_over_every_collector(
    collector_binary: Path, written: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laid over each shipped Collector and the sidecar's file it passes the Collector's validation,
    with the list that it has and with one from the environment."""
    files = [written / base, *configurations(written)[1:]]
    assert validated(collector_binary, *files) == ""
    monkeypatch.setenv("COLLECTOR_SIDECARS", "[a.example:4327, b.example:4327, c.example:4327]")
    assert validated(collector_binary, *files) == ""


def test_the_documented_list_of_dns_is_valid_in_its_place(
    collector_binary: Path, written: Path, tmp_path: Path
) -> None:
    """What docs/sidecars.md shows in place of the fixed list passes the Collector's validation."""
    page = (SHIPPED.parents[1] / "docs/sidecars.md").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    *before, balancing = configurations(written)
    balanced_by_dns = yaml.safe_load(balancing.read_text())
    balanced_by_dns["exporters"]["load_balancing/sidecars"] |= yaml.safe_load(shown)
    file = tmp_path / "by-dns.yaml"
    file.write_text(yaml.safe_dump(balanced_by_dns))
    assert validated(collector_binary, *before, file) == ""


def test_compose_kubernetes_and_systemd_read_what_is_written(
    compose_binary: Path, kubernetes_validate_binary: Path, written: Path, tmp_path: Path
) -> None:
    """Their own readers of files find nothing unknown in it."""
    overlay = (written / "compose.yaml", written / "compose.sidecar.yaml")
    services = yaml.safe_load(checked(compose_binary, "-no-interpolation", *overlay))["services"]
    assert {name for name in services if name.startswith("sidecar")} == {"sidecar-1", "sidecar-2"}
    manifest = written / "kubernetes/agenteval-sidecar.yaml"
    checked(kubernetes_validate_binary, "-m", "kubernetes_validate", "--strict", manifest)
    if shutil.which("systemd-analyze") is None:
        return
    program = str(Path(sys.executable).with_name("agenteval-otel"))
    units = []
    for unit in sorted((written / "systemd").iterdir()):
        text = unit.read_text().replace("/opt/agenteval/bin/agenteval-otel", program)
        units.append(tmp_path / unit.name)
        units[-1].write_text(text)
    assert len(units) == 2
    done = subprocess.run(
        ["systemd-analyze", "verify", *units],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_two_sidecars_score_every_trace_once_and_whole(
    collector_binary: Path, written: Path, tmp_path: Path
) -> None:
    """Both have a share of the traces, and counters of their own in Prometheus' page; one is
    restarted while traces come, which wait for it in the Collector."""
    requests = batches()
    with balanced(collector_binary, written, tmp_path, is_durable=True) as pair:
        numbers = pair.send(requests, 2 * GROUP)
        pair.wait_for_scores(numbers)
        shares = pair.evaluated()

        pair.sidecars[0].stop()
        numbers += pair.send(requests, GROUP)
        pair.sidecars[0].start()
        numbers += pair.send(requests, GROUP)
        pair.wait_for_scores(numbers)

        assert pair.whole() == Counter(numbers)
        assert len(pair.results()) == len(numbers)
    assert len(numbers) == 4 * 512
    assert len(shares) == 2
    assert sum(shares.values()) == 2 * 512
    assert min(shares.values()) > 0.3 * 2 * 512


def requests_of(traces: list[int]) -> tuple[ExportTraceServiceRequest, ExportTraceServiceRequest]:
    """Two requests: the model calls of these traces, and their agents, which end after them."""
    steps, agents = ExportTraceServiceRequest(), ExportTraceServiceRequest()
    content = {"gen_ai.output.messages": messages("assistant", "We open at nine.")}
    for request in (steps, agents):
        group = request.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = "shop"
        group.scope_spans.add()
    for trace_id in traces:
        number = f"{trace_id >> 64:08x}"
        step = {"gen_ai.operation.name": "chat", "gen_ai.response.id": f"chat-{number}", **content}
        agent = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "clerk",
            "gen_ai.conversation.id": f"{number}-",
            **content,
        }
        for request, span_id, parent_id, attributes in (
            (steps, 2, 1, step),
            (agents, 1, 0, agent),
        ):
            spans = request.resource_spans[0].scope_spans[0].spans
            add_span(spans, trace_id, span_id, parent_id=parent_id, attributes=attributes)
    return steps, agents


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "memory"])
def test_a_restart_between_the_spans_of_a_trace(
    collector_binary: Path, written: Path, tmp_path: Path, is_durable: bool
) -> None:
    """Nothing is lost. With a journal, traces whose agent has not come are left to the next process,
    and scored once and whole. In memory their steps are scored when the process ends, which the
    results say, and the agents' spans by the next process.
    """
    traces = [new_trace_id() for _ in range(200)]
    steps, agents = requests_of(traces)
    with balanced(collector_binary, written, tmp_path, is_durable=is_durable) as pair:
        early = pair.send(batches(), GROUP)  # without a result there are no metrics
        pair.wait_for_scores(early)
        pair.front.wait_for(lambda _: pair.waiting() == [0, 0], LIMIT_S)
        pair.post(steps.SerializeToString())
        pair.front.wait_for(lambda _: sum(pair.waiting()) == len(traces), LIMIT_S)
        shares = pair.waiting()
        pair.sidecars[0].stop()
        pair.post(agents.SerializeToString())
        pair.sidecars[0].start()
        numbers = [*early, *(trace_id >> 64 for trace_id in traces)]
        pair.wait_for_scores(numbers)
        divided = pair.marked()
        assert divided.total() in ([0] if is_durable else shares)
        assert pair.whole() == Counter(numbers) - divided
        assert len(pair.results()) == len(numbers) + divided.total()
