"""Samplers made of samplers, which share the response's randomness."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field, SerializeAsAny, field_validator

from agenteval_otel.components import ListOf
from agenteval_otel.components.loading import load_each, resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models.scoring.probability import SamplingDecision
from agenteval_otel.sampling.base import Sampler, SamplingContext, expect_before_results
from agenteval_otel.sampling.key import SamplingKey
from agenteval_otel.sampling.ratio import RatioSampler

_MAX_CHARS = 512  # of a conversation's id
_BEGINNING = 256  # characters that count of a longer id
_NO_SAY = SamplingDecision(sampled=False, probability=None, reason="none", applies=False)


def _unsettled(*, applies: bool, is_sampled: bool) -> SamplingDecision:
    return SamplingDecision(
        sampled=is_sampled, probability=None, reason="undecided", applies=applies, settled=False
    )


# By whether it applies, and whether the call is sampled in any case. They are made once, because
# every call that waits for its answer is given one of them.
_UNSETTLED = {
    (False, False): _unsettled(applies=False, is_sampled=False),
    (False, True): _unsettled(applies=False, is_sampled=True),
    (True, False): _unsettled(applies=True, is_sampled=False),
    (True, True): _unsettled(applies=True, is_sampled=True),
}


class FirstOfSampler(Sampler, type="first_of"):
    """Decides by the first member that applies.

    List rules from the most to the least important, and a ratio as the last. So
    ``[{type: error}, {type: slow, above_s: 5, ratio: 0.5}, {type: ratio, ratio: 0.05}]`` evaluates
    every failure, half of the slow answers and one in twenty of the rest. With the largest ratio
    first it samples what any member samples.

    Attributes:
        samplers: The members, in order: instances or ``{type: ...}`` mappings.
    """

    keeps_memo: ClassVar[bool] = True
    samplers: ListOf[SerializeAsAny[Sampler]] = Field(min_length=1, max_length=32)

    def __str__(self) -> str:
        numbered = [f"({number}) {sampler}" for number, sampler in enumerate(self.samplers, 1)]
        return f"first of: {', '.join(numbered)}"

    @field_validator("samplers", mode="before")
    @classmethod
    def _members(cls, value: object) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of samplers")
        members = load_each(
            lambda item, path: resolve(Sampler, item, path=path), value, path="samplers"
        )
        for index, member in enumerate(members):
            path = f"samplers[{index}]"
            expect_before_results(member, path=path)
            if member.own_randomness:
                wrong = f"{member.type!r} has its own randomness, and probabilities of different ones do not nest"
                raise ConfigurationError(f"{wrong}: put the first_of inside of it", path=path)
        return members

    @cached_property
    def _deciders(self) -> tuple[tuple[Callable[[SamplingContext], SamplingDecision], bool], ...]:
        """Return each member's `decide`, and whether its decision is kept because it counts calls."""
        return tuple((member.decide, member.counts_calls) for member in self.samplers)

    @property
    def least_probability(self) -> float | None:
        above_0: list[float] = []
        for member in self.samplers:
            least = member.least_probability
            if least is None:
                return None
            if least:
                above_0.append(least)
        return min(above_0, default=0.0)

    def decide(self, context: SamplingContext) -> SamplingDecision:
        is_one_waiting = False
        all_waiting_sample = True
        first_applying = _NO_SAY
        for decide, counts in self._deciders:
            decision = _once(decide, context) if counts else decide(context)
            if not decision.settled:
                # If each one that may still decide samples, the call is sampled whichever decides.
                is_one_waiting = True
                all_waiting_sample = all_waiting_sample and decision.sampled
            if decision.applies:
                first_applying = decision
                break
        if not is_one_waiting:
            return first_applying
        is_sampled = all_waiting_sample and first_applying.sampled
        return _UNSETTLED[first_applying.applies, is_sampled]


def _once(
    decide: Callable[[SamplingContext], SamplingDecision], context: SamplingContext
) -> SamplingDecision:
    """Return a member's decision, made once a call however often the combination is asked.

    The memo knows the member by the id of its bound method, which `_deciders` keeps alive.
    """
    if context.memo is None:
        return decide(context)
    kept = context.memo.get(id(decide))
    if kept is None:
        kept = decide(context)
        context.memo[id(decide)] = kept
    return kept


class ConversationSampler(Sampler, type="conversation"):
    """Samples conversations instead of single responses: all turns or none.

    It is decided after the answer, by the id.

    The randomness is made from the conversation's id with the key of sampling, so processes with
    the same key decide alike. The id is that of `annotate`, else the argument of that name. A
    response without an id has its trace's randomness.

    Attributes:
        ratio: Share in [0, 1] of the conversations.
        sampler: What decides with the conversation's randomness instead of the ratio: rules, or a
            combination.
    """

    own_randomness: ClassVar[bool] = True
    keeps_memo: ClassVar[bool] = True
    ratio: float = Field(default=1.0, ge=0, le=1)
    sampler: SerializeAsAny[Sampler] | None = None

    @field_validator("sampler", mode="before")
    @classmethod
    def _sampler(cls, value: object) -> Any:
        if value is None:
            return None
        return expect_before_results(resolve(Sampler, value, path="sampler"), path="sampler")

    @cached_property
    def _inner(self) -> Sampler:
        return self.sampler or RatioSampler(ratio=self.ratio)

    @property
    def least_probability(self) -> float | None:
        return self._inner.least_probability

    def decide(self, context: SamplingContext) -> SamplingDecision:
        answer = context.answer
        built = context.evaluation_input
        if answer is None and built is None:
            return SamplingDecision(False, None, self.type, settled=False)
        conversation = answer.conversation_id if answer is not None else None
        if built is not None:
            conversation = built.conversation_id or built.session_id or conversation
        if conversation is None:
            return self._inner.decide(context)
        randomness = randomness_of_conversation(conversation, context.key)
        decision = self._inner.decide(context._replace(randomness=randomness))
        reason = self.type if decision.reason == RatioSampler.component_type else decision.reason
        return decision._replace(randomness=randomness, reason=reason)


def randomness_of_conversation(conversation: str, key: SamplingKey) -> int:
    """Return a conversation's randomness in [0, 2^64).

    It is made from its id. Of an id above 512 characters the first 256 count.
    """
    kept = conversation if len(conversation) <= _MAX_CHARS else conversation[:_BEGINNING]
    return key.of_text(kept.encode("utf-8", "surrogatepass"), person=b"conversation")
