"""What a call of a model costs: prices by model, and an estimate of a call before it is made.

Amounts are whole numbers, billionths of a US dollar and tokens, so that sums are exact however they are split between
processes; what does not come out even is rounded up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components import Explained

if TYPE_CHECKING:
    from agenteval_otel.judges.request import JudgeRequest, JudgeUsage

__all__ = ["NANO", "Amount", "Price", "estimated", "price_of", "tokens_of"]

NANO: Final = 1_000_000_000
"""Billionths in a dollar."""
_BYTES_A_TOKEN: Final = 3
_FRAME_TOKENS: Final = 32
_DEAREST_WRITE: Final = 2.0


class Amount(NamedTuple):
    """What was or may be spent: billionths of a US dollar, and tokens."""

    nano_usd: int = 0
    tokens: int = 0

    def plus(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(self.nano_usd + other.nano_usd, self.tokens + other.tokens)

    def minus(self, other: Amount) -> Amount:
        """What is left without the other."""
        return Amount(self.nano_usd - other.nano_usd, self.tokens - other.tokens)


class Price(BaseModel, metaclass=Explained):
    """What a model costs, in US dollars a million tokens.

    Attributes:
        input: Tokens of the question.
        output: Tokens of the answer, with the model's thinking.
        cache_read: Tokens of the question that the provider had kept; those of `input` when left out.
        cache_write: Tokens that the provider keeps from now on; twice `input` when left out, the highest usual price.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)

    def nano_usd(self, usage: JudgeUsage) -> int:
        """The price of what was used, in billionths of a dollar, rounded up."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input * _DEAREST_WRITE if self.cache_write is None else self.cache_write
        return self._rounded(
            usage.input_tokens * self.input + usage.output_tokens * self.output
            + usage.cache_read_tokens * read + usage.cache_write_tokens * write
        )  # fmt: skip

    def most_nano_usd(self, input_tokens: int, output_tokens: int) -> int:
        """The price of so many tokens, where those of the question may all have to be kept at a price of their own."""
        each = max(self.input, self.cache_write or 0.0)
        return self._rounded(input_tokens * each + output_tokens * self.output)

    @staticmethod
    def _rounded(usd_per_million: float) -> int:
        return math.ceil(round(usd_per_million * NANO / 1_000_000, 6))


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The price of a model: that of its name, else of the longest name ending in ``*`` that it begins with; or None."""
    exact = prices.get(model)
    if exact is not None:
        return exact
    fitting = [name for name in prices if name.endswith("*") and model.startswith(name[:-1])]
    return prices[max(fitting, key=len)] if fitting else None


def estimated(request: JudgeRequest) -> tuple[int, int]:
    """The most tokens that a request may use: of the question, and of the answer.

    A token for every three bytes of UTF-8 (three letters, or one Chinese character), which is more than models count
    for ordinary text; and `max_tokens`.
    """
    form = json.dumps(request.answer_form, default=str)
    read = sum(len(text.encode("utf-8", "replace")) for text in (request.system, request.prompt, form))
    return math.ceil(read / _BYTES_A_TOKEN) + _FRAME_TOKENS, request.max_tokens


def tokens_of(usage: JudgeUsage) -> int:
    """All tokens of a usage, kept or not."""
    return usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens
