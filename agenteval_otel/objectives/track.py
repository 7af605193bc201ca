"""Track: one criterion of one agent, below its objective and back; and all of them, bounded."""

from __future__ import annotations

import threading
from collections import deque
from typing import Literal, NamedTuple

from agenteval_otel.models import SpanReference
from agenteval_otel.objectives.evidence import Evidence, LeastProbability
from agenteval_otel.objectives.settings import BreachSettings
from agenteval_otel.scoring.intervals import Estimate, estimate_of
from agenteval_otel.semconv import MAX_AGENTS, OTHER

MAX_TRACKS = 1_024
"""Maximum of watched pairs of criterion and agent."""
_NEARLY_ZERO = 1e-9
"""The least probability that counts: the squares of weights stay numbers."""


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

    __slots__ = (
        "_least", "_objective", "_recent", "_remind_at", "_seen", "_settings", "_since_ns", "_span", "breached",
        "evidence",
    )  # fmt: skip

    def __init__(self, settings: BreachSettings, objective: float) -> None:
        self._settings, self._objective = settings, objective
        self._least = LeastProbability()
        self._recent: deque[tuple[float, float]] = deque(maxlen=settings.window)
        self._span: SpanReference | None = None
        self._since_ns = 0
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
        if enough and self._seen >= self._settings.minimum:
            change = self._changed(verdict.at_ns, now_s)
            if change is not None:
                return change
        if self.breached and self._settings.remind_s is not None and now_s >= self._remind_at:
            return self._change("breached", now_s, reminder=True)
        return None

    def _changed(self, at_ns: int, now_s: float) -> Change | None:
        estimate = estimate_of(self._recent)
        # A report must not contradict itself: the change waits until the rate lies on its side, which cannot cause a
        # false alarm.
        if estimate is None or (estimate.mean < self._objective) is self.breached:
            return None
        if not self.breached:
            self._since_ns = at_ns
        change = self._change("recovered" if self.breached else "breached", now_s)
        self._turn(breached=not self.breached)
        return change

    def _change(self, kind: Literal["breached", "recovered"], now_s: float, *, reminder: bool = False) -> Change | None:
        estimate = estimate_of(self._recent)
        if estimate is None:
            return None
        self._remind_at = now_s + (self._settings.remind_s or 0.0)
        return Change(kind, estimate, self._since_ns, self._span, reminder)

    def _turn(self, *, breached: bool) -> None:
        self.breached, self._seen = breached, 0
        self._recent.clear()  # the next rate starts from here
        if breached:
            self.evidence = Evidence(worst=self._objective, enough=self._settings.recover_after)
        else:
            self.evidence = Evidence(worst=1.0 - self._objective, enough=self._settings.false_alarm_every)


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
