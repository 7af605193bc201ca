"""Ledgers: what an account has spent and reserved, per minute of the clock and per day.

Past windows are kept, so that setting the clock back does not restore their budget.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from agenteval_otel.components.database.sqlite_store import SqliteStore
from agenteval_otel.runtime.fork import ForkSafeLock

if TYPE_CHECKING:
    import sqlite3

EXPIRES_S: Final = 900.0
"""After how long the reservation of a process that was killed counts as spent: longer than any call
takes.
"""
_MAX_WINDOWS: Final = 20_000
_PRUNE_EVERY: Final = 500  # reservations: looking for the oldest windows reads all of them
_SHARE_WITHOUT_FILE: Final = 0.1


class Amount(NamedTuple):
    """Holds billionths of a US dollar, and tokens.

    Both are whole numbers, so that sums over processes are exact.
    """

    nano_usd: int = 0
    tokens: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.nano_usd + other.nano_usd, self.tokens + other.tokens)


class LedgerKey(NamedTuple):
    """Names one scope in one window."""

    scope: str
    period: str
    number: int


class LedgerEntry(NamedTuple):
    """Holds a call, and the most that it may use.

    At `expires` (Unix time) its reservation in a file counts as spent.
    """

    entry_id: str
    keys: tuple[LedgerKey, ...]
    amount: Amount
    expires: float


Totals = Mapping[LedgerKey, Amount]
Allows = Callable[[Totals, float], bool]
"""Whether a call is allowed, from the totals spent and reserved under its keys and the share of
limits to apply.
"""


class Ledger(Protocol):
    """Defines the contract of a ledger.

    A ledger in another database can share limits between machines.
    """

    async def reserve(self, entry: LedgerEntry, allows: Allows, now: float) -> bool:
        """Enter the call if `allows` agrees, and tell whether it did.

        This is one step, whatever else reserves. Never raises.
        """

    def settle(self, entry: LedgerEntry, amount: Amount) -> None:
        """Replace the reservation by what was used. Never waits, never raises."""

    def known(self, keys: Iterable[LedgerKey]) -> Totals:
        """Return the totals as far as this process knows them.

        Unknown keys are left out. Never waits.
        """


class MemoryLedger:
    """Keeps the ledger of one process, for any thread.

    Of more than 20,000 keys the least recently used is forgotten.
    """

    def __init__(self, *, share: float = 1.0) -> None:
        self._share = share
        self._lock = ForkSafeLock()
        self._spent: dict[LedgerKey, Amount] = {}
        self._reserved: dict[str, LedgerEntry] = {}
        self._settled: deque[tuple[LedgerEntry, Amount]] = deque()

    def __repr__(self) -> str:
        return f"<MemoryLedger {len(self._reserved)} reserved>"

    def has_reserved(self, entry: LedgerEntry) -> bool:
        return entry.entry_id in self._reserved

    async def reserve(self, entry: LedgerEntry, allows: Allows, now: float) -> bool:
        with self._lock:
            self._apply()
            if not allows(self._totals(entry.keys), self._share):
                return False
            self._reserved[entry.entry_id] = entry
            return True

    def settle(self, entry: LedgerEntry, amount: Amount) -> None:
        # The garbage collector may settle an abandoned call while its own thread holds the lock.
        self._settled.append((entry, amount))
        if self._lock.acquire_if_free():
            try:
                self._apply()
            finally:
                self._lock.release()

    def _apply(self) -> None:
        while self._settled:
            entry, amount = self._settled.popleft()
            self._reserved.pop(entry.entry_id, None)
            for key in entry.keys:
                # the last one from now on
                self._spent[key] = self._spent.pop(key, Amount()).plus(amount)
            while len(self._spent) > _MAX_WINDOWS:
                del self._spent[next(iter(self._spent))]

    def known(self, keys: Iterable[LedgerKey]) -> Totals:
        with self._lock:
            self._apply()
            return self._totals(keys)

    def _totals(self, keys: Iterable[LedgerKey]) -> Totals:
        totals = {key: self._spent.get(key, Amount()) for key in keys}
        for entry in self._reserved.values():
            for key in totals.keys() & entry.keys:
                totals[key] = totals[key].plus(entry.amount)
        return totals


SCHEMA: Final = (
    # Spent amounts have an empty entry_id; reservations have their call's id, and expire.
    "CREATE TABLE IF NOT EXISTS amounts (account TEXT, scope TEXT, period TEXT, number INTEGER, entry_id TEXT,"
    " nano_usd INTEGER, tokens INTEGER, expires REAL, UNIQUE (account, scope, period, number, entry_id))",
    "CREATE INDEX IF NOT EXISTS amounts_by_entry ON amounts (entry_id)",
    "CREATE INDEX IF NOT EXISTS amounts_by_expiry ON amounts (expires) WHERE expires IS NOT NULL",
)
_ADD: Final = (
    " ON CONFLICT (account, scope, period, number, entry_id)"
    " DO UPDATE SET nano_usd = nano_usd + excluded.nano_usd, tokens = tokens + excluded.tokens"
)


class SqliteLedger:
    """Keeps the ledger of all processes that name one SQLite file.

    While the file cannot be used, this process goes on with a ledger of its own, up to a tenth of
    each limit. What it spends meanwhile is written when the file is back.
    """

    def __init__(
        self,
        path: Path,
        account: str,
        *,
        patience_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        event = "judge_spend_file_unusable"
        self.store = SqliteStore(path, SCHEMA, event=event, patience_s=patience_s, clock=clock)
        self._account = account
        self._own = MemoryLedger(share=_SHARE_WITHOUT_FILE)
        self._last_totals: Totals = {}
        self._reservations = 0

    async def reserve(self, entry: LedgerEntry, allows: Allows, now: float) -> bool:
        if self.store.is_usable:
            try:
                return await self.store.run(
                    lambda connection: self._reserve(connection, entry, allows, now),
                    undo=lambda connection: _release(connection, entry),
                )
            except Exception:  # the store has noted it
                self._last_totals = {}
        return await self._own.reserve(entry, allows, now)

    def settle(self, entry: LedgerEntry, amount: Amount) -> None:
        spent = [(self._account, *key, "", *amount, None) for key in entry.keys]

        def write(connection: sqlite3.Connection) -> None:
            _release(connection, entry)
            connection.executemany(
                f"INSERT INTO amounts VALUES (?, ?, ?, ?, ?, ?, ?, ?){_ADD}", spent
            )

        if self._own.has_reserved(entry):
            self._own.settle(entry, amount)
        self.store.write(write)

    def known(self, keys: Iterable[LedgerKey]) -> Totals:
        # As of the last call's reservation: other processes may have spent since.
        totals = self._last_totals
        return {key: totals[key] for key in keys if key in totals}

    def _reserve(
        self, connection: sqlite3.Connection, entry: LedgerEntry, allows: Allows, now: float
    ) -> bool:
        # A process that ended before it settled may have spent all of it: what has expired counts
        # as spent.
        connection.execute(
            "INSERT INTO amounts SELECT account, scope, period, number, '', nano_usd, tokens, NULL FROM amounts"
            f" WHERE expires <= ?{_ADD}",
            (now,),
        )
        # What expires later than a reservation can was made by a clock that was wrong.
        connection.execute(
            "DELETE FROM amounts WHERE expires <= ? OR expires > ?", (now, now + 2 * EXPIRES_S)
        )
        if self._reservations % _PRUNE_EVERY == 0:
            # Minutes by the order in which they began, whatever clocks say; days are few.
            spent = "FROM amounts WHERE period = 'minute' AND entry_id = ''"
            oldest = f"SELECT rowid {spent} ORDER BY rowid DESC LIMIT 1 OFFSET ?"
            connection.execute(f"DELETE {spent} AND rowid <= ({oldest})", (_MAX_WINDOWS,))
        self._reservations += 1
        totals = {key: self._total(connection, key) for key in entry.keys}
        self._last_totals = totals
        if not allows(totals, 1.0):
            return False
        rows = [
            (self._account, *key, entry.entry_id, *entry.amount, entry.expires)
            for key in entry.keys
        ]
        connection.executemany("INSERT INTO amounts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        return True

    def _total(self, connection: sqlite3.Connection, key: LedgerKey) -> Amount:
        row = connection.execute(
            "SELECT coalesce(sum(nano_usd), 0), coalesce(sum(tokens), 0) FROM amounts"
            " WHERE account = ? AND scope = ? AND period = ? AND number = ?",
            (self._account, *key),
        ).fetchone()
        return Amount(*row)


def _release(connection: sqlite3.Connection, entry: LedgerEntry) -> None:
    connection.execute("DELETE FROM amounts WHERE entry_id = ?", (entry.entry_id,))
