"""Metrics: histograms, and counters that are read from our own totals.

Histograms are recorded for each result and each call of a judge, with the context of the evaluated
span, which makes an exemplar. Counters are observable instruments over totals, because a dictionary
takes an addition in a tenth of a microsecond, and a counter of the SDK in five. All of it runs on
the background thread, or on the exporter's when it reads.
"""

from __future__ import annotations

import math
import weakref
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation

from agenteval_otel import semconv as names
from agenteval_otel.models import EvaluationResult
from agenteval_otel.models.judge_calls import JudgeCall
from agenteval_otel.models.scoring.probability import has_weight
from agenteval_otel.models.scoring.probability import weight as weight_of
from agenteval_otel.semconv import Instrument
from agenteval_otel.telemetry.accounting import Accounting, Labels
from agenteval_otel.telemetry.names import Names, NameTable
from agenteval_otel.telemetry.target import SIGNALS

ObjectiveStates = Mapping[tuple[str, str | None], tuple[bool, float | None]]
"""By criterion and agent: whether the objective is breached, and the evidence for a breach if any
is collected.
"""


class SharedState(NamedTuple):
    """What a process shares of its evidence against an objective (`shared_evidence.SharedSums`).

    Attributes:
        gains: By the share that was bet. `run_gains` and `losses` alike.
    """

    age_s: float
    verdicts: int
    gains: Mapping[float, float]
    run_gains: Mapping[float, float]
    losses: Mapping[float, float]


SharedStates = Mapping[tuple[str, str | None], SharedState]
"""By criterion and agent."""

_GAUGES: Final = {
    "size": names.METRIC_QUEUE_SIZE,
    "max_bytes": names.METRIC_QUEUE_MAX_BYTES,
    "bytes": names.METRIC_QUEUE_BYTES,
    "drain_time": names.METRIC_QUEUE_DRAIN_TIME,
    "loop_lag": names.METRIC_LOOP_LAG,
    "level": names.METRIC_SAMPLING_LEVEL,
}
_OF_HEALTH: Final = {
    "agreements": names.METRIC_JUDGE_AGREEMENT,
    "untrusted": names.METRIC_JUDGE_UNTRUSTED,
    "drifts": names.METRIC_JUDGE_DRIFT,
    "length_correlations": names.METRIC_JUDGE_LENGTH_CORRELATION,
    "checks_by_outcome": names.METRIC_JUDGE_CHECKS,
    "changes_by_model": names.METRIC_JUDGE_CHANGES,
}
_LIMITS: Final = {
    "model": names.MAX_MODELS,
    "error": names.MAX_ERROR_TYPES,
    "outcome": names.MAX_JUDGE_OUTCOMES,
}
# Series of one criterion and agent that are left for pairs of model and label. The others are the
# error types with their ``_other``, the duration, and ten sums of the agent.
_MOST_SERIES_OF_PAIRS = names.MAX_SERIES - names.MAX_ERROR_TYPES - 12
_SERIES_OF_PAIR = 3  # the count and both weights; each model has one of scores, too
_VERDICTS = (names.LABEL_PASS, names.LABEL_FAIL)
_WEIGHTS: Final = (names.METRIC_WEIGHT, names.METRIC_WEIGHT_SQUARED)
_SCORES: Final = (
    names.METRIC_WEIGHTED_SCORE,
    names.METRIC_WEIGHTED_SCORE_W2,
    names.METRIC_WEIGHTED_SCORE_SQUARED_W2,
)
_UNITS: Final = (
    names.METRIC_UNITS,
    names.METRIC_UNIT_WEIGHT_SQUARED,
    names.METRIC_UNIT_FAILED,
    names.METRIC_UNIT_FAILED_SQUARED,
    names.METRIC_UNIT_SCORE,
    names.METRIC_UNIT_SCORE_SQUARED,
)
_OF_AGENT: Final = (*_SCORES, *_UNITS, names.METRIC_PREFERRED)
SUMS: Final = (names.METRIC_RESULTS, *_WEIGHTS, *_OF_AGENT)
"""Metrics that `ResultTotals.sums_of` gives."""
_RESULTS: Final = names.METRIC_RESULTS.name
_WEIGHT: Final = names.METRIC_WEIGHT.name
_WEIGHT_SQUARED: Final = names.METRIC_WEIGHT_SQUARED.name
_SCORE: Final = names.METRIC_WEIGHTED_SCORE.name
_SCORE_W2: Final = names.METRIC_WEIGHTED_SCORE_W2.name
_SCORE_SQUARED_W2: Final = names.METRIC_WEIGHTED_SCORE_SQUARED_W2.name
_PREFERRED: Final = names.METRIC_PREFERRED.name
_HISTOGRAMS: Final = (
    names.METRIC_SCORE,
    names.METRIC_DURATION,
    names.METRIC_LAG,
    names.METRIC_JUDGE_DURATION,
)
_TOKENS: Final = ("input", "output", "cache_read", "cache_write")
_MOST_USD: Final = 1_000_000.0
_BUCKETS: Final = 8_192  # of units that are kept, a power of two
_WAYS: Final = 4  # units in a bucket
_STATES: Final = {"closed": 0, "half_open": 1, "open": 2}
# Places in a value of `ObjectiveStates`.
_IS_BREACHED: Final = 0
_EVIDENCE: Final = 1
_RESERVED: Final = 5  # one in so many series is kept for the operator's names that come later


