"""Sampling by ratio, from the trace id.

The draw is made so that evaluation at a ratio keeps the traces that head sampling at the same or a larger ratio kept:
with an ``ot=th`` entry in the trace state the conventions' rule (the last 56 bits, or their ``rv`` value, at or above
the threshold), otherwise the SDK's rule (the low 64 bits below ratio x 2^64). Both become one number here, smaller is
kept first, so that one comparison serves either. Without a trace the number comes from our own generator: the host's is
never touched.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import cached_property

from opentelemetry.trace import SpanContext
from pydantic import Field

from agenteval_otel.sampling.base import Sampler, SamplingContext, SamplingDecision, bound_of

__all__ = ["RatioSampler", "draw_from"]

_LOW_64 = (1 << 64) - 1
_LOW_56 = (1 << 56) - 1
_NO_STATE = SpanContext(0, 0, False).trace_state
_HEXADECIMAL = frozenset("0123456789abcdef")
_random = random.Random()
# A forked child would otherwise repeat its siblings' draws.
os.register_at_fork(after_in_child=_random.seed)


def draw_from(span_context: SpanContext | None) -> int:
    """The response's draw in [0, 2^64): from its trace where there is one, else random."""
    if span_context is None:
        return _random.getrandbits(64)
    state = span_context.trace_state
    # Nearly every trace has the same empty state: to know it by sight is cheaper than to ask for its length.
    if state is not _NO_STATE and state:
        entry = state.get("ot")
        if entry is not None and ";th:" in f";{entry}":
            return (_LOW_56 - _randomness(entry, span_context.trace_id)) << 8
    return span_context.trace_id & _LOW_64


def _randomness(entry: str, trace_id: int) -> int:
    for part in entry.split(";"):
        if part.startswith("rv:") and len(part) == 17 and _HEXADECIMAL.issuperset(part[3:]):
            return int(part[3:], 16)
    return trace_id & _LOW_56


class RatioSampler(Sampler, type="ratio"):
    """Evaluates a fixed share of the responses.

    Attributes:
        ratio: Share in [0, 1]; also the probability that is recorded.
    """

    ratio: float = Field(default=1.0, ge=0, le=1)

    @cached_property
    def _bound(self) -> int:
        return bound_of(self.ratio)

    @cached_property
    def _yes(self) -> SamplingDecision:
        return SamplingDecision(True, self.ratio, "ratio")

    @cached_property
    def _no(self) -> SamplingDecision:
        return SamplingDecision(False, self.ratio, "ratio")

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return self._yes if context.draw < self._bound else self._no

    @property
    def by_draw(self) -> Callable[[int], SamplingDecision] | None:
        """`decide` for callers that have the draw alone: a plain function, at a third of the cost.

        None in a subclass that decides in its own way.
        """
        if type(self).decide is not RatioSampler.decide:
            return None
        bound, yes, no = self._bound, self._yes, self._no
        return lambda draw: yes if draw < bound else no
