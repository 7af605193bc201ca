"""Which of the submitted traces are done: evaluated, exported, and noted in the journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from agenteval_otel.engine.task import Follower
from agenteval_otel.semconv import DROPPED_SHUTDOWN

_NOTHING_NEEDED: Final = 1 << 63


class Receipt(Follower):
    """The answers of one trace, or of one request of `@monitor`, on their way through the pipeline.

    One thread submits its tasks. Any thread settles and delivers them.

    Attributes:
        key: The trace, or the negative number of the request.
        first: The number of the first request that it needs.
        newest: The number of the newest one.
        is_evaluated: Every task is settled.
        is_exported: What every task gave is delivered.
    """

    def __init__(self, key: int, first: int, newest: int, receipts: Receipts) -> None:
        self.key = key
        self.first = first
        self.newest = newest
        self.is_submitted = False
        self.is_evaluated = False
        self._all = receipts
        self._opened = 0
        self._settled = 0
        self._delivered = 0

    def __repr__(self) -> str:
        return f"<Receipt {self.key:x} {self._settled}/{self._opened}>"

    def opened(self) -> None:
        """Wait for one more task."""
        self._opened += 1
        self._all.opened += 1

    def settle(self, outcome: str) -> None:
        """Note the outcome of a task."""
        self._all.reports.append((self, outcome))

    def delivered(self) -> None:
        """Note that a settled task is exported and stored."""
        self._all.deliveries.append(self)

    def count_outcome(self, outcome: str) -> None:
        """Count a settled task. One that was dropped at the end is left to the next process."""
        if outcome != DROPPED_SHUTDOWN:
            self._settled += 1

    def count_delivery(self) -> None:
        """Count a delivered task."""
        self._delivered += 1

    def has_all(self) -> bool:
        """Tell whether every task was submitted and is settled."""
        return self.is_submitted and self._settled >= self._opened

    @property
    def is_exported(self) -> bool:
        return self.is_evaluated and self._delivered >= self._opened


class Receipts:
    """Keeps the receipts that are not noted yet. Not thread-safe, but for what a `Follower` has.

    Attributes:
        reports: Outcomes of tasks that were settled and not looked at yet.
        deliveries: The receipt of each task that was delivered and not looked at yet.
        opened: How many tasks were submitted.
    """

    def __init__(self) -> None:
        self.reports: deque[tuple[Receipt, str]] = deque()
        self.deliveries: deque[Receipt] = deque()
        self.opened = 0
        self._counted = 0
        self._open: dict[int, deque[Receipt]] = {}  # by key, in the order of their requests
        self._evaluated: list[Receipt] = []

    def __len__(self) -> int:
        return len(self._open)

    def settled(self) -> int:
        """Return how many tasks were settled. May run on any thread."""
        return self._counted + len(self.reports)

    def issue(self, key: int, first: int, newest: int) -> Receipt:
        """Return a receipt for a trace that is submitted next."""
        receipt = Receipt(key, first, newest, self)
        self._open.setdefault(key, deque()).append(receipt)
        return receipt

    def submitted(self, receipts: Iterable[Receipt]) -> None:
        """Note that all tasks of these receipts are open: no further ones come."""
        for receipt in receipts:
            receipt.is_submitted = True
            self._look_at(receipt)

    def has_news(self) -> bool:
        """Tell whether there is something to count or to export.

        That is something that was settled or delivered and is not looked at, or that is evaluated
        and not exported yet.
        """
        return bool(self.reports or self.deliveries) or self._needs_export()

    def look(self) -> bool:
        """Count what was settled and delivered.

        Return whether something is evaluated and not exported yet.
        """
        while self.reports:
            receipt, outcome = self.reports.popleft()
            receipt.count_outcome(outcome)
            self._counted += 1
            self._look_at(receipt)
        while self.deliveries:
            self.deliveries.popleft().count_delivery()
        return self._needs_export()

    def _needs_export(self) -> bool:
        return any(not receipt.is_exported for receipt in self._evaluated)

    def done(self, held_back: Collection[int]) -> dict[int, int]:
        """Return what is exported and can be noted as done, each up to a request's number.

        What is done of a trace is everything up to a request. So a receipt waits for the earlier
        ones of its trace, and for those traces that are `held_back`.
        """
        done: dict[int, int] = {}
        keys = {receipt.key for receipt in self._evaluated if receipt.is_exported}
        for key in keys.difference(held_back):
            for earlier in self._open[key]:
                if not earlier.is_exported:
                    break
                done[key] = earlier.newest
        return done

    def forget(self, done: Iterable[int]) -> None:
        """Remove the receipts that were noted as done."""
        for key in done:
            receipts = self._open[key]
            while receipts and receipts[0].is_exported:
                receipts.popleft()
            if not receipts:
                del self._open[key]
        self._evaluated = [
            receipt for receipt in self._evaluated if receipt in self._open.get(receipt.key, ())
        ]

    def needed_from(self, done: Mapping[int, int]) -> int:
        """Return the number of the first request that a receipt needs once these are noted."""
        firsts: list[int] = []
        for key, receipts in self._open.items():
            done_upto = done.get(key, 0)
            for receipt in receipts:
                if receipt.newest > done_upto:
                    firsts.append(receipt.first)
        return min(firsts, default=_NOTHING_NEEDED)

    def _look_at(self, receipt: Receipt) -> None:
        if receipt.has_all() and not receipt.is_evaluated:
            receipt.is_evaluated = True
            self._evaluated.append(receipt)
