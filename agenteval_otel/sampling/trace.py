"""What a trace says of sampling: its randomness, the unit (the trace, or each call by itself), and
the share upstream.

All calls of a trace share its randomness, which keeps the traces that head sampling at the same or
a larger ratio kept: with an ``ot=th`` entry in the trace state by the conventions' rule (the last
56 bits, or their ``rv`` value, at or above the threshold), otherwise by the SDK's (the low 64 bits
below ratio x 2^64). Both become one number here, smaller is kept first. Without a trace the number
comes from our own generator: the host's is never touched.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any, Final, Literal, NamedTuple

from opentelemetry.trace import SpanContext
from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.runtime.fork import RANDOM
from agenteval_otel.sampling.base import hashed
from agenteval_otel.scoring.probability import independent, known, nested, of_threshold

_MAX_CALLS_PER_TRACE: Final = 8
_MAX_KNOWN: Final = 1024
_DIGITS: Final = 14
LOW_64: Final = (1 << 64) - 1
_LOW_56 = (1 << 56) - 1
# nearly every trace's: cheaper to compare than to measure
NO_STATE: Final = SpanContext(0, 0, False).trace_state
_HEXADECIMAL: Final = re.compile(r"[0-9a-f]{1,14}")


class SamplingSettings(BaseModel, metaclass=FriendlyErrors):
    """What samplers choose between, and what was sampled before.

    Attributes:
        unit: ``trace``: all calls of a handler in one trace are evaluated, or none. ``call``: each
            call on its own, for jobs and loops with many calls in one trace.
        upstream_ratio: Share of all responses, above 0 to 1, that reaches this process; 1 without
            upstream sampling. Left out, it is taken from ``ot=th`` in the trace state; without that
            it is unknown.
        upstream_attribute: Name of the attribute of the evaluated span that carries this share; it
            overrides `upstream_ratio`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    unit: Literal["trace", "call"] = "trace"
    upstream_ratio: float | None = Field(default=None, gt=0, le=1)
    upstream_attribute: str | None = Field(default=None, min_length=1)


def randomness_of(span_context: SpanContext | None) -> int:
    """The response's randomness in [0, 2^64): from its trace where there is one, else from our own
    generator.
    """
    if span_context is None:
        return RANDOM.getrandbits(64)
    fields = _trace_state(span_context)
    if "th" not in fields:
        return span_context.trace_id & LOW_64
    randomness = _hexadecimal(fields.get("rv", ""))
    if randomness is None or len(fields["rv"]) != _DIGITS:
        randomness = span_context.trace_id & _LOW_56
    return (_LOW_56 - randomness) << 8


def _trace_state(span_context: SpanContext) -> dict[str, str]:
    """The fields of the ``ot`` entry in the trace state: ``th`` and ``rv``."""
    state = span_context.trace_state
    entry = state.get("ot") if state is not NO_STATE and state else None
    return dict(part.split(":", 1) for part in entry.split(";") if ":" in part) if entry else {}


def _hexadecimal(digits: str) -> int | None:
    """Up to 14 digits as a number of 56 bits: zeros at the end may be left out."""
    return int(digits.ljust(_DIGITS, "0"), 16) if _HEXADECIMAL.fullmatch(digits) else None


class CallRandomness:
    """Gives each call its own number in [0, 2^64): BLAKE2b of trace, span and the calls before it
    in that span.

    The first call of a span has the same number in every process. Of more than 1,024 spans at once
    the oldest is forgotten, and its next call counts as its first. Any thread; raises nothing.
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
        return hashed(b"%d %d %d" % (span_context.trace_id, span_id, before))


class CallsPerTrace:
    """Counts the sampled calls of each handler in each of the last 1,024 traces; for one thread."""

    def __init__(self) -> None:
        self.repeating: set[str] = set()  # handlers with more than eight in one trace
        # Emptied from the front, where a plain dictionary looks long for its first item.
        self._calls: OrderedDict[tuple[str, int], int] = OrderedDict()

    def add(self, agent: str, trace_id: int) -> bool:
        """Count a call; True once for each handler, with the call that makes it one of `repeating`."""
        if agent in self.repeating:
            return False
        calls, key = self._calls, (agent, trace_id)
        count = calls[key] = calls.pop(key, 0) + 1
        if len(calls) > _MAX_KNOWN:
            calls.popitem(last=False)
        if count <= _MAX_CALLS_PER_TRACE or len(self.repeating) >= _MAX_KNOWN:
            return False
        self.repeating.add(agent)
        return True


class Upstream(NamedTuple):
    """A choice that was made before this process."""

    probability: float | None = None  # None where nothing is known of one
    same_randomness: bool = False  # as the choice here: the two nest instead of multiplying

    def applied(self, probability: float | None) -> float | None:
        """A probability among the responses that came this far, as one among all responses."""
        if self.probability is None:
            return probability
        return (nested if self.same_randomness else independent)(probability, self.probability)


NOTHING_KNOWN: Final = Upstream()


def upstream_of(
    span_context: SpanContext | None,
    settings: SamplingSettings,
    attribute: Any = None,
    *,
    by_trace: bool = True,
) -> Upstream:
    """What is known of sampling before this process: by the attribute's value, the fixed ratio, or
    ``ot=th``.

    `by_trace`: the choice here was made by the trace's own randomness.
    """
    share = known(attribute)
    if share is None:
        share = settings.upstream_ratio
    if share is not None:
        return Upstream(share)
    threshold = None
    if span_context is not None and span_context.trace_flags.sampled:  # others have not passed it
        threshold = _hexadecimal(_trace_state(span_context).get("th", ""))
    return NOTHING_KNOWN if threshold is None else Upstream(of_threshold(threshold), by_trace)
