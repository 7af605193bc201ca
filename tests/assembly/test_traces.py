"""Traces put together from spans in any order: when they are complete, and what becomes of the
rest.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from agenteval_otel.capture.assembly.traces import TraceAssembler
from agenteval_otel.capture.spans.span import ReadEvent, ReadSpan
from agenteval_otel.capture.spans.trace import read_trace
from agenteval_otel.sampling.key import SamplingKey
from tests.mappers.support import AGENT_NAMES, read_recording, spans_of

OPERATION = "gen_ai.operation.name"


def span(
    trace: int, number: int, parent: int | None = None, operation: str | None = None
) -> ReadSpan:
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
    """Its parent has not come: with the agent's span all are one trace, without it the call is read
    alone.
    """
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


def test_a_call_that_waited_in_an_earlier_process_waits_less_for_its_agent() -> None:
    """The quiet time is not shortened, and another span of the trace begins the wait anew."""
    assembler = TraceAssembler(quiet_s=6.0, parent_wait_s=60.0)
    for trace in (1, 2):
        assembler.add(chat(trace, 2, parent=1), 100, 0.0)
    assembler.shorten_wait(30.0)
    assert taken(assembler, 5.9) == []
    assembler.add(span(2, 3, parent=2), 100, 10.0)
    assembler.add(chat(3, 2, parent=1), 100, 20.0)
    assert taken(assembler, 29.9) == []
    assert taken(assembler, 30.0) == [[2]]
    assert taken(assembler, 69.9) == []
    assert taken(assembler, 70.0) == [[2, 3]]
    assert taken(assembler, 80.0) == [[2]]


def test_late_spans_of_an_answer_are_counted_and_no_second_answer() -> None:
    """A later answer of the same trace is one of its own."""
    assembler = TraceAssembler(quiet_s=1.0)
    assembler.add(span(1, 1, operation="invoke_agent"), 100, 0.0)
    assert taken(assembler, 1.0) == [[1]]
    assembler.add(chat(1, 2, parent=1), 100, 2.0)
    assembler.add(span(1, 3, 2, "execute_tool"), 100, 2.0)
    assert (taken(assembler, 9.0), assembler.late) == ([], 2)
    assembler.add(span(1, 4, operation="invoke_agent"), 100, 10.0)
    assert taken(assembler, 13.0) == [[4]]


def test_traces_without_an_answer_are_let_go() -> None:
    """Nothing in them is evaluated: their spans are counted, by their scope where no mapper reads
    them, and go.
    """
    assembler = TraceAssembler(quiet_s=1.0)
    assembler.add(replace(span(1, 1), scope="http"), 100, 0.0)
    assembler.add(span(2, 2, operation="execute_tool"), 100, 0.0)
    assert taken(assembler, 1.0) == []
    assert assembler.unread == {("not_understood", "http"): 1, ("without_answer", ""): 1}
    assert assembler.spans == 0


def test_spans_of_evaluations_are_no_answers() -> None:
    """Run spans that come back, and the model call of a judge, whose trace state has the trace's
    mark, also before its parent.
    """
    key = SamplingKey(b"of several processes")
    assembler = TraceAssembler(quiet_s=1.0, parent_wait_s=60.0, is_mark=key.is_mark)
    assembler.add(span(1, 1, operation="invoke_agent"), 100, 0.0)
    assert taken(assembler, 1.0) == [[1]]
    judge = replace(chat(1, 3, parent=2), trace_state=f"ot=th:8, agenteval={key.mark(1)}")
    assembler.add(judge, 100, 2.0)
    assembler.add(replace(span(1, 2, 1, "evaluation"), scope="agenteval_otel"), 100, 4.0)
    assert taken(assembler, 70.0) == []
    assert assembler.unread == {("ours", ""): 2}
    assert assembler.late == 0


@pytest.mark.parametrize("value", ["evaluation", "", "x", "é", "0" * 32, "of another trace"])
def test_a_trace_state_without_our_mark_says_nothing(value: str) -> None:
    """Whoever sends a request chooses its trace state: an entry that was not made with our key for
    this very trace leaves the answer an answer.
    """
    key = SamplingKey(b"of several processes")
    entry = key.mark(2) if value == "of another trace" else value
    assembler = TraceAssembler(quiet_s=1.0, is_mark=key.is_mark)
    answer = replace(span(1, 1, operation="invoke_agent"), trace_state=f"agenteval={entry}")
    assembler.add(answer, 100, 0.0)
    assert taken(assembler, 1.0) == [[1]]
    assert not answer.is_evaluation


@pytest.mark.parametrize(("limits", "accepted"), [({"max_spans": 3}, 3), ({"max_bytes": 250}, 2)])
def test_what_waits_is_bounded(limits: dict[str, int], accepted: int) -> None:
    """Without room a span is refused; of one trace, spans beyond its limit are left out."""
    assembler = TraceAssembler(**limits)
    assert [assembler.add(chat(number, number), 100, 0.0) for number in range(1, 6)].count(
        True
    ) == accepted
    assert len(list(assembler.take_all())) == accepted


def test_of_one_trace_the_spans_that_are_understood_are_kept_longest() -> None:
    """Beyond its limit a trace takes spans of agents, models and tools alone, as many again: the
    agent's comes last.
    """
    assembler = TraceAssembler(max_trace_spans=3)
    for number in range(1, 6):
        assert assembler.add(span(1, number, 9), 100, 0.0)
    for number in (6, 7):
        assert assembler.add(chat(1, number, 9), 100, 0.0)
    assert assembler.add(span(1, 9, operation="invoke_agent"), 100, 0.0)
    assert assembler.add(chat(1, 10, 9), 100, 0.0)
    assert (assembler.spans, assembler.left_out) == (6, 3)
    assert taken(assembler, 6.0) == [[1, 2, 3, 6, 7, 9]]


def test_a_trace_that_is_never_quiet_is_taken_at_its_age() -> None:
    """A span every second for hours: what came is taken as it is, and what follows below it is
    late.
    """
    assembler = TraceAssembler(quiet_s=6.0, max_age_s=600.0)
    assembler.add(span(1, 1, operation="invoke_agent"), 100, 0.0)
    seen: list[list[int]] = []
    for second in range(1, 1201):
        assembler.add(span(1, 1 + second, 1), 100, float(second))
        seen += taken(assembler, float(second))
    assert [trace[0] for trace in seen] == [1]
    assert assembler.spans == 0
    assert assembler.late == 600


def test_under_pressure_the_oldest_traces_are_taken() -> None:
    """With a smaller age those that began earlier are let go, waiting for a parent or not."""
    assembler = TraceAssembler(quiet_s=6.0, parent_wait_s=60.0)
    assembler.add(chat(1, 1, 9), 100, 0.0)
    assert list(assembler.take(10.0)) == []
    assembler.add(chat(2, 2, 9), 100, 11.0)
    assert [trace.spans[0].trace_id for trace in assembler.take(12.0, max_age_s=5.0)] == [1]
    assert assembler.trace_ids() == {2}


def test_late_spans_take_no_room() -> None:
    """What is remembered of a trace is bounded, however many late spans it gets."""
    assembler = TraceAssembler(quiet_s=1.0, max_trace_spans=10)
    assembler.add(span(1, 1, operation="invoke_agent"), 100, 0.0)
    assert taken(assembler, 1.0) == [[1]]
    for number in range(2, 1000):
        assembler.add(chat(1, number, 1), 100, 2.0)
    assert assembler.late == 998
    assert assembler.remembered_bytes <= 30 * 200


def test_a_process_within_one_trace_is_bounded() -> None:
    """A trace that is complete again and again remembers what was evaluated lately, and not all
    there ever was: each of its answers is taken, once.
    """
    assembler = TraceAssembler(quiet_s=1.0, remember_s=60.0)
    for number in range(1, 1000):
        assembler.add(chat(1, number), 100, 3.0 * number)
        assert taken(assembler, 3.0 * number + 1) == [[number]]
        assembler.add(chat(1, number), 100, 3.0 * number + 2)
    assert (assembler.late, assembler.spans) == (999, 0)
    assert assembler.remembered_bytes <= 90 * 200


def test_what_was_removed_is_forgotten() -> None:
    """Removed and sent again it is one trace, as it was; what was evaluated before stays known."""
    assembler = TraceAssembler(quiet_s=1.0)
    assembler.add(span(1, 9, operation="invoke_agent"), 100, 0.0)
    assert taken(assembler, 1.0) == [[9]]
    spans = [chat(1, 2, 1), chat(1, 3, 1), span(1, 1, operation="invoke_agent")]
    for item in spans[:2]:
        assembler.add(item, 100, 2.0)
    assert assembler.remove(lambda trace_id, spans, events: trace_id == 1) == [1]
    assert (assembler.spans, assembler.size_bytes) == (0, 0)
    for item in spans:
        assembler.add(item, 100, 3.0)
    assembler.add(chat(1, 10, 9), 100, 3.0)
    assert (taken(assembler, 9.0), assembler.late) == ([[2, 3, 1]], 1)


def test_a_closed_trace_takes_nothing_more() -> None:
    """After an erasure the spans of the same answer that come later, the agent's own among them,
    are late; so are their events.
    """
    assembler = TraceAssembler(quiet_s=1.0, remember_s=60.0)
    assembler.add(chat(1, 2, 1), 100, 0.0)
    assembler.close(assembler.remove(lambda trace_id, spans, events: True))
    assembler.add(span(1, 1, operation="invoke_agent"), 100, 1.0)
    event = ReadEvent("gen_ai.client.inference.operation.details", 1, {}, None)
    assert assembler.add_event(event, 1, 1, 100, 1.0)
    assembler.add(chat(2, 2, 1), 100, 1.0)
    assert ([trace.spans[0].trace_id for trace in assembler.take_all()], assembler.late) == ([2], 2)


AGENT = "invoke_agent"


def incomplete(assembler: TraceAssembler, now_s: float) -> list[str | None]:
    return [trace.incomplete for trace in assembler.take(now_s)]


def test_a_step_without_its_parent_waits_and_then_says_so() -> None:
    """An agent below another one has ended, which is still at work: its steps have come, it has not.
    With it the trace is whole; without it, it is taken after the wait, and says what lacks.
    """
    steps = [chat(1, 4, parent=3), span(1, 3, 1, AGENT), chat(1, 2, parent=1)]
    for has_come in (True, False):
        assembler = TraceAssembler(quiet_s=6.0, parent_wait_s=60.0)
        for item in steps:
            assembler.add(item, 100, 0.0)
        assert taken(assembler, 59.9) == []
        if has_come:
            assembler.add(span(1, 1, operation=AGENT), 100, 59.9)
        assert incomplete(assembler, 65.9) == [None if has_come else "parent_missing"]


def test_an_agent_alone_without_its_parent_is_whole() -> None:
    """Above it is a request of another service, or one that goes on: nothing of the answer lacks."""
    assembler = TraceAssembler(quiet_s=6.0)
    for item in (chat(1, 4, parent=3), span(1, 3, 1, AGENT)):
        assembler.add(item, 100, 0.0)
    assert incomplete(assembler, 6.0) == [None]


def test_what_is_taken_early_says_that_a_parent_is_missing() -> None:
    """At the end of the process, and where memory is short; a root that is there is whole."""
    for early in ("end", "memory"):
        assembler = TraceAssembler(quiet_s=6.0)
        assembler.add(chat(1, 2, parent=1), 100, 0.0)
        assembler.add(chat(2, 1), 100, 0.0)
        traces = assembler.take_all() if early == "end" else assembler.take(3.0, max_age_s=2.0)
        assert [trace.incomplete for trace in traces] == ["parent_missing", None]


def test_a_trace_with_more_spans_than_are_kept_says_so() -> None:
    assembler = TraceAssembler(quiet_s=6.0, max_trace_spans=3)
    for number in range(2, 6):
        assembler.add(span(1, number, 1), 100, 0.0)
    assembler.add(span(1, 1, operation=AGENT), 100, 0.0)
    assert (incomplete(assembler, 6.0), assembler.left_out) == (["spans_left_out"], 1)


def test_a_trace_without_room_for_a_part_is_left_out_as_a_whole() -> None:
    """What came of it before, and what comes after, counts as dropped; others are taken."""
    assembler = TraceAssembler(quiet_s=6.0, max_bytes=1_000)
    event = ReadEvent("gen_ai.choice", 1, {}, None)
    for item in (chat(1, 3, parent=1), chat(2, 2)):
        assert assembler.add(item, 400, 0.0)
    assert not assembler.add(chat(1, 2, parent=1), 400, 0.0)
    assert (assembler.spans, assembler.size_bytes) == (1, 400)
    assert assembler.add(span(1, 1, operation=AGENT), 100, 1.0)
    assert assembler.add_event(event, 1, 1, 100, 1.0)
    assert taken(assembler, 10.0) == [[2]]
    # The one that found no room is counted by who added it.
    assert (assembler.unread, assembler.late) == ({("dropped", ""): 3}, 0)


def test_an_event_without_room_leaves_its_trace_out() -> None:
    assembler = TraceAssembler(quiet_s=6.0, max_bytes=1_000)
    assembler.add(chat(1, 1), 800, 0.0)
    assert not assembler.add_event(ReadEvent("gen_ai.choice", 1, {}, None), 1, 1, 400, 0.0)
    assert (taken(assembler, 10.0), assembler.unread.total()) == ([], 1)


def test_a_trace_waits_for_a_part_that_was_refused() -> None:
    """Sent again it is whole. If it does not come, or is refused too long, nothing of it is taken."""
    for comes_s, expected in ((7.0, [[1, 2]]), (None, [])):
        assembler = TraceAssembler(quiet_s=6.0)
        assembler.add(span(1, 1, operation=AGENT), 100, 0.0)
        assembler.expect([1, 2], 5.0)  # nothing of 2 is here
        assert taken(assembler, 10.9) == []
        if comes_s is not None:
            assembler.add(chat(1, 2, parent=1), 100, comes_s)
        assert taken(assembler, 13.0) == expected
        assert assembler.unread.total() == (0 if expected else 1)
    refused = TraceAssembler(quiet_s=6.0)
    refused.add(span(1, 1, operation=AGENT), 100, 0.0)
    for now_s in (2.0, 6.0, 10.0, 14.0):
        refused.expect([1], now_s)
        assert refused.traces == 1
    refused.expect([1], 18.0)
    assert (refused.traces, refused.size_bytes, refused.unread.total()) == (0, 0, 1)


def test_an_early_look_leaves_what_waits_for_a_refused_part() -> None:
    """A flush, or the end of a process with a journal: the part may still be sent again."""
    for comes_s, expected in ((3.0, [[1, 2]]), (None, [])):
        assembler = TraceAssembler(quiet_s=6.0, parent_wait_s=60.0)
        assembler.add(span(1, 1, operation=AGENT), 100, 0.0)
        assembler.expect([1], 1.0)
        assert list(assembler.take(2.0, quiet_s=0.0)) == []
        assert (assembler.traces, assembler.unread.total()) == (1, 0)
        if comes_s is not None:
            assembler.add(chat(1, 2, parent=1), 100, comes_s)
        assert taken(assembler, 61.0) == expected
        assert (assembler.traces, assembler.unread.total()) == (0, 0 if expected else 1)


def test_after_a_late_span_traces_are_waited_for_longer() -> None:
    """For a minute after the last one. A span that came again says nothing of the others."""
    assembler = TraceAssembler(quiet_s=6.0, remember_s=600.0)
    root = span(1, 1, operation=AGENT)
    assembler.add(root, 100, 0.0)
    assert taken(assembler, 6.0) == [[1]]
    assembler.add(root, 100, 7.0)
    assembler.add(chat(2, 1), 100, 7.0)
    assert taken(assembler, 13.0) == [[1]]
    assembler.add(chat(1, 2, parent=1), 100, 14.0)
    assembler.add(chat(3, 1), 100, 14.0)
    assert taken(assembler, 31.9) == []
    assert taken(assembler, 32.0) == [[1]]
    assembler.add(chat(4, 1), 100, 68.0)
    assert taken(assembler, 74.0) == [[1]]


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_recorded_traces_shuffled_together_read_as_they_were(name: str) -> None:
    """Five copies of recorded traces, their spans in any order, in batches: each answer as from
    its own spans.
    """
    spans, copies = spans_of(name), 5
    every = [
        replace(item, trace_id=item.trace_id + copy) for copy in range(copies) for item in spans
    ]
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
