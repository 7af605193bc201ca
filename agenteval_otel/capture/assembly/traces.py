"""Traces put together from spans, bounded.

A trace is complete when an answer's span has arrived and the trace was quiet.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from agenteval_otel.capture.assembly.recent import (
    ANY_SPAN,
    PART_LOST,
    WHOLE_TRACE,
    RecentSpans,
)
from agenteval_otel.capture.spans.base import mapper_of, role_of
from agenteval_otel.capture.spans.span import ReadEvent, ReadSpan
from agenteval_otel.models.inputs import Incomplete
from agenteval_otel.semconv import (
    SPANS_DROPPED,
    SPANS_NOT_UNDERSTOOD,
    SPANS_OURS,
    SPANS_WITHOUT_ANSWER,
)

_DROPPED: Final = (SPANS_DROPPED, "")
_ANSWERS: Final = frozenset({"agent", "workflow"})
_PATIENT_S: Final = 60.0
_PATIENT_TIMES: Final = 3
"""How long, and by how much, traces are waited for after a span that came late."""
_EXPECTED_TIMES: Final = 2
"""How many quiet times a trace waits for a part that is refused again and again: while there is no
room, what waits for it takes the room of others."""


class AssembledTrace(NamedTuple):
    """Holds the spans of one trace that belong together, in the order of their arrival.

    `incomplete` says why the trace is known to have more of them.
    """

    spans: list[ReadSpan]
    size_bytes: int
    incomplete: Incomplete | None = None


class _Trace:
    __slots__ = (
        "events",
        "expected_s",
        "has_finished",
        "is_cut",
        "last_s",
        "n_events",
        "size_bytes",
        "spans",
        "waited_s",
    )

    def __init__(self, now_s: float, *, has_finished: bool) -> None:
        self.spans: list[ReadSpan] = []
        # an answer of the same trace was finished lately: its spans are looked for
        self.has_finished = has_finished
        self.events: dict[int, list[ReadEvent]] | None = None
        self.size_bytes = self.n_events = 0
        self.last_s = now_s
        self.waited_s = 0.0  # for a parent, before this process
        self.expected_s: float | None = None  # since when a refused part has not come again
        self.is_cut = False  # it has more spans or events than are kept


class TraceAssembler:
    """Puts spans together by trace.

    Not thread-safe: one thread adds spans and takes traces. Raises nothing.

    A trace is complete when it was quiet for `quiet_s`, has the span of an agent or of a model call,
    and the parent of each of its steps. Where the parent of a model call or a tool has not come, an
    agent may still be at work above it: such a trace waits for `parent_wait_s`, and is then taken
    as incomplete. A trace without any such span is let go. One that is never quiet is taken as it
    is once it is `max_age_s` old.

    After a span that came late, traces have to be quiet for three times as long, for a minute: the
    machine, or what sends, is busy.

    Of a trace of which a span finds no room nothing is taken: its spans count as dropped.

    The spans of a trace that was taken are remembered for a while. One that comes again, or that
    comes later and is below one of them, is late, and not evaluated as a trace of its own.

    Args:
        quiet_s: How long no span of a trace may have come: what an SDK's batch processor waits, and
            a second.
        parent_wait_s: How long a model call waits for a parent that was not seen.
        max_age_s: How long a trace may wait, whatever comes.
        max_spans: Spans and events that wait, of all traces.
        max_bytes: The sum of their `size_bytes`.
        max_trace_spans: Spans of one trace, and events of it. Further ones are left out. Of spans
            that mappers understand it may have twice as many: the agent's own comes last.
        is_mark: Says whether a value in the trace state is the mark of a trace (see
            `ReadSpan.is_marked`). Without it no span is marked.
        remember_s: How long the spans of a trace that was taken are remembered.
        remember_bytes: The memory for that. 9 to 12 bytes a span of an agent, model or tool, and a
            trace.

    Attributes:
        late: Spans that came when their answer was on its way already, or came again.
        left_out: Spans beyond `max_trace_spans`.
        unread: Spans of traces in which nothing is evaluated, by their outcome (`SPANS_OUTCOMES`)
            and scope.
    """

    def __init__(
        self,
        *,
        quiet_s: float = 6.0,
        parent_wait_s: float = 60.0,
        max_age_s: float = 3_600.0,
        max_spans: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_trace_spans: int = 1_000,
        is_mark: Callable[[str, int], bool] | None = None,
        remember_s: float = 300.0,
        remember_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        self._is_mark = is_mark
        self._quiet_s = quiet_s
        self._parent_wait_s = parent_wait_s
        self._max_age_s = max_age_s
        self._max_spans = max_spans
        self._max_bytes = max_bytes
        self._max_trace_spans = max_trace_spans
        # All are emptied from the front, where a plain dictionary is slow. The first two are in the
        # order of their last span; traces in `_waiting` were quiet, but a parent span has not
        # arrived.
        self._active: OrderedDict[int, _Trace] = OrderedDict()
        self._waiting: OrderedDict[int, _Trace] = OrderedDict()
        # of both, in the order of their first span
        self._begun: OrderedDict[int, float] = OrderedDict()
        self._finished = RecentSpans(remember_s, remember_bytes)
        self._late_noted = 0
        self._patient_until_s = -math.inf
        self.spans = self.size_bytes = 0
        self.late = self.left_out = 0
        self.unread: Counter[tuple[str, str]] = Counter()

    def __repr__(self) -> str:
        return f"<TraceAssembler traces={self.traces} spans={self.spans}>"

    def add(self, span: ReadSpan, size_bytes: int, now_s: float) -> bool:
        """Take a span. Return False only if there is no room for it. `now_s` never goes back."""
        if not self._has_room(size_bytes):
            self.lose(span.trace_id)
            return False
        if self._is_mark is not None and span.trace_state:
            span.check_mark(self._is_mark)
        has_finished = self._has_finished(span.trace_id)
        if has_finished and self._finished.knows(span.trace_id, PART_LOST):
            self.unread[_DROPPED] += 1
            return True
        if has_finished and not span.is_evaluation and self._comes_late(span, now_s):
            self.late += 1
            return True
        trace = self._trace(span.trace_id, now_s, has_finished=has_finished)
        count = len(trace.spans)
        if count >= self._max_trace_spans and (
            count >= 2 * self._max_trace_spans or role_of(span) is None
        ):
            trace.is_cut = True
            self.left_out += 1
            return True
        trace.spans.append(span)
        self._count(trace, size_bytes)
        return True

    def add_event(
        self, event: ReadEvent, trace_id: int, span_id: int, size_bytes: int, now_s: float
    ) -> bool:
        """Take an event that came apart from its span, as a log record.

        Return False only if there is no room for it.
        """
        if not self._has_room(size_bytes):
            self.lose(trace_id)
            return False
        has_finished = self._has_finished(trace_id)
        if has_finished and self._finished.knows(trace_id, PART_LOST):
            self.unread[_DROPPED] += 1
            return True
        if has_finished and (
            self._finished.knows(trace_id, span_id) or self._finished.knows(trace_id, WHOLE_TRACE)
        ):
            self.late += 1
            return True
        trace = self._trace(trace_id, now_s, has_finished=has_finished)
        events = trace.events = trace.events or {}
        if trace.n_events >= self._max_trace_spans:
            trace.is_cut = True
            self.left_out += 1
            return True
        trace.n_events += 1
        events.setdefault(span_id, []).append(event)
        self._count(trace, size_bytes)
        return True

    def lose(self, trace_id: int) -> None:
        """Leave out the whole trace: a part of it is lost, and the rest would be scored as if whole."""
        trace = self._active.pop(trace_id, None) or self._waiting.pop(trace_id, None)
        if trace is not None:
            self._let_go(trace_id, trace)
        self._leave_out(trace_id, trace)

    def expect(self, trace_ids: Iterable[int], now_s: float) -> None:
        """Wait for a part of these traces that was refused, and is to be sent again.

        A trace whose part does not come, or is refused for too long, is left out as a whole.
        """
        for trace_id in trace_ids:
            trace = self._open(trace_id)
            if trace is None:
                continue
            since_s = now_s if trace.expected_s is None else trace.expected_s
            if now_s - since_s > _EXPECTED_TIMES * self._quiet_s:
                self.lose(trace_id)
                continue
            self._trace(trace_id, now_s, has_finished=trace.has_finished)
            trace.expected_s = since_s

    def know(self, trace_id: int, span_id: int) -> None:
        """Note a span whose answer was evaluated before: by an earlier process."""
        self._know(trace_id, {span_id})

    def shorten_wait(self, seconds: float) -> None:
        """Shorten the wait for a parent of the traces that are here, unless another span comes.

        They have waited for `seconds` in an earlier process.
        """
        for trace in (*self._active.values(), *self._waiting.values()):
            trace.waited_s = seconds

    def close(self, trace_ids: Iterable[int]) -> None:
        """Take no further span of these traces: what comes while they are remembered is late."""
        for trace_id in trace_ids:
            self._know(trace_id, {WHOLE_TRACE})

    @property
    def remembered_bytes(self) -> int:
        """Return the memory of what is remembered."""
        return self._finished.size_bytes

    @property
    def forgotten(self) -> int:
        """Return how many spans of finished answers were forgotten before their time.

        They were forgotten for lack of memory.
        """
        return self._finished.forgotten

    @property
    def traces(self) -> int:
        """Return how many traces wait."""
        return len(self._begun)

    def trace_ids(self) -> set[int]:
        """Return the ids of the traces that wait."""
        return set(self._begun)

    def _has_room(self, size_bytes: int) -> bool:
        return self.spans < self._max_spans and self.size_bytes + size_bytes <= self._max_bytes

    def _open(self, trace_id: int) -> _Trace | None:
        return self._active.get(trace_id) or self._waiting.get(trace_id)

    def _has_finished(self, trace_id: int) -> bool:
        """Tell whether an answer of the trace was finished lately.

        It is looked up once a trace, as it takes time.
        """
        trace = self._open(trace_id)
        if trace is not None:
            return trace.has_finished
        return self._finished.knows(trace_id, ANY_SPAN)

    def _comes_late(self, span: ReadSpan, now_s: float) -> bool:
        """Tell whether the span was taken before, or is below a span that was.

        Then that one stays known.
        """
        finished = self._finished
        trace_id = span.trace_id
        if finished.knows(trace_id, WHOLE_TRACE):
            return True
        known = span.span_id
        if not finished.knows(trace_id, known):
            if span.parent_id is None or not finished.knows(trace_id, span.parent_id):
                return False
            known = span.parent_id
            self._patient_until_s = now_s + _PATIENT_S
            # What comes below it is late too. Bounded: late spans push out what was evaluated.
            if self._late_noted < 2 * self._max_trace_spans:
                self._late_noted += 1
                finished.note(trace_id, span.span_id)
        finished.note(trace_id, known)
        finished.note(trace_id, ANY_SPAN)
        return True

    def _trace(self, trace_id: int, now_s: float, *, has_finished: bool) -> _Trace:
        trace = self._active.get(trace_id)
        if trace is not None:
            self._active.move_to_end(trace_id)
        else:
            trace = self._waiting.pop(trace_id, None)
            if trace is None:
                trace = _Trace(now_s, has_finished=has_finished)
                self._begun[trace_id] = now_s
            self._active[trace_id] = trace
        trace.last_s = now_s
        trace.waited_s = 0.0
        trace.expected_s = None
        return trace

    def _count(self, trace: _Trace, size_bytes: int) -> None:
        trace.size_bytes += size_bytes
        self.spans += 1
        self.size_bytes += size_bytes

    def take(
        self, now_s: float, *, quiet_s: float | None = None, max_age_s: float | None = None
    ) -> Iterator[AssembledTrace]:
        """Take the traces that are complete.

        `quiet_s` and `max_age_s` replace those of the assembler.
        """
        self._finished.advance(now_s)
        is_early = quiet_s is not None and quiet_s < self._quiet_s
        if quiet_s is None:
            is_patient = now_s < self._patient_until_s
            quiet_s = _PATIENT_TIMES * self._quiet_s if is_patient else self._quiet_s
        for trace_id, trace in _quiet(self._active, now_s - quiet_s):
            known, lacks_parent = _roles(trace.spans)
            # A part that was refused may still be sent again, perhaps to the next process.
            waits = lacks_parent or (is_early and trace.expected_s is not None)
            if waits and self._parent_wait_s > self._quiet_s:
                self._waiting[trace_id] = trace
                continue
            taken = self._finish(trace_id, trace, known, lacks_parent=lacks_parent)
            if taken is not None:
                yield taken
        for trace_id, trace in _quiet(self._waiting, now_s - self._parent_wait_s, is_waiting=True):
            known, lacks_parent = _roles(trace.spans)
            taken = self._finish(trace_id, trace, known, lacks_parent=lacks_parent)
            if taken is not None:
                yield taken
        max_age_s = self._max_age_s if max_age_s is None else max_age_s
        yield from self._take_begun(now_s - max_age_s)

    def take_all(self) -> Iterator[AssembledTrace]:
        """Take every trace as it is: before the end."""
        yield from self._take_begun(math.inf)

    def remove(
        self, is_concerned: Callable[[int, Sequence[ReadSpan], Sequence[ReadEvent]], bool]
    ) -> list[int]:
        """Remove the traces that are concerned by their id, spans and events, and return their ids.

        They are forgotten: spans that are sent again are put together as if they were new. An
        erasure calls `close` besides.
        """
        removed = []
        for trace_id in list(self._begun):
            traces = self._active if trace_id in self._active else self._waiting
            trace = traces[trace_id]
            events = list(chain.from_iterable((trace.events or {}).values()))
            if is_concerned(trace_id, trace.spans, events):
                del traces[trace_id]
                self._let_go(trace_id, trace)
                removed.append(trace_id)
        return removed

    def _take_begun(self, until_s: float) -> Iterator[AssembledTrace]:
        """Take as they are the traces that began by then."""
        while self._begun:
            trace_id, first_s = next(iter(self._begun.items()))
            if first_s > until_s:
                return
            trace = self._active.pop(trace_id, None) or self._waiting.pop(trace_id)
            known, lacks_parent = _roles(trace.spans)
            taken = self._finish(trace_id, trace, known, lacks_parent=lacks_parent)
            if taken is not None:
                yield taken

    def _leave_out(self, trace_id: int, trace: _Trace | None) -> None:
        self._finished.note(trace_id, PART_LOST)
        self._finished.note(trace_id, ANY_SPAN)
        if trace is not None:
            self.unread[_DROPPED] += len(trace.spans) + trace.n_events

    def _let_go(self, trace_id: int, trace: _Trace) -> None:
        del self._begun[trace_id]
        self.spans -= len(trace.spans) + trace.n_events
        self.size_bytes -= trace.size_bytes

    def _finish(
        self, trace_id: int, trace: _Trace, known: set[int], *, lacks_parent: bool
    ) -> AssembledTrace | None:
        self._let_go(trace_id, trace)
        if trace.expected_s is not None:
            self._leave_out(trace_id, trace)
            return None
        # a client that tried again may have sent one twice
        spans = {span.span_id: span for span in trace.spans}
        if len(spans) < len(trace.spans):
            trace.spans[:] = spans.values()
        if trace.events is not None:
            for span in trace.spans:
                if span.span_id in trace.events:
                    span.events = [*span.events, *trace.events.pop(span.span_id)]
        if not known:
            self.unread.update(map(_unread, trace.spans))
            return None
        self._know(trace_id, known)
        incomplete: Incomplete | None = None
        if lacks_parent:
            incomplete = "parent_missing"
        elif trace.is_cut:
            incomplete = "spans_left_out"
        return AssembledTrace(trace.spans, trace.size_bytes, incomplete)

    def _know(self, trace_id: int, span_ids: Iterable[int]) -> None:
        finished = self._finished
        trace = self._open(trace_id)
        if trace is not None:
            trace.has_finished = True
        finished.note(trace_id, ANY_SPAN)
        for span_id in span_ids:
            finished.note(trace_id, span_id)
        self._late_noted = 0


def _unread(span: ReadSpan) -> tuple[str, str]:
    if span.is_evaluation:
        return SPANS_OURS, ""
    if mapper_of(span) is None:
        return SPANS_NOT_UNDERSTOOD, span.scope
    return SPANS_WITHOUT_ANSWER, ""


def _quiet(
    traces: OrderedDict[int, _Trace], since_s: float, *, is_waiting: bool = False
) -> Iterator[tuple[int, _Trace]]:
    """Take the first traces out, as far as they had no span since then."""
    while traces:
        trace_id, trace = next(iter(traces.items()))
        if trace.last_s - (trace.waited_s if is_waiting else 0.0) > since_s:
            return
        del traces[trace_id]
        yield trace_id, trace


def _roles(spans: list[ReadSpan]) -> tuple[set[int], bool]:
    """Return the ids of the spans of answers, and whether the parent of a step is missing.

    There are no ids if nothing is evaluated. The parent of an agent may be missing: it is often
    a request of a service that sends no spans here.
    """
    roles = {}
    for span in spans:
        role = role_of(span)
        if role is not None and not span.is_evaluation:
            roles[span.span_id] = role
    answers = roles.values()
    if not {"agent", "workflow", "model"}.intersection(answers):
        return set(), False
    ids = {span.span_id for span in spans}
    for span in spans:
        role = roles.get(span.span_id)
        if role is None or role in _ANSWERS:
            continue
        if span.parent_id is not None and span.parent_id not in ids:
            return set(roles), True
    return set(roles), False
