"""Escalation: which of the evaluated answers go on to the evaluators that cost more.

Rules and a baseline use one number, made from the answer's randomness, so the probability of their
union is the largest ratio that applies. It is salted, so independent of what sampled the answer:
the two probabilities multiply.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)

from agenteval_otel.components import ListOf
from agenteval_otel.components.explained import ComponentError, FriendlyErrors, explain_validation
from agenteval_otel.components.loading import load_each, resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.models.scoring.probability import (
    BASELINE,
    SamplingDecision,
    probability_of,
    union,
)
from agenteval_otel.sampling.base import Sampler, SamplingContext, threshold_of
from agenteval_otel.sampling.key import FIXED_KEY, LOW_64, SamplingKey
from agenteval_otel.sampling.rule import RuleSampler


class Escalation(BaseModel, metaclass=FriendlyErrors):
    """Inexpensive evaluators run first. Their results decide which answers the others see.

    Attributes:
        baseline_rate: Share of the answers, 0 to 1, that is escalated regardless of the rules. With
            0, answers that match no rule are never escalated, so the sampling probability is
            unknown.
        rules: Samplers that are rules: ``result``, ``slow``, ``error``, ``pattern``, ``agent``,
            ``annotation``, ``function``. Each has a ratio, 1 when left out. Of the rules that
            match, the largest ratio applies.
        criteria: The criteria whose evaluators run second. By default they are those of all
            evaluators that call a model.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
    )

    baseline_rate: float = Field(default=0.05, ge=0, le=1)
    rules: ListOf[SerializeAsAny[Sampler]] = Field(default=(), max_length=32)
    criteria: ListOf[str] = ()

    @field_validator("rules", mode="before")
    @classmethod
    def _load_rules(cls, value: object) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of rules")
        try:
            return load_each(_load_rule, value, path="rules")
        except ConfigurationError as failure:
            raise ComponentError(failure) from None

    @model_validator(mode="after")
    def _escalates_something(self) -> Self:
        if not self.baseline_rate and not self.rules:
            raise ValueError("no answer goes on: expected a baseline_rate above 0, or rules")
        return self


class EscalationDecider:
    """Decides whether one answer is escalated.

    It decides before the first stage and, if still open, again after it.

    A rule that raises is ignored and listed in `broken`, as its type and the error. `randomness` is
    what sampled the answer, in [0, 2^64). None: it is made from the input.
    """

    def __init__(
        self,
        escalation: Escalation,
        evaluation_input: EvaluationInput,
        randomness: int | None,
        key: SamplingKey = FIXED_KEY,
    ) -> None:
        if randomness is None:
            randomness = randomness_of_input(evaluation_input, key)
        second = second_randomness(randomness, key)
        self._context = SamplingContext(
            evaluation_input.agent or "", second, evaluation_input=evaluation_input, key=key
        )
        self._open: Sequence[Sampler] = escalation.rules
        rate = escalation.baseline_rate
        self._baseline_rate = rate
        is_in_baseline = second < threshold_of(rate)
        baseline = SamplingDecision(sampled=is_in_baseline, probability=rate, reason=BASELINE)
        self._settled = [baseline]
        self.broken: list[tuple[str, BaseException]] = []

    def decide(self, results: Sequence[EvaluationResult] | None = None) -> SamplingDecision:
        """Return the decision so far, settled with results.

        Once sampled, results only change its probability and reason.
        """
        context = self._context._replace(results=results)
        still_open: list[Sampler] = []
        for rule in self._open:
            try:
                decision = rule.decide(context)
                if decision.settled:
                    self._settled.append(decision._replace(probability=probability_of(decision)))
                elif results is None:  # with results nothing more will be known: it has no say
                    still_open.append(rule)
            except (Exception, SystemExit, CancelledError) as error:  # of a rule of the user's own
                self.broken.append((rule.type, error))
        self._open = still_open
        applying = [decision for decision in self._settled if decision.applies]  # the baseline does
        # Sampled ones come first, then the largest probability.
        chosen = max(applying, key=lambda decision: (decision.sampled, decision.probability or 0.0))
        probability: float | None = None
        if self._baseline_rate:  # without it, answers that match no rule cannot be weighted
            probability = union(decision.probability for decision in applying)
        return chosen._replace(probability=probability, settled=not still_open)


