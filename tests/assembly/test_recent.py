"""Spans that were seen lately: for how long, in how much memory, and how surely."""

from __future__ import annotations

import random
import tracemalloc

from agenteval_otel.capture.assembly.recent import ANY_SPAN, WHOLE_TRACE, RecentSpans


def test_a_span_is_known_for_the_window() -> None:
    """And for half of it longer at most, however the time passes."""
    recent = RecentSpans(100.0, 1 << 20)
    for number in range(350):
        recent.advance(float(number))
        recent.note(number, 1)
        known = [before for before in range(number + 1) if recent.knows(before, 1)]
        assert known == list(range(known[0], number + 1))
        assert min(number, 99) <= number - known[0] <= 150
    assert recent.forgotten == 0


def test_after_a_long_pause_nothing_is_known_and_no_memory_is_used() -> None:
    """However long it was: a process that was stopped for a week goes on at once."""
    recent = RecentSpans(100.0, 1 << 20)
    recent.note(1, 1)
    recent.advance(604_800.0)
    assert not recent.knows(1, 1)
    assert recent.size_bytes == 0
    recent.note(2, 1)
    assert recent.knows(2, 1)


def test_without_a_window_nothing_is_remembered() -> None:
    """A window of 0 switches it off."""
    recent = RecentSpans(0.0, 1 << 20)
    recent.note(1, 1)
    recent.advance(1.0)
    assert not recent.knows(1, 1)


def test_ids_are_told_apart() -> None:
    """The same span id in another trace, ids that differ in one bit, and the two that stand for
    spans: all are others.
    """
    recent, dice = RecentSpans(100.0, 1 << 20), random.Random(7)
    trace_id, span_id = dice.getrandbits(128), dice.getrandbits(64)
    recent.note(trace_id, span_id)
    assert recent.knows(trace_id, span_id)
    others = [
        *((trace_id ^ (1 << bit), span_id) for bit in range(128)),
        *((trace_id, span_id ^ (1 << bit)) for bit in range(64)),
        (trace_id, ANY_SPAN),
        (trace_id, WHOLE_TRACE),
        (trace_id + 1, span_id),
    ]
    assert [other for other in others if recent.knows(*other)] == []
    recent.note(trace_id, WHOLE_TRACE)
    assert not recent.knows(trace_id + 1, ANY_SPAN)


def test_memory_is_bounded_and_what_it_costs_is_counted() -> None:
    """The oldest spans are forgotten first, and two thirds of what there is room for are always
    known; the memory is what it says.
    """
    limit = 1 << 19
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    recent = RecentSpans(1e6, limit)
    for number in range(1, 150_001):
        recent.note(number << 64, number)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert recent.size_bytes <= limit
    assert 0.7 * recent.size_bytes <= used <= 1.1 * recent.size_bytes
    known = [number for number in range(1, 150_001) if recent.knows(number << 64, number)]
    assert known == list(range(known[0], 150_001))
    assert len(known) >= 2 / 3 * limit / 14
    assert recent.forgotten == 150_000 - len(known)
