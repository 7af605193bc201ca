"""Judge metrics: calls, tokens, cost, time, remaining budget and circuit breakers.

Counters and gauges are read from totals of our own when the exporter asks, as with results. Model names come from
settings and are bounded all the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from opentelemetry import metrics
from opentelemetry.context import Context

from agenteval_otel import semconv as names
from agenteval_otel.models.judge_calls import JudgeCall
from agenteval_otel.telemetry.metrics import Labels, histogram, observe

_TOKENS: Final = (
    ("input", "input_tokens"), ("output", "output_tokens"), ("cache_read", "cache_read_tokens"),
    ("cache_write", "cache_write_tokens"),
)  # fmt: skip
_MOST_USD: Final = 1_000_000.0
_STATES: Final = {"closed": 0, "half_open": 1, "open": 2}


class JudgeTotals:
    """Sums over questions to judges since the process began; read by the observable counters.

    `bounded` gives a word, or ``_other`` once too many of its kind were seen.
    """

    def __init__(self, bounded: Callable[[str, str | None], str | None]) -> None:
        self._bounded = bounded
        self.calls: dict[Labels, int] = {}
        self.tokens: dict[Labels, int] = {}
        self.cost: dict[Labels, float] = {}
        self.judges: weakref.WeakSet[Any] = weakref.WeakSet()

    def know(self, judges: Iterable[Any]) -> None:
        """Show the guards of these judges from now on, while they are in use."""
        new = [judge for judge in judges if judge not in self.judges]
        if new:
            self.judges = weakref.WeakSet([*self.judges, *new])  # a new set: the exporter may be reading the old one

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
            for token_type, field in _TOKENS:
                # An endpoint may return nonsense, and a counter that falls looks like a restart.
                if (count := getattr(call.usage, field)) > 0 or token_type in ("input", "output"):
                    _add(self.tokens, (model, (names.TOKEN_TYPE, token_type)), max(0, count))
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
    """Counts the questions about one response, with exemplars of the context's span: a `CallObserver`."""

    totals: JudgeTotals
    instruments: JudgeInstruments | None
    context: Context

    def on_call(self, call: JudgeCall) -> None:
        """Count it, and record how long it took."""
        self.totals.add(call)
        if self.instruments is not None and call.was_sent:
            self.instruments.record(call, self.context)


class JudgeInstruments:
    """The judges' instruments on one meter."""

    def __init__(self, meter: metrics.Meter, totals: JudgeTotals) -> None:
        self._totals = totals
        self._duration = histogram(meter, names.METRIC_JUDGE_DURATION)
        observe(meter, names.METRIC_JUDGE_CALLS, lambda: totals.calls)
        observe(meter, names.METRIC_JUDGE_TOKENS, lambda: totals.tokens)
        observe(meter, names.METRIC_JUDGE_COST, lambda: totals.cost)
        observe(meter, names.METRIC_JUDGE_BREAKER, self._breakers)
        observe(meter, names.METRIC_JUDGE_BUDGET, self._budgets)

    def record(self, call: JudgeCall, context: Context) -> None:
        """Record how long a call took, with an exemplar of the span."""
        attributes = {names.JUDGE_MODEL: self._totals.model(call)}
        if (error_type := self._totals.error_type(call)) is not None:
            attributes[names.ERROR_TYPE] = error_type
        self._duration.record(call.duration_s, attributes, context=context)

    def _breakers(self) -> dict[Labels, float]:
        """By judge; of several endpoints by one name the worst."""
        states: dict[Labels, float] = {}
        for judge in list(self._totals.judges):
            if judge.breaker is not None:
                key = ((names.JUDGE_NAME, self._totals._bounded("name of a judge", judge.label) or ""),)
                states[key] = max(states.get(key, 0), _STATES[judge.breaker.state])
        return states

    def _budgets(self) -> dict[Labels, float]:
        """By period; of several accounts the least."""
        states: dict[Labels, float] = {}
        for judge in list(self._totals.judges):
            left = {} if judge.budget is None else judge.budget.remaining_usd()
            for period, usd in left.items():
                key = ((names.JUDGE_PERIOD, period),)
                states[key] = min(states.get(key, usd), usd)
        return states