class _Series(NamedTuple):
    """Names where a criterion's results count. `scores` are the attributes of its histogram."""

    scores: dict[str, str]
    key: Labels
    of_agent: Labels
    verdicts: tuple[Labels, ...]


_Sums = dict[str, float]
"""Sums of the results with the same attributes, by the name of the metric."""


class _Place(NamedTuple):
    """Holds the sums that a result is added to. `scores` are the attributes of its histogram.

    Attributes:
        of_pair: Those of its label, with its model.
        of_agent: Those of its criterion and agent.
        of_verdicts: Those of both verdicts, with its model.
        of_units: The sums over units of its criterion and agent, in the order of `_UNITS`.
    """

    scores: dict[str, str]
    of_pair: _Sums
    of_agent: _Sums
    of_verdicts: Sequence[_Sums]
    of_units: list[float]


_CriterionKey = tuple[str, str | None, Labels]
"""A criterion, an agent, and the dimensions."""
_ResultSeriesKey = tuple[str, str | None, str | None, str | None, bool, Labels]
"""A criterion, an agent, a model, a label, whether there is a verdict, and the dimensions."""


class UnitIncrease(NamedTuple):
    """What a score adds to the number of units, and to sums over units of squares and products.

    W, F and Y are the sums over a unit of the weights, of those of failures, and of weight times
    score. The order is that of `_UNITS`.
    """

    is_new: bool  # the number of units
    weight_squared: float  # W^2
    failed_weight: float  # F W
    failed_squared: float  # F^2
    scored_weight: float  # Y W
    scored_squared: float  # Y^2


class UnitIncrements:
    """Tells by how much a score raises sums over units of squares and products.

    The sums are for counters that only grow.

    Keeps the sums of 32,768 units in a table of 1 MB, which does not grow. A new unit replaces the
    oldest of the four in its bucket. So one that comes again when 10,000 others have begun
    meanwhile counts as a new one in 4 % of cases, and when 30,000 have begun in half of them.
    """

    __slots__ = ("_keys", "_next", "_sums")

    def __init__(self) -> None:
        self.clear()

    def add(
        self, place: Hashable, unit: Hashable, weight: float, failed: float, scored: float
    ) -> UnitIncrease:
        """Add a score, and return what it adds to the sums.

        Args:
            place: What the sums are of. A unit counts once in each.
            unit: What the score depends on others by. None if it stands alone.
            weight: w, 1 / probability.
            failed: w of a failure, else 0.
            scored: w times the score, 0 without one.
        """
        w = f = y = 0.0
        is_new = True
        if unit is not None:
            slot, is_new = self._slot_of(hash((place, unit)) or 1)  # 0 is no unit
            sums = self._sums
            at = 3 * slot
            if not is_new:
                w = sums[at]
                f = sums[at + 1]
                y = sums[at + 2]
            sums[at] = w + weight
            sums[at + 1] = f + failed
            sums[at + 2] = y + scored
        w_after = w + weight
        f_after = f + failed
        y_after = y + scored
        return UnitIncrease(
            is_new=is_new,
            weight_squared=w_after * w_after - w * w,
            failed_weight=f_after * w_after - f * w,
            failed_squared=f_after**2 - f * f,
            scored_weight=y_after * w_after - y * w,
            scored_squared=y_after**2 - y * y,
        )

    def clear(self) -> None:
        """Forget all units."""
        self._keys = array("q")  # empty until there is a unit
        self._sums = array("d")  # three of each unit
        self._next = bytearray()  # the place in each bucket that is replaced next

    def _slot_of(self, key: int) -> tuple[int, bool]:
        """Return the place of a unit in the table, and whether it is new there."""
        keys = self._keys
        if not keys:
            slots = _BUCKETS * _WAYS
            keys = self._keys = array("q", bytes(8 * slots))
            self._sums = array("d", bytes(8 * 3 * slots))
            self._next = bytearray(_BUCKETS)
        bucket = key & (_BUCKETS - 1)
        first = bucket * _WAYS
        for slot in range(first, first + _WAYS):
            if keys[slot] == key:
                return slot, False
        way = self._next[bucket]
        self._next[bucket] = (way + 1) % _WAYS
        keys[first + way] = key
        return first + way, True


