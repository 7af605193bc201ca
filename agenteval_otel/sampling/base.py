"""Contract of samplers: whether an answer is evaluated, and with what probability.

A sampler is asked up to three times about a call, each time with more to go by: on the caller's thread before the
handler runs (the agent and the draw), there again after the answer (how it ended, how long it took), and at last on the
pool's thread (the evaluation input). It is asked again only while its decision says ``settled=False``. On the caller's
thread it must not block; what it raises is counted, never passed on. Rules can also choose which evaluated answers go
on to a second stage of evaluators: then they see what the first ones gave (`sampling.escalation`).

Randomness is a number that belongs to the response (made from its trace id), so smaller ratios nest inside larger ones
and every process decides alike. Whatever chooses a ratio, a response is sampled when its randomness is below the
threshold, ratio x 2^64: members of a combination share one randomness, and the inclusion probability of their union is
the largest of their ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from agenteval_otel.components import Component
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput, EvaluationResult, StreamEnd
from agenteval_otel.scoring.probability import SamplingDecision

__all__ = [
    "RANDOMNESS_RANGE", "AnswerFacts", "Sampler", "SamplingContext", "SamplingDecision", "expect_before_results",
    "threshold_of",
]  # fmt: skip  # fmt: skip

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
        draw: Uniform in [0, 2^64).
        answer: None before the handler has run.
        evaluation_input: None until the background thread has built it.
        memo: Decisions that must be made once a call (a rate limit's), kept from one asking to the next; None where
            nobody asks twice.
        results: What the evaluators of the first stage gave; None before that, and where there are no stages.
    """

    agent: str
    randomness: int
    answer: AnswerFacts | None = None
    evaluation_input: EvaluationInput | None = None
    memo: dict[int, SamplingDecision] | None = None
    results: Sequence[EvaluationResult] | None = None


class Sampler(Component, contract="sampler"):
    """Decides which responses are evaluated. Implement `decide`.

    Attributes:
        own_randomness: It replaces the response's randomness by its own, so it cannot be a member of a combination.
        counts_calls: Each call that it is asked about counts, as for a limit per second: a combination around it asks
            it once a call, however often the combination itself is asked.
        keeps_memo: It is asked several times about a call and remembers, in the context's `memo`, what counts once.
        needs_results: It looks at what evaluators gave, so only an escalation can ask it.
    """

    own_randomness: ClassVar[bool] = False
    counts_calls: ClassVar[bool] = False
    keeps_memo: ClassVar[bool] = False
    needs_results: ClassVar[bool] = False

    def decide(self, context: SamplingContext) -> SamplingDecision:
        """Decide on what the context holds; must return at once."""
        raise NotImplementedError


def threshold_of(ratio: float) -> int:
    """The draw below which a ratio samples: ratio x 2^64, rounded as OpenTelemetry's SDK rounds it."""
    return round(ratio * RANDOMNESS_RANGE)


def expect_before_results(sampler: Sampler, *, path: str) -> Sampler:
    """The sampler; raises ConfigurationError for one that can only be asked when answers are evaluated already."""
    if sampler.needs_results:
        raise ConfigurationError(
            f"{sampler.type!r} looks at what evaluators gave, and no answer is evaluated yet when it is sampled: "
            "put it below escalation.rules", path=path,
        )  # fmt: skip
    return sampler
