"""Totals: bounded sums of the results for each criterion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria, EvaluationResult
from agenteval_otel.models.intervals import Estimate, UnitSums
from agenteval_otel.models.judge_calls import CACHED, JudgeCall
from agenteval_otel.models.scoring.probability import weight
from agenteval_otel.offline.calibration.record import (
    NOT_MEASURED,
    CalibrationRecord,
    CalibrationRecords,
)
from agenteval_otel.offline.reports.figures import frequencies, interval_notes, with_interval

ROUNDING = 1e-9  # a mean of 0.8 reaches a limit of 0.8, whatever its sum was rounded to
_MAX_KEYS = 32
_MAX_ERROR_CHARS = 400
_LOWEST = 10


class CriterionTotals:
    """Holds the totals of one criterion.

    They are its results by kind, and the first 32 labels, error types and reasons for a skip.
    """

    def __init__(
        self, name: str, objective: float | None = None, records: CalibrationRecords | None = None
    ) -> None:
        self.name = name
        self.objective = objective
        self.record: CalibrationRecord | None = None
        self._records = records
        self._not_calibrated = "" if records is None else None
        self.scored = 0
        self.skipped = 0
        self.failed = 0
        self.passed = 0
        self.labels = Counter[str]()
        self.errors = Counter[str]()
        self.skips = Counter[str]()
        self.first_error = ""
        """What the first failed result says, with the place of its input. It may be content."""
        self._scores = UnitSums()
        self._passes = UnitSums()

    def __str__(self) -> str:
        """Say how many results there are of each kind, and why.

        It is, for example, ``0 scored, 12 failed: timeout 12``.
        """
        parts = [f"{self.scored:,} scored"]
        if self.skipped:
            parts.append(f"{self.skipped:,} skipped: {frequencies(self.skips)}")
        if self.failed:
            parts.append(f"{self.failed:,} failed: {frequencies(self.errors)}")
        return ", ".join(parts)

    @property
    def mean(self) -> Estimate | None:
        """Return the mean of the normalized scores, 0 to 1, with its interval.

        None without any. Failures are no scores.
        """
        return self._scores.estimate()

    @property
    def pass_rate(self) -> Estimate | None:
        """Return the share of the results that pass, with its interval.

        None if no result passes or fails.
        """
        return self._passes.estimate()

    @property
    def calibrated(self) -> Estimate | None:
        """Return the true pass rate: `pass_rate` corrected for how often the judge errs.

        None without a record that holds.
        """
        if self.record is None or self._not_calibrated is not None or self.pass_rate is None:
            return None
        return self.record.corrected(self.pass_rate)

    @property
    def calibration(self) -> str:
        """Say whether the pass rate is the judge's, or corrected by people's labels.

        Empty without records.
        """
        if self._not_calibrated is not None:
            return self._not_calibrated
        if self.record is None:
            return ""
        calibrated = self.calibrated
        if calibrated is None:
            return f"the judge's own share: it cannot be corrected by {self.record.sentence}"
        shown = with_interval(calibrated, rate=True)
        return (
            f"{shown} pass by people's measure: the judge's share, corrected by "
            f"{self.record.sentence}"
        )

    @property
    def objective_met(self) -> bool | None:
        """Tell whether the pass rate reaches the objective.

        False without a pass rate. None without an objective.
        """
        if self.objective is None:
            return None
        return self.pass_rate is not None and self.pass_rate.mean >= self.objective - ROUNDING

    def add(self, result: EvaluationResult, *, place: str = "", unit: str | None = None) -> None:
        """Add a result of an answer of this unit (`AggregatedEvaluationResult.unit`)."""
        if result.status == "failed":
            self.failed += 1
            _count(self.errors, result.error_type or "error")
            if not self.first_error:
                words = (result.error or "").split()
                text = " ".join(words)[:_MAX_ERROR_CHARS]
                self.first_error = f"{place}: {text}" if place and text else text
            return
        if result.status == "skipped":
            self.skipped += 1
            _count(self.skips, (result.skip_reason or "skipped")[:80])
            return
        self.scored += 1
        if result.label is not None:
            _count(self.labels, result.label)
        represents = weight(result.probability)
        is_baseline = result.least_probability is None
        if result.normalized is not None:
            self._scores.add(result.normalized, represents, unit, is_baseline=is_baseline)
        if result.passed is not None:
            self._calibrate(result)
            self.passed += result.passed
            figure = 1.0 if result.passed else 0.0
            self._passes.add(figure, represents, unit, is_baseline=is_baseline)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "mean": estimate_json(self.mean),
            "pass_rate": estimate_json(self.pass_rate),
            "scored": self.scored,
            "skipped": self.skipped,
            "failed": self.failed,
            "objective": self.objective,
            "objective_met": self.objective_met,
            "labels": dict(self.labels),
            "skip_reasons": dict(self.skips),
            "error_types": dict(self.errors),
            "calibrated_pass_rate": estimate_json(self.calibrated),
            "calibration": self.calibration or None,
        }

    def _calibrate(self, result: EvaluationResult) -> None:
        """Look up the record. A single result without a valid record prevents the correction."""
        if self._records is None or self._not_calibrated is not None:
            return
        self.record = self._records.find(result.criterion_name, result.evaluator_id)
        if self.record is None:
            self._not_calibrated = f"the judge's own share: {NOT_MEASURED}"
            return
        why = self.record.expired_because(
            evaluator_version=result.evaluator_version,
            model=result.judge_model,
            threshold=result.threshold,
        )
        if why is not None:
            self._not_calibrated = f"the judge's own share: its calibration has expired: {why}"


class JudgeTotals:
    """Sums over the requests to judges.

    They were sent (`calls`), answered from the cache, or refused by a guard.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.cached = 0
        self.refused = 0
        self.tokens = 0
        self.cost_usd: float | None = None

    def __str__(self) -> str:
        parts = [f"{self.calls:,} judge calls"]
        if self.cached:
            parts.append(f"{self.cached:,} from the cache")
        if self.refused:
            parts.append(f"{self.refused:,} refused by a guard")
        parts.append(f"{self.tokens:,} tokens")
        if self.cost_usd is not None:
            parts.append(f"{self.cost_usd:.4f} US dollars")
        return ", ".join(parts)

    def __bool__(self) -> bool:
        return bool(self.calls or self.cached or self.refused)

    def on_call(self, call: JudgeCall) -> None:
        self.calls += call.was_sent
        self.cached += call.outcome == CACHED
        self.refused += not call.was_sent and call.outcome != CACHED
        usage = call.usage
        if usage is not None:
            self.tokens += (
                usage.input_tokens
                + usage.output_tokens
                + usage.cache_read_tokens
                + usage.cache_write_tokens
            )
        if call.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + call.cost_usd


