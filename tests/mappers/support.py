"""Recorded spans, read as the sidecar reads them: OTLP messages, and log records as events of their
spans.
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from agenteval_otel.capture.otlp.body import OtlpMessages, request_of_json
from agenteval_otel.capture.spans.base import MAPPERS
from agenteval_otel.capture.spans.span import ReadSpan, event_of_log, spans_of_otlp
from agenteval_otel.capture.spans.trace import Mapped, TraceReading, read_trace

RECORDED = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))
AGENT_NAMES = [
    name for name in NAMES if name.endswith(("_agent", "_two_agents", "langchain", "_generate"))
]
TRACES, LOGS = OtlpMessages("trace"), OtlpMessages("logs")


def recording(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return loaded


def spans_of(name: str) -> list[ReadSpan]:
    """The spans of a recording, with the log records that belong to them."""
    return spans_in(recording(name))


def spans_in(recorded: dict[str, Any]) -> list[ReadSpan]:
    """The spans of OTLP in JSON, with the log records that belong to them."""
    recorded = copy.deepcopy(recorded)  # parsing changes its ids
    traces = request_of_json({"resourceSpans": recorded.get("resourceSpans", [])}, TRACES)
    logs = request_of_json({"resourceLogs": recorded.get("resourceLogs", [])}, LOGS)
    spans = list(spans_of_otlp(traces.resource_spans))
    by_id = {span.span_id: span for span in spans}
    for group in logs.resource_logs:
        for scope_logs in group.scope_logs:
            for record in scope_logs.log_records:
                if (span := by_id.get(int.from_bytes(record.span_id, "big"))) is not None:
                    span.events = [*span.events, event_of_log(record)]
    return spans


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


def read_at_once(spans: list[ReadSpan], **options: Any) -> TraceReading:
    """Read a trace as for dialects whose methods may raise: nothing of it is read later."""
    for mapper in MAPPERS.values():
        vars(mapper)["reads_later"] = False
    try:
        return read_trace(spans, **options)
    finally:
        for mapper in MAPPERS.values():
            del vars(mapper)["reads_later"]


def contents_of(reading: TraceReading) -> list[dict[str, Any]]:
    """The fields of each answer's input."""
    return [mapped.input.model_dump() for mapped in reading.answers]
