"""The budget: no call without a reservation, and fewer calls the nearer a limit is."""

from __future__ import annotations

import atexit
import time
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.judges.ledger import SCHEMA, Amount, Entry, Ledger, MemoryLedger, SqliteLedger, Totals
from agenteval_otel.judges.request import JudgeRequest
from agenteval_otel.judges.spend import NANO, Limit, Price, SpendLimits, most_of, price_of
from agenteval_otel.judges.sqlite_store import SqliteStore
from agenteval_otel.models.judge_calls import JudgeUsage
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.fork import RANDOM
from agenteval_otel.runtime.log import log

BUDGET: Final = "budget"
"""Skip reason of a call that was left out by chance, because a limit is near: a sample."""
BUDGET_EXHAUSTED: Final = "budget_exhausted"
"""Skip reason of a call that does not fit into a limit: a loss."""
_MAX_TOKENS: Final = 1_000_000_000
_MAX_USD: Final = 1_000_000.0
_NOT_CHARGED: Final = frozenset({
    "rate_limited", "overloaded", "server_error", "authentication", "bad_request", "not_found", "context_overflow",
    "breaker_open", "budget_exhausted",
})  # fmt: skip


class Reservation(NamedTuple):
    """A call that may be made, to be settled once.

    Attributes:
        entry: Its entry in the ledger; None where nothing is limited.
        price: The model's price; None where it has none.
        probability: With what probability the budget let it through, above 0 to 1.
    """

    entry: Entry | None
    price: Price | None
    probability: float


class BudgetLimiter:
    """Reserves before each call what it may use at most, and settles after it what it has used.

    A call waits for a SQLite file, where one is set, on a thread of that file's own; otherwise for nothing.

    Args:
        limits: Prices and limits.
        ledger: Its ledger; that of `limits.account` in this process or in `limits.path` when left out.
        clock: Unix time in seconds; windows come from it.
        draw: A number in [0, 1).
    """

    def __init__(
        self,
        limits: SpendLimits,
        *,
        ledger: Ledger | None = None,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = RANDOM.random,
    ) -> None:
        self.limits, self._clock, self._draw = limits, clock, draw
        self._ledger = ledger or ledger_of(limits)

    def __repr__(self) -> str:
        return f"<BudgetLimiter {self._ledger!r}>"

    async def reserve(self, request: JudgeRequest, model: str) -> Reservation:
        """Permission for one call.

        Raises:
            EvaluationSkipped: ``budget``: left out by chance, near a limit; ``budget_exhausted``: it does not fit.
        """
        price = price_of(self.limits.prices, model)
        limits = self.limits.of_call(request.purpose, priced=price is not None)
        if price is None and any(limit.scope == "unpriced" for limit in limits):
            log.warning("judge_model_has_no_price", part=model, limited_by="unpriced_tokens_*")
        if not limits:
            return Reservation(None, price, 1.0)
        now, draw, probability = self._clock(), self._draw(), 0.0
        keys = {limit: limit.key(now) for limit in limits}
        entry = Entry(uuid.uuid4().hex, tuple(keys.values()), most_of(request, price), now + self.limits.expires_s)

        def allows(totals: Totals, share: float) -> bool:
            nonlocal probability
            used = [(limit, totals[key]) for limit, key in keys.items()]
            probability = probability_of(used, entry.amount, self.limits.soft_limit, share)
            return draw < probability

        if await self._ledger.reserve(entry, allows, now):
            return Reservation(entry, price, probability)
        for limit in limits:
            if not probability_of([(limit, Amount())], entry.amount, 0.0, 1.0):
                log.warning("judge_limit_below_one_call", part=f"{limit.scope or 'total'} a {limit.period}")
        raise EvaluationSkipped(BUDGET if probability > 0.0 else BUDGET_EXHAUSTED)

    def settle(
        self,
        reservation: Reservation,
        usage: JudgeUsage | None,
        *,
        error_type: str | None = None,
        cost_usd: float | None = None,
    ) -> float | None:
        """Enter what a call has used, once for each reservation, however the call ended. Never waits.

        Where the usage is unknown (cancelled, timed out, the connection broke, an endpoint that does not count) the
        whole reservation is charged: the provider may have charged it. What a provider refused is not charged.

        Args:
            reservation: The call's.
            usage: What the provider counted; None where it did not.
            error_type: How the call failed; None where it did not.
            cost_usd: The cost by the judge itself; counts where there is no price.

        Returns:
            The cost in US dollars; None where it is unknown.
        """
        entry, price = reservation.entry, reservation.price
        usage = _plausible(usage)
        if cost_usd is not None and not 0.0 <= cost_usd <= _MAX_USD:
            cost_usd = None
        nano_usd = round((cost_usd or 0.0) * NANO)
        if usage is not None and price is not None:
            nano_usd = price.nano_usd(usage)
            cost_usd = nano_usd / NANO
        if entry is not None:
            if usage is not None:
                amount = Amount(nano_usd, sum(_counts(usage).values()))
            else:
                amount = Amount() if error_type in _NOT_CHARGED else entry.amount
            self._ledger.settle(entry, amount)
        return cost_usd

    def remaining_usd(self) -> dict[str, float]:
        """What is left in total, by period (``minute``, ``day``). With a file, as of this process's last call."""
        now = self._clock()
        limits = {limit.key(now): limit.nano_usd for limit in self.limits.limits("") if limit.nano_usd is not None}
        totals = self._ledger.known(limits)
        return {key.period: max(0, limits[key] - total.nano_usd) / NANO for key, total in totals.items()}