class ResultTotals:
    """Sums over results since the process began. The observable counters read them.

    Model names and categories may come from outside: for each criterion and agent, the first pairs
    of model and label get their own series, and later ones share ``_other``. Both verdicts and
    ``_other`` always have room.

    Criteria and agents of the operator always have their series. What others, services and metric
    dimensions add stays below `Names.max_series` with everything else. Beyond it they count under
    ``_other``. Half of that room is for services and dimensions of the operator's agents alone.

    Attributes:
        dimensions: How many values each of the metric dimensions may have, by the attribute.
        names: Which names have series of their own.
    """

    def __init__(self) -> None:
        self.dimensions: Mapping[str, int] = {}
        self.names = Names()
        self.errors: dict[Labels, int] = {}
        self._sums: dict[Labels, _Sums] = {}
        self._units = UnitIncrements()
        self._of_units: dict[Labels, list[float]] = {}
        self.answers: dict[Labels, int] = {}
        self.last_success: float | None = None
        self._begin()

    def _begin(self) -> None:
        self._known: dict[str, NameTable] = {}
        self._pairs: dict[_CriterionKey, set[tuple[str | None, str | None]]] = {}
        self._shared: dict[_CriterionKey, str | None] = {}
        self._places: dict[_ResultSeriesKey, _Place] = {}
        self._counted: set[tuple[Instrument, Labels]] = set()
        # Series of names that always have room, and of those that share what is left.
        self._of_own = 0
        self._of_outside = 0
        self._is_full = False
        self._is_full_for_own = False

    def bounded(self, kind: str, value: str | None, limit: int | None = None) -> str | None:
        """Return the value, or ``_other`` once too many were seen.

        Text from outside never makes unbounded series.
        """
        if value is None:
            return None
        table = self._known.get(kind)
        if table is None:
            is_dimension = kind in self.dimensions
            table = self._known[kind] = NameTable(kind, reserves=False, warns=is_dimension)
        if limit is None:
            limit = _LIMITS.get(kind.partition(" ")[0], names.MAX_WORDS)
        table.places = limit
        admitted: str = table.admit(value)
        return admitted

    def turned_away(self) -> dict[str, int]:
        """Return how often a value of a metric dimension found no place, by the dimension."""
        known = self._known.copy()
        return {name: known[name].turned_away for name in self.dimensions if name in known}

    def place_of(
        self, agent: str | None, attributes: Mapping[str, Any]
    ) -> tuple[str | None, Labels]:
        """Return the agent of a response and its dimensions as metrics show them.

        A response of another service has its service and environment besides the metric dimensions.
        """
        origin: Labels = ()
        if names.SERVICE_NAME in attributes:
            origin = tuple(
                (name, attributes[name]) for name in names.OTHER_SERVICES if name in attributes
            )
        if agent:
            agent, origin = self.names.place(agent, origin)
        else:
            origin = tuple((name, self.names.of_attribute(name, value)) for name, value in origin)
        if not self.dimensions:
            return agent, origin
        known = dict(origin)
        own: list[tuple[str, str]] = []
        for name, limit in self.dimensions.items():
            if name in attributes and name not in known:
                own.append((name, self.bounded(name, attributes[name], limit) or names.OTHER))
        return agent, (*origin, *own)

    @property
    def series_count(self) -> int:
        """Return how many places results count at."""
        return len(self._places)

    def sums_of(self, metric: Instrument) -> dict[Labels, float]:
        """Return the sums that a metric shows, by the attributes of its series. Any thread."""
        name = metric.name
        every = list(self._sums.items())  # in one step: another thread may add a series
        return {labels: sums[name] for labels, sums in every if name in sums}

    def add(
        self,
        result: EvaluationResult,
        agent: str | None,
        model: str | None,
        dimensions: Labels = (),
        *,
        unit: str | None = None,
    ) -> dict[str, str] | None:
        """Add one result of an answer of this unit.

        With a known probability it is added to the weighted sums too. Return the attributes
        of its score, or None if it is not scored.
        """
        status = result.status
        if status not in ("scored", "failed"):
            return None
        criterion = self.names.criteria.admit(result.criterion_name)
        if status == "failed":
            error_type = self.bounded(f"error {criterion}", result.error_type or "error") or ""
            self._add_error(criterion, error_type, _service_of(dimensions))
            return None
        label = result.label
        if label and label not in _VERDICTS:
            label = self.bounded(f"label {criterion}", label)
        has_verdict = result.passed is not None
        key = (criterion, agent, model, label or None, has_verdict, dimensions)
        place = self._places.get(key)
        if place is None:
            place = self._new_place(*key)
        of_pair = place.of_pair
        of_pair[_RESULTS] = of_pair.get(_RESULTS, 0) + 1
        if has_weight(result.probability):
            self._add_weighted(result, place, unit)
        return place.scores

    def add_answer(self, agent: str | None, kind: str) -> None:
        """Count an answer by the kind of its unit."""
        of_agent = () if agent is None else ((names.AGENT_NAME, agent),)
        _add(self.answers, (*of_agent, (names.UNIT, kind)), 1)

    def _new_place(
        self,
        criterion: str,
        agent: str | None,
        model: str | None,
        label: str | None,
        has_verdict: bool,
        dimensions: Labels,
    ) -> _Place:
        """Return the place of a result.

        Some or all of its names, dimensions, model and label may be ``_other``.
        """
        key = (criterion, agent, model, label, has_verdict, dimensions)
        others = self._others_of(dimensions)
        is_own = self._is_own(criterion, agent)
        if dimensions != others:
            series = _series_of(criterion, agent, model, label, dimensions)
            if self._takes(series, has_verdict, is_own=is_own):
                return self._keep(key, series, has_verdict=has_verdict)
            # Kept where the others are: combinations of values are many, and would fill the memory.
            key = (criterion, agent, model, label, has_verdict, others)
            if key in self._places:
                return self._places[key]
        owner = criterion, agent, others
        if not is_own and owner not in self._pairs and self._is_full:
            return self._place_of_others(*key)
        # The owner's first result decides what pairs without series of their own share: the model
        # `_other` if it named a model, else none.
        shared = self._shared.setdefault(owner, None if model is None else names.OTHER)
        pairs = self._pairs.setdefault(
            owner, {(shared, kept_free) for kept_free in (*_VERDICTS, names.OTHER)}
        )
        general = label if label is None or label in _VERDICTS else names.OTHER
        verdicts = _VERDICTS if has_verdict else ()
        # From the most exact pair to the most general one: the first that has room counts.
        for own_model, own_label in (
            (model, label),
            (model, general),
            (shared, label),
            (shared, general),
        ):
            wanted = pairs | {(own_model, counted) for counted in (own_label, *verdicts)}
            models = {name for name, _ in wanted}
            if _SERIES_OF_PAIR * len(wanted) + len(models) <= _MOST_SERIES_OF_PAIRS:
                self._pairs[owner] = wanted
                model = own_model
                label = own_label
                break
        else:
            model = shared
            label = general or names.OTHER
        series = _series_of(criterion, agent, model, label, others)
        if not self._takes(series, has_verdict, is_own=is_own, always=is_own):
            return self._place_of_others(*key)
        return self._keep(key, series, has_verdict=has_verdict)

    def _keep(self, key: _ResultSeriesKey, series: _Series, *, has_verdict: bool) -> _Place:
        """Return the place of these series, which results with this key are added to from now on."""
        of_verdicts = [self._sums.setdefault(verdict, {}) for verdict in series.verdicts]
        if has_verdict:
            # Both are shown from 0, so that the first of the rarer verdict is an increase.
            for of_verdict in of_verdicts:
                of_verdict.setdefault(_RESULTS, 0)
        place = _Place(
            series.scores,
            self._sums.setdefault(series.key, {}),
            self._sums.setdefault(series.of_agent, {}),
            of_verdicts,
            self._of_units.setdefault(series.of_agent, [0.0] * len(_UNITS)),
        )
        self._places[key] = place
        return place

    def _is_own(self, criterion: str, agent: str | None) -> bool:
        is_agent = agent is None or self.names.agents.is_own(agent)
        return is_agent and self.names.criteria.is_own(criterion)

    def _place_of_others(
        self,
        criterion: str,
        agent: str | None,
        model: str | None,
        label: str | None,
        has_verdict: bool,
        dimensions: Labels,
    ) -> _Place:
        """Return the shared place of a result whose criterion or agent has no room."""
        if not self.names.criteria.is_own(criterion):
            criterion = names.OTHER
        if agent is not None and not self.names.agents.is_own(agent):
            agent = names.OTHER
        key = (criterion, agent, model, label, has_verdict, dimensions)
        place = self._places.get(key)
        return self._new_place(*key) if place is None else place

    def _others_of(self, dimensions: Labels) -> Labels:
        """Return the dimensions of a result for which there is no room.

        Each possible dimension is ``_other``.
        """
        if not dimensions:
            return ()
        is_of_service = any(name == names.SERVICE_NAME for name, _ in dimensions)
        of_service = names.OTHER_SERVICES if is_of_service else ()
        every = dict.fromkeys((*of_service, *self.dimensions))
        return tuple((name, names.OTHER) for name in every)

    def _add_error(self, criterion: str, error_type: str, service: Labels) -> None:
        of_criterion = ((names.EVALUATION_NAME, criterion), (names.ERROR_TYPE, error_type))
        key = (*of_criterion, *service)
        if key not in self.errors and any(value != names.OTHER for _, value in service):
            is_own = self.names.criteria.is_own(criterion)
            is_full = self._is_full_for_own if is_own else self._is_full
            if is_full:
                key = (*of_criterion, *self._others_of(service))
            else:
                self._of_outside += 1
        _add(self.errors, key, 1)

    def _takes(
        self, series: _Series, has_verdict: bool, *, is_own: bool, always: bool = False
    ) -> bool:
        """Count the series that a place of results adds, and return whether there was room for them.

        Once there is no room, no later place gets any, except with `always`. `is_own`: criterion
        and agent are the operator's, so all of the room is theirs. Others have half of it.
        """
        is_full = self._is_full_for_own if is_own else self._is_full
        if is_full and not always:
            return False
        pairs = {series.key}
        if has_verdict:
            pairs.update(series.verdicts)
        added: set[tuple[Instrument, Labels]] = set()
        for metric in (names.METRIC_RESULTS, *_WEIGHTS):
            added.update((metric, labels) for labels in pairs)
        added |= {(metric, series.of_agent) for metric in _OF_AGENT}
        added.add((names.METRIC_SCORE, tuple(series.scores.items())))
        added -= self._counted
        reserved = self.names.max_series // _RESERVED
        # Own names keep at least a fifth, and a fifth always stays for the others.
        kept_for_own = max(self._of_own, reserved)
        room = max(self.names.max_series - kept_for_own, reserved)
        if always:
            self._of_own += len(added)
        elif is_own and self._of_outside + len(added) > room:
            self._is_full_for_own = True
            return False
        elif not is_own and self._of_outside + len(added) > room // 2:
            self._is_full = True
            return False
        else:
            self._of_outside += len(added)
        self._counted |= added
        return True

    def _add_weighted(self, result: EvaluationResult, place: _Place, unit: str | None) -> None:
        weight = weight_of(result.probability)
        squared = weight * weight
        score = result.normalized
        of_pair = place.of_pair
        of_agent = place.of_agent
        if _WEIGHT not in of_pair and result.label in _VERDICTS:
            # Like the counts from 0. Categories have none.
            for of_verdict in place.of_verdicts:
                of_verdict.setdefault(_WEIGHT, 0.0)
                of_verdict.setdefault(_WEIGHT_SQUARED, 0.0)
        of_pair[_WEIGHT] = of_pair.get(_WEIGHT, 0.0) + weight
        of_pair[_WEIGHT_SQUARED] = of_pair.get(_WEIGHT_SQUARED, 0.0) + squared
        weighted_score = 0.0
        if score is not None:
            weighted_score = weight * score
            of_score = squared * score
            of_agent[_SCORE] = of_agent.get(_SCORE, 0.0) + weighted_score
            of_agent[_SCORE_W2] = of_agent.get(_SCORE_W2, 0.0) + of_score
            of_agent[_SCORE_SQUARED_W2] = of_agent.get(_SCORE_SQUARED_W2, 0.0) + of_score * score
        failed = weight if result.passed is False else 0.0
        self._add_of_unit(place, unit, weight, failed, weighted_score)
        if result.least_probability is not None:
            of_agent[_PREFERRED] = of_agent.get(_PREFERRED, 0.0) + 1

    def _add_of_unit(
        self, place: _Place, unit: str | None, weight: float, failed: float, scored: float
    ) -> None:
        """Add to the sums over units.

        They have series once a unit has come again: until then each answer is a unit, and
        the sums of answers say the same.
        """
        of_units = place.of_units
        added = self._units.add(id(of_units), unit, weight, failed, scored)
        for position, amount in enumerate(added):
            of_units[position] += amount
        if not added.is_new or names.METRIC_UNITS.name in place.of_agent:
            for metric, total in zip(_UNITS, of_units, strict=True):
                place.of_agent[metric.name] = total

    def reset(self) -> None:
        self._begin()
        self.errors.clear()
        self.answers.clear()
        self._sums.clear()
        self._units.clear()
        self._of_units.clear()
        self.last_success = None


