"""Outbox: what waits for one place, and what lasts there.

Notices that come close together go out as one message. `BatchDelivery` queues, retries and gives up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from agenteval_otel.components.delivery import BatchDelivery, DeliveryError
from agenteval_otel.engine.capabilities.notify.notices import Bulletin, Notice
from agenteval_otel.engine.capabilities.notify.place import (
    UNANSWERED,
    MessagePlace,
    source_of_process,
)
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.telemetry import Accounting

CAPPED: Final = "notify:capped"
_MAX_LASTING: Final = 1_024
_HOUR_S: Final = 3_600.0
_ATTEMPTS: Final = 3
"""Attempts at a message that may have arrived: each may be one that people get twice."""
_AGAIN_S: Final = 600.0
_NOTICE_BYTES: Final = 2_048
_FAILING_S: Final = 1.0
_REMINDERS: Final = 7
"""What was taken out of the settings while it was bad is never well again."""

Key = tuple[str, str, str | None, object]
MakeNotice = Callable[[StateChange, bool], Notice]


class _Lasting(NamedTuple):
    """Holds what is bad, when it is reported again (monotonic), and how often it still is."""

    change: StateChange
    due_s: float
    reminders: int = _REMINDERS


class Outbox:
    """Keeps the notices of one place until they are sent.

    Args:
        name: The place's path in the settings, for log lines.
        make: Makes a notice of a change, and of whether it is a reminder.
        clock: Monotonic, in seconds.
    """

    def __init__(
        self,
        place: MessagePlace,
        name: str,
        make: MakeNotice,
        accounting: Accounting,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = place
        self._name = f"{name} ({place.label})"
        self._make = make
        self._accounting = accounting
        self._clock = clock
        self._delivery = BatchDelivery(
            place.label,
            self._sender,
            self._lose,
            give_up_s=place.give_up_s,
            linger_s=place.group_s,
        )
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
        self._unanswered = 0
        self._is_failing = False

    def report(self, change: StateChange) -> None:
        """Report a change, unless it is known. Any thread. Returns at once."""
        if change.kind not in self.place.about:
            return
        facts = change.facts
        judge = (facts.get("judge"), facts.get("evaluator_version"))
        key = (change.kind, change.part, change.agent, judge)
        now_s = self._clock()
        with self._lock:
            known = self._lasting.pop(key, None)
            if change.is_bad:
                lasting = known or _Lasting(change, now_s + self.place.remind_s)
                self._lasting[key] = lasting._replace(change=change)
                if len(self._lasting) > _MAX_LASTING:
                    del self._lasting[next(iter(self._lasting))]
        # well again is news where it was bad, and bad where it was well
        if change.is_bad is (known is None):
            self.add([self._make(change, False)])

    def remind(self) -> None:
        """Report again what lasts, where it is time."""
        now_s = self._clock()
        with self._lock:
            due = {
                key: kept
                for key, kept in self._lasting.items()
                if kept.due_s <= now_s and kept.reminders
            }
            for key, kept in due.items():
                due_s = now_s + self.place.remind_s
                self._lasting[key] = kept._replace(due_s=due_s, reminders=kept.reminders - 1)
        for kept in due.values():
            self.add([self._make(kept.change, True)])

    def add(self, notices: Sequence[Notice]) -> None:
        """Have notices sent in one message. Any thread. Returns at once."""
        size_bytes = sum(_NOTICE_BYTES + 4 * len(notice.text) for notice in notices)
        try:
            self._delivery.add(notices, size_bytes)
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

    # --- the thread that sends

    def _sender(self) -> _Sender:
        return _Sender(self)

    async def send(self, notices: Sequence[Notice]) -> DeliveryError | None:
        """Send the notices as one message, or count them if there were too many messages."""
        now_s = self._clock()
        while self._sent_s and self._sent_s[0] <= now_s - _HOUR_S:
            self._sent_s.popleft()
        if len(self._sent_s) >= self.place.most_per_hour:
            self._leave_out(len(notices))
            return None
        bulletin = Bulletin(notices, source_of_process(), self._left_out)
        error = await self.place.attempt(bulletin)
        self._is_failing = error is not None
        if error is None:
            self._sent_s.append(now_s)
            self._left_out = 0
        is_unanswered = error is not None and error.error_type == UNANSWERED
        self._unanswered = self._unanswered + 1 if is_unanswered else 0
        if error is not None and self._unanswered >= _ATTEMPTS:
            self._unanswered = 0
            error.retryable = False
        if error is not None and error.retryable:
            log.warning("message_delayed", part=self._name, problem=str(error))
        return error

    def _leave_out(self, count: int) -> None:
        self._left_out += count
        self._accounting.fail(CAPPED, count)
        log.warning("messages_capped", part=self._name, most=self.place.most_per_hour)
        self._report_soon()

    def _lose(self, error: Exception) -> None:
        """Count a notice that is given up."""
        self._accounting.fail(f"notify:{self.place.type}")
        error_type = type(error).__name__
        if isinstance(error, DeliveryError):
            error_type = error.error_type
        log.warning("message_not_sent", part=self._name, error_type=error_type, problem=str(error))
        self._report_soon()

    def _report_soon(self) -> None:
        """Report what lasts again before long: its notice may be among those that were lost."""
        soon_s = self._clock() + _AGAIN_S
        with self._lock:
            for key, kept in self._lasting.items():
                due_s = min(kept.due_s, soon_s)
                # one is left, however long the place is away
                reminders = max(1, kept.reminders)
                self._lasting[key] = kept._replace(due_s=due_s, reminders=reminders)


class _Sender:
    """Sends the batches of an outbox."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    async def send(self, values: Sequence[Sequence[Notice]]) -> Sequence[DeliveryError | None]:
        notices: list[Notice] = []
        for value in values:
            notices += value
        return [await self._outbox.send(notices)] * len(values)

    async def close(self) -> None:
        """Close nothing: each message has a connection of its own."""
