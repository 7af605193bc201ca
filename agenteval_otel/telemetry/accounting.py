"""Accounting: the outcome of every call, and what broke.

No lock, which could deadlock in a signal handler: with a global interpreter lock
``counts[outcome] += 1`` cannot lose an update, because threads switch and signal handlers run only
at calls and jumps.
"""

from __future__ import annotations

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.text import sanitise
from agenteval_otel.semconv import (
    CONVERSATION_OUTCOMES,
    DISABLED,
    MAX_SCOPE_CHARS,
    MAX_SCOPES,
    NOT_SAMPLED,
    OTHER,
    OUTCOMES,
    REQUEST_OUTCOMES,
    SPANS_LOST,
    SPANS_NOT_UNDERSTOOD,
    SPANS_OUTCOMES,
)
from agenteval_otel.telemetry.names import Names

Labels = tuple[tuple[str, str], ...]
"""Attributes of a metric's point, by name."""
Detail = tuple[str, str]
"""An outcome, and what is known of it besides."""


class FastCounters:
    """Holds the counters of an agent's calls that are not evaluated.

    ``counters.disabled += 1`` takes a third of a dictionary entry's time.
    """

    __slots__ = ("disabled", "not_sampled")

    def __init__(self) -> None:
        self.disabled = self.not_sampled = 0