def _labels(criterion: str, agent: str | None, model: str | None = None) -> Labels:
    pairs = (
        (names.EVALUATION_NAME, criterion),
        (names.AGENT_NAME, agent),
        (names.REQUEST_MODEL, model),
    )
    return tuple((name, value) for name, value in pairs if value is not None)


def _series_of(
    criterion: str, agent: str | None, model: str | None, label: str | None, dimensions: Labels
) -> _Series:
    labels = (*_labels(criterion, agent, model), *dimensions)
    key = (*labels, (names.SCORE_LABEL, label)) if label else labels
    verdicts = tuple((*labels, (names.SCORE_LABEL, verdict)) for verdict in _VERDICTS)
    # The dictionary is shared by all measurements of the series: the SDK copies what it keeps.
    return _Series(dict(labels), key, (*_labels(criterion, agent), *dimensions), verdicts)


class JudgeReadings(Protocol):
    """Shows what judge health knows, by the attributes of the series.

    `judge_health.JudgeHealth` implements it. Any thread may call it.
    """

    def agreements(self) -> Mapping[Labels, float]: ...
    def untrusted(self) -> Mapping[Labels, float]: ...
    def drifts(self) -> Mapping[Labels, float]: ...
    def length_correlations(self) -> Mapping[Labels, float]: ...
    def checks_by_outcome(self) -> Mapping[Labels, float]: ...
    def changes_by_model(self) -> Mapping[Labels, float]: ...


