"""SharedLedger: what was spent and what is reserved, in a SQLite file that processes share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NamedTuple

from agenteval_otel.judges.database import Database
from agenteval_otel.judges.ledgers import Allows, Entry, Key, MemoryLedger
from agenteval_otel.judges.prices import Amount
from agenteval_otel.runtime.fork import ForkSafeLock
from agenteval_otel.runtime.log import log

if TYPE_CHECKING:
    import sqlite3

__all__ = ["SCHEMA", "SharedLedger"]

_MOST_WINDOWS: Final = 20_000
_MOST_UNSETTLED: Final = 10_000
_AGAIN_S: Final = 10.0
_NOTHING: Final = Amount()
SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS spent (account TEXT, scope TEXT, period TEXT, number INTEGER, nano_usd INTEGER,"
    " tokens INTEGER, UNIQUE (account, scope, period, number))",
    "CREATE TABLE IF NOT EXISTS reserved (entry_id TEXT, account TEXT, scope TEXT, period TEXT, number INTEGER,"
    " nano_usd INTEGER, tokens INTEGER, expires REAL)",
    "CREATE INDEX IF NOT EXISTS reserved_by_account ON reserved (account, scope, period, number)",
    "CREATE INDEX IF NOT EXISTS reserved_by_entry ON reserved (entry_id)",
)
"""What the file of a `SharedLedger` holds."""


class _Owed(NamedTuple):
    """What the file has not been told: amounts by account, and reservations that are over."""

    amounts: dict[Key, Amount]
    unsettled: list[str]


class SharedLedger:
    """Books in a SQLite file, for all processes that name it.

    While the file cannot be used (locked for longer than `patience_s`, broken, disk full) this process goes on with
    books of its own, up to `share_without_file` of each limit, and tries the file again every ten seconds; what it has
    spent meanwhile is then entered there. So evaluation neither stops for ever nor spends without limit.

    Args:
        database: The file.
        account: Whose books they are in the file.
        share_without_file: Share of each limit that may be spent without the file.
        patience_s: How long a call waits for the file.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        account: str,
        *,
        share_without_file: float = 0.1,
        patience_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database, self._account, self._patience_s, self._clock = database, account, patience_s, clock
        self._own = MemoryLedger(share=share_without_file)
        self._lock = ForkSafeLock()
        self._in_own: set[str] = set()
        self._owed: dict[Key, Amount] = {}
        self._unsettled: list[str] = []
        self._again_at = float("-inf")
        self.failures = 0

    def __repr__(self) -> str:
        return f"<SharedLedger {self._account!r} in {self._database.path}, {self.failures} failures>"

    async def reserve(self, entry: Entry, allows: Allows, now: float) -> bool:
        """As `Ledger.reserve`; waits for the file at most three times its patience."""
        if self._clock() >= self._again_at:
            owed = _Owed({}, [])
            future = self._database.submit(lambda connection: self._reserve(connection, entry, allows, now, owed))
            future.add_done_callback(lambda done: self._paid(done, owed))
            try:
                async with asyncio.timeout(3 * self._patience_s):  # not `wait_for`, which may swallow a cancellation
                    return await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                self._take_back(future, entry)
                raise
            except Exception as error:
                self._take_back(future, entry)
                self._trouble(error)
        if not self._own.reserve_now(entry, allows, now):
            return False
        self._in_own.add(entry.entry_id)
        return True

    def settle(self, entry: Entry, amount: Amount) -> None:
        """As `Ledger.settle`: the file learns of it before it is asked for anything else."""
        if entry.entry_id in self._in_own:
            self._in_own.discard(entry.entry_id)
            self._own.settle(entry, amount)
            self._owe(entry, amount)
            return
        # First: reservations that wait must not be given what this call has spent beyond its own.
        future = self._database.submit(lambda connection: self._settle(connection, entry, amount), first=True)
        future.add_done_callback(lambda done: self._settled(done, entry, amount))

    def known(self, keys: Iterable[Key]) -> None:
        """As `Ledger.known`: others may have spent since."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until the file knows all that was settled; True when that was in time."""
        return self._database.close(timeout_s)

    def _reserve(self, connection: sqlite3.Connection, entry: Entry, allows: Allows, now: float, owed: _Owed) -> bool:
        # What expires later than any reservation lasts was made by a clock that was wrong.
        connection.execute("DELETE FROM reserved WHERE expires <= ? OR expires > ?", (now, now + 2 * 86_400))
        self._pay(connection, owed)
        if not allows({key: self._total(connection, key) for key in entry.keys}, 1.0):
            return False
        connection.executemany(
            "INSERT INTO reserved VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(entry.entry_id, self._account, *key, *entry.amount, entry.expires) for key in entry.keys],
        )
        return True

    def _total(self, connection: sqlite3.Connection, key: Key) -> Amount:
        row = connection.execute(
            # Less than nothing is nobody's spending: it would be money for whoever put it into the file.
            "SELECT coalesce(sum(max(nano_usd, 0)), 0), coalesce(sum(max(tokens, 0)), 0) FROM ("
            " SELECT nano_usd, tokens FROM spent WHERE account = :a AND scope = :s AND period = :p AND number = :n"
            " UNION ALL"
            " SELECT nano_usd, tokens FROM reserved WHERE account = :a AND scope = :s AND period = :p AND number = :n)",
            {"a": self._account, "s": key.scope, "p": key.period, "n": key.number},
        ).fetchone()
        return Amount(*row)

    def _settle(self, connection: sqlite3.Connection, entry: Entry, amount: Amount) -> None:
        connection.execute("DELETE FROM reserved WHERE entry_id = ?", (entry.entry_id,))
        for key in entry.keys:
            self._charge(connection, key, amount)

    def _charge(self, connection: sqlite3.Connection, key: Key, amount: Amount) -> None:
        known = connection.execute(
            "UPDATE spent SET nano_usd = max(nano_usd, 0) + ?, tokens = max(tokens, 0) + ?"
            " WHERE account = ? AND scope = ? AND period = ? AND number = ?",
            (*amount, self._account, *key),
        ).rowcount
        if not known:
            row = connection.execute("INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?)", (self._account, *key, *amount))
            # By the order in which windows began, whatever clocks say: a clock set forward and back loses nothing.
            connection.execute(
                "DELETE FROM spent WHERE period = ? AND rowid <= ?", (key.period, (row.lastrowid or 0) - _MOST_WINDOWS)
            )

    def _pay(self, connection: sqlite3.Connection, owed: _Owed) -> None:
        """Enter what was spent while the file could not be used."""
        with self._lock:
            owed.amounts.update(self._owed)
            owed.unsettled.extend(self._unsettled)
            self._owed, self._unsettled = {}, []
        connection.executemany("DELETE FROM reserved WHERE entry_id = ?", [(entry_id,) for entry_id in owed.unsettled])
        for key, amount in owed.amounts.items():
            self._charge(connection, key, amount)

    def _paid(self, done: Future[bool], owed: _Owed) -> None:
        """What could not be entered is owed still."""
        if done.cancelled() or done.exception() is None:
            return
        with self._lock:
            self._unsettled += owed.unsettled
            for key, amount in owed.amounts.items():
                self._add_owed((key,), amount)

    def _settled(self, done: Future[None], entry: Entry, amount: Amount) -> None:
        error = done.exception()
        if error is None:
            return
        self._owe(entry, amount)
        if len(self._unsettled) < _MOST_UNSETTLED:
            self._unsettled.append(entry.entry_id)
        self._trouble(error)

    def _take_back(self, future: Future[bool], entry: Entry) -> None:
        """The call is not made under this reservation: whenever it comes to stand in the file, it goes again."""

        def undo(done: Future[bool]) -> None:
            if not done.cancelled() and done.exception() is None and done.result():
                self.settle(entry._replace(keys=()), _NOTHING)

        future.add_done_callback(undo)

    def _owe(self, entry: Entry, amount: Amount) -> None:
        with self._lock:
            self._add_owed(entry.keys, amount)

    def _add_owed(self, keys: Iterable[Key], amount: Amount) -> None:
        for key in keys:
            if key in self._owed or len(self._owed) < _MOST_WINDOWS:
                self._owed[key] = self._owed.get(key, _NOTHING).plus(amount)

    def _trouble(self, error: BaseException) -> None:
        self.failures += 1
        self._again_at = self._clock() + _AGAIN_S
        log.warning("judge_spend_file_unusable", part=str(self._database.path), error=type(error).__name__)
