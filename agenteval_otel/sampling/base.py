"""Contract of samplers: whether an answer is evaluated, and with what probability.

A response is sampled when its randomness is below the threshold, ratio x 2^64, whichever sampler
chose the ratio: so smaller ratios nest inside larger ones, and the inclusion probability of a union
is the largest of its ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from agenteval_otel.components import Component
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput, EvaluationResult, StreamEnd
from agenteval_otel.models.scoring.probability import SamplingDecision
from agenteval_otel.sampling.key import FIXED_KEY, SamplingKey

RANDOMNESS_RANGE = 1 << 64


class AnswerFacts(NamedTuple):
    """What the caller's thread knows of an answer without reading it."""

    duration_s: float
    error_type: str | None = None
    stream_end: StreamEnd | None = None
    conversation_id: str | None = None


class SamplingContext(NamedTuple):
    """What is known when a sampler is asked.

    Attributes:
        agent: The agent's name.
        randomness: Uniform in [0, 2^64).
        answer: None before the handler has run.
        evaluation_input: None until the background thread has built it.
        memo: Decisions that must be made once a call (a rate limit's), kept between `decide` calls.
            None without.
        results: Those of the first stage's evaluators. None before that, and where there are no
            stages.
        key: Makes numbers of further ids, such as a conversation's.
    """

    agent: str
    randomness: int
    answer: AnswerFacts | None = None
    evaluation_input: EvaluationInput | None = None
    memo: dict[int, SamplingDecision] | None = None
    results: Sequence[EvaluationResult] | None = None
    key: SamplingKey = FIXED_KEY


class Sampler(Component, contract="sampler"):
    """Decides which responses are evaluated. Implement `decide`.

    It decides up to three times about a call: on the caller's thread before the handler runs and
    after the answer, and on the background thread with the evaluation input. It decides again only
    while its decision says ``settled=False``. On the caller's thread it must not block. What it
    raises is counted.

    Attributes:
        own_randomness: It replaces the response's randomness by its own, so it cannot be a member
            of a combination.
        counts_calls: Each `decide` counts, as for a limit per second: a combination calls it once
            for a call.
        keeps_memo: It decides several times about a call and keeps, in the context's `memo`, what
            counts once.
        needs_results: It looks at results, so it can only be a rule of an escalation.
    """

    own_randomness: ClassVar[bool] = False
    counts_calls: ClassVar[bool] = False
    keeps_memo: ClassVar[bool] = False
    needs_results: ClassVar[bool] = False

    @property
    def least_probability(self) -> float | None:
        """Return the least probability that a sampled answer can have, 0 if none is sampled.

        Return None if that is unknown.

        Objectives need this number if the probability depends on the answer. Otherwise a rule that
        prefers bad answers may cause a false alarm before the first ordinary answer is seen.
        """
        return None

    def decide(self, context: SamplingContext) -> SamplingDecision:
        """Decide on what the context holds. It must return at once."""
        raise NotImplementedError


def threshold_of(ratio: float) -> int:
    """Return the randomness below which a ratio samples.

    It is ratio x 2^64, rounded as OpenTelemetry's SDK rounds it.
    """
    return round(ratio * RANDOMNESS_RANGE)


def expect_before_results(sampler: Sampler, *, path: str) -> Sampler:
    """Return the sampler.

    Raise ConfigurationError for one that can only be asked when answers are evaluated already.
    """
    if sampler.needs_results:
        wrong = f"{sampler.type!r} looks at what evaluators gave, and no answer is evaluated yet when it is sampled"
        raise ConfigurationError(f"{wrong}: put it below escalation.rules", path=path)
    return sampler
