"""Rules on results: what the first evaluators found decides whether an answer goes on to those that cost more.

They are rules like the others, with a ratio and a say only where they match, but they can be asked only after the first
stage of an evaluation: below ``escalation.rules``, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.models import EvaluationResult
from agenteval_otel.sampling.base import SamplingContext
from agenteval_otel.sampling.rules import RuleSampler
from agenteval_otel.semconv import LABEL_FAIL

__all__ = ["DisagreementSampler", "FailureSampler", "LabelSampler", "ResultSampler", "ScoreSampler"]


class ResultSampler(RuleSampler):
    """A rule on the results of the first stage. Implement `matches_results`.

    Attributes:
        criteria: Whose results count, by the criterion's name; all of the first stage when empty.
    """

    needs_results: ClassVar[bool] = True
    at_least: ClassVar[int] = 1
    """How many criteria it takes for the rule to match at all."""

    criteria: ListOf[str] = ()

    @model_validator(mode="after")
    def _takes_enough(self) -> Self:
        if self.criteria and len(set(self.criteria)) < self.at_least:
            raise ValueError(f"criteria: expected at least {self.at_least}, or none for all")
        return self

    def matches(self, context: SamplingContext) -> bool | None:
        if context.results is None:
            return None
        names = self.criteria
        return self.matches_results(
            [result for result in context.results if not names or result.criterion_name in names]
        )

    def matches_results(self, results: Sequence[EvaluationResult]) -> bool:
        """Whether the rule matches these results: scored, skipped and failed ones, of the criteria that count."""
        raise NotImplementedError


class ScoreSampler(ResultSampler, type="score"):
    """In an escalation: a share of the answers with a score in a range: low ones, or those near a threshold.

    One score in the range is enough. Skips, failures and scores that have no place from 0 to 1 never match.

    Attributes:
        below: Normalized score, 0 to 1 and higher is better, below which it matches.
        above: Normalized score above which it matches; with `below` the range between the two.
    """

    below: float | None = Field(default=None, ge=0, le=1)
    above: float | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="after")
    def _has_a_range(self) -> Self:
        if self.below is None and self.above is None:
            raise ValueError("expected below, above, or both")
        if self.below is not None and self.above is not None and self.above >= self.below:
            raise ValueError(f"nothing lies above {self.above:g} and below {self.below:g}")
        return self

    def matches_results(self, results: Sequence[EvaluationResult]) -> bool:
        below = 2.0 if self.below is None else self.below
        above = -1.0 if self.above is None else self.above
        return any(above < score < below for score in _scores(results))


class LabelSampler(ResultSampler, type="label"):
    """In an escalation: a share of the answers that got a label, such as those that did not pass.

    Attributes:
        labels: Labels of results, as the telemetry has them.
    """

    labels: ListOf[str] = Field(default=(LABEL_FAIL,), min_length=1)

    def matches_results(self, results: Sequence[EvaluationResult]) -> bool:
        return any(result.status == "scored" and result.label in self.labels for result in results)


class FailureSampler(ResultSampler, type="failure"):
    """In an escalation: a share of the answers on which an evaluator broke: it raised, or took too long.

    Attributes:
        error_types: Words of ``error.type`` that count, such as ``timeout``; all when empty.
    """

    error_types: ListOf[str] = ()

    def matches_results(self, results: Sequence[EvaluationResult]) -> bool:
        return any(
            result.status == "failed" and (not self.error_types or result.error_type in self.error_types)
            for result in results
        )


class DisagreementSampler(ResultSampler, type="disagreement"):
    """In an escalation: a share of the answers on which evaluators disagree: one result passes, another one fails.

    Attributes:
        over: Normalized scores that lie further apart than this, 0 to 1, are a disagreement too.
    """

    at_least: ClassVar[int] = 2

    over: float | None = Field(default=None, ge=0, lt=1)

    def matches_results(self, results: Sequence[EvaluationResult]) -> bool:
        verdicts = {result.passed for result in results if result.status == "scored" and result.passed is not None}
        if len(verdicts) > 1:
            return True
        scores = _scores(results)
        return self.over is not None and len(scores) > 1 and max(scores) - min(scores) > self.over


def _scores(results: Sequence[EvaluationResult]) -> list[float]:
    return [result.normalized for result in results if result.status == "scored" and result.normalized is not None]
