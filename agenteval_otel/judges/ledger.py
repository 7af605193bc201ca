"""Ledgers: what an account has spent and reserved, per window of time.

A call reserves the most that it may use, in one step with the look at the totals, and settles what it has used. A
reservation counts as spent until then. Accounts of past windows (a minute of the clock, a day) are kept, so that a
clock that is set back finds them again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from agenteval_otel.judges.sqlite_store import SqliteStore
from agenteval_otel.runtime.fork import ForkSafeLock, reset_in_child

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
_MAX_WINDOWS: Final = 20_000
_MAX_UNWRITTEN: Final = 10_000


class Amount(NamedTuple):
    """Billionths of a US dollar, and tokens: whole numbers, so that sums over processes are exact."""

    nano_usd: int = 0
    tokens: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.nano_usd + other.nano_usd, self.tokens + other.tokens)

    def minus(self, other: Amount) -> Amount:
        return Amount(self.nano_usd - other.nano_usd, self.tokens - other.tokens)


NOTHING: Final = Amount()


class Key(NamedTuple):
    """One scope in one window."""

    scope: str
    period: str
    number: int


class Entry(NamedTuple):
    """A call: the keys that it is charged to, and the most that it may use.

    Attributes:
        expires: Unix time at which the reservation ends if it was never settled; in a file it then counts as spent.
    """

    entry_id: str
    keys: tuple[Key, ...]
    amount: Amount
    expires: float


Totals = Mapping[Key, Amount]
"""What is spent and reserved."""
Allows = Callable[[Totals, float], bool]
"""Whether a call may be made, by the totals of its keys and the share of the limits that may be used."""


class Ledger(Protocol):
    """The contract of a ledger: another database fills it to share limits between machines."""

    async def reserve(self, entry: Entry, allows: Allows, now: float) -> bool:
        """Enter the call if `allows` agrees: one step, whatever else reserves. Never raises."""
        ...

    def settle(self, entry: Entry, amount: Amount) -> None:
        """Replace the reservation by what was used. Never waits, never raises."""
        ...

    def known(self, keys: Iterable[Key]) -> Totals:
        """The totals as far as this process knows them; unknown keys are left out. Never waits."""
        ...


class MemoryLedger:
    """The ledger of one process, for any thread; of more than 20,000 keys the least recently used is forgotten.

    Args:
        share: Share of each limit that this ledger allows.
    """

    def __init__(self, *, share: float = 1.0) -> None:
        self._share, self._lock = share, ForkSafeLock()
        self._spent: OrderedDict[Key, Amount] = OrderedDict()
        self._reserved: dict[Key, Amount] = {}
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._settled: deque[tuple[Entry, Amount]] = deque()

    def __repr__(self) -> str:
        return f"<MemoryLedger {len(self._entries)} reserved>"

    async def reserve(self, entry: Entry, allows: Allows, now: float) -> bool:
        with self._lock:
            self._apply()
            # In the order of their reservation: late at most by as much as a clock was set back.
            while self._entries and (oldest := next(iter(self._entries.values()))).expires <= now:
                self._release(oldest.entry_id)
            if not allows(self._totals(entry.keys), self._share):
                return False
            self._entries[entry.entry_id] = entry
            for key in entry.keys:
                self._reserved[key] = self._reserved.get(key, NOTHING).plus(entry.amount)
            return True

    def settle(self, entry: Entry, amount: Amount) -> None:
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
            self._release(entry.entry_id)
            for key in entry.keys:
                self._spent[key] = self._spent.get(key, NOTHING).plus(amount)
                self._spent.move_to_end(key)
            while len(self._spent) > _MAX_WINDOWS:
                self._spent.popitem(last=False)

    def known(self, keys: Iterable[Key]) -> Totals:
        with self._lock:
            self._apply()
            return self._totals(keys)

    def _totals(self, keys: Iterable[Key]) -> Totals:
        return {key: self._spent.get(key, NOTHING).plus(self._reserved.get(key, NOTHING)) for key in keys}

    def _release(self, entry_id: str) -> None:
        entry = self._entries.pop(entry_id, None)
        if entry is None:
            return
        for key in entry.keys:
            left = self._reserved.pop(key).minus(entry.amount)
            if left != NOTHING:
                self._reserved[key] = left


SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS spent (account TEXT, scope TEXT, period TEXT, number INTEGER, nano_usd INTEGER,"
    " tokens INTEGER, UNIQUE (account, scope, period, number))",
    "CREATE TABLE IF NOT EXISTS reserved (entry_id TEXT, account TEXT, scope TEXT, period TEXT, number INTEGER,"
    " nano_usd INTEGER, tokens INTEGER, expires REAL)",
    "CREATE INDEX IF NOT EXISTS reserved_by_account ON reserved (account, scope, period, number)",
    "CREATE INDEX IF NOT EXISTS reserved_by_entry ON reserved (entry_id)",
)


class SqliteLedger:
    """The ledger of all processes that name one SQLite file.

    While the file cannot be used this process goes on with a ledger of its own, up to `share_without_file` of each
    limit. What it spends meanwhile, of the last 10,000 calls, is written when the file is back.

    Args:
        store: The file, with `SCHEMA`.
        account: Name of the account in the file.
        share_without_file: Share of each limit that may be spent without the file.
    """

    def __init__(self, store: SqliteStore, account: str, *, share_without_file: float = 0.1) -> None:
        self._store, self._account = store, account
        self._own = MemoryLedger(share=share_without_file)
        self._own_entries: set[str] = set()
        self._last_totals: Totals = {}
        self._forget_unwritten()
        reset_in_child(self._forget_unwritten)  # the parent writes them

    def _forget_unwritten(self) -> None:
        self._unwritten: list[tuple[Entry, Amount]] = []

    def __repr__(self) -> str:
        return f"<SqliteLedger {self._account!r} in {self._store!r}>"

    @property
    def failures(self) -> int:
        """How often the file could not be used."""
        return self._store.failures

    async def reserve(self, entry: Entry, allows: Allows, now: float) -> bool:
        """As `Ledger.reserve`; waits for the file at most three times its patience."""
        if self._store.is_usable:
            future = self._submit(lambda connection: self._reserve(connection, entry, allows, now))
            try:
                return await self._store.result(future, on_late=lambda is_reserved: self._undo(entry, is_reserved))
            except Exception:  # the store has noted it
                self._last_totals = {}
        is_reserved = await self._own.reserve(entry, allows, now)
        if is_reserved:
            self._own_entries.add(entry.entry_id)
        return is_reserved

    def settle(self, entry: Entry, amount: Amount) -> None:
        if entry.entry_id in self._own_entries:
            self._own_entries.discard(entry.entry_id)
            self._own.settle(entry, amount)
        self._write_later(entry, amount)

    def known(self, keys: Iterable[Key]) -> Totals:
        """The totals of the last call's keys at its reservation: other processes may have spent since."""
        totals = self._last_totals
        return {key: totals[key] for key in keys if key in totals}

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was settled is in the file. True if that was in time."""
        if self._unwritten:
            self._submit(lambda connection: None)
        return self._store.close(timeout_s) and not self._unwritten

    def _undo(self, entry: Entry, is_reserved: bool) -> None:
        if is_reserved:
            self._write_later(entry._replace(keys=()), NOTHING)

    def _write_later(self, entry: Entry, amount: Amount) -> None:
        self._unwritten.append((entry, amount))
        del self._unwritten[:-_MAX_UNWRITTEN]
        if self._store.is_usable:
            self._submit(lambda connection: None)

    def _submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Do the work in a transaction that first writes what was settled: no reservation is given what is spent."""
        written: list[tuple[Entry, Amount]] = []

        def transaction(connection: sqlite3.Connection) -> T:
            written[:] = self._unwritten
            for entry, amount in written:
                connection.execute("DELETE FROM reserved WHERE entry_id = ?", (entry.entry_id,))
                for key in entry.keys:
                    self._charge(connection, key, amount, self._account)
            return work(connection)

        def committed() -> None:
            del self._unwritten[: len(written)]

        return self._store.submit(transaction, on_commit=committed)

    def _reserve(self, connection: sqlite3.Connection, entry: Entry, allows: Allows, now: float) -> bool:
        # A process that ended before it settled may have spent all of it: what has expired counts as spent.
        expired = connection.execute(
            "SELECT account, scope, period, number, nano_usd, tokens FROM reserved WHERE expires <= ?", (now,)
        ).fetchall()
        for account, scope, period, number, nano_usd, tokens in expired:
            self._charge(connection, Key(scope, period, number), Amount(nano_usd, tokens), account)
        # What expires later than any reservation lasts was made by a clock that was wrong.
        connection.execute("DELETE FROM reserved WHERE expires <= ? OR expires > ?", (now, now + 2 * 86_400))
        self._last_totals = totals = {key: self._total(connection, key) for key in entry.keys}
        if not allows(totals, 1.0):
            return False
        connection.executemany(
            "INSERT INTO reserved VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(entry.entry_id, self._account, *key, *entry.amount, entry.expires) for key in entry.keys],
        )
        return True

    def _total(self, connection: sqlite3.Connection, key: Key) -> Amount:
        row = connection.execute(
            # A negative amount, which only an edit of the file can give, adds no budget.
            "SELECT coalesce(sum(max(nano_usd, 0)), 0), coalesce(sum(max(tokens, 0)), 0) FROM ("
            " SELECT nano_usd, tokens FROM spent WHERE account = :a AND scope = :s AND period = :p AND number = :n"
            " UNION ALL"
            " SELECT nano_usd, tokens FROM reserved WHERE account = :a AND scope = :s AND period = :p AND number = :n)",
            {"a": self._account, "s": key.scope, "p": key.period, "n": key.number},
        ).fetchone()
        return Amount(*row)

    def _charge(self, connection: sqlite3.Connection, key: Key, amount: Amount, account: str) -> None:
        known = connection.execute(
            "UPDATE spent SET nano_usd = max(nano_usd, 0) + ?, tokens = max(tokens, 0) + ?"
            " WHERE account = ? AND scope = ? AND period = ? AND number = ?",
            (*amount, account, *key),
        ).rowcount
        if not known:
            row = connection.execute("INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?)", (account, *key, *amount))
            # By the order in which windows began, whatever clocks say: a clock set forward and back loses nothing.
            connection.execute(
                "DELETE FROM spent WHERE period = ? AND rowid <= ?", (key.period, (row.lastrowid or 0) - _MAX_WINDOWS)
            )
