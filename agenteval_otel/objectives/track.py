"""Track: detects breach and recovery of one criterion of one agent, by evidence that is valid at
every check.

A rolling rate with its interval is no alarm: a reader who looks often enough sees any rate leave
its interval by chance. This is an e-detector of the Shiryaev-Roberts kind (Shin, Ramdas and
Rinaldo, 2024): a gambler bets a share of his wealth on each verdict, at odds that are fair while
the objective is met, and receives 1 before each. While it is met, his wealth grows by 1 per verdict
on average, so it takes at least A verdicts on average to reach A, however often it is looked at.
Once the objective is breached it grows exponentially.

With `of_last` the detector is simpler: the share of failures among the last `of_last` verdicts,
which also changes by chance.

Weights: a verdict seen with probability p stands for 1/p answers, so the bet on it pays 1/p times
as much. Bets are as small as the least probability demands, so that no gambler can lose more than
his wealth.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import ItemsView
from math import inf, log
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.models import SpanReference
from agenteval_otel.models.intervals import Estimate, WeightedSums
from agenteval_otel.objectives.crossings import ObjectiveCrossing
from agenteval_otel.telemetry.names import NameTable

MAX_TRACKS = 1_024
"""Maximum of watched pairs of criterion and agent, besides those of the operator's own agents."""
LEAST_COUNTED = 1e-9
"""The least probability of a verdict that counts: the squares of weights stay numbers."""
BETS = 0.05, 0.1, 0.2, 0.4
"""Shares of the greatest fair bet; each is the best one against a drop by about that share of the
objective.
"""
SLACK = 0.5
"""How far a probability may lie below the least known one: the greatest bet is 0.4, so no wealth
gets negative.
"""
_LIMIT = 1e280
BLOCK = 1_000
_LEAST_SHOWN_S = 120.0
"""With `of_last` metrics show a breach for at least this long: a short one could otherwise start
and end between two exports, a minute apart, and never trigger a page."""
_UNIT = 2**20  # a weight of 1 in whole numbers


class Evidence:
    """The mean wealth of several gamblers who bet differently; at least 0.

    Args:
        worst: The greatest loss that a bet of 1 can bring at weight 1: 1 - objective for bets on
            "below", the objective for bets on "above".
        enough: The evidence from which `add` returns True; the least mean number of verdicts to a
            false alarm.
    """

    __slots__ = ("_enough", "_wealth", "_worst")

    def __init__(self, *, worst: float, enough: float) -> None:
        self._worst, self._enough = worst, enough * len(BETS)
        self._wealth = [0.0] * len(BETS)

    @property
    def value(self) -> float:
        return sum(self._wealth) / len(BETS)

    @property
    def log_ratio(self) -> float:
        """The natural logarithm of `value` over `enough`: 0 and above is enough; never below that
        of a value of 1.
        """
        return log(max(sum(self._wealth), len(BETS)) / self._enough)

    def add(self, gain: float, share: float = 1.0) -> bool:
        """Bet on one verdict; whether there is enough evidence.

        Args:
            gain: What a bet of 1 brings at weight 1, at least -`worst`; 0 on average while the
                objective is just held.
            share: The least probability of verdicts divided by this one's, above 0 and at most 2.
        """
        # At an objective of 1 a bet on "below" cannot lose, and one failure proves it.
        paid = gain * share / self._worst if self._worst > 0 else (inf if gain > 0 else 0.0)
        # Limited for where too few verdicts were seen for an alarm.
        self._wealth = [
            min((wealth + 1.0) * (1.0 + bet * paid), _LIMIT)
            for wealth, bet in zip(self._wealth, BETS, strict=True)
        ]
        return sum(self._wealth) >= self._enough


class LeastProbability:
    """The least probability of the last thousand or two verdicts: known before each verdict that is
    bet on.

    It is forgotten in blocks, so that one quiet or crowded hour does not make the bets small for
    good.
    """

    __slots__ = ("_count", "_now", "value")

    def __init__(self) -> None:
        self.value = self._now = 1.0
        self._count = 0

    def add(self, probability: float) -> bool:
        """Add one; returns whether it lies so far below the least one that earlier bets were too
        large.
        """
        self._now = min(self._now, probability)
        fell = probability < self.value * SLACK
        if fell:
            self.value = probability
        self._count += 1
        if self._count >= BLOCK:
            self._count, self.value, self._now = 0, self._now, 1.0
        return fell


class LastVerdicts:
    """The share that passes of the last `size` verdicts, each weighted by 1 / its probability.

    Eight bytes a verdict, and the same few steps for each. Its sums are whole numbers: floats would
    drift while millions of verdicts come and go.
    """

    __slots__ = (
        "_at",
        "_passed",
        "_passed_squared",
        "_size",
        "_total",
        "_total_squared",
        "_weights",
    )

    def __init__(self, size: int) -> None:
        self._size = size
        self.clear()

    @property
    def is_full(self) -> bool:
        return len(self._weights) == self._size

    @property
    def share(self) -> float:
        """The weighted share that passes; 1 without verdicts."""
        return self._passed / self._total if self._total else 1.0

    def clear(self) -> None:
        self._weights = array("q")  # below 0 where it failed
        self._at = self._passed = self._passed_squared = self._total = self._total_squared = 0

    def add(self, passed: bool, probability: float) -> None:
        weight = round(_UNIT / probability)
        weight = weight if passed else -weight
        if self.is_full:
            self._sum(self._weights[self._at], -1)
            self._weights[self._at] = weight
        else:
            self._weights.append(weight)
        self._at = (self._at + 1) % self._size
        self._sum(weight, 1)

    def estimate(self) -> Estimate | None:
        """The share with its 95 % interval; None without verdicts."""
        sums = WeightedSums()
        sums.count, sums.w, sums.w2 = len(self._weights), self._total, self._total_squared
        sums.wy, sums.w2y, sums.w2y2 = self._passed, self._passed_squared, self._passed_squared
        return sums.estimate()

    def _sum(self, weight: int, sign: int) -> None:
        self._total += sign * abs(weight)
        self._total_squared += sign * weight * weight
        if weight > 0:
            self._passed += sign * weight
            self._passed_squared += sign * weight * weight


