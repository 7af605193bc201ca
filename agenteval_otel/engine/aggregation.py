"""Aggregation: from the scores of one input to its overall score.

What "good overall" means is the user's to choose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agenteval_otel.components import Component
from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from agenteval_otel.models.scoring.scales import BOOLEAN_SCALES, normalize, passed_of
from agenteval_otel.models.value import copy_with


class Scored(NamedTuple):
    """Holds a result that counts, its normalized score, and the weight of its criterion.

    `normalized` is the score moved to [0, 1]. Higher is better.
    """

    result: EvaluationResult
    normalized: float
    weight: float


class Aggregation(Component, contract="aggregation"):
    """Puts the scores of one input together.

    Implement `combine`, with ``type="..."`` in the class line.
    """

    def combine(self, scored: Sequence[Scored]) -> float | None:
        """Return the overall score, 0 worst to 1 best, or None.

        Values outside of 0 to 1 count as None.

        `scored` has the results with a normalized score, in configured order. A criterion may
        appear several times. The method must not block. If it raises, the input has no overall
        score, but keeps its results.
        """
        raise NotImplementedError


class WeightedMean(Aggregation, type="weighted_mean"):
    """Computes the weighted mean per result, the specification's: sum(score x weight) / sum(weight).

    A criterion that two evaluators judge counts twice.
    """

    def combine(self, scored: Sequence[Scored]) -> float | None:
        return _mean([(member.normalized, member.weight) for member in scored])


class OncePerCriterion(Aggregation, type="once_per_criterion"):
    """Computes the weighted mean of the criteria, each of which counts once.

    The results of each criterion are averaged first.
    """

    def combine(self, scored: Sequence[Scored]) -> float | None:
        by_name: dict[str, list[Scored]] = {}
        for member in scored:
            by_name.setdefault(member.result.criterion_name, []).append(member)
        pairs: list[tuple[float, float]] = []
        for group in by_name.values():
            mean = math.fsum(member.normalized for member in group) / len(group)
            pairs.append((mean, group[0].weight))
        return _mean(pairs)


class Minimum(Aggregation, type="minimum"):
    """Takes the worst score. Weights only exclude: results with weight 0 are left out."""

    def combine(self, scored: Sequence[Scored]) -> float | None:
        return min((member.normalized for member in scored if member.weight > 0), default=None)


class AllMustPass(Aggregation, type="all_must_pass"):
    """Gives 1 if every result with a verdict passed, else 0. None without a verdict.

    A verdict comes from the evaluator, from the criterion's threshold, or from a boolean score.
    Results without one are ignored. Weights only exclude: results with weight 0 are left out.
    """

    def combine(self, scored: Sequence[Scored]) -> float | None:
        verdicts: list[bool] = []
        for member in scored:
            if member.weight > 0:
                result = member.result
                verdict = result.score if result.passed is None else result.passed
                if isinstance(verdict, bool):  # a score that is a number or a text is no verdict
                    verdicts.append(verdict)
        return float(all(verdicts)) if verdicts else None


def overall_score(
    results: Iterable[EvaluationResult],
    criteria: Iterable[EvaluationCriteria],
    aggregation: Aggregation | None = None,
) -> float | None:
    """Return the overall score by the strategy, the weighted mean when left out.

    Return None when nothing could be averaged.

    Failures, skips, `shadow` results and results without a matching criterion or a normalized score
    are left out. Of two criteria with the same name the first counts. A score outside of 0 to 1,
    possible with negative weights, is None.
    """
    by_name: dict[str, EvaluationCriteria] = {}
    for criterion in criteria:
        by_name.setdefault(criterion.name, criterion)
    scored: list[Scored] = []
    for result in results:
        declared = by_name.get(result.criterion_name)
        if declared is None or result.error or result.skip_reason is not None or result.shadow:
            continue
        normalized = normalize(result.score, declared)
        if normalized is None:
            continue
        gives_verdict = declared.threshold is not None or declared.scale in BOOLEAN_SCALES
        if result.passed is None and gives_verdict:
            result = copy_with(result, {"passed": passed_of(result.score, declared)})
        weight = 1.0 if declared.weight is None else declared.weight
        scored.append(Scored(result, normalized, weight))
    if not scored:
        return None
    strategy = aggregation or WeightedMean()
    overall = strategy.combine(scored)
    if overall is None or not 0.0 <= overall <= 1.0:  # NaN is refused too: no comparison holds
        return None
    return float(overall)


def _mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    total = weights = 0.0
    for value, weight in pairs:
        total += value * weight
        weights += weight
    return total / weights if weights > 0 else None
