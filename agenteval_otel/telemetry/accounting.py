"""Accounting: what became of every call, and what broke on the way.

Totals are plain dictionaries that the caller's thread adds one to; observable instruments read them later. On builds
with a global interpreter lock ``cell[outcome] += 1`` on a plain dictionary cannot lose an update: the interpreter
switches threads and runs signal handlers only at calls and jumps, of which the statement has none. No lock, so nothing
can deadlock in a signal handler or a destructor.
"""

from __future__ import annotations

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.semconv import DISABLED, NOT_SAMPLED, OUTCOMES

__all__ = ["Accounting", "Tally"]


class Tally:
    """An agent's calls that go by, for ``tally.disabled += 1``: a third of what a dictionary's entry takes.

    What is said above of the statement on a dictionary holds for it too.
    """

    __slots__ = ("disabled", "not_sampled")

    def __init__(self) -> None:
        self.disabled = self.not_sampled = 0


class Accounting:
    """Outcomes by agent, results by status, failures by the part that broke. Cheap to add to, from any thread."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, int]] = {}
        self._tallies: dict[str, Tally] = {}
        self.results: dict[str, int] = {"scored": 0, "skipped": 0, "failed": 0}
        self.failures: dict[str, int] = {}
        reset_in_child(self.reset)

    def __repr__(self) -> str:
        shown = ", ".join(f"{outcome}={count}" for outcome, count in self.outcomes().items() if count)
        return f"<Accounting {shown or 'no calls'}>"

    def cell(self, agent: str) -> dict[str, int]:
        """The agent's outcomes, for ``cell[outcome] += 1``; the same dictionary every time."""
        known = self._cells.get(agent)
        return self._cells.setdefault(agent, dict.fromkeys(OUTCOMES, 0)) if known is None else known

    def tally(self, agent: str) -> Tally:
        """The agent's calls that go by, counted beside its cell; the same object every time."""
        self.cell(agent)
        return self._tallies.setdefault(agent, Tally())

    def fail(self, part: str, times: int = 1) -> int:
        """Count that a part, ours or the user's, broke (``sampler``, ``storage:json_file``); gives the new total."""
        # In two steps, as above: several threads meet here, and a call between the load and the store loses counts.
        self.failures.setdefault(part, 0)
        self.failures[part] += times
        return self.failures[part]

    def outcomes(self) -> dict[str, int]:
        """Calls by outcome, every outcome named; at rest they add up to the calls."""
        cells = list(self.by_agent().values())
        return {outcome: sum(cell[outcome] for cell in cells) for outcome in OUTCOMES}

    def by_agent(self) -> dict[str, dict[str, int]]:
        """Outcomes of each agent."""
        # `copy` is one step; a list of the items allocates, and the collector may let an agent be registered meanwhile.
        found = {agent: dict(cell) for agent, cell in self._cells.copy().items()}
        for agent, outcomes in found.items():
            if (tally := self._tallies.get(agent)) is not None:
                outcomes[DISABLED] += tally.disabled
                outcomes[NOT_SAMPLED] += tally.not_sampled
        return found

    def reset(self) -> None:
        """Back to zero, in place: a forked child starts its own count."""
        for cell in self._cells.values():
            cell.update(dict.fromkeys(OUTCOMES, 0))
        for tally in self._tallies.values():
            tally.disabled = tally.not_sampled = 0
        self.results.update(dict.fromkeys(self.results, 0))
        self.failures.clear()
