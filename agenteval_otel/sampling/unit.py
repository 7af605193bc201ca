"""The unit of sampling: a trace, or each call in it by itself; and handlers that call for the second.

All calls of a trace share its randomness, so they are evaluated together or not at all. Where one trace holds hundreds
of calls (a batch job, an agent's loop), few traces decide everything, and an interval that takes the calls for
independent is too narrow.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from opentelemetry.trace import SpanContext

from agenteval_otel.sampling.ratio import draw_from

__all__ = ["MAX_CALLS_PER_TRACE", "CallRandomness", "CallsPerTrace"]

MAX_CALLS_PER_TRACE: Final = 8
_MAX_KNOWN: Final = 1024


class CallRandomness:
    """Gives each call its own number in [0, 2^64): BLAKE2b of trace, span and the calls before it in that span.

    The first call of a span has the same number in every process. Of more than 1,024 spans at once the oldest is
    forgotten, and its next call counts as its first. Any thread; raises nothing.
    """

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}

    def __call__(self, span_context: SpanContext | None) -> int:
        if span_context is None:
            return draw_from(None)
        calls, span_id = self._calls, span_context.span_id
        before = calls.get(span_id, 0)
        if not before and len(calls) >= _MAX_KNOWN:
            for oldest in list(calls)[: _MAX_KNOWN // 8]:
                calls.pop(oldest, None)
        calls[span_id] = before + 1
        said = b"%d %d %d" % (span_context.trace_id, span_id, before)
        return int.from_bytes(blake2b(said, digest_size=8).digest(), "big")


class CallsPerTrace:
    """Counts the sampled calls of each handler in each of the last 1,024 traces; for one thread.

    Attributes:
        repeating: Handlers with more than eight in one trace; at most 1,024 of them.
    """

    def __init__(self) -> None:
        self.repeating: set[str] = set()
        self._calls: dict[tuple[str, int], int] = {}

    def add(self, agent: str, trace_id: int) -> bool:
        """Count a call; True once for each handler, with the call that makes it one of `repeating`."""
        if agent in self.repeating:
            return False
        calls, key = self._calls, (agent, trace_id)
        count = calls[key] = calls.pop(key, 0) + 1
        if len(calls) > _MAX_KNOWN:
            del calls[next(iter(calls))]
        if count <= MAX_CALLS_PER_TRACE or len(self.repeating) >= _MAX_KNOWN:
            return False
        self.repeating.add(agent)
        return True
