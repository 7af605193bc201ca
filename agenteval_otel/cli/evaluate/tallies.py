"""Tallies: what is known of each criterion, as running sums. However many inputs there are, this stays as small."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from agenteval_otel.cli.evaluate.dataset import Row
from agenteval_otel.cli.evaluate.judged import Judged
from agenteval_otel.intervals import Estimate, WeightedSums
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria, EvaluationResult
from agenteval_otel.scoring.probability import weight

__all__ = ["ROUNDING", "Low", "Tallies", "Tally"]

ROUNDING = 1e-9
"""What sums of floating-point numbers may be off: who asks for 0.8 and gets 0.8 has it."""
_WORDS = 32
_LOWEST = 10
_CRITERIA = 1000


class Tally:
    """Everything about one criterion.

    Attributes:
        name: The criterion.
        objective: Share of passing results that it should hold; None where none is set.
        scored, skipped, failed: How many results of each kind; they add up to all of its results.
        passed: How many of the scored ones are a pass.
        labels, errors, skips: How often each label, `error_type` and reason for a skip; the first 32 words of each.
    """

    def __init__(self, name: str, objective: float | None = None) -> None:
        self.name, self.objective = name, objective
        self.scored = self.skipped = self.failed = self.passed = 0
        self.labels: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.skips: Counter[str] = Counter()
        self._scores, self._passes = WeightedSums(), WeightedSums()

    def __repr__(self) -> str:
        return f"<Tally {self.name} scored={self.scored} skipped={self.skipped} failed={self.failed}>"

    @property
    def mean(self) -> Estimate | None:
        """Mean of the normalized scores, 0 to 1, with its interval; None without any. Failures are no scores."""
        return self._scores.estimate()

    @property
    def pass_rate(self) -> Estimate | None:
        """Share of the verdicts that are a pass, with its interval; None without any."""
        return self._passes.estimate()

    @property
    def objective_met(self) -> bool | None:
        """Whether the pass rate reaches the objective; without verdicts it does not. None without an objective."""
        if self.objective is None:
            return None
        return self.pass_rate is not None and self.pass_rate.mean >= self.objective - ROUNDING

    def add(self, result: EvaluationResult) -> None:
        """Take one result."""
        if result.status == "failed":
            self.failed += 1
            _count(self.errors, result.error_type or "error")
        elif result.status == "skipped":
            self.skipped += 1
            _count(self.skips, (result.skip_reason or "skipped")[:80])
        else:
            self.scored += 1
            stands_for = weight(result.probability)  # where the run escalates
            if result.normalized is not None:
                self._scores.add(result.normalized, stands_for)
            if result.passed is not None:
                self.passed += result.passed
                self._passes.add(1.0 if result.passed else 0.0, stands_for)
            if result.label is not None:
                _count(self.labels, result.label)


class Low(NamedTuple):
    """An input with a low overall score, and the criteria that did not pass there, or broke."""

    place: str
    overall_score: float
    criteria: tuple[str, ...]


class Tallies:
    """What was found in all inputs.

    Args:
        criteria: Those that are scored, in the order in which they are told.

    Attributes:
        inputs: How many inputs were evaluated.
        broken: Inputs with at least one failed result, or for which another part broke.
        run_errors: The inputs for which another part than an evaluator broke, by its label.
        judged: What judges were asked, and what that took.
    """

    def __init__(self, criteria: Iterable[EvaluationCriteria]) -> None:
        self.inputs = self.broken = 0
        self.run_errors: Counter[str] = Counter()
        self.judged = Judged()
        self._by_name = {one.name: Tally(one.name, one.objective) for one in criteria}
        self._overall = WeightedSums()
        self._lowest: list[tuple[float, int, Low]] = []

    def __repr__(self) -> str:
        return f"<Tallies inputs={self.inputs} {self.criteria}>"

    @property
    def criteria(self) -> list[Tally]:
        """The criteria, in order."""
        return list(self._by_name.values())

    @property
    def overall(self) -> Estimate | None:
        """Mean of the overall scores of the inputs, with its interval; None where no input has one."""
        return self._overall.estimate()

    @property
    def lowest(self) -> list[Low]:
        """The inputs with the lowest overall scores below 1, lowest first, in their order where these are equal."""
        return [low for _, _, low in sorted(self._lowest, reverse=True)]

    @property
    def scored(self) -> int:
        """How many scores there are."""
        return sum(tally.scored for tally in self.criteria)

    def of(self, name: str) -> Tally | None:
        """The tally of a criterion."""
        return self._by_name.get(name)

    def add(self, row: Row, aggregated: AggregatedEvaluationResult) -> None:
        """Take the results of one input."""
        self.inputs += 1
        self._heed(row.evaluation_input.criteria)
        for result in aggregated.results:
            tally = self._by_name.get(result.criterion_name)
            if tally is None and len(self._by_name) < _CRITERIA:
                tally = self._by_name[result.criterion_name] = Tally(result.criterion_name)
            if tally is not None:
                tally.add(result)
        evaluators = (aggregated.evaluation_config_snapshot or {}).get("evaluatorTypes", ())
        others = [one.evaluator_type for one in aggregated.run_errors or () if one.evaluator_type not in evaluators]
        for label in others:
            _count(self.run_errors, label or "a part")
        self.broken += bool(others) or any(result.status == "failed" for result in aggregated.results)
        if aggregated.overall_score is not None:
            self._add_overall(row.place, aggregated.overall_score, aggregated.results)

    def _heed(self, criteria: Iterable[EvaluationCriteria]) -> None:
        """What inputs that bring criteria of their own say of objectives; the first word counts."""
        for criterion in criteria:
            tally = self._by_name.get(criterion.name)
            if tally is not None and tally.objective is None:
                tally.objective = criterion.objective

    def _add_overall(self, place: str, overall: float, results: Iterable[EvaluationResult]) -> None:
        self._overall.add(min(1.0, max(0.0, overall)))  # negative weights lead outside
        if overall >= 1.0:
            return
        # The smallest of the heap is the highest score, and the latest of several that are equal.
        key = (-overall, -self.inputs)
        if len(self._lowest) == _LOWEST and key < self._lowest[0][:2]:
            return
        names = dict.fromkeys(_shown(one) for one in results if one.passed is False or one.status == "failed")
        entry = (*key, Low(place, overall, tuple(names)))
        (heapq.heappush if len(self._lowest) < _LOWEST else heapq.heapreplace)(self._lowest, entry)


def _shown(result: EvaluationResult) -> str:
    word = f"failed: {result.error_type or 'error'}" if result.status == "failed" else result.reason_code
    return f"{result.criterion_name} ({word})" if word else result.criterion_name


def _count(counter: Counter[str], word: str) -> None:
    if word in counter or len(counter) < _WORDS:
        counter[word] += 1