class Objective(NamedTuple):
    """The share of verdicts that should pass, above 0; with `of_last`, of the last so many, chance
    or not.
    """

    share: float
    of_last: int | None = None


class BreachSettings(BaseModel, metaclass=FriendlyErrors):
    """When a criterion counts as below its objective, and as recovered.

    Attributes:
        enabled: False watches no objective in the process: no event, no callback, no page.
        false_alarm_every: At most one false alarm per this many verdicts, on average, if an agent
            just meets the objective. Larger numbers delay alarms: ten times as many verdicts need
            2.3 nats more evidence.
        minimum: Minimum number of verdicts before the first alarm, and between two changes.
        recover_after: Minimum number of verdicts, on average, until an agent at or below the
            objective counts as recovered by chance; if all of its answers pass, it recovers within
            this number.
        window: Number of latest verdicts from which the reported rate is computed.
        remind_s: Seconds until a lasting breach is reported again, with the next verdict; null
            reports it once.
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
    """One result that passed or failed, its inclusion probability, and the least one that it could
    have had.
    """

    passed: bool
    probability: float = 1.0
    least: float = 1.0
    span: SpanReference | None = None
    at_ns: int = 0
    clustered: bool = False


class Track:
    """One criterion of one agent, with an objective above 0. Used by one thread at a time."""

    def __init__(
        self,
        settings: BreachSettings,
        objective: float,
        criterion: str = "",
        agent: str | None = None,
        *,
        of_last: int | None = None,
    ) -> None:
        self._settings, self._objective, self._criterion, self._agent = (
            settings,
            objective,
            criterion,
            agent,
        )
        self._least, self.of_last = LeastProbability(), of_last
        self._last = LastVerdicts(of_last or settings.window)
        self._span: SpanReference | None = None
        self._since_ns = 0
        self._remind_s = inf if settings.remind_s is None else settings.remind_s
        self._remind_at = self._shown_until = 0.0
        self.breached, self._seen = False, 0
        self.evidence = self._new_evidence()

    def add(self, verdict: ObjectiveVerdict, now_s: float) -> ObjectiveCrossing | None:
        """Add a verdict at this time (monotonic seconds); returns the crossing or reminder that it
        causes.
        """
        probability = max(verdict.probability, LEAST_COUNTED)
        self._last.add(verdict.passed, probability)
        if not verdict.passed:
            self._span = verdict.span
        if self.of_last is None:
            may_change = self._has_evidence(verdict, probability)
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
            self.breached, self._seen = not self.breached, 0
            self._since_ns = verdict.at_ns if self.breached else self._since_ns
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
            since_ns=self._since_ns,
            at_ns=verdict.at_ns,
            reminder=not changes,
            clustered=verdict.clustered,
            span=self._span,
        )

    def is_shown(self, now_s: float) -> bool:
        """Whether metrics show a breach at this time (monotonic seconds)."""
        return self.breached or now_s < self._shown_until

    def _has_evidence(self, verdict: ObjectiveVerdict, probability: float) -> bool:
        """Bet on a verdict; whether the evidence suffices for a breach, or for its end."""
        if self._least.add(max(verdict.least, LEAST_COUNTED)):
            self.evidence, self._seen = self._new_evidence(), 0
        self._seen += 1
        below = self._objective - verdict.passed
        enough = self.evidence.add(
            -below if self.breached else below, self._least.value / probability
        )
        return enough and self._seen >= self._settings.minimum

    def _new_evidence(self) -> Evidence:
        """Of a recovery while the objective is breached, else of a breach."""
        if self.breached:
            return Evidence(worst=self._objective, enough=self._settings.recover_after)
        return Evidence(worst=1.0 - self._objective, enough=self._settings.false_alarm_every)


class Tracks:
    """Every track of a process, by agent, criterion and objective; passed from one pipeline to the
    next.

    Args:
        settings: When an objective counts as breached.
        agents: Which agents are watched by their own name.
    """

    def __init__(self, settings: BreachSettings, agents: NameTable | None = None) -> None:
        self.settings, self._agents = settings, agents or NameTable("agent")
        self.reset()

    def __len__(self) -> int:
        return len(self._known)

    def reset(self) -> None:
        """Start anew, with a new lock: a forked child may inherit a taken one."""
        self.lock = threading.RLock()  # a signal handler may call a monitored function meanwhile
        self._known: dict[tuple[str | None, str, Objective], Track] = {}
        self._from_outside = 0

    def items(self) -> ItemsView[tuple[str | None, str, Objective], Track]:
        """Every track by its agent, criterion and objective; under `lock`."""
        return self._known.items()

    def agent(self, name: str | None) -> str | None:
        """Return the agent's name, or ``_other`` where it has no place of its own."""
        if name is None:
            return None
        admitted: str = self._agents.admit(name)
        return admitted

    def of(self, agent: str | None, criterion: str, objective: Objective) -> Track | None:
        """The track; None where agents from outside have too many already."""
        key = (agent, criterion, objective)
        track = self._known.get(key)
        if track is not None:
            return track
        if agent is not None and not self._agents.is_own(agent):
            if self._from_outside >= MAX_TRACKS:
                return None
            self._from_outside += 1
        track = Track(self.settings, objective.share, criterion, agent, of_last=objective.of_last)
        self._known[key] = track
        return track
