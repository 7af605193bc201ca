"""Records what real instrumentation libraries emit: applications against a loopback model, into
``recorded/*.json``.

    uv run python tests/mappers/record.py PYTHON_OR_NODE LIBRARY [SCENARIO ...]

The applications are functions of ``applications`` (run by the Python of an environment that has the
libraries that are listed there) and of ``vercel_ai.mjs`` (run by node, in the folder `NODE_FOLDER`
that has its packages). They know nothing of this package: they export OTLP. A recording is an OTLP
JSON file, with the libraries' versions beside it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenteval_otel.testing import ModelReply, ModelServer

HERE = Path(__file__).parent
REQUESTS = {"/v1/traces": ExportTraceServiceRequest, "/v1/logs": ExportLogsServiceRequest}
_RESULTS = ('"role": "tool"', '"tool_result"', '"function_call_output"')
_IDS = {"traceId", "spanId", "parentSpanId"}


class Receiver:
    """Takes OTLP over HTTP and keeps it."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if self.headers.get("Transfer-Encoding") == "chunked":
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers["Content-Length"]))
                kind = REQUESTS.get(self.path)
                if kind is not None:
                    received.append(with_hexadecimal_ids(MessageToDict(kind.FromString(body))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        return Handler


def with_hexadecimal_ids(value: Any) -> Any:
    """OTLP's JSON has ids in hexadecimal, where protobuf's own has base64."""
    if isinstance(value, list):
        return [with_hexadecimal_ids(item) for item in value if not is_trace_back(item)]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64decode(item).hex() if key in _IDS else with_hexadecimal_ids(item)
        for key, item in value.items()
    }


def is_trace_back(item: Any) -> bool:
    """Long, and of no use here."""
    return isinstance(item, dict) and item.get("key") == "exception.stacktrace"


def reply(body: dict[str, Any]) -> ModelReply:
    """Call the first tool, then answer with what it gave; an embedding or a question without tools
    is answered.
    """
    text = json.dumps(body)
    tools = body.get("tools") or []
    if "fail with status 400" in text:
        return ModelReply(status=400)
    if tools and not any(mark in text for mark in _RESULTS):
        function = tools[0].get("function", tools[0])
        schema = function.get("parameters") or function.get("input_schema") or {}
        arguments = {name: "Paris" for name in schema.get("properties", {})}
        return ModelReply(
            tool_calls=[{"name": function["name"], "arguments": arguments}], input_tokens=30
        )
    return ModelReply(text="It is 21 degrees and sunny in Paris.", input_tokens=40, output_tokens=9)


def record(runner: str, library: str, scenario: str) -> Path:
    """Run one scenario, and write what it exported."""
    receiver = Receiver()
    is_node = Path(runner).name == "node"
    program = HERE / ("vercel_ai.mjs" if is_node else "applications")
    with ModelServer([reply]) as model:
        environment: Mapping[str, str] = os.environ | {
            "MODEL_URL": model.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OPENAI_API_KEY": "test",
            "ANTHROPIC_API_KEY": "test",
            "OTEL_SERVICE_NAME": "weather",
            "LOGFIRE_SEND_TO_LOGFIRE": "false",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=staging",
            "TRACELOOP_TELEMETRY": "false",
        }
        command = [runner, str(program), f"{library}_{scenario}"]
        done = subprocess.run(
            command,
            env=environment,
            cwd=os.environ.get("NODE_FOLDER"),
            capture_output=True,
            text=True,
            timeout=120,
        )
    if done.returncode:
        raise SystemExit(f"{scenario}: {done.stderr[-3000:]}")
    recording: dict[str, Any] = {"libraries": json.loads(done.stdout.splitlines()[-1])}
    for request in receiver.received:
        for key, groups in request.items():
            recording.setdefault(key, []).extend(groups)
    path = HERE / "recorded" / f"{library}_{scenario}.json"
    path.write_text(json.dumps(recording, indent=1, ensure_ascii=False) + "\n")
    return path


def main() -> None:
    runner, library, *scenarios = sys.argv[1:]
    for scenario in scenarios:
        path = record(runner, library, scenario)
        recording = json.loads(path.read_text())
        spans = [
            s
            for r in recording.get("resourceSpans", [])
            for g in r["scopeSpans"]
            for s in g["spans"]
        ]
        logs = [
            s
            for r in recording.get("resourceLogs", [])
            for g in r["scopeLogs"]
            for s in g["logRecords"]
        ]
        print(f"{path.name}: {len(spans)} spans, {len(logs)} log records, {recording['libraries']}")


if __name__ == "__main__":
    main()
