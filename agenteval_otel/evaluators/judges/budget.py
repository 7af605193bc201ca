"""The budget: prices and limits.

No call without a reservation, and fewer calls the nearer a limit is.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components.explained import IS_FILE, FriendlyErrors
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators.judges.answers import JudgeRequest
from agenteval_otel.evaluators.judges.ledger import (
    EXPIRES_S,
    Amount,
    Ledger,
    LedgerEntry,
    LedgerKey,
    MemoryLedger,
    SqliteLedger,
    Totals,
)
from agenteval_otel.models.judge_calls import JudgeUsage
from agenteval_otel.models.results import BUDGET, BUDGET_EXHAUSTED
from agenteval_otel.runtime.fork import RANDOM
from agenteval_otel.runtime.log import log

NANO: Final = 1_000_000_000
"""Billionths of a dollar in a dollar."""
Period = Literal["minute", "day"]
_PERIOD_S: Final[Mapping[Period, int]] = {"minute": 60, "day": 86_400}
_BYTES_PER_TOKEN: Final = 3
_FRAME_TOKENS: Final = 32
_HIGHEST_WRITE: Final = 2.0
_MAX_TOKENS: Final = 1_000_000_000
_MAX_USD: Final = 1_000_000.0
_NOT_CHARGED: Final = frozenset({
    "rate_limited", "overloaded", "server_error", "authentication", "bad_request", "not_found", "context_overflow",
    "breaker_open", "budget_exhausted",
})  # fmt: skip
_FROZEN: Final = ConfigDict(
    frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
)


class Price(BaseModel, metaclass=FriendlyErrors):
    """Sets what a model costs, in US dollars per million tokens.

    Attributes:
        input: Tokens of the question.
        output: Tokens of the answer, with the model's thinking.
        cache_read: Tokens of the question from the provider's cache. When left out, the price of
            `input`.
        cache_write: Tokens that the provider puts into its cache. When left out, twice `input`, the
            highest usual price.
    """

    model_config = _FROZEN

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)

    def nano_usd(self, usage: JudgeUsage) -> int:
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input * _HIGHEST_WRITE if self.cache_write is None else self.cache_write
        usual = usage.input_tokens * self.input + usage.output_tokens * self.output
        return _rounded_up(
            usual + usage.cache_read_tokens * read + usage.cache_write_tokens * write
        )

    def times(self, share: float) -> Price:
        """Return a share of the price, such as a provider asks for batches."""
        return self.model_copy(update={name: value and value * share for name, value in self})

    def most_nano_usd(self, input_tokens: int, output_tokens: int) -> int:
        # Those of the question may all have to be written into a cache.
        input_price = max(self.input, self.cache_write or 0.0)
        return _rounded_up(input_tokens * input_price + output_tokens * self.output)


def _rounded_up(usd_per_million: float) -> int:
    return math.ceil(round(usd_per_million * NANO / 1_000_000, 6))


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return the price of a model by its name, else by a name that ends in ``*``, or None.

    Of several such names that the model's name begins with, the longest counts.
    """
    if model in prices:
        return prices[model]
    prefixes = [name for name in prices if name.endswith("*") and model.startswith(name[:-1])]
    return prices[max(prefixes, key=len)] if prefixes else None


def most_of(request: JudgeRequest, price: Price | None) -> Amount:
    """Return the most that a request may use.

    That is a token for every three bytes of the question, 32 tokens around it, and `max_tokens`.
    """
    texts = (request.system, request.prompt, json.dumps(request.answer_form, default=str))
    size_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
    tokens = math.ceil(size_bytes / _BYTES_PER_TOKEN) + _FRAME_TOKENS
    nano_usd = 0 if price is None else price.most_nano_usd(tokens, request.max_tokens)
    return Amount(nano_usd, tokens + request.max_tokens)


class Limit(NamedTuple):
    """Sets the most that a scope may spend within a period.

    A scope is empty for all calls, ``purpose:<name>`` for one purpose, ``unpriced`` for models
    without a price.
    """

    scope: str
    period: Period
    unit: Literal["nano_usd", "tokens"]
    most: int

    def key(self, now: float) -> LedgerKey:
        return LedgerKey(self.scope, self.period, int(now // _PERIOD_S[self.period]))


class PurposeLimits(BaseModel, metaclass=FriendlyErrors):
    """Limits one purpose: the calls of one evaluator. What is left out is not limited.

    Attributes:
        usd_per_minute: US dollars within each minute of the clock.
        usd_per_day: US dollars within each day, UTC.
        tokens_per_minute: Tokens, of questions and answers, within each minute of the clock.
        tokens_per_day: Tokens within each day, UTC.
    """

    model_config = _FROZEN

    usd_per_minute: float | None = Field(default=None, gt=0)
    usd_per_day: float | None = Field(default=None, gt=0)
    tokens_per_minute: int | None = Field(default=None, gt=0)
    tokens_per_day: int | None = Field(default=None, gt=0)

    def limits(self, scope: str) -> Iterator[Limit]:
        """Yield its limits, as those of a scope."""
        for period in _PERIOD_S:
            usd = getattr(self, f"usd_per_{period}")
            if usd is not None:
                yield Limit(scope, period, "nano_usd", int(usd * NANO))
            tokens = getattr(self, f"tokens_per_{period}")
            if tokens is not None:
                yield Limit(scope, period, "tokens", tokens)


class SpendLimits(PurposeLimits):
    """Limits what the calls of a judge may cost.

    The dollar and token limits are for all calls of the account together. Before a call is made,
    the most that it may use must fit into every limit that applies to it.

    Attributes:
        prices: US dollars per million tokens, by the model's name. A name that ends in ``*`` is a
            prefix, and the longest match applies. If dollars are limited, models without a price
            are limited by `unpriced_tokens_per_day`.
        purposes: Limits of single purposes, by name (the criteria of an evaluator, joined).
        each_purpose: Limits of every purpose that `purposes` does not name.
        unpriced_tokens_per_day: Most tokens of models without a price, together, within a day.
        soft_limit: Share of a limit, 0 to 1, above which calls are sampled: the probability of a
            call falls from 1 there to 0 at the limit.
        account: Judges of one account share the limits: in this process, or in the file of `path`.
        path: SQLite file with the ledger, shared by processes and kept between their runs. None
            keeps it in this process.
        patience_s: How long a call waits for the file while others use it, in seconds.
    """

    prices: dict[str, Price] = {}
    purposes: dict[str, PurposeLimits] = {}
    each_purpose: PurposeLimits | None = None
    unpriced_tokens_per_day: int | None = Field(default=1_000_000, gt=0)
    soft_limit: float = Field(default=0.8, ge=0, lt=1)
    account: str = Field(default="judges", min_length=1, max_length=64)
    path: Annotated[Path | None, IS_FILE] = None
    patience_s: float = Field(default=1.0, gt=0, le=10)

    def of_call(self, purpose: str, *, priced: bool) -> list[Limit]:
        """Return the limits that a call has to fit into."""
        limits = list(self.limits(""))
        own = self.purposes.get(purpose, self.each_purpose)
        if own is not None:
            limits += own.limits(f"purpose:{purpose}")
        unpriced = self.unpriced_tokens_per_day
        limits_dollars = any(limit.unit == "nano_usd" for limit in limits)
        if limits_dollars and not priced and unpriced is not None:
            limits.append(Limit("unpriced", "day", "tokens", unpriced))
        return limits


class Reservation(NamedTuple):
    """Holds the reservation of a call that may be made, to be settled once.

    `entry` is None if nothing is limited.
    """

    entry: LedgerEntry | None = None
    price: Price | None = None
    probability: float = 1.0


class BudgetLimiter:
    """Reserves before each call what it may use at most, and settles after it what it has used.

    A call waits for a SQLite file, if one is set, and otherwise for nothing. The clock gives Unix
    time.
    """

    def __init__(
        self,
        limits: SpendLimits,
        *,
        ledger: Ledger | None = None,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = RANDOM.random,
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._draw = draw
        self.ledger = ledger or ledger_of(limits)

    async def reserve(
        self, request: JudgeRequest, model: str, *, price_share: float = 1.0
    ) -> Reservation:
        """Reserve what one call may use.

        `price_share` is the share of the usual price that is asked for the call.

        Raises:
            EvaluationSkipped: The call is not permitted (`BUDGET`, `BUDGET_EXHAUSTED`).
        """
        price = price_of(self.limits.prices, model)
        if price is not None:
            price = price.times(price_share)
        limits = self.limits.of_call(request.purpose, priced=price is not None)
        if price is None and any(limit.scope == "unpriced" for limit in limits):
            log.warning(
                "judge_model_has_no_price", part=model, limited_by="unpriced_tokens_per_day"
            )
        if not limits:
            return Reservation(price=price)
        now = self._clock()
        draw = self._draw()
        probability = 0.0
        keys = {limit: limit.key(now) for limit in limits}
        windows = tuple(dict.fromkeys(keys.values()))
        entry = LedgerEntry(uuid.uuid4().hex, windows, most_of(request, price), now + EXPIRES_S)

        def allows(totals: Totals, share: float) -> bool:
            nonlocal probability
            used = [(limit, totals[key]) for limit, key in keys.items()]
            probability = probability_of(used, entry.amount, self.limits.soft_limit, share)
            return draw < probability

        if await self.ledger.reserve(entry, allows, now):
            return Reservation(entry, price, probability)
        for limit in limits:
            if not probability_of([(limit, Amount())], entry.amount, 0.0, 1.0):
                log.warning(
                    "judge_limit_below_one_call", part=f"{limit.scope or 'total'} a {limit.period}"
                )
        raise EvaluationSkipped(BUDGET if probability > 0.0 else BUDGET_EXHAUSTED)

    def settle(
        self,
        reservation: Reservation,
        usage: JudgeUsage | None,
        *,
        error_type: str | None = None,
        cost_usd: float | None = None,
    ) -> float | None:
        """Enter what a call has used, once for each reservation, however the call ended.

        Never waits. If the usage is unknown (cancelled, timed out, the connection broke, an
        endpoint that does not count), the whole reservation is charged: the provider may have
        charged it. What a provider refused is not charged.

        Returns:
            The cost in US dollars. Without a price or counted tokens, it is `cost_usd`, which the
            judge has counted itself, or None if that is out of range.
        """
        # Within what a call can use: a negative count would grow the budget.
        counted = {
            name: min(max(0, count), _MAX_TOKENS) for name, count in usage or () if name != "calls"
        }
        tokens = sum(counted.values())
        if tokens and reservation.price is not None:
            cost_usd = reservation.price.nano_usd(JudgeUsage(**counted)) / NANO
        elif cost_usd is not None and not 0.0 <= cost_usd <= _MAX_USD:
            cost_usd = None
        entry = reservation.entry
        if entry is not None:
            if tokens:
                amount = Amount(round((cost_usd or 0.0) * NANO), tokens)
            else:
                amount = Amount() if error_type in _NOT_CHARGED else entry.amount
            self.ledger.settle(entry, amount)
        return cost_usd

    def correct(self, reservation: Reservation, usage: JudgeUsage) -> float | None:
        """Replace what was charged for a reservation as a whole by what was used.

        Return the cost in US dollars, or None without a price.
        """
        price = reservation.price
        entry = reservation.entry
        nano_usd = 0 if price is None else price.nano_usd(usage)
        if entry is not None:
            tokens = sum(count for name, count in usage if name != "calls")
            amount = Amount(nano_usd - entry.amount.nano_usd, tokens - entry.amount.tokens)
            self.ledger.settle(entry._replace(entry_id=uuid.uuid4().hex), amount)
        return None if price is None else nano_usd / NANO

    def remaining_usd(self) -> dict[str, float]:
        """Return what is left in total, in US dollars by period (``minute``, ``day``).

        With a file, the amounts are as of this process's last call.
        """
        now = self._clock()
        limits: dict[LedgerKey, int] = {}
        for limit in self.limits.limits(""):
            if limit.unit == "nano_usd":
                limits[limit.key(now)] = limit.most
        remaining: dict[str, float] = {}
        for key, total in self.ledger.known(limits).items():
            remaining[key.period] = max(0, limits[key] - total.nano_usd) / NANO
        return remaining


def probability_of(
    used: list[tuple[Limit, Amount]], wanted: Amount, soft_limit: float, share: float
) -> float:
    """Return the probability of a call: 0 if the call does not fit, at most 1.

    It is ``min over limits of (allowed - used) / (allowed x (1 - soft_limit))``, where ``allowed``
    is the limit times `share`.
    """
    probability = 1.0
    for limit, total in used:
        allowed = limit.most * share
        spent = getattr(total, limit.unit)
        if allowed <= 0.0 or spent + getattr(wanted, limit.unit) > allowed:
            return 0.0
        probability = min(probability, (allowed - spent) / (allowed * (1.0 - soft_limit)))
    return probability


# As many as settings name; none is ever dropped, since a limit is worth what its ledger knows.
_LEDGERS: Final[dict[tuple[str, object], Ledger]] = {}


def ledger_of(limits: SpendLimits) -> Ledger:
    """Return the ledger of an account, in this process or in a file.

    It is the same one for all budgets.
    """
    path = None if limits.path is None else limits.path.absolute()
    key = limits.account, path
    if key not in _LEDGERS:
        new: Ledger = MemoryLedger()
        if path is not None:
            new = SqliteLedger(path, limits.account, patience_s=limits.patience_s)
        _LEDGERS.setdefault(key, new)  # of two threads at once the first one's
    return _LEDGERS[key]