class JudgeCounters:
    """Sums over questions to judges since the process began.

    `bounded` is that of `ResultTotals`.
    """

    def __init__(self, bounded: Callable[[str, str | None], str | None]) -> None:
        self.bounded = bounded
        self.calls: dict[Labels, int] = {}
        self.tokens: dict[Labels, int] = {}
        self.cost: dict[Labels, float] = {}
        self.judges: weakref.WeakSet[Any] = weakref.WeakSet()
        self.health: JudgeReadings | None = None

    def know(self, judges: Iterable[Any]) -> None:
        """Show the guards of these judges from now on, while they are in use."""
        if new := [judge for judge in judges if judge not in self.judges]:
            # a new set: the exporter may be reading the old one
            self.judges = weakref.WeakSet([*self.judges, *new])

    def add(self, call: JudgeCall) -> None:
        """Add one question.

        Thread-safe: no `+=` contains a call, in which another thread could add.
        """
        self.know([call.judge])
        model = (names.JUDGE_MODEL, self.bounded("model of a judge", call.model) or "")
        outcome = (names.OUTCOME, self.bounded("outcome of a judge", call.outcome) or "")
        _add(self.calls, (model, outcome), 1)
        if call.usage is not None:
            for token_type in _TOKENS:
                # An endpoint may return nonsense, and a counter that falls looks like a restart.
                count = getattr(call.usage, f"{token_type}_tokens")
                if count > 0 or token_type in ("input", "output"):
                    _add(self.tokens, (model, (names.TOKEN_TYPE, token_type)), max(0, count))
        if call.cost_usd is not None and 0.0 <= call.cost_usd < _MOST_USD:
            _add(self.cost, (model,), call.cost_usd)

    def reset(self) -> None:
        for totals in (self.calls, self.tokens, self.cost):
            totals.clear()

    def breakers(self) -> dict[Labels, float]:
        """Return the breaker's state by judge.

        Several endpoints with one name have the worst state.
        """
        states: dict[Labels, float] = {}
        for judge in list(self.judges):
            if judge.breaker is not None:
                key = ((names.JUDGE_NAME, self.bounded("name of a judge", judge.label) or ""),)
                states[key] = max(states.get(key, 0), _STATES[judge.breaker.state])
        return states

    def budgets(self) -> dict[Labels, float]:
        """Return the remaining US dollars by period. Several accounts have the least of theirs."""
        states: dict[Labels, float] = {}
        for judge in list(self.judges):
            if judge.budget is None:
                continue
            for period, usd in judge.budget.remaining_usd().items():
                key = ((names.JUDGE_PERIOD, period),)
                states[key] = min(states.get(key, usd), usd)
        return states


