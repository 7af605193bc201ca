"""The budget: no call without a reservation, and fewer calls the nearer a limit is."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.judges.database import Database
from agenteval_otel.judges.ledgers import Entry, Held, Key, Ledger, MemoryLedger
from agenteval_otel.judges.prices import NANO, Amount, Price, estimated, price_of, tokens_of
from agenteval_otel.judges.shared_ledger import SCHEMA, SharedLedger
from agenteval_otel.judges.spend import PERIOD_S, Limit, SpendLimits
from agenteval_otel.models.value import replaced
from agenteval_otel.runtime.fork import ForkSafeLock
from agenteval_otel.runtime.log import log

if TYPE_CHECKING:
    from agenteval_otel.judges.request import JudgeRequest, JudgeUsage

__all__ = ["BUDGET", "BUDGET_EXHAUSTED", "BudgetLimiter", "Reservation", "ledger_of", "probability_of"]

BUDGET: Final = "budget"
"""Skip reason of a call that was left out by chance, because a limit is near: a sample."""
BUDGET_EXHAUSTED: Final = "budget_exhausted"
"""Skip reason of a call that does not fit into a limit: a loss."""
_MOST_TOKENS: Final = 1_000_000_000
_MOST_USD: Final = 1_000_000.0
_NOT_CHARGED: Final = frozenset(
    {"rate_limited", "overloaded", "server_error", "authentication", "bad_request", "not_found", "context_overflow",
     "breaker_open", "budget_exhausted"}
)  # fmt: skip


class Reservation(NamedTuple):
    """A call that may be made, to be settled once.

    Attributes:
        entry: Its place in the books; None where nothing is limited.
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
        ledger: The books; those of `limits.account` in this process or in `limits.path` when left out.
        clock: Unix time in seconds; windows come from it.
        draw: A number in [0, 1); that of the system when left out, which leaves the host's `random` alone.
    """

    def __init__(
        self,
        limits: SpendLimits,
        *,
        ledger: Ledger | None = None,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] | None = None,
    ) -> None:
        self.limits, self._clock = limits, clock
        self._ledger = ledger or ledger_of(limits)
        self._draw = draw or random.SystemRandom().random
        self._left: dict[Key, int] = {}
        self.refused = {BUDGET: 0, BUDGET_EXHAUSTED: 0}

    def __repr__(self) -> str:
        return f"<BudgetLimiter {self._ledger!r}, refused {self.refused}>"

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
        now = self._clock()
        keys = {limit: Key(limit.scope, limit.period, int(now // PERIOD_S[limit.period])) for limit in limits}
        entry = Entry(uuid.uuid4().hex, tuple(keys.values()), _most(request, price), now + self.limits.expires_s)
        draw, probabilities = self._draw(), [0.0]

        def allows(reserved: Held, share: float) -> bool:
            self._remember(keys, reserved)
            probabilities[0] = probability_of(
                [(limit, reserved[key]) for limit, key in keys.items()], entry.amount, self.limits.soft_limit, share
            )
            return draw < probabilities[0]

        if not await self._ledger.reserve(entry, allows, now):
            self._refuse(entry, limits, probabilities[0])
        return Reservation(entry, price, probabilities[0])

    def settle(
        self,
        reservation: Reservation,
        usage: JudgeUsage | None,
        *,
        error_type: str | None = None,
        cost_usd: float | None = None,
    ) -> float | None:
        """Enter what a call has used; to be called once for each reservation, however the call ended. Never waits.

        Where nobody knows what was used (cancelled, timed out, the connection broke, an endpoint that does not say) the
        reservation stays in the books as spent: it may have been charged. What a provider refused was not.

        Args:
            reservation: The call's.
            usage: What the provider counted; None where it did not say.
            error_type: How the call failed, where a `JudgeError` said so.
            cost_usd: What the judge itself says that it cost; counts where there is no price.

        Returns:
            What it cost in US dollars; None where that is not known.
        """
        entry, price = reservation.entry, reservation.price
        counted, cost_usd = _sensible(usage), _dollars(cost_usd)
        nano_usd = round((cost_usd or 0.0) * NANO)
        if counted is not None:
            nano_usd = price.nano_usd(counted) if price is not None else nano_usd
            amount = Amount(nano_usd, tokens_of(counted))
        elif error_type in _NOT_CHARGED:
            amount = Amount()
        else:
            amount = entry.amount if entry is not None else Amount()
        if entry is not None:
            self._ledger.settle(entry, amount)
        if counted is not None and price is not None:
            return nano_usd / NANO
        return cost_usd

    def remaining_usd(self) -> dict[str, float]:
        """What is left in total, by period (``minute``, ``day``): of books in this process by now, of a file's as this
        process saw it with its last call; a period of a file's in which it has not called yet is left out."""
        now = self._clock()
        keys = {
            Key(limit.scope, limit.period, int(now // PERIOD_S[limit.period])): limit
            for limit in self.limits.limits("") if limit.nano_usd is not None
        }  # fmt: skip
        reserved = self._ledger.known(keys)
        if reserved is not None:
            return {key.period: _left(limit, reserved[key]) / NANO for key, limit in keys.items()}
        return {key.period: left / NANO for key, left in list(self._left.items()) if key in keys}

    def _remember(self, keys: dict[Limit, Key], reserved: Held) -> None:
        left = {
            key: _left(limit, reserved[key])
            for limit, key in keys.items() if not limit.scope and limit.nano_usd is not None
        }  # fmt: skip
        self._left = left

    def _refuse(self, entry: Entry, limits: tuple[Limit, ...], probability: float) -> None:
        reason = BUDGET if probability > 0.0 else BUDGET_EXHAUSTED
        self.refused[reason] += 1
        for limit in limits:
            if not probability_of([(limit, Amount())], entry.amount, 0.0, 1.0):
                log.warning("judge_limit_below_one_call", part=f"{limit.scope or 'total'} a {limit.period}")
        raise EvaluationSkipped(reason)


def probability_of(reserved: list[tuple[Limit, Amount]], wanted: Amount, soft_limit: float, share: float) -> float:
    """With what probability a call may be made: 1 below `soft_limit` of every limit, falling to 0 at the nearest one.

    ``min over limits of (limit - used) / (limit x (1 - soft_limit))``, at most 1; 0 where the call does not fit.
    """
    probability = 1.0
    for limit, used in reserved:
        for most, spent, more in (
            (limit.nano_usd, used.nano_usd, wanted.nano_usd), (limit.tokens, used.tokens, wanted.tokens)
        ):  # fmt: skip
            if most is None:
                continue
            room = most * share
            if room <= 0.0 or spent + more > room:
                return 0.0
            probability = min(probability, (room - spent) / (room * (1.0 - soft_limit)))
    return probability


def _left(limit: Limit, reserved: Amount) -> int:
    return max(0, (limit.nano_usd or 0) - reserved.nano_usd)


def ledger_of(limits: SpendLimits) -> Ledger:
    """The books that this process keeps for an account, or for an account of a file."""
    key = (limits.account, None if limits.path is None else limits.path.absolute())
    with _lock:
        ledger = _ledgers.get(key)
        if ledger is None:
            ledger = _ledgers[key] = _ledger(limits)
    return ledger


def _ledger(limits: SpendLimits) -> Ledger:
    if limits.path is None:
        return MemoryLedger()
    database = Database(limits.path.absolute(), SCHEMA, patience_s=limits.patience_s)
    return SharedLedger(
        database, limits.account, share_without_file=limits.share_without_file, patience_s=limits.patience_s
    )


def _sensible(usage: JudgeUsage | None) -> JudgeUsage | None:
    """What was used, as far as a call can use it: a count below nothing would grow the budget."""
    if usage is None:
        return None
    counts = {name: min(max(0, count), _MOST_TOKENS) for name, count in usage if name != "calls"}
    return replaced(usage, counts) if any(counts.values()) else None


def _dollars(stated: float | None) -> float | None:
    return stated if stated is not None and 0.0 <= stated <= _MOST_USD else None


def _most(request: JudgeRequest, price: Price | None) -> Amount:
    read, answered = estimated(request)
    return Amount(0 if price is None else price.most_nano_usd(read, answered), read + answered)


# As many as settings name: a ledger is what a limit is worth, and none is forgotten.
_ledgers: dict[tuple[str, object], Ledger] = {}
_lock = ForkSafeLock()
