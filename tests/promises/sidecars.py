"""What several tests of the sidecar as a process do: its settings, its answers, and what it counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from tests.promises.receiver import Receiver
from tests.promises.served import SETTINGS, Served, messages, new_trace_id, trace_request

MIB = 1024 * 1024
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}
ANSWER = {
    **AGENT,
    "gen_ai.input.messages": messages("user", "A question?"),
    "gen_ai.output.messages": messages("assistant", "An answer."),
}
"""The attributes of an agent's span without text, and with it."""


def settings_with(**fields: object) -> str:
    """Settings that evaluate every answer, with these of the sidecar."""
    listed = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return f"{SETTINGS}sidecar: {{{listed}}}\n"


WAITS = settings_with(quiet_s=60, parent_wait_s=60)
QUICK = settings_with(quiet_s=0.2, parent_wait_s=1.0)


def answer(served: Served, trace_id: int | None = None, **request: Any) -> int:
    """Have an answer taken, of a trace of its own if none is named, and return its trace id."""
    trace_id = trace_id or new_trace_id()
    assert served.post(trace_request(trace_id, **request)).status == 200
    return trace_id


def seen(receiver: Receiver) -> Counter[int]:
    """How often the answer of each trace was scored."""
    return Counter(int.from_bytes(record.trace_id) for record in receiver.events())


def wait_for_scores(
    served: Served, receiver: Receiver, trace_ids: Collection[int], timeout_s: float = 60.0
) -> None:
    """Wait until each of these answers has a score."""
    served.wait_for(lambda: set(seen(receiver)).issuperset(trace_ids), "scores", timeout_s)


def end(served: Served) -> None:
    """End it by SIGTERM: in good order, and without an error in its log."""
    assert served.terminate() == 0
    assert "Traceback" not in served.told, served.told


def points(receiver: Receiver, exports: int = 1) -> Iterator[tuple[str, dict[str, str], Any]]:
    """Every point of each metric's last export: the metric, its attributes, itself.

    Args:
        exports: How many of the newest exports are looked at. One may leave metrics out.
    """
    newest: dict[str, Any] = {}
    for body in receiver.bodies["/v1/metrics"][-exports:]:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                newest |= {metric.name: metric for metric in scope.metrics}
    for name, metric in newest.items():
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            yield name, {pair.key: pair.value.string_value for pair in point.attributes}, point


def counted(
    receiver: Receiver, metric: str, attributes: Mapping[str, str] = {}, exports: int = 1
) -> int:
    """The sum of a metric's points that have these attributes, in so many of the newest exports."""
    return sum(
        point.as_int
        for name, found, point in points(receiver, exports)
        if name == metric and attributes.items() <= found.items()
    )


def of_events(receiver: Receiver, attribute: str) -> list[str]:
    """The value of an attribute in each event that has it."""
    return [
        pair.value.string_value
        for event in receiver.events()
        for pair in event.attributes
        if pair.key == attribute
    ]


def refuses_to_start(served: Served, *words: str) -> None:
    """Start it: it ends with exit code 2, and says these words without a traceback."""
    try:
        served.start()
    except AssertionError:
        pass
    else:
        raise AssertionError("it started")
    assert served.process.returncode == 2
    assert [word for word in words if word not in served.told] == [], served.told
    assert "Traceback" not in served.told, served.told
