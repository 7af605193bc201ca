"""Sampling of whole conversations: all turns of one conversation, or none.

The draw is made from the conversation's id instead of the trace's, so every turn, in every process, is decided alike.
The id is what `annotate` said, else the argument of that name (`docs/capture.md`); a response without one falls back on
its trace's draw.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar

from pydantic import Field, SerializeAsAny, field_validator

from agenteval_otel.components import resolve
from agenteval_otel.sampling.base import Sampler, SamplingContext, SamplingDecision, expect_before_results
from agenteval_otel.sampling.ratio import RatioSampler

__all__ = ["ConversationSampler", "randomness_of_conversation"]


class ConversationSampler(Sampler, type="conversation"):
    """Samples conversations instead of single responses; decided after the answer, when the id is known.

    Attributes:
        ratio: Share in [0, 1] of the conversations.
        sampler: What decides with the conversation's draw instead of the ratio: rules, or a combination.
    """

    own_randomness: ClassVar[bool] = True
    keeps_memo: ClassVar[bool] = True

    ratio: float = Field(default=1.0, ge=0, le=1)
    sampler: SerializeAsAny[Sampler] | None = None

    @field_validator("sampler", mode="before")
    @classmethod
    def _sampler(cls, value: Any) -> Any:
        if value is None:
            return None
        return expect_before_results(resolve(Sampler, value, path="sampler"), path="sampler")

    @cached_property
    def _inner(self) -> Sampler:
        return self.sampler or RatioSampler(ratio=self.ratio)

    def decide(self, context: SamplingContext) -> SamplingDecision:
        known = context.evaluation_input
        if context.answer is None and known is None:
            return _UNSETTLED
        conversation = context.answer.conversation_id if context.answer is not None else None
        if known is not None:
            conversation = known.conversation_id or known.session_id or conversation
        if conversation is None:
            return self._inner.decide(context)
        randomness = randomness_of_conversation(conversation)
        decision = self._inner.decide(context._replace(randomness=randomness))
        reason = self.type if decision.reason == RatioSampler.component_type else decision.reason
        return decision._replace(randomness=randomness, reason=reason)


_MOST_CHARS, _BEGINNING = 512, 256
_UNSETTLED = SamplingDecision(False, None, "conversation", settled=False)


def randomness_of_conversation(conversation: str) -> int:
    """A conversation's draw in [0, 2^64): BLAKE2b of its id in eight bytes, the same in every process.

    Of an id that is too long to be kept whole only the beginning counts: here on the caller's thread, and later.
    """
    if len(conversation) > _MOST_CHARS:
        conversation = conversation[:_BEGINNING]
    return int.from_bytes(blake2b(conversation.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
