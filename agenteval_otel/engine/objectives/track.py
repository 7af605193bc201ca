"""Track: detects breach and recovery of one criterion of one agent.

Its evidence is valid at every check (`evidence`).

With `of_last` the detector is simpler: the share of failures among the last `of_last` verdicts,
which also changes by chance.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import ItemsView
from math import inf
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.engine.objectives.crossings import ObjectiveCrossing
from agenteval_otel.engine.objectives.evidence import Evidence, LeastProbability, UnitSize
from agenteval_otel.engine.objectives.shared_evidence import SharedEvidence, SharedSums
from agenteval_otel.models import SpanReference
from agenteval_otel.models.intervals import Estimate, UnitSums
from agenteval_otel.telemetry.names import NameTable

MAX_TRACKS = 1_024
"""Maximum of watched pairs of criterion and agent, besides those of the operator's own agents."""
MAX_SHARED = 32
"""Of these, so many also count in the evidence that processes share: each has fourteen series."""
LEAST_COUNTED = 1e-9
"""The least probability of a verdict that counts: the squares of weights stay numbers."""
_MANY_OF_ONE = 1_000
_LEAST_SHOWN_S = 120.0
"""With `of_last` metrics show a breach for at least this long: a short one could otherwise start
and end between two exports, a minute apart, and never trigger a page."""
_UNIT = 2**20  # a weight of 1 in whole numbers


class LastVerdicts:
    """Computes the share that passes of the last `size` verdicts.

    Each verdict is weighted by 1 / its probability.

    It takes sixteen bytes a verdict, and the same few steps for each. Its sums are whole numbers:
    floats would drift while millions of verdicts come and go.
    """

    __slots__ = ("_at", "_passed", "_size", "_total", "_units", "_weights")

    def __init__(self, size: int) -> None:
        self._size = size
        self.clear()

    @property
    def is_full(self) -> bool:
        return len(self._weights) == self._size

    @property
    def share(self) -> float:
        """Return the weighted share that passes. It is 1 without verdicts."""
        return self._passed / self._total if self._total else 1.0

    def clear(self) -> None:
        self._weights = array("q")  # below 0 where it failed
        self._units = array("q")  # of each, as a number; 0 for one that depends on no other
        self._at = self._passed = self._total = 0

    def add(self, passed: bool, probability: float, unit: int | None = None) -> None:
        weight = round(_UNIT / probability)
        if not passed:
            weight = -weight
        if self.is_full:
            self._sum(self._weights[self._at], -1)
            self._weights[self._at] = weight
            self._units[self._at] = unit or 0
        else:
            self._weights.append(weight)
            self._units.append(unit or 0)
        self._at = (self._at + 1) % self._size
        self._sum(weight, 1)

    def estimate(self) -> Estimate | None:
        """Return the share with its 95 % interval by units, or None without verdicts."""
        sums = UnitSums()
        for weight, unit in zip(self._weights, self._units, strict=True):
            sums.add(float(weight > 0), abs(weight) / _UNIT, unit or None)
        return sums.estimate()

    def _sum(self, weight: int, sign: int) -> None:
        self._total += sign * abs(weight)
        if weight > 0:
            self._passed += sign * weight


class Objective(NamedTuple):
    """Holds the share of verdicts that should pass, above 0.

    Attributes:
        of_last: Of the last so many, chance or not.
        independent: Verdicts of one conversation count as if they were of several.
    """

    share: float
    of_last: int | None = None
    independent: bool = False


