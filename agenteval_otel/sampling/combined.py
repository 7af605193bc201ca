"""Samplers made of samplers.

Members share the response's draw, so their choices nest and the arithmetic stays exact: of an any-of the inclusion
probability is the largest ratio among the members that apply, of a first-of it is that of the one member that decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field, SerializeAsAny, field_validator

from agenteval_otel.components import ListOf, load_each, resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.sampling.base import Sampler, SamplingContext, SamplingDecision, expect_before_results
from agenteval_otel.scoring.probability import union
from agenteval_otel.semconv import NOT_SAMPLED

__all__ = ["AnyOfSampler", "FirstOfSampler", "union_of"]

_NO_SAY = SamplingDecision(False, None, "none", applies=False)
# By [applies x 2 + surely sampled].
_UNSETTLED = tuple(
    SamplingDecision(surely, None, "undecided", applies=applies, settled=False)
    for applies in (False, True)
    for surely in (False, True)
)


class _Combined(Sampler):
    """What both combinations are made of.

    Attributes:
        samplers: The members, in order; instances or ``{type: ...}`` mappings.
    """

    keeps_memo: ClassVar[bool] = True

    samplers: ListOf[SerializeAsAny[Sampler]] = Field(min_length=1, max_length=32)

    def __str__(self) -> str:
        return f"{self.type.replace('_', ' ')}: {'; '.join(map(str, self.samplers))}"

    @field_validator("samplers", mode="before")
    @classmethod
    def _members(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of samplers")
        members = load_each(lambda item, path: resolve(Sampler, item, path=path), value, path="samplers")
        for index, member in enumerate(members):
            expect_before_results(member, path=f"samplers[{index}]")
            if member.own_randomness:
                raise ConfigurationError(
                    f"{member.type!r} draws by itself, and probabilities of different draws do not nest: "
                    f"put the {cls.component_type} inside of it",
                    path=f"samplers[{index}]",
                )
        return members

    @cached_property
    def _deciders(self) -> tuple[tuple[Callable[[SamplingContext], SamplingDecision], bool], ...]:
        """Each member's `decide`, and whether what it settled must be kept because it counts (a rate limit)."""
        return tuple((member.decide, member.counts_calls) for member in self.samplers)


class FirstOfSampler(_Combined, type="first_of"):
    """The first member that applies decides: rules from the most to the least important, a ratio as the last.

    ``[{type: error}, {type: slow, over_s: 5, ratio: 0.5}, {type: ratio, ratio: 0.05}]`` evaluates every failure, half
    of the slow answers and one in twenty of the rest.
    """

    def decide(self, context: SamplingContext) -> SamplingDecision:
        waiting, surely = False, True
        last = _NO_SAY
        for decide, counts in self._deciders:
            decision = _once(decide, context) if counts else decide(context)
            if not decision.settled:
                # Whichever of those that wait turns out to decide: if all of them sample, it is known already.
                waiting, surely = True, surely and decision.sampled
            if decision.applies:
                last = decision
                break
        if not waiting:
            return last
        return _UNSETTLED[2 * last.applies + (surely and last.sampled)]


class AnyOfSampler(_Combined, type="any_of"):
    """Samples what any member samples."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return union_of([_once(decide, context) if counts else decide(context) for decide, counts in self._deciders])


def _once(decide: Callable[[SamplingContext], SamplingDecision], context: SamplingContext) -> SamplingDecision:
    """A member's decision, made once a call however often the combination is asked."""
    if context.memo is None:
        return decide(context)
    key = id(decide)
    kept = context.memo.get(key)
    if kept is None:
        kept = context.memo[key] = decide(context)
    return kept


def union_of(known: Sequence[SamplingDecision]) -> SamplingDecision:
    """Any of: the most likely of the members that sample speaks; if nobody does, one whose outcome is a loss."""
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
    # Of those that sample nothing only the unknown ones count: they share the randomness of those that do.
    unknown = [None for decision in saying if decision.probability is None]
    return chosen._replace(probability=union([chosen.probability, *unknown]), settled=settled)


def _likelihood(decision: SamplingDecision) -> float:
    return -1.0 if decision.probability is None else decision.probability
