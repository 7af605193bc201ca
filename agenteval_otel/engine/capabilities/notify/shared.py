"""One message for several processes of a service that see the same get bad, over a SQLite file.

Each process notes in the file what is bad in it. The first one speaks for all of them: it sends the
breach and the reminders. If it ends or is well again while another one is bad, that one speaks. The
last one that is well again sends the recovery. A process that was not seen for a minute counts as
ended.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agenteval_otel.components.database.sqlite_store import SqliteStore
from agenteval_otel.engine.capabilities.notify.notices import Notice
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.telemetry import Accounting

if TYPE_CHECKING:
    import sqlite3

UNSHARED: Final = "notify:shared_file"
_EXPIRES_S: Final = 60.0
_PATIENCE_S: Final = 1.0
_MOST_OWED: Final = 1_024
_SCHEMA: Final = (
    # `state` is bad, over (well here, and bad elsewhere) or announced (another one has sent the recovery).
    "CREATE TABLE IF NOT EXISTS states (subject TEXT, process TEXT, state TEXT, speaks INTEGER, taken INTEGER,"
    " seen_s REAL, PRIMARY KEY (subject, process))",
)


class SharedNotice(NamedTuple):
    """Holds a notice, and what it is about as a key that is the same in all processes."""

    subject: str
    notice: Notice

    @property
    def is_recovery(self) -> bool:
        """Tell whether it says that something is well again."""
        return self.notice.state in ("recovered", "well")


class Refreshed(NamedTuple):
    """Holds what a process has to send for others.

    Attributes:
        repeated: Subjects that it speaks for since another one ended before its message was taken.
        recoveries: Of what was bad elsewhere when it was well again here, and is over.
    """

    repeated: Sequence[str] = ()
    recoveries: Sequence[Notice] = ()


class SharedStates:
    """Agrees with the other processes that name a file on who sends a notice.

    While the file cannot be used, each process sends its own. That is counted in `UNSHARED`.

    Args:
        path: The file.
        clock: Unix time, by which processes that ended are forgotten.
    """

    def __init__(
        self, path: Path, accounting: Accounting, *, clock: Callable[[], float] = time.time
    ) -> None:
        event = "notify_file_unusable"
        self._store = SqliteStore(path, _SCHEMA, event=event, patience_s=_PATIENCE_S)
        self._accounting = accounting
        self._clock = clock
        self._reset()
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<SharedStates {self._store.path}>"

    def _reset(self) -> None:
        self._process = uuid.uuid4().hex
        self._bad: dict[str, bool] = {}  # whether the message of it is taken, as far as is known
        self._owed: dict[str, Notice] = {}

    async def are_sent_here(self, notices: Sequence[SharedNotice]) -> Sequence[bool]:
        """Return of each whether this process sends it. Raises nothing."""
        if self._store.is_usable:
            try:
                return await self._store.run(
                    lambda connection: self._decide_all(connection, notices)
                )
            except Exception:  # the store has logged it
                pass
        self._accounting.fail(UNSHARED, len(notices))
        for shared in notices:
            self._owed.pop(shared.subject, None)
            self._bad.pop(shared.subject, None)
            if not shared.is_recovery:
                self._bad[shared.subject] = False
        return [True] * len(notices)

    def note_taken(self, subjects: Iterable[str]) -> None:
        """Note that the place has the message about subjects that are bad. Never waits."""
        taken = [(subject,) for subject in subjects]
        self._bad |= {subject: True for (subject,) in taken if subject in self._bad}
        if taken:
            self._store.write(
                lambda connection: connection.executemany(
                    "UPDATE states SET taken = 1 WHERE subject = ?", taken
                )
            )

    def refresh(self) -> Refreshed:
        """Show that this process lives, and return what it has to send for others. Blocks."""
        if not (self._bad or self._owed) or not self._store.is_usable:
            return Refreshed()
        done: Future[Refreshed] = self._store.submit(self._refresh)
        try:
            return done.result(3 * _PATIENCE_S)
        except Exception:  # the store has logged it
            return Refreshed()

    def leave(self) -> None:
        """Have the others forget this process. Never waits."""
        if self._bad or self._owed:
            process = self._process
            self._store.write(
                lambda connection: connection.execute(
                    "DELETE FROM states WHERE process = ?", (process,)
                )
            )
        self._reset()

    # --- the store's thread

    def _decide_all(
        self, connection: sqlite3.Connection, notices: Sequence[SharedNotice]
    ) -> Sequence[bool]:
        self._forget_ended(connection)
        return [self._decide(connection, *shared) for shared in notices]

    def _decide(self, connection: sqlite3.Connection, subject: str, notice: Notice) -> bool:
        if SharedNotice(subject, notice).is_recovery:
            return self._recover(connection, subject, notice)
        if notice.reminder:
            speaks, _ = self._stay_bad(connection, subject)
            return speaks
        self._owed.pop(subject, None)
        speaks_elsewhere, is_taken = self._others(connection, subject)
        self._enter(connection, subject, "bad", speaks=not speaks_elsewhere, taken=is_taken)
        self._bad[subject] = is_taken
        return not speaks_elsewhere and not is_taken

    def _refresh(self, connection: sqlite3.Connection) -> Refreshed:
        self._forget_ended(connection)
        repeated = [s for s in list(self._bad) if self._stay_bad(connection, s)[1]]
        recoveries = [
            notice
            for subject, notice in list(self._owed.items())
            if self._recover(connection, subject, notice)
        ]
        return Refreshed(repeated, recoveries)

    def _stay_bad(self, connection: sqlite3.Connection, subject: str) -> tuple[bool, bool]:
        """Note that it is still bad here.

        Return whether this process speaks, and whether it has to say what another one has not.
        """
        speaks_elsewhere, is_taken = self._others(connection, subject)
        own = self._own(connection, subject, "speaks, taken")
        spoke, was_taken = own or (0, 0)
        is_taken = is_taken or bool(was_taken) or self._bad.get(subject, False)
        speaks = not speaks_elsewhere
        self._enter(connection, subject, "bad", speaks=speaks, taken=is_taken)
        self._bad[subject] = is_taken
        return speaks, speaks and not spoke and not is_taken

    def _recover(self, connection: sqlite3.Connection, subject: str, notice: Notice) -> bool:
        """Return whether the recovery is sent by this process. If it is bad elsewhere, owe it."""
        self._bad.pop(subject, None)
        own = self._own(connection, subject, "state, taken")
        state, taken = own or ("", 0)
        others = "FROM states WHERE subject = ? AND process <> ? AND state = 'bad'"
        is_bad_elsewhere = connection.execute(
            f"SELECT 1 {others}", (subject, self._process)
        ).fetchone()
        if state != "announced" and is_bad_elsewhere and len(self._owed) < _MOST_OWED:
            self._owed[subject] = notice
            self._enter(connection, subject, "over", speaks=False, taken=bool(taken))
            return False
        self._owed.pop(subject, None)
        connection.execute(
            "DELETE FROM states WHERE subject = ? AND process = ?", (subject, self._process)
        )
        if state == "announced":
            return False
        connection.execute(
            "UPDATE states SET state = 'announced' WHERE subject = ? AND state = 'over'", (subject,)
        )
        return True

    def _forget_ended(self, connection: sqlite3.Connection) -> None:
        now_s = self._clock()
        # What was seen later than now was written by a clock that was wrong.
        connection.execute(
            "DELETE FROM states WHERE seen_s <= ? OR seen_s > ?",
            (now_s - _EXPIRES_S, now_s + _EXPIRES_S),
        )

    def _others(self, connection: sqlite3.Connection, subject: str) -> tuple[bool, bool]:
        """Return whether another process speaks, and whether the message of the others is taken."""
        speaks, taken = connection.execute(
            "SELECT coalesce(max(speaks), 0), coalesce(max(taken), 0) FROM states"
            " WHERE subject = ? AND process <> ? AND state <> 'announced'",
            (subject, self._process),
        ).fetchone()
        return bool(speaks), bool(taken)

    def _own(self, connection: sqlite3.Connection, subject: str, columns: str) -> Any:
        return connection.execute(
            f"SELECT {columns} FROM states WHERE subject = ? AND process = ?",
            (subject, self._process),
        ).fetchone()

    def _enter(
        self,
        connection: sqlite3.Connection,
        subject: str,
        state: str,
        *,
        speaks: bool,
        taken: bool,
    ) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?)",
            (subject, self._process, state, speaks, taken, self._clock()),
        )
