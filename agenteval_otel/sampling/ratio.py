"""Sampling by ratio, from the trace id.

The draw is made so that evaluation at a ratio keeps the traces that head sampling at the same or a larger ratio kept:
with an ``ot=th`` entry in the trace state the conventions' rule (the last 56 bits, or their ``rv`` value, at or above
the threshold), otherwise the SDK's rule (the low 64 bits below ratio x 2^64). Both become one number here, smaller is
kept first, so that one comparison serves either. Without a trace the number comes from our own generator: the host's is
never touched.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

from opentelemetry.trace import SpanContext
from pydantic import Field

from agenteval_otel.runtime.randomness import RANDOM
from agenteval_otel.sampling.base import Sampler, SamplingContext, SamplingDecision, bound_of

__all__ = ["LOW_64", "NO_STATE", "DrawRule", "RatioSampler", "draw_from"]

LOW_64: Final = (1 << 64) - 1
_LOW_56 = (1 << 56) - 1
NO_STATE: Final = SpanContext(0, 0, False).trace_state
"""Nearly every trace has this same empty state: to know it by sight is cheaper than to ask for its length."""
_HEXADECIMAL = frozenset("0123456789abcdef")


def draw_from(span_context: SpanContext | None) -> int:
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


class DrawRule(NamedTuple):
    """A sampler that looks at nothing but the draw: what it takes, and what it says of it."""

    bound: int
    taken: SamplingDecision


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
    def by_draw(self) -> DrawRule | None:
        """`decide` for callers that have the draw alone: a draw below the bound is taken, others are ``not_sampled``.

        None in a subclass that decides in its own way.
        """
        if type(self).decide is not RatioSampler.decide:
            return None
        return DrawRule(self._bound, self._yes)
