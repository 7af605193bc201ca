"""Sampling upstream: which share of all responses came this far, where that is known."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from opentelemetry.trace import SpanContext

from agenteval_otel.sampling.ratio import NO_STATE
from agenteval_otel.sampling.settings import SamplingSettings
from agenteval_otel.scoring.probability import known, of_threshold, through_upstream

__all__ = ["NOTHING_KNOWN", "Upstream", "upstream_of"]

_DIGITS: Final = 14


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
