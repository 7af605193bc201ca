"""The sidecar as its user starts it: a process of its own, with clients over HTTP and gRPC, and
requests for it.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.backends.process import bare_environment
from tests.promises.programs import PROJECT

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
SETTINGS = "evaluators: [ResponseHealth]\nsample_rate: 1.0\n"
QUICK_EXPORT = {
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_METRIC_EXPORT_INTERVAL": "500",
    "OTEL_BSP_SCHEDULE_DELAY": "200",
}
_numbers = itertools.count(1)


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Served:
    """`agenteval-otel serve` under a folder of its own; a context manager that kills it at the end.

    Args:
        folder: For the settings file and what it prints.
        settings: The text of the settings file; None: no file.
        endpoint: Where scores go.
        before: A program that runs it, with its arguments.
        in_cgroup: Called with its process id, before it reads its settings.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        settings: str | None = SETTINGS,
        endpoint: str = "",
        before: Sequence[str] = (),
        in_cgroup: Callable[[int], None] | None = None,
        **environment: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.settings = folder, folder / "agenteval.yaml"
        command = [*before, sys.executable, "-m", "agenteval_otel", "serve"]
        command += ["--grpc-port=0", "--http-port=0"]
        if settings is not None:
            self.settings.write_text(settings)
            command.append(f"--settings={self.settings}")
        if endpoint:
            environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **QUICK_EXPORT, **environment}
        self._command = [*command, *arguments]
        self._env = bare_environment(PYTHONPATH=str(PROJECT), PYTHONUNBUFFERED="1", **environment)
        self._in_cgroup = in_cgroup
        self.process: subprocess.Popen[bytes]
        self.out, self.errors = folder / "out", folder / "errors"

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, *, until: str = "ready\n") -> Served:
        """Start it, and wait until it has printed `until`."""
        join = self._in_cgroup
        with self.out.open("wb") as out, self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self._command,
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                preexec_fn=None if join is None else lambda: join(os.getpid()),
            )
        self.wait_for(lambda: until in self.printed, "a start")
        return self

    def wait_for(self, what: Callable[[], object], name: str, timeout_s: float = 30.0) -> None:
        """Poll until something holds, while the process runs."""
        deadline, never = time.monotonic() + timeout_s, threading.Event()
        while not what():
            running = self.process.poll() is None
            assert running, f"no {name}: ended with {self.process.returncode}\n{self.told[-4000:]}"
            assert time.monotonic() < deadline, (
                f"no {name} within {timeout_s:g} s\n{self.told[-4000:]}"
            )
            never.wait(0.02)

    @property
    def printed(self) -> str:
        return self.out.read_text(errors="replace")

    @property
    def told(self) -> str:
        """All that it wrote."""
        return self.printed + self.errors.read_text(errors="replace")

    def _address(self, name: str) -> str:
        match = re.search(rf"^{name} +(\S+)$", self.printed, re.MULTILINE)
        assert match, self.told
        return match[1]

    @property
    def grpc(self) -> str:
        return self._address("OTLP/gRPC")

    @property
    def http_port(self) -> int:
        return int(self._address("OTLP/HTTP").rpartition(":")[2])

    @property
    def grpc_port(self) -> int:
        return int(self.grpc.rpartition(":")[2])

    @property
    def rss_bytes(self) -> int:
        return self._memory("VmRSS")

    @property
    def most_rss_bytes(self) -> int:
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(text.partition(f"{name}:")[2].split()[0])

    def forget_most(self) -> None:
        """The most memory counts anew from now on."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def post(
        self, body: Any, path: str = "/v1/traces", timeout_s: float = 30.0, **headers: str
    ) -> Answer:
        """One request on a connection of its own. Header names have ``_`` for ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._ask("POST", path, timeout_s, body, PROTOBUF | named)

    def get(self, path: str) -> Answer:
        return self._ask("GET", path, 10.0, None, {})

    def _ask(
        self, method: str, path: str, timeout_s: float, body: Any, headers: dict[str, str]
    ) -> Answer:
        in_chunks = headers.get("Transfer-Encoding") == "chunked"
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers, encode_chunked=in_chunks)
            reply = connection.getresponse()
            names = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, names, reply.read())

    @contextlib.contextmanager
    def channel(self, **options: Any) -> Iterator[Any]:
        """A method that exports bytes, and its channel's end."""
        pairs = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self.grpc, options=pairs, **options) as channel:
            yield channel.unary_unary(TRACES)

    def export(
        self, data: bytes, timeout_s: float = 30.0, **arguments: Any
    ) -> tuple[grpc.StatusCode, Any]:
        """Status code and answer of one call on a channel of its own; the error where there is no
        answer.
        """
        with self.channel() as method:
            try:
                return grpc.StatusCode.OK, method(data, timeout=timeout_s, **arguments)
            except grpc.RpcError as error:
                return error.code(), error

    def terminate(self, timeout_s: float = 40.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)

    def outcomes(self, of: str = "answer") -> dict[str, int]:
        """What it counted, as it printed at its end: of answers, or of spans."""
        lines = re.findall(rf"^[\d,]+ {of}s?\b.*?=(.*)$", self.printed, re.MULTILINE)
        parts = re.findall(r"([\d,]+) (\w+)", lines[-1])
        return {name: int(count.replace(",", "")) for count, name in parts}


def trace_request(*trace_ids: int, text: str = "An answer.", agent: str = "support") -> bytes:
    """A request with one agent's span a trace, as an SDK would send it."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.input.messages": messages("user", "A question?"),
        "gen_ai.output.messages": messages("assistant", text),
    }
    now = time.time_ns()
    for trace_id in trace_ids:
        span_id = trace_id & 0xFFFF_FFFF | 1
        add_span(spans, trace_id, span_id, name="invoke_agent", at_ns=now, attributes=attributes)
    return request.SerializeToString()


def add_span(
    spans: Any,
    trace_id: int,
    span_id: int,
    *,
    parent_id: int = 0,
    name: str = "chat",
    at_ns: int | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Any:
    at_ns = time.time_ns() if at_ns is None else at_ns
    span = spans.add(
        trace_id=trace_id.to_bytes(16),
        span_id=span_id.to_bytes(8),
        name=name,
        start_time_unix_nano=at_ns - 10**9,
        end_time_unix_nano=at_ns,
        parent_span_id=parent_id.to_bytes(8) if parent_id else b"",
    )
    for key, value in (attributes or {}).items():
        span.attributes.add(key=key).value.string_value = value
    return span


def messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def new_trace_id() -> int:
    """A different one each time."""
    return random.getrandbits(64) << 64 | next(_numbers)


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