class Low(NamedTuple):
    """Holds an input with a low overall score.

    `criteria` are those that did not pass there, or failed.
    """

    place: str
    overall_score: float
    criteria: tuple[str, ...]


class Totals:
    """Holds the totals of a run, of the scored criteria in the order of the reports.

    `broken` inputs have a failed result or a run error. `run_errors` are counted by the part that
    failed, if it is no evaluator, and `first_errors` has the first of each. `lowest` are the inputs
    with the lowest overall scores below 1.
    """

    def __init__(
        self, criteria: Iterable[EvaluationCriteria] = (), records: CalibrationRecords | None = None
    ) -> None:
        self._records = records
        self.inputs = 0
        self.broken = 0
        self.run_errors: Counter[str] = Counter()
        self.first_errors: dict[str, str] = {}
        self.judges = JudgeTotals()
        self._by_name = {
            criterion.name: CriterionTotals(criterion.name, criterion.objective, records)
            for criterion in criteria
        }
        self._overall = UnitSums()
        self.lowest: list[Low] = []

    @property
    def criteria(self) -> list[CriterionTotals]:
        return list(self._by_name.values())

    @property
    def scored(self) -> bool:
        """Tell whether any result is a score."""
        return any(criterion.scored for criterion in self._by_name.values())

    @property
    def overall(self) -> Estimate | None:
        """Return the mean of the overall scores of the inputs, with its interval.

        None if no input has one.
        """
        return self._overall.estimate()

    def as_json(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "inputs_with_failures": self.broken,
            "overall_score": estimate_json(self.overall),
            "criteria": [criterion.as_json() for criterion in self.criteria],
            "lowest": [low._asdict() for low in self.lowest],
        }

    def failures(self) -> Iterator[tuple[str, ...]]:
        """Yield the error types of each criterion, and under them what the first failure says.

        That may be content, such as a judge's reply: it is for the terminal of who evaluates.
        """
        for item in self.criteria:
            if item.failed:
                yield item.name, frequencies(item.errors)
                if item.first_error:
                    yield "", f"first at {item.first_error}"

    def notes(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return the notes below a table, each with its rows, which may be empty.

        The notes are intervals, labels without figures, reasons of failures and skips, and
        calibration.
        """
        estimates: list[Estimate | None] = []
        labels: list[tuple[str, ...]] = []
        failed: list[tuple[str, ...]] = []
        skipped: list[tuple[str, ...]] = []
        calibration: list[tuple[str, ...]] = []
        for item in self.criteria:
            estimates += [item.mean, item.pass_rate]
            if item.labels and item.mean is None and item.pass_rate is None:
                labels.append((item.name, frequencies(item.labels)))
            if item.failed:
                failed.append((item.name, frequencies(item.errors)))
            if item.skipped:
                skipped.append((item.name, frequencies(item.skips)))
            if item.calibration:
                calibration.append((item.name, item.calibration))
        estimates.append(self.overall)
        return [
            ("Intervals", interval_notes(estimates)),
            ("Labels", labels),
            ("Failed", failed),
            ("Skipped", skipped),
            ("Calibration", calibration),
        ]

    def add(
        self,
        aggregated: AggregatedEvaluationResult,
        *,
        place: str = "",
        criteria: Iterable[EvaluationCriteria] = (),
    ) -> None:
        """Add the results of the input at `place`.

        The objectives of its `criteria` apply where none is configured.
        """
        self.inputs += 1
        for criterion in criteria:
            totals = self._by_name.get(criterion.name)
            if totals is not None and totals.objective is None:
                totals.objective = criterion.objective
        for result in aggregated.results:
            totals = self._by_name.get(result.criterion_name)
            if totals is None:
                totals = CriterionTotals(result.criterion_name, None, self._records)
                self._by_name[result.criterion_name] = totals
            totals.add(result, place=place, unit=aggregated.unit)
        has_run_errors = self._add_run_errors(aggregated, place)
        counted = [result for result in aggregated.results if not result.shadow]
        has_failed_results = any(result.status == "failed" for result in counted)
        self.broken += has_run_errors or has_failed_results
        overall = aggregated.overall_score
        if overall is None:
            return
        # negative weights can lead outside 0 to 1
        self._overall.add(min(1.0, max(0.0, overall)), unit=aggregated.unit)
        if overall < 1.0:
            low = Low(place, overall, _not_passed(counted))
            lowest = sorted([*self.lowest, low], key=lambda each: each.overall_score)
            self.lowest = lowest[:_LOWEST]

    def _add_run_errors(self, aggregated: AggregatedEvaluationResult, place: str) -> bool:
        """Count the run errors of parts that are no evaluators. Return whether there are any."""
        config_snapshot = aggregated.evaluation_config_snapshot or {}
        evaluators = config_snapshot.get("evaluatorTypes", ())
        has_errors = False
        for error in aggregated.run_errors or ():
            if error.evaluator_type in evaluators:
                continue
            has_errors = True
            part = error.evaluator_type or "a part"
            _count(self.run_errors, part)
            message = f"{place}: {error.message}" if place else error.message
            self.first_errors.setdefault(part, message)
        return has_errors


def estimate_json(estimate: Estimate | None) -> dict[str, float | None] | None:
    """Return a mean, its interval and what it rests on. What may not be shown is None."""
    if estimate is None:
        return None
    return {
        "mean": estimate.mean if estimate.is_known else None,
        "low": estimate.low if estimate.has_interval else None,
        "high": estimate.high if estimate.has_interval else None,
        "scores": estimate.scores,
        "units": estimate.units,
        "baseline": estimate.baseline,
    }


def _not_passed(results: Iterable[EvaluationResult]) -> tuple[str, ...]:
    """Return the criteria that did not pass, or failed, each once and with its reason."""
    described: dict[str, None] = {}
    for result in results:
        if result.passed is False or result.status == "failed":
            described[_described(result)] = None
    return tuple(described)


def _described(result: EvaluationResult) -> str:
    reason = result.reason_code
    if result.status == "failed":
        reason = f"failed: {result.error_type or 'error'}"
    return f"{result.criterion_name} ({reason})" if reason else result.criterion_name


def _count(counter: Counter[str], key: str) -> None:
    if key in counter or len(counter) < _MAX_KEYS:
        counter[key] += 1


class TargetOutcome(NamedTuple):
    """Holds what a criterion should reach, in tables and in full, and what it has reached.

    The criterion is None for the overall scores.
    """

    criterion: str | None
    shown: str
    met: bool
    target: str = ""
    reached: str = ""

    def __str__(self) -> str:
        return f"{self.criterion or 'overall score'}: {self.reached}, {self.target}"
