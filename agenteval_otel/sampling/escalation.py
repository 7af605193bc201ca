"""Escalation: which of the evaluated answers go on to the evaluators that cost more.

The cheap evaluators run first; rules on what they found (`sampling.results`), and on the answer itself, give some
answers a high probability of going on, and a baseline gives every answer a small one. Both use one number, which is
made from the answer's randomness: what goes on at the baseline goes on at every larger ratio too, the probability of
the union is the largest ratio that applies, and every process decides alike. The number is salted, so it is independent
of the randomness that sampled the answer, and the probabilities multiply.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator, model_validator

from agenteval_otel.components import Explained, ListOf, PartError, load_each, resolve
from agenteval_otel.components.component import FreshCopies
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.sampling.base import Sampler, SamplingContext, SamplingDecision, threshold_of
from agenteval_otel.sampling.combined import union_of
from agenteval_otel.sampling.rules import RuleSampler
from agenteval_otel.sampling.trace import LOW_64
from agenteval_otel.scoring.probability import probability_of

__all__ = ["BASELINE", "Escalation", "EscalationDecider", "load_escalation", "randomness_of_input", "second_randomness"]

BASELINE = "baseline"
"""The reason of what goes on although no rule says so."""
_SALT = b"escalation"
_NO = ("false", "no", "off")


class Escalation(FreshCopies, BaseModel, metaclass=Explained):
    """Cheap evaluators first; what they found decides which answers the others see.

    Attributes:
        baseline_rate: Share of the answers, 0 to 1, that goes on whatever the rules say. With 0 the answers that no
            rule matches are never seen, so nothing is known of them: the probability is then unknown.
        rules: Samplers that are rules: ``score``, ``label``, ``failure``, ``disagreement``, ``slow``, ``error``,
            ``pattern``, ``agent``, ``function``. Each has a ratio, 1 when left out; the largest that matches holds.
        criteria: The criteria whose evaluators wait for the others; those of all that ask a model when empty.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True, hide_input_in_errors=True,
        ignored_types=(cached_property,),
    )  # fmt: skip

    baseline_rate: float = Field(default=0.05, ge=0, le=1)
    rules: ListOf[SerializeAsAny[Sampler]] = Field(default=(), max_length=32)
    criteria: ListOf[str] = ()

    @field_validator("baseline_rate", mode="before")
    @classmethod
    def _is_a_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("expected a number from 0 to 1")
        return value

    @field_validator("rules", mode="before")
    @classmethod
    def _load_rules(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of rules")
        try:
            return load_each(_load_rule, value, path="rules")
        except ConfigurationError as failure:
            raise PartError(failure) from None

    @model_validator(mode="after")
    def _escalates_something(self) -> Self:
        if not self.baseline_rate and not self.rules:
            raise ValueError("no answer goes on: expected a baseline_rate above 0, or rules")
        return self

    @cached_property
    def baseline_decisions(self) -> tuple[SamplingDecision, SamplingDecision]:
        """The baseline's no and yes."""
        return SamplingDecision(False, self.baseline_rate, BASELINE), SamplingDecision(
            True, self.baseline_rate, BASELINE
        )

    @cached_property
    def baseline_threshold(self) -> int:
        """The randomness below which the baseline samples an answer."""
        return threshold_of(self.baseline_rate)


class EscalationDecider:
    """Whether one answer goes on: asked once before the first stage and, while that left it open, once after it.

    A rule that raises has no say, and stands in `broken`: the others and the baseline decide, with the probability that
    they give.

    Args:
        escalation: The rules.
        evaluation_input: The answer.
        draw: The one that sampled it, in [0, 2^64); made from the input when None.
    """

    def __init__(self, escalation: Escalation, evaluation_input: EvaluationInput, randomness: int | None) -> None:
        first = randomness_of_input(evaluation_input) if randomness is None else randomness
        self._escalation = escalation
        self._context = SamplingContext(
            evaluation_input.agent or "", second_randomness(first), evaluation_input=evaluation_input
        )
        self._open: Sequence[Sampler] = escalation.rules
        self._known = [escalation.baseline_decisions[self._context.randomness < escalation.baseline_threshold]]
        self.broken: list[tuple[str, BaseException]] = []

    def __repr__(self) -> str:
        return f"<Question {len(self._open)} rules open>"

    def decide(self, results: Sequence[EvaluationResult] | None = None) -> SamplingDecision:
        """The decision as far as it is known; with results it is settled.

        Sampled and not settled: the answer goes on, and the results only say with what probability.
        """
        context = self._context._replace(results=results)
        still_open: list[Sampler] = []
        for rule in self._open:
            if results is None and rule.needs_results:
                still_open.append(rule)
                continue
            try:
                decision = rule.decide(context)
                if decision.settled:
                    self._known.append(decision._replace(probability=probability_of(decision)))
                elif results is None:
                    still_open.append(rule)
            except (Exception, SystemExit, CancelledError) as error:  # of a rule of the user's own; nobody awaits here
                self.broken.append((rule.type, error))
        self._open = still_open
        decision = union_of(self._known)
        probability = decision.probability if self._escalation.baseline_rate else None
        return decision._replace(probability=probability, settled=not still_open)


def second_randomness(randomness: int) -> int:
    """Another number in [0, 2^64) for the same answer, in every process the same: salted BLAKE2b of the first."""
    return int.from_bytes(
        blake2b((randomness & LOW_64).to_bytes(8, "big"), digest_size=8, person=_SALT).digest(), "big"
    )


def randomness_of_input(evaluation_input: EvaluationInput) -> int:
    """A number in [0, 2^64) for an input that nobody drew for: of its response's id, or else of what was said."""
    identity = evaluation_input.response_id or f"{evaluation_input.prompt}\0{evaluation_input.response_text}"
    return int.from_bytes(blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def load_escalation(value: Any, *, path: str = "escalation") -> Escalation | bool | None:
    """An escalation from an instance or a mapping; None says nothing of it, False that there is none.

    Raises:
        ConfigurationError: With the path of what is wrong.
    """
    if value is None or value is False or isinstance(value, Escalation):
        return value
    if isinstance(value, str) and value.strip().lower() in _NO:  # a variable says everything as text
        return False
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigurationError(f"expected a mapping, or false for none, found {type(value).__name__}", path=path)
    try:
        return Escalation(**value)
    except ConfigurationError as failure:
        problems = [(None if where == "configuration" else where, text) for where, text in failure.problems]
        raise ConfigurationError.of(problems).under(path) from None


def _load_rule(value: Any, path: str) -> Sampler:
    rule = resolve(Sampler, value, path=path)
    if not isinstance(rule, RuleSampler):
        known = sorted(name for name, kind in Sampler.registry.items() if issubclass(kind, RuleSampler))
        raise ConfigurationError(f"{rule.type!r} is no rule; known: {', '.join(known)}", path=path)
    return rule
