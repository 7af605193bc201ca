"""Metrics: histograms recorded for each result, and counters that are read from our own totals.

A dictionary takes an addition in a tenth of a microsecond where a counter of the SDK takes five, so counters are
observable instruments over totals. Histograms are recorded with the context of the evaluated span: that is what makes
an exemplar. Everything here runs on the pool's thread, or on the exporter's when it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation

from agenteval_otel import semconv as names
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.telemetry.accounting import Accounting

__all__ = ["Instruments", "ResultTotals"]

Labels = tuple[tuple[str, str], ...]
_LIMITS = {"agent": names.MAX_AGENTS, "model": names.MAX_MODELS}


class ResultTotals:
    """Sums over results since the process began; read by the observable counters."""

    def __init__(self) -> None:
        self.results: dict[Labels, int] = {}
        self.errors: dict[Labels, int] = {}
        self.sums: dict[str, dict[Labels, float]] = {
            instrument.name: {} for instrument in (
                names.METRIC_WEIGHT, names.METRIC_WEIGHT_SQUARED, names.METRIC_WEIGHTED_SCORE,
                names.METRIC_WEIGHTED_SCORE_W2, names.METRIC_WEIGHTED_SCORE_SQUARED_W2,
            )
        }  # fmt: skip
        self.last_success: float | None = None
        self._known: dict[str, set[str]] = {}

    def bounded(self, kind: str, value: str | None) -> str | None:
        """The value, or ``_other`` once too many were seen: text from outside never makes series without end."""
        if value is None:
            return None
        known = self._known.setdefault(kind, set())
        limit = _LIMITS.get(kind, names.MAX_WORDS)
        if value in known or len(known) < limit:
            known.add(value)
            return value
        return names.OTHER

    def add(self, result: EvaluationResult, agent: str | None, model: str | None) -> None:
        """Add one result: a failure to the errors, a score to the counts and, with a known probability, to the sums."""
        name = (names.EVALUATION_NAME, result.criterion_name)
        if result.status == "failed":
            word = self.bounded(f"error {result.criterion_name}", result.error_type or "error") or ""
            key: Labels = (name, (names.ERROR_TYPE, word))
            self.errors[key] = self.errors.get(key, 0) + 1
            return
        if result.status != "scored":
            return
        labels = _labels(name, agent, model)
        if result.passed is not None:
            for verdict in (names.LABEL_PASS, names.LABEL_FAIL):
                self.results.setdefault((*labels, (names.SCORE_LABEL, verdict)), 0)
        label = result.label
        if label and label not in (names.LABEL_PASS, names.LABEL_FAIL):
            label = self.bounded(f"label {result.criterion_name}", label)
        key = (*labels, (names.SCORE_LABEL, label)) if label else labels
        self.results[key] = self.results.get(key, 0) + 1
        if result.probability:
            self._add_weighted(result, key, _labels(name, agent, None))

    def _add_weighted(self, result: EvaluationResult, key: Labels, of_agent: Labels) -> None:
        weight = 1.0 / (result.probability or 1.0)
        self._sum(names.METRIC_WEIGHT, key, weight)
        self._sum(names.METRIC_WEIGHT_SQUARED, key, weight * weight)
        score = result.normalized
        if score is None:
            return
        self._sum(names.METRIC_WEIGHTED_SCORE, of_agent, weight * score)
        self._sum(names.METRIC_WEIGHTED_SCORE_W2, of_agent, weight * weight * score)
        self._sum(names.METRIC_WEIGHTED_SCORE_SQUARED_W2, of_agent, weight * weight * score * score)

    def reset(self) -> None:
        """Back to zero, in place."""
        self.results.clear()
        self.errors.clear()
        for sums in self.sums.values():
            sums.clear()
        self.last_success = None

    def _sum(self, instrument: names.Instrument, key: Labels, amount: float) -> None:
        sums = self.sums[instrument.name]
        sums[key] = sums.get(key, 0.0) + amount


@lru_cache(maxsize=4096)  # asked for three times a result; agents and models are bounded, criteria are declared
def _labels(name: tuple[str, str], agent: str | None, model: str | None) -> Labels:
    labels: list[tuple[str, str]] = [name]
    if agent is not None:
        labels.append((names.AGENT_NAME, agent))
    if model is not None:
        labels.append((names.REQUEST_MODEL, model))
    return tuple(labels)


class Instruments:
    """The instruments on one meter.

    Args:
        meter: Where they are created.
        totals: What the emitter adds to.
        accounting: Outcomes of calls.
        queue: Gives the queue's gauges: ``size``, ``capacity``, ``bytes``.
    """

    def __init__(
        self,
        meter: metrics.Meter,
        totals: ResultTotals,
        accounting: Accounting | None,
        queue: Callable[[], dict[str, int]] | None,
    ) -> None:
        self._totals, self._accounting, self._queue = totals, accounting, queue
        self._score = _histogram(meter, names.METRIC_SCORE)
        self._duration = _histogram(meter, names.METRIC_DURATION)
        self._lag = _histogram(meter, names.METRIC_LAG)
        self._observe(meter)

    def record_score(self, result: EvaluationResult, agent: str | None, model: str | None, context: Context) -> None:
        """Record a normalized score, and the time of an evaluator that calls a model, with an exemplar of the span."""
        name = (names.EVALUATION_NAME, result.criterion_name)
        if result.status == "scored" and result.normalized is not None:
            self._score.record(result.normalized, dict(_labels(name, agent, model)), context=context)
        if result.calls_model and result.started_ns is not None and result.ended_ns is not None:
            seconds = max(0, result.ended_ns - result.started_ns) / 1e9
            self._duration.record(seconds, dict([name]), context=context)

    def record_run(self, aggregated: AggregatedEvaluationResult, agent: str | None, context: Context) -> None:
        """Record the duration of the whole run and the lag behind the answer."""
        if aggregated.started_ns is None or aggregated.ended_ns is None:
            return
        self._duration.record(max(0, aggregated.ended_ns - aggregated.started_ns) / 1e9, context=context)
        if aggregated.response_ended_ns is not None:
            lag_s = max(0, aggregated.ended_ns - aggregated.response_ended_ns) / 1e9
            self._lag.record(lag_s, {names.AGENT_NAME: agent} if agent else {}, context=context)

    def _observe(self, meter: metrics.Meter) -> None:
        totals = self._totals
        _counter(meter, names.METRIC_RESULTS, lambda: totals.results)
        _counter(meter, names.METRIC_ERRORS, lambda: totals.errors)
        for instrument in (
            names.METRIC_WEIGHT, names.METRIC_WEIGHT_SQUARED, names.METRIC_WEIGHTED_SCORE,
            names.METRIC_WEIGHTED_SCORE_W2, names.METRIC_WEIGHTED_SCORE_SQUARED_W2,
        ):  # fmt: skip
            _counter(meter, instrument, lambda name=instrument.name: totals.sums[name])  # type: ignore[misc]
        _counter(meter, names.METRIC_RESPONSES, self._responses)
        for instrument, key in (
            (names.METRIC_QUEUE_SIZE, "size"), (names.METRIC_QUEUE_CAPACITY, "capacity"),
            (names.METRIC_QUEUE_BYTES, "bytes"),
        ):  # fmt: skip
            meter.create_observable_up_down_counter(
                instrument.name, [self._gauge(key)], unit=instrument.unit, description=instrument.description
            )
        last = names.METRIC_LAST_SUCCESS
        meter.create_observable_gauge(last.name, [self._last_success], unit=last.unit, description=last.description)

    def _responses(self) -> dict[Labels, int]:
        if self._accounting is None:
            return {}
        totals: dict[Labels, int] = {}
        for agent, cell in self._accounting.by_agent().items():
            name = (names.AGENT_NAME, self._totals.bounded("agent", agent) or "")
            for outcome, count in cell.items():
                key = (name, (names.OUTCOME, outcome))
                totals[key] = totals.get(key, 0) + count  # several agents may be ``_other``
        return totals

    def _gauge(self, key: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(self._queue()[key])] if self._queue is not None else []

        return read

    def _last_success(self, _: CallbackOptions) -> Iterable[Observation]:
        moment = self._totals.last_success
        return [] if moment is None else [Observation(moment)]


def _histogram(meter: metrics.Meter, instrument: names.Instrument) -> Any:
    return meter.create_histogram(
        instrument.name, unit=instrument.unit, description=instrument.description,
        explicit_bucket_boundaries_advisory=list(instrument.boundaries or ()),
    )  # fmt: skip


def _counter(
    meter: metrics.Meter, instrument: names.Instrument, read: Callable[[], dict[Labels, int] | dict[Labels, float]]
) -> None:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        # A copy: the pool's thread may add to the totals while the exporter reads.
        return [Observation(amount, dict(labels)) for labels, amount in dict(read()).items()]

    meter.create_observable_counter(
        instrument.name, [observe], unit=instrument.unit, description=instrument.description
    )
