"""C19: a span that comes again is not scored again, and what was removed is forgotten."""

from __future__ import annotations

import random
from pathlib import Path

from agenteval_otel.capture.assembly.traces import TraceAssembler
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.semconv import METRIC_RESPONSES, OUTCOME
from tests.promises.figures import Recorder, sized
from tests.promises.receiver import Receiver
from tests.promises.served import Served, new_trace_id, trace_request
from tests.promises.sidecars import MIB, QUICK

TRACES = 12_000  # more than a number of traces once bounded
AGAIN = 500
A_REQUEST = 500
UNSHED = QUICK + "load_shedding: {enabled: false}\n"

SECONDS = 600
PER_S = sized(150, 1_500)
"""Traces a second for ten minutes: of five spans, four of which are an agent's, a model's or a
tool's. 1,500 is what one sidecar manages.
"""


def test_requests_that_come_again(tmp_path: Path, receiver: Receiver, promise: Recorder) -> None:
    """A Collector that had no reply sends requests again, after 12,000 other traces: each answer
    is scored once, and the spans are counted as late.
    """
    ids = [new_trace_id() for _ in range(TRACES)]
    requests = [
        trace_request(*ids[begin : begin + A_REQUEST]) for begin in range(0, TRACES, A_REQUEST)
    ]
    with Served(tmp_path, settings=UNSHED, endpoint=receiver.endpoint) as served:
        for request in requests:
            assert served.post(request).status == 200
        served.wait_for(
            lambda: receiver.totals(METRIC_RESPONSES.name, OUTCOME).get("evaluated") == TRACES,
            "evaluation of all",
            timeout_s=120.0,
        )
        assert served.post(requests[0]).status == 200
        assert served.terminate() == 0
        assert served.outcomes() == {"evaluated": TRACES}
        assert served.outcomes("span") == {"read": TRACES, "late": AGAIN}
    traces = [event.trace_id for event in receiver.events()]
    assert len(traces) == len(set(traces)) == TRACES
    promise(
        "C19", figure=f"{AGAIN} spans again after {TRACES:,} traces: 0 scored again, {AGAIN} late"
    )


def role(trace_id: int, span_id: int, parent_id: int | None, operation: str) -> ReadSpan:
    attributes = {"gen_ai.operation.name": operation}
    return ReadSpan(trace_id, span_id, parent_id, operation, 1, 1, 2, attributes)


def trace_of(dice: random.Random) -> list[ReadSpan]:
    """An answer as agents' libraries show it: two model calls, a tool, and the agent."""
    trace_id, first = dice.getrandbits(128), dice.getrandbits(62)
    return [
        role(trace_id, first + 1, first, "chat"),
        role(trace_id, first + 2, first, "execute_tool"),
        role(trace_id, first + 3, first, "chat"),
        role(trace_id, first, None, "invoke_agent"),
    ]


def test_ten_minutes_of_traffic_are_remembered(promise: Recorder) -> None:
    """A span of the first second that comes again after ten minutes is late; the memory is bounded,
    and nothing is forgotten before its time unless that is counted.
    """
    dice, limit = random.Random(19), 32 * MIB
    assembler = TraceAssembler(quiet_s=1.0, remember_s=float(SECONDS), remember_bytes=limit)
    first_s: dict[int, list[ReadSpan]] = {}
    most_bytes = taken = 0
    for second in range(SECONDS):
        for number in range(PER_S):
            spans = trace_of(dice)
            if not number:
                first_s[second] = spans
            for span in spans:
                assert assembler.add(span, 100, float(second))
        taken += len(list(assembler.take(second + 0.9, quiet_s=0.0)))
        most_bytes = max(most_bytes, assembler.remembered_bytes)
    assert taken == SECONDS * PER_S
    assert most_bytes <= limit
    known_s = 0
    for second in reversed(range(SECONDS)):
        before = assembler.late
        for span in first_s[second]:
            assert assembler.add(span, 100, float(SECONDS))
        if assembler.late - before != len(first_s[second]):
            break
        known_s += 1
    again = len(list(assembler.take_all()))
    promise(
        "C19",
        figure=f"{PER_S}/s for {SECONDS} s: spans known for {known_s} s in {most_bytes / MIB:.1f} MB, "
        f"{most_bytes / taken:.0f} bytes a trace"
        + (f", {assembler.forgotten:,} forgotten early" if assembler.forgotten else ""),
    )
    assert (known_s == SECONDS) == (assembler.forgotten == 0)
    assert known_s >= 300  # as long as a Collector retries
    assert again <= 1


def test_what_was_removed_is_forgotten_and_what_was_erased_stays_away(promise: Recorder) -> None:
    """Spans that were removed unread and are sent again make their whole answer; after an erasure
    neither they nor the spans that come later are read.
    """
    dice = random.Random(20)
    spans = trace_of(dice)
    removed, erased = (TraceAssembler(quiet_s=1.0) for _ in range(2))
    for assembler in (removed, erased):
        for span in spans[:3]:  # the agent's own comes last
            assembler.add(span, 100, 0.0)
    removed.remove(lambda trace_id, spans, events: True)
    erased.close(erased.remove(lambda trace_id, spans, events: True))
    for assembler in (removed, erased):
        for span in spans:
            assembler.add(span, 100, 1.0)
    again = [[span.span_id for span in trace.spans] for trace in removed.take(9.0)]
    assert again == [[span.span_id for span in spans]]
    assert (removed.late, list(erased.take(900.0)), erased.late) == (0, [], len(spans))
    promise("C19", figure="3 of 4 spans removed, 4 sent again: 1 answer of 4 spans; erased: none")
