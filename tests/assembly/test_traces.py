"""Traces put together from spans in any order: when they are complete, and what becomes of the rest."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from agenteval_otel.assembly import TraceAssembler
from agenteval_otel.mappers.span import ReadSpan
from agenteval_otel.mappers.trace import read_trace
from tests.mappers.support import AGENT_NAMES, read_recording, spans_of

OPERATION = "gen_ai.operation.name"


def span(trace: int, number: int, parent: int | None = None, operation: str | None = None) -> ReadSpan:
    attributes = {} if operation is None else {OPERATION: operation}
    return ReadSpan(trace, number, parent, operation or "GET", 1, number, number + 1, attributes)


def chat(trace: int, number: int, parent: int | None = None) -> ReadSpan:
    return span(trace, number, parent, "chat")


def taken(assembler: TraceAssembler, now_s: float) -> list[list[int]]:
    return [[item.span_id for item in trace.spans] for trace in assembler.take(now_s)]


def test_a_trace_is_complete_when_it_was_quiet() -> None:
    """Each further span begins the time anew; the traces come in the order of their last spans."""
    assembler = TraceAssembler(quiet_s=6.0)
    for now_s, item in ((0.0, chat(1, 1)), (1.0, chat(2, 2)), (5.0, span(1, 3, 1))):
        assert assembler.add(item, 100, now_s)
    assert taken(assembler, 6.9) == []
    assert taken(assembler, 7.0) == [[2]]
    assert taken(assembler, 11.0) == [[1, 3]]
    assert (assembler.spans, assembler.size_bytes) == (0, 0)


def test_a_model_call_waits_for_the_agent_above_it() -> None:
    """Its parent has not come: with the agent's span all are one trace, without it the call is read alone."""
    for agent_s, expected in ((30.0, [[2, 1]]), (None, [[2]])):
        assembler = TraceAssembler(quiet_s=6.0, parent_wait_s=60.0)
        assembler.add(chat(1, 2, parent=1), 100, 0.0)
        assert taken(assembler, 20.0) == []
        if agent_s is not None:
            assembler.add(span(1, 1, operation="invoke_agent"), 100, agent_s)
            assert taken(assembler, agent_s + 6.0) == expected
        else:
            assert taken(assembler, 59.9) == []
            assert taken(assembler, 60.0) == expected


def test_late_spans_of_an_answer_are_counted_and_no_second_answer() -> None:
    """A later answer of the same trace is one of its own."""
    assembler = TraceAssembler(quiet_s=1.0)
    assembler.add(span(1, 1, operation="invoke_agent"), 100, 0.0)
    assert taken(assembler, 1.0) == [[1]]
    assembler.add(chat(1, 2, parent=1), 100, 2.0)
    assembler.add(span(1, 3, 2, "execute_tool"), 100, 2.0)
    assert (taken(assembler, 9.0), assembler.late) == ([], 2)
    assembler.add(span(1, 4, operation="invoke_agent"), 100, 10.0)
    assert taken(assembler, 11.0) == [[4]]


def test_traces_without_an_answer_are_let_go() -> None:
    """Nothing in them is evaluated: they are counted, and take no room."""
    assembler = TraceAssembler(quiet_s=1.0)
    assembler.add(span(1, 1), 100, 0.0)
    assembler.add(span(2, 2, operation="execute_tool"), 100, 0.0)
    assert taken(assembler, 1.0) == []
    assert (assembler.without_answer, assembler.spans) == (2, 0)


@pytest.mark.parametrize(("limits", "accepted"), [({"max_spans": 3}, 3), ({"max_bytes": 250}, 2)])
def test_what_waits_is_bounded(limits: dict[str, int], accepted: int) -> None:
    """Without room a span is refused; of one trace, spans beyond its limit are left out."""
    assembler = TraceAssembler(**limits)
    assert [assembler.add(chat(number, number), 100, 0.0) for number in range(1, 6)].count(True) == accepted
    assert len(list(assembler.take_all())) == accepted
    one = TraceAssembler(max_trace_spans=2)
    assert all(one.add(chat(1, number), 100, 0.0) for number in range(1, 6))
    assert (one.spans, one.left_out) == (2, 3)


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_recorded_traces_shuffled_together_read_as_they_were(name: str) -> None:
    """Twenty copies of recorded traces, their spans in any order, in batches: each answer as from its own spans."""
    spans, copies = spans_of(name), 20
    every = [replace(item, trace_id=item.trace_id + copy) for copy in range(copies) for item in spans]
    random.Random(7).shuffle(every)
    assembler = TraceAssembler(quiet_s=6.0)
    for place, item in enumerate(every):
        assert assembler.add(item, 100, place / len(every))
    assembled = list(assembler.take(7.0))
    expected = [answer.input for reading in read_recording(name) for answer in reading.answers]
    inputs = [answer.input for trace in assembled for answer in read_trace(trace.spans).answers]
    assert expected
    assert sorted(map(repr, inputs)) == sorted(map(repr, expected * copies))
    assert (assembler.late, assembler.left_out) == (0, 0)
