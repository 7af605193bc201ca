"""Track: one criterion of one agent, below its objective and back; all of them, bounded; and when that is reported."""

from __future__ import annotations

import threading
from collections import deque
from math import inf
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.models import SpanReference
from agenteval_otel.objectives.evidence import Evidence, LeastProbability
from agenteval_otel.scoring.intervals import Estimate, estimate_of
from agenteval_otel.semconv import MAX_AGENTS, OTHER

MAX_TRACKS = 1_024
"""Maximum of watched pairs of criterion and agent."""
_NEARLY_ZERO = 1e-9
"""The least probability that counts: the squares of weights stay numbers."""


class BreachSettings(BaseModel, metaclass=FriendlyErrors):
    """When a criterion counts as below its objective, and as recovered: docs/thresholds.md.

    Attributes:
        enabled: False watches no objective in the process: no event, no callback.
        false_alarm_every: Mean number of verdicts, at least, between two false alarms of a criterion of an agent that
            just meets its objective. A larger number alarms later.
        minimum: Verdicts before the first alarm, and from each change to the next.
        recover_after: Mean number of verdicts, at least, before an agent that stays at the objective or below it counts
            as recovered; one whose answers all pass recovers after at most so many.
        window: The reported rate is that of the last so many verdicts.
        remind_s: A lasting breach is reported again after so many seconds, with the next verdict; null reports it once.
        timeout_s: Time limit of one call of `on_breach` or `on_recovery`, in seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    enabled: bool = True
    false_alarm_every: int = Field(default=10_000, ge=100)
    minimum: int = Field(default=20, ge=1)
    recover_after: int = Field(default=300, ge=20)
    window: int = Field(default=50, ge=10, le=10_000)
    remind_s: float | None = Field(default=14_400.0, gt=0)
    timeout_s: float = Field(default=10.0, gt=0, le=600)


class Verdict(NamedTuple):
    """One result that passed or failed.

    Attributes:
        probability: Inclusion probability, above 0 to 1.
        least: The least one that a verdict of this criterion could have had at that time, as far as known.
        span: The evaluated span.
        at_ns: Time of the verdict, nanoseconds since the epoch.
    """

    passed: bool
    probability: float = 1.0
    least: float = 1.0
    span: SpanReference | None = None
    at_ns: int = 0


class Change(NamedTuple):
    """What a verdict has changed, and the rate at that time.

    Attributes:
        since_ns: When the breach was detected.
        span: The evaluated span of the last verdict that failed.
    """

    kind: Literal["breached", "recovered"]
    estimate: Estimate
    since_ns: int
    span: SpanReference | None
    reminder: bool = False


class Track:
    """One criterion of one agent. Used by one thread at a time.

    Args:
        objective: Above 0, at most 1: nothing lies below 0.
    """

    def __init__(self, settings: BreachSettings, objective: float) -> None:
        self._settings, self._objective = settings, objective
        self._least = LeastProbability()
        self._recent: deque[tuple[float, float]] = deque(maxlen=settings.window)
        self._span: SpanReference | None = None
        self._since_ns = 0
        self._remind_s = inf if settings.remind_s is None else settings.remind_s
        self._remind_at = 0.0
        self.evidence = Evidence(worst=1.0 - objective, enough=settings.false_alarm_every)
        self.breached, self._seen = False, 0

    def __repr__(self) -> str:
        return f"<Track {'breached' if self.breached else 'met'} {self._objective:g} {self.evidence!r}>"

    def add(self, verdict: Verdict, now_s: float) -> Change | None:
        """Add a verdict; returns what it has changed.

        Args:
            verdict: A result that passed or failed.
            now_s: Monotonic seconds.
        """
        probability = max(verdict.probability, _NEARLY_ZERO)
        self._recent.append((1.0 if verdict.passed else 0.0, 1.0 / probability))
        if not verdict.passed:
            self._span = verdict.span
        if self._least.add(max(verdict.least, _NEARLY_ZERO)):
            self.evidence.restart()
            self._seen = 0
        self._seen += 1
        below = self._objective - verdict.passed
        enough = self.evidence.add(-below if self.breached else below, self._least.value / probability)
        may_change = enough and self._seen >= self._settings.minimum
        is_reminder_due = self.breached and now_s >= self._remind_at
        estimate = estimate_of(self._recent) if may_change or is_reminder_due else None
        if estimate is None:
            return None
        # A report must not contradict itself: the change waits until the rate lies on its side, which cannot cause a
        # false alarm.
        if may_change and (estimate.mean < self._objective) is not self.breached:
            return self._change(estimate, verdict.at_ns, now_s)
        if not is_reminder_due:
            return None
        self._remind_at = now_s + self._remind_s
        return Change("breached", estimate, self._since_ns, self._span, reminder=True)

    def _change(self, estimate: Estimate, at_ns: int, now_s: float) -> Change:
        self.breached, self._seen = not self.breached, 0
        self._recent.clear()
        if self.breached:
            self._since_ns, self._remind_at = at_ns, now_s + self._remind_s
            self.evidence = Evidence(worst=self._objective, enough=self._settings.recover_after)
        else:
            self.evidence = Evidence(worst=1.0 - self._objective, enough=self._settings.false_alarm_every)
        return Change("breached" if self.breached else "recovered", estimate, self._since_ns, self._span)


class Tracks:
    """Every track of a process, by agent, criterion and objective; passed from one pipeline to the next."""

    def __init__(self, settings: BreachSettings) -> None:
        self.settings = settings
        self.reset()

    def __repr__(self) -> str:
        return f"<Tracks {len(self._known)}>"

    def __len__(self) -> int:
        return len(self._known)

    def reset(self) -> None:
        """Start anew, with a new lock: a forked child may inherit a taken one."""
        self.lock = threading.RLock()  # a signal handler may call a monitored function meanwhile
        self._known: dict[tuple[str | None, str, float], Track] = {}
        self._agents: set[str] = set()

    def agent(self, name: str | None) -> str | None:
        """The agent's name, or ``_other`` once too many were seen."""
        if name is None or name in self._agents:
            return name
        if len(self._agents) >= MAX_AGENTS:
            return OTHER
        self._agents.add(name)
        return name

    def of(self, agent: str | None, criterion: str, objective: float) -> Track | None:
        """The track; None where there are too many already."""
        key = (agent, criterion, objective)
        track = self._known.get(key)
        if track is None and len(self._known) < MAX_TRACKS:
            track = self._known[key] = Track(self.settings, objective)
        return track
