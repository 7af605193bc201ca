"""Outbox: what waits for one place, and what lasts there.

Notices that come close together go out as one message. `BatchDelivery` queues, retries and gives up.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from agenteval_otel.components.delivery import BatchDelivery, DeliveryError
from agenteval_otel.engine.capabilities.notify.notices import Bulletin, Notice, notice_of
from agenteval_otel.engine.capabilities.notify.place import (
    MAY_HAVE_ARRIVED,
    PARTLY,
    UNANSWERED,
    MessagePlace,
    source_of_process,
)
from agenteval_otel.engine.capabilities.notify.shared import SharedNotice, SharedStates
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.telemetry import Accounting

CAPPED: Final = "notify:capped"
_MAX_LASTING: Final = 1_024
_HOUR_S: Final = 3_600.0
_ATTEMPTS: Final = 3
"""Attempts at a message that was not answered. Each attempt may have been delivered."""
_WAITS_S: Final = (600.0, 3_600.0)
"""Until what lasts is reported again after its notice was lost, by how many may have arrived."""
_NOTICE_BYTES: Final = 2_048
_FAILING_S: Final = 1.0
_REMINDERS: Final = 7
"""They end, because a part that was removed from the settings while it was bad never reports that it
is well.
"""

Key = tuple[str, str, str | None, object]


class _Lasting(NamedTuple):
    """Holds what is bad.

    Attributes:
        since_ns: The moment of the first answer behind it.
        due_s: When it is reported again (monotonic).
        reminders: How often it still is reported.
        on_way: Id of the notice that is not taken yet, else empty.
        doubts: Notices of it that were given up although they may have arrived.
    """

    change: StateChange
    since_ns: int
    due_s: float
    reminders: int = _REMINDERS
    on_way: str = ""
    doubts: int = 0


class _Message:
    """Holds what is sent as one, however often, and after how many attempts no answer came."""

    def __init__(self, bulletin: Bulletin) -> None:
        self.bulletin = bulletin
        self.unanswered = 0


class _Parcel:
    """Holds notices that wait, and the message that they have become part of.

    Attributes:
        shared: Its notice, if another process may send it.
    """

    def __init__(self, notices: Sequence[Notice], shared: SharedNotice | None = None) -> None:
        self.notices = notices
        self.shared = shared
        self.message: _Message | None = None


class Outbox:
    """Keeps the notices of one place until they are sent.

    Args:
        name: The place's path in the settings, for log lines.
        clock: Monotonic, in seconds.
        time_of_day: Unix time, by which processes that share a file forget one that ended.
    """

    def __init__(
        self,
        place: MessagePlace,
        name: str,
        accounting: Accounting,
        *,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self.place = place
        self._name = f"{name} ({place.label})"
        self._accounting = accounting
        self._clock = clock
        self._delivery = BatchDelivery(
            place.label,
            self._sender,
            self._lose,
            give_up_s=place.give_up_s,
            linger_s=place.group_s,
        )
        self._states: SharedStates | None = None
        if place.shared_file is not None:
            self._states = SharedStates(place.shared_file, accounting, clock=time_of_day)
        self._reset()
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<Outbox {self._name}>"

    def _reset(self) -> None:
        # a signal handler may call a monitored function meanwhile
        self._lock = threading.RLock()
        self._lasting: dict[Key, _Lasting] = {}
        self._sent_s: deque[float] = deque()
        self._left_out = 0
        self._is_failing = False

    def report(self, change: StateChange, since_ns: int) -> None:
        """Report a change, unless it is known. Any thread. Returns at once.

        Args:
            since_ns: The moment of the first answer behind it.
        """
        if change.kind not in self.place.about:
            return
        facts = change.facts
        judge = (facts.get("judge"), facts.get("evaluator_version"))
        key = (change.kind, change.part, change.agent, judge)
        now_s = self._clock()
        notice = self._notice_of(change, since_ns, change.at_ns)
        with self._lock:
            known = self._lasting.pop(key, None)
            if change.is_bad:
                due_s = now_s + self.place.remind_s
                lasting = known or _Lasting(change, since_ns, due_s, on_way=notice.id)
                self._lasting[key] = lasting._replace(change=change)
                if len(self._lasting) > _MAX_LASTING:
                    del self._lasting[next(iter(self._lasting))]
        # Report a bad state once, and a good one only after a bad one.
        if change.is_bad is (known is None):
            self.add([notice], key)

    def remind(self) -> None:
        """Report again what lasts, where it is time, and what another process has left. Blocks."""
        self._continue_for_others()
        now_s = self._clock()
        notices: list[tuple[Key, Notice]] = []
        with self._lock:
            for key, kept in self._lasting.items():
                if kept.due_s > now_s or not kept.reminders:
                    continue
                until_ns = time.time_ns()
                notice = self._notice_of(kept.change, kept.since_ns, until_ns, reminder=True)
                notices.append((key, notice))
                self._lasting[key] = kept._replace(
                    due_s=now_s + self.place.remind_s,
                    reminders=kept.reminders - 1,
                    on_way=notice.id,
                )
        for key, notice in notices:
            self.add([notice], key)

    def _continue_for_others(self) -> None:
        if self._states is None:
            return
        refreshed = self._states.refresh()
        now_s = self._clock()
        with self._lock:
            # hashed only where there is something to compare: there may be a thousand
            lasting = self._lasting if refreshed.repeated else {}
            for key, kept in lasting.items():
                if self._subject_of(key) in refreshed.repeated:
                    lasting[key] = kept._replace(due_s=now_s)
        for notice in refreshed.recoveries:
            self.add([notice])

    def _subject_of(self, key: Key) -> str:
        """Return what names it in the file. No name and no address can be read from it."""
        place = self.place
        parts = (source_of_process()["service"], place.type, place.target, *key)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _notice_of(
        self, change: StateChange, since_ns: int, until_ns: int, reminder: bool = False
    ) -> Notice:
        return notice_of(
            change,
            pages_url=self.place.pages_url,
            since_ns=since_ns,
            until_ns=until_ns,
            reminder=reminder,
        )

    def add(self, notices: Sequence[Notice], key: Key | None = None) -> None:
        """Have notices sent in one message. Any thread. Returns at once.

        Args:
            key: What the only notice is about, if another process may send it.
        """
        size_bytes = sum(_NOTICE_BYTES + 4 * len(notice.text) for notice in notices)
        shared: SharedNotice | None = None
        if key is not None and self._states is not None:
            shared = SharedNotice(self._subject_of(key), notices[0])
        try:
            self._delivery.add(_Parcel(notices, shared), size_bytes)
        except DeliveryError as error:
            self._lose(error)

    def flush(self, timeout_s: float) -> bool:
        """Send what waits, without lingering. Return whether all of it is sent or given up.

        While the place fails it waits for a second at most: a host may flush after each answer.
        """
        if self._is_failing:
            timeout_s = min(timeout_s, _FAILING_S)
        return self._delivery.flush(timeout_s)

    def end(self) -> None:
        """Take nothing more, and give up what waits."""
        self._delivery.end()
        if self._states is not None:
            self._states.leave()

    # --- the thread that sends

    def _sender(self) -> _Sender:
        return _Sender(self)

    async def send(self, parcels: Sequence[_Parcel]) -> Sequence[DeliveryError | None]:
        """Send the notices as one message, or count them if there were too many messages.

        What is sent again is the same message. Notices that came since are the next one, which
        waits while the place does not take the first. Return None or the error of each parcel.
        """
        errors: dict[_Message | None, DeliveryError | None] = {}
        begun = [parcel.message for parcel in parcels if parcel.message is not None]
        for message in dict.fromkeys(begun):
            errors[message] = await self._send_message(message)
        holds_up = [error for error in errors.values() if error is not None and error.retryable]
        if holds_up:
            errors[None] = holds_up[0]
        else:
            errors[None] = None  # of what another process sends
            waiting = [parcel for parcel in parcels if parcel.message is None]
            new = self._message_of(await self._sent_here(waiting))
            if new is not None:
                errors[new] = await self._send_message(new)
        return [errors[parcel.message] for parcel in parcels]

    async def _sent_here(self, parcels: Sequence[_Parcel]) -> Sequence[_Parcel]:
        """Return what this process sends, and leave the rest to another one."""
        shared = [parcel.shared for parcel in parcels if parcel.shared is not None]
        if self._states is None or not shared:
            return parcels
        decisions = await self._states.are_sent_here(shared)
        elsewhere = {
            each.notice.id for each, is_here in zip(shared, decisions, strict=True) if not is_here
        }
        self._take_off_way(elsewhere)
        return [parcel for parcel in parcels if parcel.notices[0].id not in elsewhere]

    def _message_of(self, parcels: Sequence[_Parcel]) -> _Message | None:
        """Make one message of the notices, if there are any."""
        notices: list[Notice] = []
        for parcel in parcels:
            notices += parcel.notices
        if not notices:
            return None
        message = _Message(Bulletin(notices, source_of_process(), self._left_out))
        for parcel in parcels:
            parcel.message = message
        return message

    async def _send_message(self, message: _Message) -> DeliveryError | None:
        """Send a message, or count it as left out. Return why it was not taken."""
        bulletin = message.bulletin
        now_s = self._clock()
        while self._sent_s and self._sent_s[0] <= now_s - _HOUR_S:
            self._sent_s.popleft()
        if len(self._sent_s) >= self.place.most_per_hour:
            self._leave_out(len(bulletin.notices))
            return None
        error = await self.place.attempt(bulletin)
        if error is not None and error.error_type == PARTLY:
            # The others have got it, and would get it again.
            self._accounting.fail(f"notify:{self.place.type}")
            log.warning("message_partly_refused", part=self._name, problem=str(error))
            error = None
        self._is_failing = error is not None
        if error is None or error.error_type in MAY_HAVE_ARRIVED:
            self._sent_s.append(now_s)
        if error is None:
            self._left_out -= bulletin.left_out
            self._note_taken(bulletin.notices)
            return None
        if error.error_type == UNANSWERED:
            message.unanswered += 1
            if message.unanswered >= _ATTEMPTS:  # it is the last one
                error = DeliveryError(str(error), error_type=UNANSWERED)
        if error.retryable:
            log.warning("message_delayed", part=self._name, problem=str(error))
        return error

    def _note_taken(self, notices: Sequence[Notice]) -> None:
        keys = self._take_off_way({notice.id for notice in notices})
        if self._states is not None:
            self._states.note_taken([self._subject_of(key) for key in keys])

    def _take_off_way(self, ids: Collection[str]) -> Sequence[Key]:
        """Note that nothing waits for these notices, and return which of them last."""
        keys: list[Key] = []
        with self._lock:
            for key, kept in self._lasting.items():
                if kept.on_way in ids:
                    self._lasting[key] = kept._replace(on_way="")
                    keys.append(key)
        return keys

    def _leave_out(self, count: int) -> None:
        self._left_out += count
        self._accounting.fail(CAPPED, count)
        log.warning("messages_capped", part=self._name, most=self.place.most_per_hour)
        self._report_soon(may_have_arrived=False)

    def _lose(self, error: Exception) -> None:
        """Count a notice that is given up."""
        self._accounting.fail(f"notify:{self.place.type}")
        error_type = type(error).__name__
        if isinstance(error, DeliveryError):
            error_type = error.error_type
        log.warning("message_not_sent", part=self._name, error_type=error_type, problem=str(error))
        self._report_soon(may_have_arrived=error_type in MAY_HAVE_ARRIVED)

    def _report_soon(self, *, may_have_arrived: bool) -> None:
        """Report what lasts again before long, where its notice is not taken yet.

        People may have got what may have arrived: the wait for its repetition grows, and it is one
        of the reminders.
        """
        now_s = self._clock()
        with self._lock:
            for key, kept in self._lasting.items():
                if not kept.on_way:
                    continue
                wait_s = self.place.remind_s
                if kept.doubts < len(_WAITS_S):
                    wait_s = min(wait_s, _WAITS_S[kept.doubts])
                reminders = kept.reminders
                if not may_have_arrived:  # one is left, however long the place is away
                    reminders = max(1, reminders)
                kept = kept._replace(reminders=reminders)
                if now_s + wait_s < kept.due_s:
                    doubts = kept.doubts + may_have_arrived
                    kept = kept._replace(due_s=now_s + wait_s, doubts=doubts)
                self._lasting[key] = kept


class _Sender:
    """Sends the batches of an outbox."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    async def send(self, values: Sequence[_Parcel]) -> Sequence[DeliveryError | None]:
        return await self._outbox.send(values)

    async def close(self) -> None:
        """Close nothing: each message has a connection of its own."""