class Accounting:
    """Outcomes by agent, results by status, failures by the part that broke.

    Cheap to add to, from any thread.

    Agents and services that have no place in `names` count together under ``_other``.

    Attributes:
        names: The tables of the names that come from outside.
        not_understood: Spans of no known dialect, by their scope. Beyond the number of scopes that
            are kept apart, spans count under ``_other``.
    """

    def __init__(self) -> None:
        self.names = Names()
        # By agent, and by the attributes of the service where that is another one.
        self._outcomes: dict[tuple[str, Labels], dict[str, int]] = {}
        self._fast: dict[tuple[str, Labels], FastCounters] = {}
        self._details: dict[tuple[str, Labels], dict[Detail, int]] = {}
        self.results: dict[str, int] = {"scored": 0, "skipped": 0, "failed": 0}
        self.failures: dict[str, int] = {}
        self._spans: dict[str, int] = {}
        self.not_understood: dict[str, int] = {}
        self._conversations: dict[str, dict[str, int]] = {}
        self._requests: dict[str, int] = {}
        reset_in_child(self.reset)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{outcome}={count}" for outcome, count in self.outcomes().items() if count
        )
        return f"<Accounting {shown or 'no calls'}>"

    def outcome_counts(self, agent: str, origin: Labels = ()) -> dict[str, int]:
        """Return the agent's outcomes, for ``counts[outcome] += 1``.

        A name that has a place gets the same dictionary every time.

        `origin` are the attributes of the service that the agent is part of, where that is not this
        process.
        """
        return self._counts_at(self.names.place(agent, origin))

    def _counts_at(self, place: tuple[str, Labels]) -> dict[str, int]:
        counts = self._outcomes.get(place)
        return counts or self._outcomes.setdefault(place, dict.fromkeys(OUTCOMES, 0))

    def fast_counters(self, agent: str, origin: Labels = ()) -> FastCounters:
        """Return the counters of the agent's calls that are not evaluated.

        They are counted beside its outcomes. The object is the same every time.
        """
        place = self.names.place(agent, origin)
        self._counts_at(place)
        counters = self._fast.get(place)
        return counters or self._fast.setdefault(place, FastCounters())

    def count_detail(self, agent: str, origin: Labels, outcome: str, detail: str) -> None:
        """Count a call whose outcome has a detail: what `semconv.DETAILS` says of it."""
        place = self.names.place(agent, origin)
        self._counts_at(place)
        details = self._details.get(place) or self._details.setdefault(place, {})
        details.setdefault((outcome, detail), 0)
        details[outcome, detail] += 1

    def details(self) -> dict[tuple[str, Labels], dict[Detail, int]]:
        """Return the calls whose outcome has a detail.

        They are by agent and origin, then by outcome and detail.
        """
        return {key: dict(counts) for key, counts in self._details.copy().items()}

    def conversation_counts(self, agent: str) -> dict[str, int]:
        """Return the agent's closed conversations by outcome.

        The turns of a conversation are still counted as calls.
        """
        agent = self.names.agents.admit(agent)
        counts = self._conversations.get(agent)
        return counts or self._conversations.setdefault(
            agent, dict.fromkeys(CONVERSATION_OUTCOMES, 0)
        )

    def conversations(self) -> dict[tuple[str, Labels], dict[str, int]]:
        """Return the closed conversations by agent, whatever its origin, then by outcome."""
        return {(agent, ()): dict(counts) for agent, counts in self._conversations.copy().items()}

    def count_request(self, outcome: str) -> None:
        """Count a request for an evaluation by one of `REQUEST_OUTCOMES`."""
        self._requests.setdefault(outcome, 0)
        self._requests[outcome] += 1

    def requests(self) -> dict[str, int]:
        """Return the requests for an evaluation by outcome, with every outcome.

        Empty if there was no request.
        """
        if not self._requests:
            return {}
        return {outcome: self._requests.get(outcome, 0) for outcome in REQUEST_OUTCOMES}

    def fail(self, part: str, times: int = 1) -> int:
        """Count a failure of a part, ours or the user's (``sampler``, ``storage:json_file``).

        Return the new total.
        """
        # In two steps, as above: several threads meet here, and a call between the load and the
        # store loses counts.
        self.failures.setdefault(part, 0)
        self.failures[part] += times
        return self.failures[part]

    def count_spans(self, outcome: str, count: int, scope: str = "") -> None:
        """Count spans that ended in this one of `SPANS_OUTCOMES`. A count of 0 or less is ignored.

        Spans that were lost are counted as failures. Spans that are not understood are counted by
        their scope.
        """
        if count <= 0:
            return
        if outcome in SPANS_LOST:
            self.fail(f"spans:{outcome}", count)
            return
        totals = self._spans
        key = outcome
        if outcome == SPANS_NOT_UNDERSTOOD:
            totals = self.not_understood
            key = sanitise(scope[:MAX_SCOPE_CHARS]) or "unknown"
            if key not in totals and len(totals) >= MAX_SCOPES:
                key = OTHER
        totals.setdefault(key, 0)
        totals[key] += count

    def spans(self) -> dict[str, int]:
        """Return the spans of other libraries by outcome, with every outcome.

        Empty if no span was read.
        """
        were_read = bool(self._spans or self.not_understood)
        if not were_read and not any(key.startswith("spans:") for key in self.failures):
            return {}
        totals = {outcome: self._spans.get(outcome, 0) for outcome in SPANS_OUTCOMES}
        totals |= {outcome: self.failures.get(f"spans:{outcome}", 0) for outcome in SPANS_LOST}
        totals[SPANS_NOT_UNDERSTOOD] = sum(self.not_understood.copy().values())
        return totals

    def outcomes(self) -> dict[str, int]:
        """Return the calls by outcome, with every outcome. At rest they add up to the calls."""
        agents = list(self.by_origin().values())
        return {outcome: sum(counts[outcome] for counts in agents) for outcome in OUTCOMES}

    def by_agent(self) -> dict[str, dict[str, int]]:
        """Return the calls by agent, then by outcome."""
        totals: dict[str, dict[str, int]] = {}
        for (agent, _), outcomes in self.by_origin().items():
            of_agent = totals.setdefault(agent, dict.fromkeys(OUTCOMES, 0))
            for outcome, count in outcomes.items():
                of_agent[outcome] += count
        return totals

    def by_origin(self) -> dict[tuple[str, Labels], dict[str, int]]:
        """Return the calls by agent and origin, then by outcome."""
        counts_by_origin = self.by_origin_without_details()
        for key, details in self.details().items():
            for (outcome, _), count in details.items():
                counts_by_origin[key][outcome] += count
        return counts_by_origin

    def by_origin_without_details(self) -> dict[tuple[str, Labels], dict[str, int]]:
        """Return the calls by agent and origin, then by outcome.

        Calls whose outcome has a detail are left out.
        """
        # `copy` is one step: an agent may be registered meanwhile.
        counts_by_origin = {key: dict(counts) for key, counts in self._outcomes.copy().items()}
        for key, outcomes in counts_by_origin.items():
            if (counters := self._fast.get(key)) is not None:
                outcomes[DISABLED] += counters.disabled
                outcomes[NOT_SAMPLED] += counters.not_sampled
        return counts_by_origin

    def reset(self) -> None:
        """Set everything back to zero, in place. A forked child starts its own count."""
        for counts in (*self._outcomes.values(), *self._conversations.values(), self.results):
            counts.update(dict.fromkeys(counts, 0))
        for counters in self._fast.values():
            counters.disabled = counters.not_sampled = 0
        for totals in (
            self.failures,
            self._spans,
            self.not_understood,
            self._details,
            self._requests,
        ):
            totals.clear()
