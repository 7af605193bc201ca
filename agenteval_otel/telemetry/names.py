"""Names that come from outside, in tables of a fixed size.

Nothing that a client makes up takes the place of a name of the operator's, and no number of such
names fills the memory.

There is one table for each kind of name. In a table the operator's own names (of the settings, of
decorators, of evaluators) always have their place. Some others have one too: the first of them at
once, later ones when they have come often. The rest shares ``_other``. Who has a place keeps it
until the process ends, for three reasons that docs/decisions/0002-counting-and-names.md explains.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, Literal

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.semconv import ENVIRONMENT, OTHER, SERVICE_NAME

Kind = Literal["agent", "service", "environment", "model", "criterion", "origin"]
Origin = tuple[tuple[str, str], ...]

MAX_NAMES: Final = 2_000
MAX_SERIES: Final = 2_000
_SERIES_OF_NAME: Final = 25
"""About how many series an agent has: 12 outcomes, ten of one criterion with verdicts, the lag."""
_OFTEN: Final = 32
"""How often a name has to be looked up to get a place in the second half of a table. An answer
looks its names up two to four times.
"""
_KIND_OF: Final[dict[str, Kind]] = {SERVICE_NAME: "service", ENVIRONMENT: "environment"}


class NameTable:
    """The names of one kind. Any thread, without a lock: two threads may overstep a limit by one.

    Args:
        kind: What they name, for the log line.
        reserves: Keep the second half of the places for names that come often. Without it the
            first names get all of them.
        warns: Log the first name that finds no place.

    Attributes:
        places: How many names besides the operator's own have a place.
        remembered: How many names without a place are remembered, the latest looked up, with how
            often they came.
        turned_away: How often a name was looked up and got ``_other``.
    """

    def __init__(
        self,
        kind: str,
        *,
        places: int = MAX_SERIES // _SERIES_OF_NAME,
        remembered: int = MAX_NAMES,
        reserves: bool = True,
        warns: bool = True,
    ) -> None:
        self._kind = kind
        self._reserves = reserves
        self._warns = warns
        self.places = places
        self.remembered = remembered
        self.turned_away = 0
        self._own: set[Any] = {OTHER}
        self._placed: set[Any] = set()
        self._seen: OrderedDict[Any, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<NameTable {self._kind} own={len(self._own)} placed={len(self._placed)}>"

    def is_own(self, name: object) -> bool:
        """Tell whether the operator gave this name. ``_other`` counts as the operator's."""
        return name in self._own

    def know(self, names: Iterable[Any]) -> None:
        """Give the operator's own names their place."""
        self._own.update(names)

    def know_code(self, name: object) -> None:
        """Give a name of the application's code its place.

        Names get none once the code has made them up by the thousand.
        """
        if len(self._own) <= self.remembered:
            self._own.add(name)

    def admit(self, name: object) -> Any:
        """Return the name if it has a place or gets one now, else ``_other``."""
        if name in self._own or name in self._placed:
            return name
        times = self._seen.pop(name, 0) + 1
        open_to_all = self.places
        if self._reserves:
            open_to_all -= self.places // 2
        taken = len(self._placed)
        if taken < open_to_all or (taken < self.places and times >= _OFTEN):
            self._placed.add(name)
            return name
        if self._reserves:
            self._seen[name] = times
            if len(self._seen) > self.remembered:
                self._seen.popitem(last=False)
        self.turned_away += 1
        if self.turned_away == 1 and self._warns:
            log.warning("names_overflow", part=self._kind, places=self.places)
        return OTHER


class Names:
    """The tables of a process: one for each kind of name that comes from outside.

    Attributes:
        max_series: How many series of results the names without the operator's word may have.
    """

    def __init__(self) -> None:
        self.max_series = MAX_SERIES
        self.agents = NameTable("agent")
        self.services = NameTable("service")
        self.environments = NameTable("environment")
        self.models = NameTable("model")
        self.criteria = NameTable("criterion")
        self._origins = NameTable("origin")
        self._origins_of_own = NameTable("origin")
        self.criteria.know(["user_feedback"])  # `record_feedback` calls it so by default
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<Names {self.agents!r} {self.criteria!r}>"

    def _reset(self) -> None:
        for table in self._every():
            table.turned_away = 0

    def _every(self) -> tuple[NameTable, ...]:
        return (*self.tables().values(), self._origins, self._origins_of_own)

    def tables(self) -> dict[Kind, NameTable]:
        """Return every table by its kind."""
        return {
            "agent": self.agents,
            "service": self.services,
            "environment": self.environments,
            "model": self.models,
            "criterion": self.criteria,
        }

    def turned_away(self) -> dict[Kind, int]:
        """Return how often a name found no place, by its kind.

        An origin is the service and the environment of an agent. Each may have its place, and their
        combination none.
        """
        counts = {kind: table.turned_away for kind, table in self.tables().items()}
        counts["origin"] = self._origins.turned_away + self._origins_of_own.turned_away
        return counts

    def limit(self, max_names: int, max_series: int) -> None:
        """Set the limits of all tables. Names that have a place keep it."""
        self.max_series = max_series
        for table in self._every():
            table.places = max(1, max_series // _SERIES_OF_NAME)
            table.remembered = max_names

    def place(self, agent: str, origin: Origin) -> tuple[str, Origin]:
        """Return the agent and the attributes of its service as metrics show them."""
        agent = self.agents.admit(agent)
        if not origin:
            return agent, ()
        bounded = tuple((name, self.of_attribute(name, value)) for name, value in origin)
        if all(value == OTHER for _, value in bounded):
            return agent, bounded
        # Agents times services times environments are many more than each of them. Agents from
        # outside do not take the room of the operator's.
        is_own = agent != OTHER and self.agents.is_own(agent)
        origins = self._origins_of_own if is_own else self._origins
        if origins.admit((agent, bounded)) == OTHER:
            bounded = tuple((name, OTHER) for name, _ in bounded)
        return agent, bounded

    def of_attribute(self, attribute: str, value: str) -> str:
        """Return a service or an environment as metrics show it."""
        admitted: str = self.tables()[_KIND_OF[attribute]].admit(value)
        return admitted
