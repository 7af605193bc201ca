"""Traces put together from spans: complete when an answer's span has arrived and its trace was quiet; bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agenteval_otel.mappers.base import role_of
from agenteval_otel.mappers.span import ReadSpan

_MAX_FINISHED = 10_000  # traces whose late spans are recognized


class AssembledTrace(NamedTuple):
    """The spans of one trace that belong together, in the order of their arrival."""

    spans: list[ReadSpan]
    size_bytes: int


class _Trace:
    __slots__ = ("last_s", "size_bytes", "spans")

    def __init__(self) -> None:
        self.spans: list[ReadSpan] = []
        self.size_bytes = 0
        self.last_s = 0.0


class TraceAssembler:
    """Puts spans together by trace. Not thread-safe: one thread adds spans and takes traces. Raises nothing.

    A trace is complete when it was quiet for `quiet_s` and has the span of an agent, or of a model call whose parent is
    there or that has none. Where the parent of a model call has not come, an agent may still be at work above it: such
    a trace waits for `parent_wait_s`. A trace without any such span is let go.

    Args:
        quiet_s: How long no span of a trace may have come: what an SDK's batch processor waits, and a second.
        parent_wait_s: How long a model call waits for a parent that was not seen.
        max_spans: Spans that wait, of all traces.
        max_bytes: The sum of their `size_bytes`.
        max_trace_spans: Spans of one trace; further ones are left out.

    Attributes:
        late: Spans that came when their answer was on its way already.
        left_out: Spans beyond `max_trace_spans`.
        without_answer: Traces in which nothing is evaluated.
    """

    def __init__(
        self, *, quiet_s: float = 6.0, parent_wait_s: float = 60.0, max_spans: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024, max_trace_spans: int = 1_000,
    ) -> None:  # fmt: skip
        self._quiet_s, self._parent_wait_s = quiet_s, parent_wait_s
        self._max_spans, self._max_bytes, self._max_trace_spans = max_spans, max_bytes, max_trace_spans
        # Both in the order of their last span; those that wait were quiet, and their parents have not come.
        self._active: dict[int, _Trace] = {}
        self._waiting: dict[int, _Trace] = {}
        self._finished: dict[int, set[int]] = {}
        self.spans = self.size_bytes = 0
        self.late = self.left_out = self.without_answer = 0

    def __repr__(self) -> str:
        return f"<TraceAssembler traces={len(self._active) + len(self._waiting)} spans={self.spans}>"

    def add(self, span: ReadSpan, size_bytes: int, now_s: float) -> bool:
        """Take a span; False where there is no room for it. `now_s` never goes back."""
        if self.spans >= self._max_spans or self.size_bytes + size_bytes > self._max_bytes:
            return False
        finished = self._finished.get(span.trace_id)
        if finished is not None and (span.parent_id in finished or span.span_id in finished):
            finished.add(span.span_id)
            self.late += 1
            return True
        trace = self._active.pop(span.trace_id, None) or self._waiting.pop(span.trace_id, None) or _Trace()
        self._active[span.trace_id] = trace
        trace.last_s = now_s
        if len(trace.spans) >= self._max_trace_spans:
            self.left_out += 1
            return True
        trace.spans.append(span)
        trace.size_bytes += size_bytes
        self.spans += 1
        self.size_bytes += size_bytes
        return True

    def take(self, now_s: float, *, quiet_s: float | None = None) -> Iterator[AssembledTrace]:
        """Take the traces that are complete; with `quiet_s` those that were quiet for so long."""
        for trace_id, trace in _quiet(self._active, now_s - (self._quiet_s if quiet_s is None else quiet_s)):
            del self._active[trace_id]
            known, waits = _roles(trace.spans)
            if waits and self._parent_wait_s > self._quiet_s:
                self._waiting[trace_id] = trace
            elif (taken := self._finish(trace_id, trace, known)) is not None:
                yield taken
        for trace_id, trace in _quiet(self._waiting, now_s - self._parent_wait_s):
            del self._waiting[trace_id]
            if (taken := self._finish(trace_id, trace, _roles(trace.spans)[0])) is not None:
                yield taken

    def take_all(self) -> Iterator[AssembledTrace]:
        """Take every trace as it is: before the end."""
        for traces in (self._active, self._waiting):
            while traces:
                trace_id = next(iter(traces))
                trace = traces.pop(trace_id)
                if (taken := self._finish(trace_id, trace, _roles(trace.spans)[0])) is not None:
                    yield taken

    def _finish(self, trace_id: int, trace: _Trace, known: set[int]) -> AssembledTrace | None:
        self.spans -= len(trace.spans)
        self.size_bytes -= trace.size_bytes
        if not known:
            self.without_answer += 1
            return None
        self._finished[trace_id] = known | self._finished.pop(trace_id, set())
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]
        return AssembledTrace(trace.spans, trace.size_bytes)


def _quiet(traces: dict[int, _Trace], since_s: float) -> list[tuple[int, _Trace]]:
    """The first traces, as far as they had no span since then."""
    quiet: list[tuple[int, _Trace]] = []
    for trace_id, trace in traces.items():
        if trace.last_s > since_s:
            break
        quiet.append((trace_id, trace))
    return quiet


def _roles(spans: list[ReadSpan]) -> tuple[set[int], bool]:
    """The ids of the spans of answers, none where nothing is evaluated; and whether to wait for a parent."""
    roles = {span.span_id: role for span in spans if (role := role_of(span)) is not None}
    answers = roles.values()
    if not {"agent", "workflow", "model"}.intersection(answers):
        return set(), False
    if "agent" in answers or "workflow" in answers:
        return set(roles), False
    ids = {span.span_id for span in spans}
    waits = any(span.parent_id is not None and span.parent_id not in ids for span in spans if span.span_id in roles)
    return set(roles), waits