def _service_of(dimensions: Labels) -> Labels:
    return tuple(pair for pair in dimensions if pair[0] in names.OTHER_SERVICES)


def _add(totals: dict[Labels, Any], key: Labels, amount: float) -> None:
    totals.setdefault(key, 0)
    totals[key] += amount


class JudgeWatch(NamedTuple):
    """Counts the questions about one response: a `CallObserver`.

    Exemplars are of the context's span.
    """

    totals: JudgeCounters
    instruments: Instruments | None
    context: Context

    def on_call(self, call: JudgeCall) -> None:
        self.totals.add(call)
        if self.instruments is not None and call.was_sent:
            self.instruments.record_judge_call(call, self.context)


class _SharedReadings:
    """Reads the shared evidence as metrics.

    All of one export are of one moment: a gain that was read later than the losses of the same
    verdicts would make the bets unfair.
    """

    def __init__(self, read: Callable[[], SharedStates]) -> None:
        self._read = read
        self._states: SharedStates | None = None

    def ages(self) -> dict[Labels, float]:
        """Read the states anew and return their ages.

        The other instruments show the states that were read here, because they are asked
        later.
        """
        self._states = self._read()
        return {_labels(*key): state.age_s for key, state in self._states.items()}

    def verdicts(self) -> dict[Labels, int]:
        return {_labels(*key): state.verdicts for key, state in self._known().items()}

    def by_bet(self, name: str) -> dict[Labels, float]:
        """Return `gains`, `run_gains` or `losses`."""
        series: dict[Labels, float] = {}
        for key, state in self._known().items():
            for bet, value in getattr(state, name).items():
                series[*_labels(*key), (names.OBJECTIVE_BET, f"{bet:g}")] = value
        return series

    def _known(self) -> SharedStates:
        return self._read() if self._states is None else self._states


OF_PROCESS: Final = frozenset(
    instrument.name
    for instrument in (
        names.METRIC_SPANS,
        names.METRIC_RESPONSES,
        names.METRIC_CONVERSATIONS,
        names.METRIC_EVALUATE_REQUESTS,
        names.METRIC_NAMES_OVERFLOW,
        names.METRIC_OBJECTIVE_GAIN,
        names.METRIC_OBJECTIVE_RUN_GAIN,
        names.METRIC_OBJECTIVE_LOSS,
        names.METRIC_OBJECTIVE_VERDICTS,
    )
)
"""Counters whose totals outlive an emitter: those of the process's accounting, and of objectives."""


