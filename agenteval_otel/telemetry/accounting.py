"""Accounting: the outcome of every call, and what broke.

No lock, which could deadlock in a signal handler: with a global interpreter lock ``counts[outcome] += 1`` cannot lose
an update, because threads switch and signal handlers run only at calls and jumps.
"""

from __future__ import annotations

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.semconv import DISABLED, NOT_SAMPLED, OUTCOMES


class FastCounters:
    """An agent's calls that are not evaluated, for ``counters.disabled += 1``: a third of a dictionary entry's time."""

    __slots__ = ("disabled", "not_sampled")

    def __init__(self) -> None:
        self.disabled = self.not_sampled = 0


class Accounting:
    """Outcomes by agent, results by status, failures by the part that broke. Cheap to add to, from any thread."""

    def __init__(self) -> None:
        self._outcomes: dict[str, dict[str, int]] = {}
        self._fast: dict[str, FastCounters] = {}
        self.results: dict[str, int] = {"scored": 0, "skipped": 0, "failed": 0}
        self.failures: dict[str, int] = {}
        reset_in_child(self.reset)

    def __repr__(self) -> str:
        shown = ", ".join(f"{outcome}={count}" for outcome, count in self.outcomes().items() if count)
        return f"<Accounting {shown or 'no calls'}>"

    def outcome_counts(self, agent: str) -> dict[str, int]:
        """The agent's outcomes, for ``counts[outcome] += 1``; the same dictionary every time."""
        return self._outcomes.get(agent) or self._outcomes.setdefault(agent, dict.fromkeys(OUTCOMES, 0))

    def fast_counters(self, agent: str) -> FastCounters:
        """The agent's calls that are not evaluated, counted beside its outcomes; the same object every time."""
        self.outcome_counts(agent)
        return self._fast.setdefault(agent, FastCounters())

    def fail(self, part: str, times: int = 1) -> int:
        """Count that a part, ours or the user's, broke (``sampler``, ``storage:json_file``); returns the new total."""
        # In two steps, as above: several threads meet here, and a call between the load and the store loses counts.
        self.failures.setdefault(part, 0)
        self.failures[part] += times
        return self.failures[part]

    def outcomes(self) -> dict[str, int]:
        """Calls by outcome, every outcome named; at rest they add up to the calls."""
        agents = list(self.by_agent().values())
        return {outcome: sum(counts[outcome] for counts in agents) for outcome in OUTCOMES}

    def by_agent(self) -> dict[str, dict[str, int]]:
        # `copy` is one step: an agent may be registered meanwhile.
        counts_by_agent = {agent: dict(counts) for agent, counts in self._outcomes.copy().items()}
        for agent, outcomes in counts_by_agent.items():
            if (counters := self._fast.get(agent)) is not None:
                outcomes[DISABLED] += counters.disabled
                outcomes[NOT_SAMPLED] += counters.not_sampled
        return counts_by_agent

    def reset(self) -> None:
        """Back to zero, in place: a forked child starts its own count."""
        for counts in (*self._outcomes.values(), self.results):
            counts.update(dict.fromkeys(counts, 0))
        for counters in self._fast.values():
            counters.disabled = counters.not_sampled = 0
        self.failures.clear()