class BreachSettings(BaseModel, metaclass=FriendlyErrors):
    """When a criterion counts as below its objective, and as recovered.

    Attributes:
        enabled: False watches no objective in the process: no event, no callback, no page.
        false_alarm_every: At most one false alarm per this many verdicts, on average, if an agent
            just meets the objective. Larger numbers delay alarms: ten times as many verdicts need
            2.3 nats more evidence.
        minimum: Minimum number of verdicts before the first alarm, and between two changes.
        recover_after: Minimum number of verdicts, on average, until an agent at or below the
            objective counts as recovered by chance. If all of its answers pass, it recovers within
            this number.
        window: Number of latest verdicts from which the reported rate is computed.
        remind_s: Seconds until a lasting breach is reported again, with the next verdict. With null
            it is reported once.
        timeout_s: Time limit of one call of an async `on_breach` or `on_recovery`, in seconds.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    enabled: bool = True
    false_alarm_every: int = Field(default=20_000_000, ge=100)
    minimum: int = Field(default=10, ge=1)
    recover_after: int = Field(default=1_000, ge=20)
    window: int = Field(default=50, ge=10, le=10_000)
    remind_s: float | None = Field(default=14_400.0, gt=0)
    timeout_s: float = Field(default=10.0, gt=0, le=600)


class ObjectiveVerdict(NamedTuple):
    """Holds one result that passed or failed.

    Attributes:
        probability: Its inclusion probability.
        least: The least one that it could have had.
        unit: The conversation, else the trace, that it is of.
        cause: The code of the reason why it failed.
    """

    passed: bool
    probability: float = 1.0
    least: float = 1.0
    span: SpanReference | None = None
    at_ns: int = 0
    clustered: bool = False
    unit: str | None = None
    cause: str | None = None


class Track:
    """Watches one criterion of one agent, with an objective above 0.

    It is used by one thread at a time.
    """

    def __init__(
        self,
        settings: BreachSettings,
        objective: float,
        criterion: str = "",
        agent: str | None = None,
        *,
        of_last: int | None = None,
        independent: bool = False,
        shared: SharedEvidence | None = None,
    ) -> None:
        self._settings = settings
        self._objective = objective
        self._criterion = criterion
        self._agent = agent
        self._least = LeastProbability()
        self._size = UnitSize()
        self.of_last = of_last
        self._is_independent = independent
        self._repeats = False
        self._shared = shared
        self._last = LastVerdicts(of_last or settings.window)
        self._span: SpanReference | None = None
        self._since_ns = 0
        self._remind_s = inf if settings.remind_s is None else settings.remind_s
        self._remind_at = self._shown_until = 0.0
        self.breached = False
        self._seen = 0
        self.evidence = self._new_evidence()

    def add(self, verdict: ObjectiveVerdict, now_s: float) -> ObjectiveCrossing | None:
        """Add a verdict at this time (monotonic seconds).

        Return the crossing or reminder that it causes.
        """
        probability = max(verdict.probability, LEAST_COUNTED)
        # As a number: ids may be long.
        unit = None if verdict.unit is None else hash(verdict.unit)
        self._last.add(verdict.passed, probability, unit)
        if not verdict.passed:
            self._span = verdict.span
        if self.of_last is None:
            may_change = self._has_evidence(verdict, probability, unit, now_s)
        else:
            may_change = self._last.is_full or self._objective >= 1.0
        # The change is delayed until the reported rate is consistent with it, which cannot cause a
        # false alarm.
        changes = may_change and (self._last.share < self._objective) is not self.breached
        is_reminder_due = self.breached and now_s >= self._remind_at
        estimate = self._last.estimate() if changes or is_reminder_due else None
        if estimate is None:
            return None
        if changes:
            self.breached = not self.breached
            self._seen = 0
            if self.breached:
                self._since_ns = verdict.at_ns
            self.evidence = self._new_evidence()
            if self.of_last is None:
                self._last.clear()
            elif self.breached:
                self._shown_until = now_s + _LEAST_SHOWN_S
        self._remind_at = now_s + self._remind_s
        return ObjectiveCrossing(
            kind="breached" if self.breached else "recovered",
            criterion=self._criterion,
            agent=self._agent,
            objective=self._objective,
            rate=estimate.mean,
            low=estimate.low,
            high=estimate.high,
            count=estimate.scores,
            units=estimate.units,
            since_ns=self._since_ns,
            at_ns=verdict.at_ns,
            reminder=not changes,
            clustered=verdict.clustered,
            span=self._span,
        )

    def begins_to_repeat(self) -> bool:
        """Tell whether a thousand verdicts have now come of conversations that were known before.

        Hardly anything is learnt from them. It is True once, until a conversation begins.
        """
        repeats = self._size.repeated >= _MANY_OF_ONE
        before = self._repeats
        self._repeats = repeats
        return repeats and not before

    def is_shown(self, now_s: float) -> bool:
        """Tell whether metrics show a breach at this time (monotonic seconds)."""
        return self.breached or now_s < self._shown_until

    def settle(self, now_s: float) -> None:
        """Book what is due by this time (monotonic seconds) in the evidence that processes share."""
        if self._shared is not None:
            self._shared.settle(now_s)

    def _has_evidence(
        self, verdict: ObjectiveVerdict, probability: float, unit: int | None, now_s: float
    ) -> bool:
        """Bet on a verdict. Return whether the evidence suffices for a breach, or for its end."""
        if self._least.add(max(verdict.least, LEAST_COUNTED)):
            self.evidence = self._new_evidence()
            self._seen = 0
        self._seen += 1
        below = self._objective - verdict.passed
        share = self._least.value / probability
        cause = verdict.cause
        if self._is_independent:
            unit = cause = None
        if self._shared is not None:
            self._shared.add(below, share, now_s, unit=unit, cause=cause)
        if self.breached:
            # One small bet on each turn, all of them as large as one on a conversation. Turns that
            # have not come would count as failed, and keep an agent with many conversations from
            # recovering.
            enough = self.evidence.add(-below, share / self._size.value)
        else:
            enough = self.evidence.add(
                below, share, unit=unit, cause=cause, at_s=verdict.at_ns / 1e9
            )
        return enough and self._seen >= self._settings.minimum

    def _new_evidence(self) -> Evidence:
        """Return evidence of a recovery while the objective is breached, else of a breach."""
        if self.breached:
            worst = self._objective
            enough = self._settings.recover_after
        else:
            worst = 1.0 - self._objective
            enough = self._settings.false_alarm_every
        return Evidence(worst=worst, enough=enough, size=self._size)


class Tracks:
    """Keeps every track of a process, by agent, criterion and objective.

    It is passed from one pipeline to the next.

    Args:
        settings: When an objective counts as breached.
        agents: Which agents are watched by their own name.
    """

    def __init__(self, settings: BreachSettings, agents: NameTable | None = None) -> None:
        self.settings = settings
        self._agents = agents or NameTable("agent")
        self.reset()

    def __len__(self) -> int:
        return len(self._known)

    def reset(self) -> None:
        """Start anew, with a new lock: a forked child may inherit a taken one."""
        self.lock = threading.RLock()  # a signal handler may call a monitored function meanwhile
        self._known: dict[tuple[str | None, str, Objective], Track] = {}
        self._sums: dict[tuple[str, str | None], SharedSums] = {}
        self._from_outside = 0

    def items(self) -> ItemsView[tuple[str | None, str, Objective], Track]:
        """Return every track by its agent, criterion and objective. The caller holds `lock`."""
        return self._known.items()

    def agent(self, name: str | None) -> str | None:
        """Return the agent's name, or ``_other`` where it has no place of its own."""
        if name is None:
            return None
        admitted: str = self._agents.admit(name)
        return admitted

    def shared_sums(self, now_s: float) -> dict[tuple[str, str | None], SharedSums]:
        """Return what processes share by criterion and agent, at this time (monotonic seconds).

        The caller holds `lock`. Several objectives of one criterion have the same sums, and
        a reload keeps them: none may fall.
        """
        for track in self._known.values():
            track.settle(now_s)
        return self._sums

    def of(
        self, agent: str | None, criterion: str, objective: Objective, now_s: float = 0.0
    ) -> Track | None:
        """Return the track, or None if agents from outside have too many already.

        `now_s` is the time (monotonic seconds).
        """
        key = (agent, criterion, objective)
        track = self._known.get(key)
        if track is not None:
            return track
        shares = objective.of_last is None and objective.share < 1.0
        if agent is not None and not self._agents.is_own(agent):
            if self._from_outside >= MAX_TRACKS:
                return None
            self._from_outside += 1
            shares = shares and self._from_outside <= MAX_SHARED
        shared = None
        if shares:
            sums = self._sums.setdefault((criterion, agent), SharedSums(now_s))
            shared = SharedEvidence(sums, worst=1.0 - objective.share)
        track = Track(
            self.settings,
            objective.share,
            criterion,
            agent,
            of_last=objective.of_last,
            independent=objective.independent,
            shared=shared,
        )
        self._known[key] = track
        return track
