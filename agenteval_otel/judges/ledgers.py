"""Ledgers: what was spent and what is reserved; here the contract, and books in memory.

A call reserves the most that it may use, in one step with the look at what is there, and settles what it has used. What
is reserved counts as spent until then. Accounts of a window (a minute of the clock, a day) are kept when it is over, so
that a clock that is set back finds them again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from agenteval_otel.judges.prices import Amount
from agenteval_otel.runtime.fork import ForkSafeLock

__all__ = ["Allows", "Entry", "Held", "Key", "Ledger", "MemoryLedger"]

_MOST_WINDOWS: Final = 20_000
_NOTHING: Final = Amount()


class Key(NamedTuple):
    """An account of one scope in one window."""

    scope: str
    period: str
    number: int


class Entry(NamedTuple):
    """A call in the books: the accounts that it is charged to, and the most that it may use.

    Attributes:
        expires: Unix time at which the reservation is given back if nobody has settled it.
    """

    entry_id: str
    keys: tuple[Key, ...]
    amount: Amount
    expires: float


Held = Mapping[Key, Amount]
"""What is spent and reserved in each account of a call."""
Allows = Callable[[Held, float], bool]
"""Whether a call may be made, from what is held and the share of the limits that may be used."""


class Ledger(Protocol):
    """Books that budgets share."""

    async def reserve(self, entry: Entry, allows: Allows, now: float) -> bool:
        """Enter the call if `allows` says so of what is held; one step, whoever else reserves. Never raises."""
        ...

    def settle(self, entry: Entry, amount: Amount) -> None:
        """Replace the reservation by what was used. Never waits, never raises."""
        ...

    def known(self, keys: Iterable[Key]) -> Held | None:
        """What is held by now; None where that is not known without asking others. Never waits."""
        ...


class MemoryLedger:
    """Books of this process, for any thread; of more than 20,000 accounts the one unused for longest is forgotten.

    Args:
        share: Share of each limit that these books allow.
    """

    def __init__(self, *, share: float = 1.0) -> None:
        self._share, self._lock = share, ForkSafeLock()
        self._spent: OrderedDict[Key, Amount] = OrderedDict()
        self._reserved: dict[Key, Amount] = {}
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def __repr__(self) -> str:
        return f"<MemoryLedger {len(self._entries)} reserved>"

    async def reserve(self, entry: Entry, allows: Allows, now: float) -> bool:
        """As `Ledger.reserve`; at once."""
        return self.reserve_now(entry, allows, now)

    def reserve_now(self, entry: Entry, allows: Allows, now: float) -> bool:
        """The same for callers without an event loop."""
        with self._lock:
            self._expire(now)
            if not allows(self._totals(entry.keys), self._share):
                return False
            self._entries[entry.entry_id] = entry
            for key in entry.keys:
                self._reserved[key] = self._reserved.get(key, _NOTHING).plus(entry.amount)
            return True

    def settle(self, entry: Entry, amount: Amount) -> None:
        """As `Ledger.settle`."""
        with self._lock:
            self._give_back(entry.entry_id)
            for key in entry.keys:
                self._spent[key] = self._spent.get(key, _NOTHING).plus(amount)
                self._spent.move_to_end(key)
            while len(self._spent) > _MOST_WINDOWS:
                self._spent.popitem(last=False)

    def known(self, keys: Iterable[Key]) -> Held:
        """As `Ledger.known`: always known."""
        with self._lock:
            return self._totals(keys)

    def _totals(self, keys: Iterable[Key]) -> Held:
        return {key: self._spent.get(key, _NOTHING).plus(self._reserved.get(key, _NOTHING)) for key in keys}

    def _expire(self, now: float) -> None:
        # In the order in which they came: one is late at most by what a clock was set back.
        while self._entries and (oldest := next(iter(self._entries.values()))).expires <= now:
            self._give_back(oldest.entry_id)

    def _give_back(self, entry_id: str) -> None:
        entry = self._entries.pop(entry_id, None)
        if entry is None:
            return
        for key in entry.keys:
            left = self._reserved.pop(key, _NOTHING).minus(entry.amount)
            if left != _NOTHING:
                self._reserved[key] = left
