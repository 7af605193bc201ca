"""Samplers made of samplers.

Members share the response's draw, so their choices nest and the arithmetic stays exact: of an any-of the inclusion
probability is the largest ratio among the members that apply, of a first-of it is that of the one member that decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import Field, SerializeAsAny, field_validator

from agenteval_otel.components import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.sampling.base import Sampler, SamplingContext, SamplingDecision
from agenteval_otel.semconv import NOT_SAMPLED

__all__ = ["AnyOfSampler", "FirstOfSampler"]

_NO_SAY = SamplingDecision(False, None, "none", applies=False)


class _Combined(Sampler):
    """What both combinations are made of.

    Attributes:
        samplers: The members, in order; instances or ``{type: ...}`` mappings.
    """

    keeps_memo: ClassVar[bool] = True

    samplers: tuple[SerializeAsAny[Sampler], ...] = Field(min_length=1, max_length=32)

    @field_validator("samplers", mode="before")
    @classmethod
    def _members(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of samplers")
        members = tuple(resolve(Sampler, item, path=f"samplers[{index}]") for index, item in enumerate(value))
        for index, member in enumerate(members):
            if member.own_draw:
                raise ConfigurationError(
                    f"{member.type!r} draws by itself, and probabilities of different draws do not nest: "
                    f"put the {cls.component_type} inside of it",
                    path=f"samplers[{index}]",
                )
        return members

    def ask(self, member: Sampler, context: SamplingContext) -> SamplingDecision:
        """A member's decision; what is settled is not asked again, because a rate limit counts."""
        if context.memo is None:
            return member.decide(context)
        decision = context.memo.get(id(member))
        if decision is None:
            decision = member.decide(context)
            if decision.settled:
                context.memo[id(member)] = decision
        return decision


class FirstOfSampler(_Combined, type="first_of"):
    """The first member that applies decides: rules from the most to the least important, a ratio as the last.

    ``[{type: error}, {type: slow, over_s: 5, ratio: 0.5}, {type: ratio, ratio: 0.05}]`` evaluates every failure, half
    of the slow answers and one in twenty of the rest.
    """

    def decide(self, context: SamplingContext) -> SamplingDecision:
        waiting: list[SamplingDecision] = []
        last = _NO_SAY
        for member in self.samplers:
            decision = self.ask(member, context)
            if not decision.settled:
                waiting.append(decision)
            if decision.applies:
                last = decision
                break
        if not waiting:
            return last
        # Whichever of them turns out to decide, it samples: then it is known before the answer.
        surely = last.sampled and all(decision.sampled for decision in waiting)
        return SamplingDecision(surely, None, last.reason, applies=last.applies, settled=False)


class AnyOfSampler(_Combined, type="any_of"):
    """Samples what any member samples."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        decisions = [self.ask(member, context) for member in self.samplers]
        return _union(decisions)


def _union(decisions: Iterable[SamplingDecision]) -> SamplingDecision:
    """The most likely of the members that sample speaks for all; nobody samples: the one whose outcome is a loss."""
    known = list(decisions)
    saying = [decision for decision in known if decision.applies]
    settled = all(decision.settled for decision in known)
    if not saying:
        return _NO_SAY if settled else _NO_SAY._replace(settled=False)
    taken = [decision for decision in saying if decision.sampled]
    if not taken:
        lost = next((decision for decision in saying if decision.outcome != NOT_SAMPLED), None)
        chosen = lost or max(saying, key=_likelihood)
        return chosen._replace(settled=settled)
    chosen = max(taken, key=_likelihood)
    # A member of unknown probability may have raised the union's above the largest known one, unless that is certain.
    unknown = any(decision.probability is None for decision in saying) and chosen.probability != 1.0
    return chosen._replace(probability=None if unknown else chosen.probability, settled=settled)


def _likelihood(decision: SamplingDecision) -> float:
    return -1.0 if decision.probability is None else decision.probability