class Readings:
    """Reads what the observable instruments show, from our own totals.

    `gauges` returns values of `_GAUGES`. Any thread.
    """

    def __init__(
        self,
        totals: ResultTotals,
        judges: JudgeCounters,
        accounting: Callable[[], Accounting | None],
        *,
        gauges: Callable[[], Mapping[str, float]],
        objectives: Callable[[], ObjectiveStates],
        shared: Callable[[], SharedStates] = dict,
        lost: Mapping[tuple[str, str], int],
        reach: Callable[[], Mapping[str, str]],
    ) -> None:
        self._totals = totals
        self._accounting = accounting
        self._lost = lost
        evidence = _SharedReadings(shared)
        self.by_instrument: dict[Instrument, Callable[[], Mapping[Labels, Any]]] = {
            names.METRIC_ERRORS: lambda: totals.errors,
            **{metric: partial(totals.sums_of, metric) for metric in SUMS},
            names.METRIC_ANSWERS: lambda: totals.answers,
            names.METRIC_SPANS: self._spans,
            names.METRIC_RESPONSES: self._responses,
            names.METRIC_CONVERSATIONS: lambda: self._by_outcome(Accounting.conversations),
            names.METRIC_EVALUATE_REQUESTS: self._requests,
            **{gauge: partial(_gauge, gauges, key) for key, gauge in _GAUGES.items()},
            names.METRIC_LAST_SUCCESS: self._last_success,
            names.METRIC_OBJECTIVE_BREACH: partial(_objective_states, objectives, _IS_BREACHED),
            names.METRIC_OBJECTIVE_EVIDENCE: partial(_objective_states, objectives, _EVIDENCE),
            names.METRIC_OBJECTIVE_AGE: evidence.ages,
            names.METRIC_OBJECTIVE_VERDICTS: evidence.verdicts,
            names.METRIC_OBJECTIVE_GAIN: partial(evidence.by_bet, "gains"),
            names.METRIC_OBJECTIVE_RUN_GAIN: partial(evidence.by_bet, "run_gains"),
            names.METRIC_OBJECTIVE_LOSS: partial(evidence.by_bet, "losses"),
            names.METRIC_EXPORT_LOST: self._losses,
            names.METRIC_NAMES_OVERFLOW: self._names_overflow,
            names.METRIC_EXPORT_SIGNALS: partial(_export_signals, reach),
            names.METRIC_JUDGE_CALLS: lambda: judges.calls,
            names.METRIC_JUDGE_TOKENS: lambda: judges.tokens,
            names.METRIC_JUDGE_COST: lambda: judges.cost,
            names.METRIC_JUDGE_BREAKER: judges.breakers,
            names.METRIC_JUDGE_BUDGET: judges.budgets,
            **{
                instrument: partial(_reading, judges, name)
                for name, instrument in _OF_HEALTH.items()
            },
        }

    def current(self) -> dict[Instrument, dict[Labels, float]]:
        """Return every series that there is now. Instruments without a series are left out."""
        read = {
            instrument: dict(of_instrument())
            for instrument, of_instrument in self.by_instrument.items()
        }
        return {instrument: series for instrument, series in read.items() if series}

    def _last_success(self) -> dict[Labels, float]:
        moment = self._totals.last_success
        return {} if moment is None else {(): moment}

    def _by_outcome(
        self, read: Callable[[Accounting], dict[tuple[str, Labels], dict[str, int]]]
    ) -> dict[Labels, int]:
        accounting = self._accounting()
        totals = dict[Labels, int]()
        by_origin = {} if accounting is None else read(accounting)
        for (agent, origin), outcomes in by_origin.items():
            place = ((names.AGENT_NAME, agent), *origin)
            for outcome, count in outcomes.items():
                totals[*place, (names.OUTCOME, outcome)] = count
        return totals

    def _responses(self) -> dict[Labels, int]:
        totals = self._by_outcome(Accounting.by_origin_without_details)
        accounting = self._accounting()
        details = {} if accounting is None else accounting.details()
        for (agent, origin), counts in details.items():
            place = ((names.AGENT_NAME, agent), *origin)
            for (outcome, detail), count in counts.items():
                of_detail = (names.DETAILS[outcome], detail)
                totals[*place, (names.OUTCOME, outcome), of_detail] = count
        return totals

    def _requests(self) -> dict[Labels, int]:
        accounting = self._accounting()
        outcomes = {} if accounting is None else accounting.requests()
        return {((names.OUTCOME, outcome),): count for outcome, count in outcomes.items()}

    def _names_overflow(self) -> dict[Labels, int]:
        counts = self._totals.names.turned_away() | self._totals.turned_away()
        return {((names.NAME_KIND, kind),): count for kind, count in counts.items()}

    def _spans(self) -> dict[Labels, int]:
        accounting = self._accounting()
        if accounting is None:
            return {}
        by_scope = accounting.not_understood.copy()
        totals: dict[Labels, int] = {}
        for outcome, count in accounting.spans().items():
            if outcome != names.SPANS_NOT_UNDERSTOOD:
                totals[((names.SPANS_OUTCOME, outcome),)] = count
        not_understood = (names.SPANS_OUTCOME, names.SPANS_NOT_UNDERSTOOD)
        for scope, count in by_scope.items():
            totals[(not_understood, (names.SPANS_SCOPE, scope))] = count
        return totals

    def _losses(self) -> dict[Labels, int]:
        # Every series starts at 0, so that its first loss is an increase.
        every: dict[tuple[str, str], int] = {}
        for signal in SIGNALS:
            for reason in names.LOST_REASONS:
                every[signal.lower(), reason] = 0
        every.update(self._lost)
        return {
            ((names.EXPORT_SIGNAL, signal), (names.EXPORT_REASON, reason)): count
            for (signal, reason), count in every.items()
        }


