"""Inclusion probabilities: how likely it was that a response was evaluated by an evaluator.

The weight of a response is w = 1 / p.

Everything that thins the traffic contributes a probability above 0 up to 1, and this module alone
combines them. None is unknown, never 1, and whatever is combined with it is unknown too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from agenteval_otel.models import EvaluationResult
from agenteval_otel.models.value import copy_with
from agenteval_otel.semconv import NOT_SAMPLED

# OpenTelemetry's consistent sampling rejects the randomness below a threshold of 56 bits
_THRESHOLDS = 1 << 56
_LEAST = 1e-100
"""The squares of weights, and sums of them, must stay numbers."""
BASELINE: Final = "baseline"
"""The reason of answers that go on to escalated evaluators although no rule says so."""
_PREFERRED: Final = 2.0  # times the least probability


class SamplingDecision(NamedTuple):
    """Whether, how likely, why.

    Attributes:
        sampled: Evaluate this response. While the decision is unsettled, this holds only if the
            sampler turns out to apply.
        probability: Inclusion probability relative to the responses that this process saw. None
            when unknown.
        reason: A short word for the telemetry.
        outcome: How the call is counted when it is not sampled.
        applies: The sampler decides on this response. False for a rule that does not match.
        settled: The decision is final, whatever becomes known later.
        randomness: The randomness used, if not the context's. Evaluators' own rates use it too.
    """

    sampled: bool
    probability: float | None
    reason: str
    outcome: str = NOT_SAMPLED
    applies: bool = True
    settled: bool = True
    randomness: int | None = None


class Sampled(NamedTuple):
    """Holds how the application sampled the answer.

    Attributes:
        randomness: The one that decided, from which evaluators' own rates cut.
        upstream: The share that sampling before the application let through. None where nothing is
            known of it.
        same_randomness: The choice before was made by the same randomness.
        clustered: Other answers of this trace are sampled with it.
        least: The least probability that a sampled answer has. None if that is unknown.
    """

    probability: float | None
    reason: str | None
    randomness: int
    upstream: float | None = None
    same_randomness: bool = False
    clustered: bool = False
    least: float | None = None


def known(value: object, *, sampled: bool = True) -> float | None:
    """Return the value if it is a probability, else None.

    0 is a probability only of a response that was not sampled.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if 0.0 < value <= 1.0:
        return value
    if value == 0.0 and not sampled:
        return value
    return None


def probability_of(decision: SamplingDecision) -> float | None:
    """Return the decision's probability.

    Return None if it is unknown, or none that a decision like this one can have.
    """
    return known(decision.probability, sampled=decision.sampled)


def nested(*probabilities: float | None) -> float | None:
    """Return min(p_i): all of several choices by the same randomness u took the response.

    Each choice is u < p_i. Return None if one probability is unknown.
    """
    numbers = [probability for probability in probabilities if probability is not None]
    return min(numbers, default=1.0) if len(numbers) == len(probabilities) else None


def independent(*probabilities: float | None) -> float | None:
    """Return prod(p_i): all of several choices by independent randomness took the response.

    Return None if one probability is unknown.
    """
    numbers = [probability for probability in probabilities if probability is not None]
    return math.prod(numbers, start=1.0) if len(numbers) == len(probabilities) else None


def union(probabilities: Iterable[float | None]) -> float | None:
    """Return max(p_i): any of several choices by the same randomness took the response.

    Return None if there are no choices, or if one probability is unknown and no other one is 1.
    """
    everything = list(probabilities)
    numbers = [probability for probability in everything if probability is not None]
    largest = max(numbers, default=None)
    is_known = len(numbers) == len(everything) or largest == 1.0
    return largest if is_known else None


def of_threshold(threshold: int) -> float | None:
    """Return the probability 1 - T / 2^56 of a sampling threshold T, as in ``ot=th``.

    Return None for other numbers.
    """
    return (_THRESHOLDS - threshold) / _THRESHOLDS if 0 <= threshold < _THRESHOLDS else None


def has_weight(probability: float | None) -> bool:
    """Tell whether sums that stand for all responses may contain a response with this probability."""
    return probability is not None and _LEAST <= probability <= 1.0


def weight(probability: float | None) -> float:
    """Return w = 1 / p, the number of responses that one counts for.

    Return 1 without `has_weight`, for tables that count such a response once and say so.
    """
    return 1.0 / probability if probability is not None and has_weight(probability) else 1.0


def least_probability_of(
    result: EvaluationResult, sampled: float | None, baseline_rate: float
) -> float:
    """Return the least probability that a result of this evaluator can have.

    Args:
        result: One of a known probability.
        sampled: The least one of a sampled answer. None if the sampler does not know it: then the
            result's own counts.
        baseline_rate: The least share of the sampled answers that reach escalated evaluators.
    """
    least = min(result.probability or 1.0, sampled or 1.0)
    is_by_rule = result.sampling_reason not in (None, BASELINE)
    # A rule raised the probability. Without that rule the baseline rate would have applied.
    return least * baseline_rate if is_by_rule else least


def with_least_probability(
    results: Iterable[EvaluationResult], sampled: float | None, baseline_rate: float
) -> list[EvaluationResult]:
    """Return the results, with their `least_probability` where their answers were preferred."""
    changed = []
    for result in results:
        if result.probability is not None:
            least = least_probability_of(result, sampled, baseline_rate)
            if least > 0.0 and result.probability > _PREFERRED * least:
                result = copy_with(result, {"least_probability": least})
        changed.append(result)
    return changed
