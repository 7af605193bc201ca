"""Recorded spans, read as the sidecar reads them: OTLP messages, and log records as events of their
spans.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from agenteval_otel.capture.spans.base import role_of
from agenteval_otel.capture.spans.span import ReadSpan, event_of_log, spans_of_otlp
from agenteval_otel.capture.spans.trace import Mapped, TraceReading, read_trace

RECORDED = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))
AGENT_NAMES = [
    name for name in NAMES if name.endswith(("_agent", "_two_agents", "langchain", "_generate"))
]
_IDS = {"traceId", "spanId", "parentSpanId"}


def recording(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return loaded


def spans_of(name: str) -> list[ReadSpan]:
    """The spans of a recording, with the log records that belong to them."""
    return spans_in(recording(name))


def spans_in(recorded: dict[str, Any]) -> list[ReadSpan]:
    """The spans of OTLP in JSON, with the log records that belong to them."""
    recorded = _with_protobuf_ids(recorded)
    traces = ParseDict({"resourceSpans": recorded.get("resourceSpans", [])}, TracesData())
    logs = ParseDict({"resourceLogs": recorded.get("resourceLogs", [])}, LogsData())
    spans = list(spans_of_otlp(traces.resource_spans))
    by_id = {span.span_id: span for span in spans}
    for group in logs.resource_logs:
        for scope_logs in group.scope_logs:
            for record in scope_logs.log_records:
                if (span := by_id.get(int.from_bytes(record.span_id, "big"))) is not None:
                    span.events = [*span.events, event_of_log(record)]
    return spans


def _with_protobuf_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_protobuf_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode()
        if key in _IDS
        else _with_protobuf_ids(item)
        for key, item in value.items()
    }


def read_recording(name: str, **options: Any) -> list[TraceReading]:
    """What each trace of a recording says."""
    traces: dict[int, list[ReadSpan]] = defaultdict(list)
    for span in spans_of(name):
        traces[span.trace_id].append(span)
    return [read_trace(spans, **options) for spans in traces.values()]


def answers_of(name: str, **options: Any) -> list[Mapped]:
    readings = read_recording(name, **options)
    assert not any(reading.failed for reading in readings)
    return [answer for reading in readings for answer in reading.answers]


def answer_of(name: str, **options: Any) -> Mapped:
    [answer] = answers_of(name, **options)
    return answer


def shown(mapped: Mapped) -> str:
    """For people."""
    fields = {
        key: value
        for key, value in mapped.input.model_dump(exclude_none=True).items()
        if value not in ((), {})
    }
    lines = [
        f"{mapped.mapper} {role_of(mapped.span)} {mapped.span.name} user={mapped.user_id} {mapped.content_switch}"
    ]
    return "\n   ".join([*lines, *(f"{key} = {value!r}"[:400] for key, value in fields.items())])


if __name__ == "__main__":
    import sys

    for name in NAMES:
        if any(name.startswith(word) for word in sys.argv[1:]):
            print("=====", name)
            for reading in read_recording(name):
                print(dict(reading.not_understood), dict(reading.failed), reading.left_out)
                for answer in reading.answers:
                    print(shown(answer))
