"""Judge metrics: what judges were asked, what that took, what is left, and how their endpoints are.

Counters and gauges are read from totals of our own when the exporter asks, as with results. Model names come from
settings and are bounded all the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation

from agenteval_otel import semconv as names
from agenteval_otel.models.judge_calls import JudgeCall

__all__ = ["JudgeInstruments", "JudgeTotals", "JudgeWatch"]

Labels = tuple[tuple[str, str], ...]
_TOKENS: Final = (
    ("input", "input_tokens"), ("output", "output_tokens"), ("cache_read", "cache_read_tokens"),
    ("cache_write", "cache_write_tokens"),
)  # fmt: skip
_MOST_USD: Final = 1_000_000.0
_STATES: Final = {"closed": 0, "half_open": 1, "open": 2}


class _Guards(Protocol):
    """What is read of a judge with its guards."""

    @property
    def label(self) -> str: ...
    @property
    def breaker(self) -> Any: ...
    @property
    def budget(self) -> Any: ...


class JudgeTotals:
    """Sums over questions to judges since the process began; read by the observable counters.

    Args:
        bounded: Gives a word, or ``_other`` once too many of its kind were seen.
    """

    def __init__(self, bounded: Callable[[str, str | None], str | None]) -> None:
        self._bounded = bounded
        self.calls: dict[Labels, int] = {}
        self.tokens: dict[Labels, int] = {}
        self.cost: dict[Labels, float] = {}
        self.judges: weakref.WeakSet[Any] = weakref.WeakSet()

    def know(self, judges: Iterable[Any]) -> None:
        """Show the guards of these judges from now on, for as long as somebody holds them."""
        new = [judge for judge in judges if judge not in self.judges]
        if new:
            self.judges = weakref.WeakSet([*self.judges, *new])  # another set: the exporter may be reading the one

    def model(self, call: JudgeCall) -> str:
        """The model as it stands on metrics."""
        return self._bounded("model of a judge", call.model) or ""

    def error_type(self, call: JudgeCall) -> str | None:
        """How the call failed, as it stands on metrics."""
        return self._bounded("outcome of a judge", call.error_type)

    def add(self, call: JudgeCall) -> None:
        """Add one question. What several threads add at once is not lost: no call stands within a statement."""
        self.know([call.judge])
        model = (names.JUDGE_MODEL, self.model(call))
        outcome = (names.OUTCOME, self._bounded("outcome of a judge", call.outcome) or "")
        _add(self.calls, (model, outcome), 1)
        if call.usage is not None:
            for word, field in _TOKENS:
                # What an endpoint says may be nonsense, and a counter that goes down is a restart to whoever reads it.
                if (count := getattr(call.usage, field)) > 0 or word in ("input", "output"):
                    _add(self.tokens, (model, (names.TOKEN_TYPE, word)), max(0, count))
        if call.cost_usd is not None and 0.0 <= call.cost_usd < _MOST_USD:
            _add(self.cost, (model,), call.cost_usd)

    def reset(self) -> None:
        """Back to zero, in place."""
        for totals in (self.calls, self.tokens, self.cost):
            totals.clear()


def _add(totals: dict[Labels, Any], key: Labels, amount: float) -> None:
    totals.setdefault(key, 0)
    totals[key] += amount


class JudgeWatch(NamedTuple):
    """Observes the questions about one response: a `models.judge_calls.CallObserver`.

    Attributes:
        context: The evaluated span, for exemplars.
    """

    totals: JudgeTotals
    instruments: JudgeInstruments | None
    context: Context

    def on_call(self, call: JudgeCall) -> None:
        """Count it, and record how long it took."""
        self.totals.add(call)
        if self.instruments is not None and call.asked:
            self.instruments.record(call, self.context)


class JudgeInstruments:
    """The judges' instruments on one meter.

    Args:
        meter: Where they are created.
        totals: What is added to.
    """

    def __init__(self, meter: metrics.Meter, totals: JudgeTotals) -> None:
        self._totals = totals
        one = names.METRIC_JUDGE_DURATION
        self._duration = meter.create_histogram(
            one.name, unit=one.unit, description=one.description,
            explicit_bucket_boundaries_advisory=list(one.boundaries or ()),
        )  # fmt: skip
        for counter, read in (
            (names.METRIC_JUDGE_CALLS, lambda: totals.calls), (names.METRIC_JUDGE_TOKENS, lambda: totals.tokens),
            (names.METRIC_JUDGE_COST, lambda: totals.cost),
        ):  # fmt: skip
            meter.create_observable_counter(
                counter.name, [_reader(read)], unit=counter.unit, description=counter.description
            )
        for gauge, found in (
            (names.METRIC_JUDGE_BREAKER, self._breakers), (names.METRIC_JUDGE_BUDGET, self._budgets),
        ):  # fmt: skip
            meter.create_observable_gauge(gauge.name, [_reader(found)], unit=gauge.unit, description=gauge.description)

    def record(self, call: JudgeCall, context: Context) -> None:
        """Record how long a call took, with an exemplar of the span."""
        attributes = {names.JUDGE_MODEL: self._totals.model(call)}
        if (word := self._totals.error_type(call)) is not None:
            attributes[names.ERROR_TYPE] = word
        self._duration.record(call.duration_s, attributes, context=context)

    def _judges(self) -> Iterator[_Guards]:
        yield from list(self._totals.judges)

    def _breakers(self) -> dict[Labels, float]:
        """By judge; of several endpoints by one name the worst."""
        found: dict[Labels, float] = {}
        for judge in self._judges():
            if judge.breaker is not None:
                key = ((names.JUDGE_NAME, self._totals._bounded("name of a judge", judge.label) or ""),)
                found[key] = max(found.get(key, 0), _STATES[judge.breaker.state])
        return found

    def _budgets(self) -> dict[Labels, float]:
        """By period; of several accounts the least."""
        found: dict[Labels, float] = {}
        for judge in self._judges():
            left = {} if judge.budget is None else judge.budget.remaining_usd()
            for period, usd in left.items():
                key = ((names.JUDGE_PERIOD, period),)
                found[key] = min(found.get(key, usd), usd)
        return found


def _reader(read: Callable[[], dict[Labels, Any]]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        # A copy: the background thread may add while the exporter reads.
        return [Observation(amount, dict(labels)) for labels, amount in dict(read()).items()]

    return observe