def probability_of(used: list[tuple[Limit, Amount]], wanted: Amount, soft_limit: float, share: float) -> float:
    """With what probability a call may be made: 1 below `soft_limit` of every limit, falling to 0 at the nearest one.

    ``min over limits of (limit - used) / (limit x (1 - soft_limit))``, at most 1; 0 where the call does not fit.
    """
    probability = 1.0
    for limit, total in used:
        for most, spent, more in (
            (limit.nano_usd, total.nano_usd, wanted.nano_usd), (limit.tokens, total.tokens, wanted.tokens)
        ):  # fmt: skip
            if most is None:
                continue
            room = most * share
            if room <= 0.0 or spent + more > room:
                return 0.0
            probability = min(probability, (room - spent) / (room * (1.0 - soft_limit)))
    return probability


def ledger_of(limits: SpendLimits) -> Ledger:
    """The ledger of an account in this process, or of an account in a file: the same one for all budgets."""
    key = (limits.account, None if limits.path is None else limits.path.absolute())
    if key not in _LEDGERS:
        _LEDGERS.setdefault(key, _new_ledger(limits))  # of two threads at once the first one's
    return _LEDGERS[key]


def _new_ledger(limits: SpendLimits) -> Ledger:
    if limits.path is None:
        return MemoryLedger()
    store = SqliteStore(limits.path, SCHEMA, event="judge_spend_file_unusable", patience_s=limits.patience_s)
    return SqliteLedger(store, limits.account, share_without_file=limits.share_without_file)


def _counts(usage: JudgeUsage) -> dict[str, int]:
    return {name: min(max(0, count), _MAX_TOKENS) for name, count in usage if name != "calls"}


def _plausible(usage: JudgeUsage | None) -> JudgeUsage | None:
    """The usage within what a call can use: a negative count would grow the budget."""
    if usage is None:
        return None
    counts = _counts(usage)
    return copy_with(usage, counts) if any(counts.values()) else None


# As many as settings name; none is ever dropped, since a limit is worth what its ledger knows.
_LEDGERS: Final[dict[tuple[str, object], Ledger]] = {}
_EXIT_S: Final = 1.0


@atexit.register
def _write_all() -> None:
    """What was spent while a file could not be used is written at the process's exit, where that works by then."""
    for ledger in _LEDGERS.values():
        if isinstance(ledger, SqliteLedger):
            ledger.flush(_EXIT_S)
