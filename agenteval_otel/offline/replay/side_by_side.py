"""Recorded and new scores side by side: figures of the same answers, and where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.models.value import copy_with
from agenteval_otel.offline.reports.totals import ROUNDING, CriterionTotals, estimate_json

_MAX_VERSIONS: Final = 8


class RescoredCriterion:
    """Compares the recorded and the new results of one criterion.

    Attributes:
        recorded, new: Totals of the answers that both have scored, each answer counting as one.
        now_pass, now_fail: Answers whose verdict changed.
        differ: Answers with another verdict, label or score.
        recorded_failed, new_failed: Answers that one of them scored, and on which the other one's
            evaluator broke.
        recorded_versions, new_versions: Evaluators with their versions. Of recorded ones as far as
            that is known.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.recorded = CriterionTotals(name)
        self.new = CriterionTotals(name)
        self.now_pass = 0
        self.now_fail = 0
        self.differ = 0
        self.recorded_failed = 0
        self.new_failed = 0
        self.recorded_versions = Counter[str]()
        self.new_versions = Counter[str]()

    def add(
        self, before: EvaluationResult, after: EvaluationResult, unit: str | None = None
    ) -> None:
        """Add both results of an answer of this unit (`AggregatedEvaluationResult.unit`)."""
        statuses = (before.status, after.status)
        self.recorded_failed += statuses == ("failed", "scored")
        self.new_failed += statuses == ("scored", "failed")
        if statuses != ("scored", "scored"):
            return
        _count(self.recorded_versions, before)
        _count(self.new_versions, after)
        self.recorded.add(_unweighted(before), unit=unit)
        self.new.add(_unweighted(after), unit=unit)
        self.now_pass += before.passed is False and after.passed is True
        self.now_fail += before.passed is True and after.passed is False
        self.differ += _differ(before, after)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "answers": self.new.scored,
            "recorded": _side_json(self.recorded, self.recorded_versions),
            "new": _side_json(self.new, self.new_versions),
            "now_pass": self.now_pass,
            "now_fail": self.now_fail,
            "differ": self.differ,
            "recorded_failed": self.recorded_failed,
            "new_failed": self.new_failed,
        }


class SideBySide:
    """Holds the criteria that have a recorded and a new score somewhere.

    They are in the order in which they came.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, RescoredCriterion] = {}
        self.answers = 0

    def __iter__(self) -> Iterator[RescoredCriterion]:
        return iter(self._by_name.values())

    def add(
        self, recorded: Mapping[str, EvaluationResult], rescored: AggregatedEvaluationResult
    ) -> None:
        self.answers += bool(recorded)
        for result in rescored.results:
            name = result.criterion_name
            if name in recorded:
                criterion = self._by_name.setdefault(name, RescoredCriterion(name))
                criterion.add(recorded[name], result, rescored.unit)


def _unweighted(result: EvaluationResult) -> EvaluationResult:
    if result.probability is None:
        return result
    return copy_with(result, {"probability": None, "least_probability": None})


def _side_json(totals: CriterionTotals, versions: Counter[str]) -> dict[str, Any]:
    return {
        "mean": estimate_json(totals.mean),
        "pass_rate": estimate_json(totals.pass_rate),
        "evaluators": list(versions),
    }


def _count(versions: Counter[str], result: EvaluationResult) -> None:
    evaluator = result.evaluator_id or result.evaluator_type
    name = f"{evaluator} {result.evaluator_version}" if result.evaluator_version else evaluator
    if name in versions or len(versions) < _MAX_VERSIONS:
        versions[name] += 1


def _differ(before: EvaluationResult, after: EvaluationResult) -> bool:
    if before.passed is not None and after.passed is not None and before.passed != after.passed:
        return True
    if before.normalized is not None and after.normalized is not None:
        return abs(before.normalized - after.normalized) > ROUNDING
    return before.label is not None and after.label is not None and before.label != after.label
