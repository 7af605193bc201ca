"""Settings of what judges may spend: prices, and limits a minute and a day, for each purpose and in total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agenteval_otel.components import Explained
from agenteval_otel.judges.prices import NANO, Price

__all__ = ["PERIOD_S", "Limit", "Period", "PurposeLimits", "SpendLimits"]

Period = Literal["minute", "day"]
PERIOD_S: Final[Mapping[Period, int]] = {"minute": 60, "day": 86_400}
"""Length of a period in seconds; a day begins at midnight UTC."""


class Limit(NamedTuple):
    """How much may be spent within a period by a scope; None is no limit.

    Attributes:
        scope: Empty for all calls, ``purpose:<name>`` for one purpose, ``unpriced`` for models without a price.
    """

    scope: str
    period: Period
    nano_usd: int | None
    tokens: int | None


class PurposeLimits(BaseModel, metaclass=Explained):
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

    @property
    def limits_usd(self) -> bool:
        """Whether it limits dollars."""
        return self.usd_per_minute is not None or self.usd_per_day is not None

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
        prices: US dollars a million tokens, by the model's name; a name that ends in ``*`` stands for all that begin
            so, the longest wins. A model without a price is held to `unpriced_tokens_per_minute` and
            `unpriced_tokens_per_day` where dollars are limited.
        purposes: Limits of single purposes, by name (the criteria of an evaluator, joined).
        each_purpose: Limits of every purpose that `purposes` does not name.
        unpriced_tokens_per_minute: Most tokens of models without a price, together, within a minute.
        unpriced_tokens_per_day: The same within a day.
        soft_limit: Share of a limit, 0 to 1, above which calls are sampled: the probability of a call falls from 1
            there to 0 at the limit.
        account: Judges of one account share the limits: in this process, or in the file of `path`.
        path: SQLite file that keeps what was spent, shared by processes and kept between their runs; None keeps it in
            this process.
        patience_s: How long a call waits for the file while others use it, in seconds.
        share_without_file: Share of each limit, 0 to 1, that this process may spend while the file cannot be used.
        expires_s: After how many seconds the reservation of a process that was killed in the middle of a call is
            given back; longer than any call takes.
    """

    prices: dict[str, Price] = {}
    purposes: dict[str, PurposeLimits] = {}
    each_purpose: PurposeLimits | None = None
    unpriced_tokens_per_minute: int | None = Field(default=None, gt=0)
    unpriced_tokens_per_day: int | None = Field(default=1_000_000, gt=0)
    soft_limit: float = Field(default=0.8, ge=0, lt=1)
    account: str = Field(default="judges", min_length=1, max_length=64)
    path: Path | None = None
    patience_s: float = Field(default=1.0, gt=0, le=10)
    share_without_file: float = Field(default=0.1, ge=0, le=1)
    expires_s: float = Field(default=900.0, gt=0, le=86_400)

    @field_validator("path")
    @classmethod
    def _path_is_no_folder(cls, value: Path | None) -> Path | None:
        if value is not None and value.is_dir():
            raise ValueError("expected a file, found a folder")
        return value

    def of_call(self, purpose: str, *, priced: bool) -> tuple[Limit, ...]:
        """The limits that a call has to fit into."""
        own = self.purposes.get(purpose, self.each_purpose)
        limits = list(self.limits(""))
        if own is not None:
            limits += own.limits(f"purpose:{purpose}")
        if not priced and (self.limits_usd or (own is not None and own.limits_usd)):
            unpriced = PurposeLimits(
                tokens_per_minute=self.unpriced_tokens_per_minute, tokens_per_day=self.unpriced_tokens_per_day
            )
            limits += unpriced.limits("unpriced")
        return tuple(limits)
