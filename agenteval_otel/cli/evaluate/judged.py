"""Judged: what the judges of a run were asked, and what that took."""

from __future__ import annotations

from typing import Any

from agenteval_otel.models.judge_calls import CACHED, JudgeCall

__all__ = ["Judged"]


class Judged:
    """Sums over the questions of a run: a `models.judge_calls.CallObserver`.

    Attributes:
        calls: Questions that were asked, failed ones too.
        cached: Questions that had been answered before.
        refused: Questions that a guard did not let through.
        tokens: Of questions and answers, as far as providers count.
        cost_usd: US dollars, as far as prices are known; None where none is.
    """

    def __init__(self) -> None:
        self.calls = self.cached = self.refused = self.tokens = 0
        self.cost_usd: float | None = None

    def __repr__(self) -> str:
        return f"<Judged {self}>"

    def __str__(self) -> str:
        counts = ((self.cached, "answered before"), (self.refused, "refused by a guard"))
        more = [f"{count:,} {words}" for count, words in counts if count]
        cost = [] if self.cost_usd is None else [f"{self.cost_usd:.4f} US dollars"]
        return ", ".join([f"{self.calls:,} calls of judges", *more, f"{self.tokens:,} tokens", *cost])

    def __bool__(self) -> bool:
        return bool(self.calls or self.cached or self.refused)

    def on_call(self, call: JudgeCall) -> None:
        """Add one question."""
        self.calls += call.asked
        self.cached += call.outcome == CACHED
        self.refused += not call.asked and call.outcome != CACHED
        if call.usage is not None:
            used = call.usage
            self.tokens += used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens
        if call.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + call.cost_usd

    def as_json(self) -> dict[str, Any]:
        """The sums by name."""
        return {**vars(self)}
