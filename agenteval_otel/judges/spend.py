"""Settings of what judges may spend: prices, and limits per minute and day, for each purpose and in total."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.judges.ledger import Amount, Key
from agenteval_otel.judges.request import JudgeRequest
from agenteval_otel.judges.sqlite_store import IS_FILE
from agenteval_otel.models.judge_calls import JudgeUsage

NANO: Final = 1_000_000_000
"""Billionths of a dollar in a dollar."""
Period = Literal["minute", "day"]
_PERIOD_S: Final[Mapping[Period, int]] = {"minute": 60, "day": 86_400}
_BYTES_PER_TOKEN: Final = 3
_FRAME_TOKENS: Final = 32
_HIGHEST_WRITE: Final = 2.0


class Price(BaseModel, metaclass=FriendlyErrors):
    """What a model costs, in US dollars per million tokens.

    Attributes:
        input: Tokens of the question.
        output: Tokens of the answer, with the model's thinking.
        cache_read: Tokens of the question from the provider's cache; those of `input` when left out.
        cache_write: Tokens that the provider puts into its cache; twice `input` when left out, the highest usual price.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)

    def nano_usd(self, usage: JudgeUsage) -> int:
        """The price of a usage, in billionths of a dollar, rounded up."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input * _HIGHEST_WRITE if self.cache_write is None else self.cache_write
        return _rounded_up(
            usage.input_tokens * self.input + usage.output_tokens * self.output
            + usage.cache_read_tokens * read + usage.cache_write_tokens * write
        )  # fmt: skip

    def most_nano_usd(self, input_tokens: int, output_tokens: int) -> int:
        """The highest price of so many tokens: those of the question may all have to be written into a cache."""
        return _rounded_up(input_tokens * max(self.input, self.cache_write or 0.0) + output_tokens * self.output)


def _rounded_up(usd_per_million: float) -> int:
    return math.ceil(round(usd_per_million * NANO / 1_000_000, 6))


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The price of a model by its name, else by the longest name ending in ``*`` that it begins with; or None."""
    exact = prices.get(model)
    if exact is not None:
        return exact
    prefixes = [name for name in prices if name.endswith("*") and model.startswith(name[:-1])]
    return prices[max(prefixes, key=len)] if prefixes else None


def most_of(request: JudgeRequest, price: Price | None) -> Amount:
    """The most that a request may use: a token for every three bytes of the question, and `max_tokens`.

    Three bytes of UTF-8 are three letters or one Chinese character: models count fewer tokens for ordinary text.
    """
    texts = (request.system, request.prompt, json.dumps(request.answer_form, default=str))
    size_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
    tokens = math.ceil(size_bytes / _BYTES_PER_TOKEN) + _FRAME_TOKENS
    nano_usd = 0 if price is None else price.most_nano_usd(tokens, request.max_tokens)
    return Amount(nano_usd, tokens + request.max_tokens)


class Limit(NamedTuple):
    """How much may be spent within a period by a scope; None is no limit.

    Attributes:
        scope: Empty for all calls, ``purpose:<name>`` for one purpose, ``unpriced`` for models without a price.
    """

    scope: str
    period: Period
    nano_usd: int | None
    tokens: int | None

    def key(self, now: float) -> Key:
        """The window of a Unix time."""
        return Key(self.scope, self.period, int(now // _PERIOD_S[self.period]))


class PurposeLimits(BaseModel, metaclass=FriendlyErrors):
    """Limits of one purpose: the calls of one evaluator. What is left out is not limited.

    Attributes:
        usd_per_minute: US dollars within each minute of the clock.
        usd_per_day: US dollars within each day, UTC.
        tokens_per_minute: Tokens, of questions and answers, within each minute of the clock.
        tokens_per_day: Tokens within each day, UTC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    usd_per_minute: float | None = Field(default=None, gt=0)
    usd_per_day: float | None = Field(default=None, gt=0)
    tokens_per_minute: int | None = Field(default=None, gt=0)
    tokens_per_day: int | None = Field(default=None, gt=0)

    def limits(self, scope: str) -> Iterator[Limit]:
        """Its limits, as those of a scope."""
        periods: tuple[tuple[Period, float | None, int | None], ...] = (
            ("minute", self.usd_per_minute, self.tokens_per_minute), ("day", self.usd_per_day, self.tokens_per_day)
        )  # fmt: skip
        for period, usd, tokens in periods:
            if usd is not None or tokens is not None:
                yield Limit(scope, period, None if usd is None else int(usd * NANO), tokens)


class SpendLimits(PurposeLimits):
    """What the calls of a judge may cost. The limits above are those of all calls in the account together.

    A call must fit into every limit that applies to it, with the most that it may use, before it is made.

    Attributes:
        prices: US dollars per million tokens, by the model's name; a name that ends in ``*`` stands for all that begin
            so, the longest wins. A model without a price is held to `unpriced_tokens_per_minute` and
            `unpriced_tokens_per_day` where dollars are limited.
        purposes: Limits of single purposes, by name (the criteria of an evaluator, joined).
        each_purpose: Limits of every purpose that `purposes` does not name.
        unpriced_tokens_per_minute: Most tokens of models without a price, together, within a minute.
        unpriced_tokens_per_day: The same within a day.
        soft_limit: Share of a limit, 0 to 1, above which calls are sampled: the probability of a call falls from 1
            there to 0 at the limit.
        account: Judges of one account share the limits: in this process, or in the file of `path`.
        path: SQLite file with the ledger, shared by processes and kept between their runs; None keeps it in this
            process.
        patience_s: How long a call waits for the file while others use it, in seconds.
        share_without_file: Share of each limit, 0 to 1, that this process may spend while the file cannot be used.
        expires_s: After how many seconds the reservation of a process that was killed in the middle of a call is
            released; longer than any call takes.
    """

    prices: dict[str, Price] = {}
    purposes: dict[str, PurposeLimits] = {}
    each_purpose: PurposeLimits | None = None
    unpriced_tokens_per_minute: int | None = Field(default=None, gt=0)
    unpriced_tokens_per_day: int | None = Field(default=1_000_000, gt=0)
    soft_limit: float = Field(default=0.8, ge=0, lt=1)
    account: str = Field(default="judges", min_length=1, max_length=64)
    path: Annotated[Path | None, IS_FILE] = None
    patience_s: float = Field(default=1.0, gt=0, le=10)
    share_without_file: float = Field(default=0.1, ge=0, le=1)
    expires_s: float = Field(default=900.0, gt=0, le=86_400)

    def of_call(self, purpose: str, *, priced: bool) -> tuple[Limit, ...]:
        """The limits that a call has to fit into."""
        limits = list(self.limits(""))
        own = self.purposes.get(purpose, self.each_purpose)
        if own is not None:
            limits += own.limits(f"purpose:{purpose}")
        if not priced and any(limit.nano_usd is not None for limit in limits):
            unpriced = PurposeLimits(
                tokens_per_minute=self.unpriced_tokens_per_minute, tokens_per_day=self.unpriced_tokens_per_day
            )
            limits += unpriced.limits("unpriced")
        return tuple(limits)
