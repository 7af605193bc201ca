"""What a trace says of sampling: its randomness, the unit (the trace, or each call by itself), and the share upstream.

All calls of a trace share its randomness, so they are evaluated together or not at all. Where one trace holds hundreds
of calls (a batch job, an agent's loop), few traces decide everything, and an interval that takes the calls for
independent is too narrow.

A trace's randomness is made so that evaluation at a ratio keeps the traces that head sampling at the same or a larger
ratio kept: with an ``ot=th`` entry in the trace state the conventions' rule (the last 56 bits, or their ``rv`` value,
at or above the threshold), otherwise the SDK's rule (the low 64 bits below ratio x 2^64). Both become one number here,
smaller is kept first, so that one comparison serves either. Without a trace the number comes from our own generator:
the host's is never touched.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, NamedTuple

from opentelemetry.trace import SpanContext

from agenteval_otel.runtime.fork import RANDOM
from agenteval_otel.sampling.settings import SamplingSettings
from agenteval_otel.scoring.probability import known, of_threshold, through_upstream

__all__ = [
    "LOW_64", "MAX_CALLS_PER_TRACE", "NOTHING_KNOWN", "NO_STATE", "CallRandomness", "CallsPerTrace", "Upstream",
    "randomness_of", "upstream_of",
]  # fmt: skip

MAX_CALLS_PER_TRACE: Final = 8
_MAX_KNOWN: Final = 1024
_DIGITS: Final = 14
LOW_64: Final = (1 << 64) - 1
_LOW_56 = (1 << 56) - 1
NO_STATE: Final = SpanContext(0, 0, False).trace_state
"""Nearly every trace has this same empty state: to know it by sight is cheaper than to ask for its length."""
_HEXADECIMAL = frozenset("0123456789abcdef")


def randomness_of(span_context: SpanContext | None) -> int:
    """The response's draw in [0, 2^64): from its trace where there is one, else random."""
    if span_context is None:
        return RANDOM.getrandbits(64)
    state = span_context.trace_state
    if state is not NO_STATE and state:
        entry = state.get("ot")
        if entry is not None and ";th:" in f";{entry}":
            return (_LOW_56 - _randomness(entry, span_context.trace_id)) << 8
    return span_context.trace_id & LOW_64


def _randomness(entry: str, trace_id: int) -> int:
    for part in entry.split(";"):
        if part.startswith("rv:") and len(part) == 17 and _HEXADECIMAL.issuperset(part[3:]):
            return int(part[3:], 16)
    return trace_id & _LOW_56


class CallRandomness:
    """Gives each call its own number in [0, 2^64): BLAKE2b of trace, span and the calls before it in that span.

    The first call of a span has the same number in every process. Of more than 1,024 spans at once the oldest is
    forgotten, and its next call counts as its first. Any thread; raises nothing.
    """

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}

    def __call__(self, span_context: SpanContext | None) -> int:
        if span_context is None:
            return randomness_of(None)
        calls, span_id = self._calls, span_context.span_id
        before = calls.get(span_id, 0)
        if not before and len(calls) >= _MAX_KNOWN:
            for oldest in list(calls)[: _MAX_KNOWN // 8]:
                calls.pop(oldest, None)
        calls[span_id] = before + 1
        identity = b"%d %d %d" % (span_context.trace_id, span_id, before)
        return int.from_bytes(blake2b(identity, digest_size=8).digest(), "big")


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


class Upstream(NamedTuple):
    """A choice that was made before this process.

    Attributes:
        probability: None where nothing is known of one.
        same_randomness: It was made by the trace's randomness, as the choice here: the two nest instead of multiplying.
    """

    probability: float | None = None
    same_randomness: bool = False

    def applied(self, probability: float | None) -> float | None:
        """A probability among the responses that came this far, as one among all responses."""
        return through_upstream(probability, self.probability, same_randomness=self.same_randomness)


NOTHING_KNOWN: Final = Upstream()


def upstream_of(
    span_context: SpanContext | None, settings: SamplingSettings, attribute: Any = None, *, by_trace: bool = True
) -> Upstream:
    """What is known of sampling before this process: by the attribute, the fixed ratio, or ``ot=th``.

    Args:
        span_context: The evaluated span's.
        settings: The fixed ratio.
        attribute: Value of the attribute that carries the share; left alone where it is no probability.
        by_trace: The choice here was made by the trace's own randomness.
    """
    share = known(attribute)
    if share is None:
        share = settings.upstream_ratio
    if share is not None:
        return Upstream(share)
    threshold = _threshold_in(span_context)
    return NOTHING_KNOWN if threshold is None else Upstream(of_threshold(threshold), by_trace)


def _threshold_in(span_context: SpanContext | None) -> int | None:
    """The threshold of 56 bits in ``ot=th``, whose zeros at the end are left out; only a sampled span has passed it."""
    if span_context is None or not span_context.trace_flags.sampled:
        return None
    state = span_context.trace_state
    entry = state.get("ot") if state is not NO_STATE and state else None
    for part in entry.split(";") if entry else ():
        digits = part.removeprefix("th:")
        if digits != part and 0 < len(digits) <= _DIGITS and not set(digits) - set("0123456789abcdef"):
            return int(digits.ljust(_DIGITS, "0"), 16)
    return None
