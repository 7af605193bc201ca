"""OTLP in JSON as a Collector writes it: answers of agents, their live scores, and what stands
beside them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agenteval_otel.semconv import SCOPE_NAME

BASE_NS = 1_772_323_200_000_000_000  # 2026-03-01T00:00:00Z
SECOND = 1_000_000_000
Json = dict[str, Any]


def attribute(key: str, value: Any) -> Json:
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    if isinstance(value, float):
        return {"key": key, "value": {"doubleValue": value}}
    return {"key": key, "value": {"stringValue": value}}


def attributes(values: Mapping[str, Any]) -> list[Json]:
    return [attribute(key, value) for key, value in values.items()]


def ids(number: int) -> tuple[str, str]:
    """The trace id of an answer, and the id of its agent's span."""
    return f"{number + 1:032x}", f"{number + 1:016x}"


def span(
    number: int,
    name: str,
    values: Mapping[str, Any],
    *,
    parent: str = "",
    id: str = "",
    at_s: float = 0,
) -> Json:
    began = BASE_NS + int(at_s * SECOND)
    return {
        "traceId": ids(number)[0],
        "spanId": id or ids(number)[1],
        "parentSpanId": parent,
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(began),
        "endTimeUnixNano": str(began + SECOND),
        "attributes": attributes(values),
        "status": {},
    }


def answer_span(
    number: int, text: str, *, agent: str = "support", at_s: float | None = None, **more: Any
) -> Json:
    said = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    asked = [{"role": "user", "parts": [{"type": "text", "content": f"Question {number}?"}]}]
    values = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(said),
        **more,
    }
    return span(number, f"invoke_agent {agent}", values, at_s=number if at_s is None else at_s)


def run_span(number: int, scores: Mapping[str, Any], **more: Any) -> Json:
    """The live run span below the agent's."""
    _, parent = ids(number)
    values = {"gen_ai.operation.name": "evaluation", **scores, **more}
    return span(
        number,
        "evaluation support",
        values,
        parent=parent,
        id=f"{number + 1:08x}{1:08x}",
        at_s=number + 2,
    )


def result_event(
    number: int, criterion: str, score: float, label: str | None = None, **more: Any
) -> Json:
    """A live result as a log record."""
    trace_id, span_id = ids(number)
    values = {
        "gen_ai.evaluation.name": criterion,
        "gen_ai.evaluation.score.value": score,
        "agenteval.evaluation.score.normalized": score,
        **more,
        **({"gen_ai.evaluation.score.label": label} if label else {}),
    }
    return {
        "traceId": trace_id,
        "spanId": span_id,
        "timeUnixNano": str(BASE_NS + (number + 2) * SECOND),
        "eventName": "gen_ai.evaluation.result",
        "attributes": attributes(values),
    }


def traces(spans: Sequence[Json], *, service: str = "shop", scope: str = "app") -> Json:
    resource = {"attributes": attributes({"service.name": service})}
    return {
        "resourceSpans": [
            {"resource": resource, "scopeSpans": [{"scope": {"name": scope}, "spans": list(spans)}]}
        ]
    }


def ours(spans: Sequence[Json]) -> Json:
    return traces(spans, scope=SCOPE_NAME)


def logs(records: Sequence[Json]) -> Json:
    resource = {"attributes": attributes({"service.name": "shop"})}
    scope = {"scope": {"name": SCOPE_NAME}, "logRecords": list(records)}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}


def lines(*requests: Json) -> str:
    return "".join(json.dumps(request) + "\n" for request in requests)