class Instruments:
    """The instruments on one meter."""

    def __init__(
        self,
        meter: metrics.Meter,
        readings: Readings,
        totals: ResultTotals,
    ) -> None:
        self._totals = totals
        histograms: list[metrics.Histogram] = []
        for instrument in _HISTOGRAMS:
            histogram = meter.create_histogram(
                instrument.name,
                unit=instrument.unit,
                description=instrument.description,
                explicit_bucket_boundaries_advisory=list(instrument.boundaries or ()),
            )
            histograms.append(histogram)
        self._score, self._duration, self._lag, self._judge_duration = histograms
        for instrument, read in readings.by_instrument.items():
            create = getattr(meter, f"create_observable_{instrument.kind}")
            callback = partial(_observations, read)
            create(
                instrument.name,
                [callback],
                unit=instrument.unit,
                description=instrument.description,
            )

    def record_score(
        self, result: EvaluationResult, scores: dict[str, str] | None, context: Context
    ) -> None:
        """Record one result.

        `scores` are the attributes that `ResultTotals.add` returned, None for skips and
        failures.
        """
        if scores is not None and result.normalized is not None:
            self._score.record(result.normalized, scores, context=context)
        if result.calls_model and result.started_ns is not None and result.ended_ns is not None:
            seconds = max(0, result.ended_ns - result.started_ns) / 1e9
            criterion = self._totals.names.criteria.admit(result.criterion_name)
            self._duration.record(seconds, {names.EVALUATION_NAME: criterion}, context=context)

    def record_run(
        self, response: Any, agent: str | None, context: Context, dimensions: Labels = ()
    ) -> None:
        """Record how long a run took that asked a model, and how long after its answer it ended."""
        if response.started_ns is None or response.ended_ns is None:
            return
        if any(result.calls_model and result.status != "skipped" for result in response.results):
            self._duration.record(
                max(0, response.ended_ns - response.started_ns) / 1e9, context=context
            )
        if response.due_ns is not None:
            lag_s = max(0, response.ended_ns - response.due_ns) / 1e9
            of_agent = {names.AGENT_NAME: agent} if agent else {}
            self._lag.record(lag_s, of_agent | dict(_service_of(dimensions)), context=context)

    def record_judge_call(self, call: JudgeCall, context: Context) -> None:
        bounded = self._totals.bounded
        attributes = {names.JUDGE_MODEL: bounded("model of a judge", call.model) or ""}
        error_type = bounded("outcome of a judge", call.error_type)
        if error_type is not None:
            attributes[names.ERROR_TYPE] = error_type
        self._judge_duration.record(call.duration_s, attributes, context=context)


def _gauge(read: Callable[[], Mapping[str, float]], key: str) -> dict[Labels, float]:
    value = read().get(key)
    return {} if value is None else {(): value}


def _reading(judges: JudgeCounters, name: str) -> Mapping[Labels, float]:
    return {} if judges.health is None else getattr(judges.health, name)()


def _export_signals(reach: Callable[[], Mapping[str, str]]) -> dict[Labels, int]:
    return {
        ((names.EXPORT_SIGNAL, signal), (names.EXPORT_REACH, how)): 1
        for signal, how in reach().items()
    }


def _objective_states(read: Callable[[], ObjectiveStates], at: int) -> dict[Labels, float]:
    states = {_labels(criterion, agent): state[at] for (criterion, agent), state in read().items()}
    return {labels: float(value) for labels, value in states.items() if value is not None}


def _observations(
    read: Callable[[], Mapping[Labels, Any]], _: CallbackOptions
) -> list[Observation]:
    # A copy: the background thread may add to the totals while the exporter reads. The SDK logs each
    # value that is no finite number, and leaves its series out.
    return [
        Observation(value, dict(labels))
        for labels, value in dict(read()).items()
        if math.isfinite(value)
    ]