def second_randomness(randomness: int, key: SamplingKey = FIXED_KEY) -> int:
    """Return another number in [0, 2^64) for the same answer, in every process with the same key."""
    return key.of_text((randomness & LOW_64).to_bytes(8, "big"), person=b"escalation")


def randomness_of_input(evaluation_input: EvaluationInput, key: SamplingKey = FIXED_KEY) -> int:
    """Return a number in [0, 2^64) for an input without randomness.

    It is made from its response's id, else from its texts.
    """
    identity = (
        evaluation_input.response_id
        or f"{evaluation_input.prompt}\0{evaluation_input.response_text}"
    )
    return key.of_text(identity.encode("utf-8", "surrogatepass"), person=b"input")


def load_escalation(value: object, *, path: str = "escalation") -> Escalation | bool | None:
    """Read an escalation from an instance or a mapping.

    None says nothing of it. False says that there is none.
    """
    if value is None or value is False or isinstance(value, Escalation):
        return value
    # a variable says all as text
    if isinstance(value, str) and value.strip().lower() in ("false", "no", "off"):
        return False
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigurationError(
            f"expected a mapping, or false for none, found {type(value).__name__}", path=path
        )
    try:
        return Escalation.model_validate(value)
    except ValidationError as error:
        raise explain_validation(error, Escalation, path=path) from None


def _load_rule(value: object, path: str) -> Sampler:
    rule = resolve(Sampler, value, path=path)
    if isinstance(rule, RuleSampler):
        return rule
    rules = [name for name, kind in Sampler.registry.items() if issubclass(kind, RuleSampler)]
    known = sorted(rules)
    raise ConfigurationError(f"{rule.type!r} is no rule. Known: {', '.join(known)}", path=path)


class ResultSampler(RuleSampler, type="result"):
    """In an escalation: a share of the answers with a certain result in the first stage.

    It matches where one of its conditions does, for one result or between two. Skips match none.

    Attributes:
        labels: Labels of scored results, such as ``fail``.
        below: Normalized score, 0 to 1 and higher is better, below which it matches.
        above: Normalized score above which it matches. With `below` the range between the two.
        failed: An evaluator broke: it raised, or took too long.
        disagreement: One result passes and another one fails.
        criteria: Whose results count, by the criterion's name. All of the first stage when empty.
    """

    needs_results: ClassVar[bool] = True
    labels: ListOf[str] = ()
    below: float | None = Field(default=None, ge=0, le=1)
    above: float | None = Field(default=None, ge=0, le=1)
    failed: bool = False
    disagreement: bool = False
    criteria: ListOf[str] = ()

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if not (self.labels or self.failed or self.disagreement or self._has_range):
            raise ValueError("expected labels, below, above, failed or disagreement")
        low, high = self._bounds
        if low >= high or low == 1 or high == 0:
            raise ValueError(
                "matches no score: expected above to be less than below, above less than 1, below over 0"
            )
        return self

    @property
    def least_results(self) -> int:
        """Return how many results it takes to match: two if only disagreement would."""
        return 1 if self.labels or self.failed or self._has_range else 2

    @property
    def _has_range(self) -> bool:
        return self.below is not None or self.above is not None

    def matches(self, context: SamplingContext) -> bool | None:
        if context.results is None:
            return None
        verdicts: set[bool | None] = set()
        for result in context.results:
            if self.criteria and result.criterion_name not in self.criteria:
                continue
            status = result.status
            if status == "failed" and self.failed:
                return True
            if status != "scored":
                continue
            if result.label in self.labels or self._is_in_range(result.normalized):
                return True
            verdicts.add(result.passed)
        return self.disagreement and {True, False} <= verdicts

    def _is_in_range(self, score: float | None) -> bool:
        if score is None or not self._has_range:
            return False
        low, high = self._bounds
        return low < score < high

    @property
    def _bounds(self) -> tuple[float, float]:
        """Return `above` and `below`. A bound that is not set lies outside of all scores."""
        low = -1.0 if self.above is None else self.above
        high = 2.0 if self.below is None else self.below
        return low, high
