"""Sampling by ratio, from the response's randomness: a fixed one, or one that follows the traffic."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, NamedTuple

from pydantic import Field

from agenteval_otel.models.scoring.probability import SamplingDecision
from agenteval_otel.sampling.base import Sampler, SamplingContext, threshold_of
from agenteval_otel.semconv import RATE_LIMITED

# aiming a little below the ceiling keeps most of the limiting in the ratio, instead of in losses
_HEADROOM = 0.8


class ThresholdRule(NamedTuple):
    """Describes a sampler that depends on randomness alone.

    It samples below `threshold`, with the decision `sampled`.
    """

    threshold: int
    sampled: SamplingDecision


class RatioSampler(Sampler, type="ratio"):
    """Evaluates a fixed share of the responses.

    Attributes:
        ratio: Share in [0, 1]. Also the probability that is recorded.
    """

    ratio: float = Field(default=1.0, ge=0, le=1)

    def __str__(self) -> str:
        return f"{self.ratio * 100:g} % of the calls"

    @cached_property
    def _rule(self) -> ThresholdRule:
        return ThresholdRule(threshold_of(self.ratio), SamplingDecision(True, self.ratio, "ratio"))

    @property
    def least_probability(self) -> float | None:
        return self.ratio

    @cached_property
    def _not_sampled(self) -> SamplingDecision:
        return SamplingDecision(False, self.ratio, "ratio")

    def decide(self, context: SamplingContext) -> SamplingDecision:
        threshold, sampled = self._rule
        return sampled if context.randomness < threshold else self._not_sampled

    @property
    def by_randomness(self) -> ThresholdRule | None:
        """Return `decide` for callers that have the randomness alone.

        Return None in a subclass that decides in its own way.
        """
        return self._rule if type(self).decide is RatioSampler.decide else None


class RateLimitSampler(Sampler, type="rate_limit"):
    """Evaluates at most `max_per_s` responses in each second of the clock.

    The limit is a ratio that is adjusted each second to the traffic of the second before, so the
    probability stays known and smaller ratios still nest. Responses beyond `max_per_s` within a
    second, such as those of a first burst, are not evaluated and count as lost (``rate_limited``),
    not as unsampled.

    Attributes:
        max_per_s: Ceiling per second, at least 1.
        ratio: Share in [0, 1] that is evaluated while the traffic stays below the ceiling.
        clock: Monotonic seconds. A parameter so that tests own the time.
    """

    counts_calls: ClassVar[bool] = True
    max_per_s: int = Field(default=10, ge=1)
    ratio: float = Field(default=1.0, ge=0, le=1)
    clock: Callable[[], float] = Field(default=time.monotonic, exclude=True, repr=False)

    def __str__(self) -> str:
        share = "all calls" if self.ratio == 1 else f"{self.ratio * 100:g} % of the calls"
        return f"{share}, at most {self.max_per_s} a second"

    @cached_property
    def _windows(self) -> dict[int, _Window]:
        return {}

    def decide(self, context: SamplingContext) -> SamplingDecision:
        second = int(self.clock())
        window = self._windows.get(second) or self._turn(second)
        window.seen += 1
        if context.randomness >= window.threshold:
            return window.not_sampled
        # A ticket from a C counter: two threads never hold the same one, without a lock on the
        # caller's path.
        return window.sampled if next(window.tickets) < self.max_per_s else window.over_limit

    def _turn(self, second: int) -> _Window:
        """Return the window of a second that has just begun, and forget those before the last."""
        windows = self._windows
        before = windows.get(second - 1)
        fresh = _Window(self.max_per_s, self.ratio, seen_before=before.seen if before else 0)
        # setdefault is atomic: threads that meet at the turn of a second share one window and its
        # tickets.
        window = windows.setdefault(second, fresh)
        past = [known for known in list(windows) if known < second - 1]
        for old in past:
            windows.pop(old, None)
        return window


class _Window:
    """What one second knows: the ratio in force, the traffic so far and the tickets left.

    `seen_before` is the traffic of the second before, from which the ratio is made.
    """

    def __init__(self, max_per_s: int, ratio: float, *, seen_before: int) -> None:
        if seen_before * ratio > max_per_s:
            ratio = min(ratio, _HEADROOM * max_per_s / seen_before)
        self.seen = 0
        self.tickets = itertools.count()
        self.threshold = threshold_of(ratio)
        self.sampled = SamplingDecision(True, ratio, "rate_limit")
        self.not_sampled = SamplingDecision(False, ratio, "rate_limit")
        self.over_limit = SamplingDecision(
            sampled=False, probability=None, reason="rate_limit", outcome=RATE_LIMITED
        )
