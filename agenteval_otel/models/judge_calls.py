"""JudgeCall: the outcome of a judge's call, and its observers, which are in the context: judges are
shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

from agenteval_otel.models.value import Value

ANSWERED: Final = "answered"
CACHED: Final = "cached"


class JudgeUsage(Value):
    """Usage of a judgement, with retries: `input_tokens` exclude cached tokens, `output_tokens`
    include the model's thinking; `calls` counts the requests sent."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    calls: int = 1


class JudgeCall(NamedTuple):
    """What became of one question.

    Attributes:
        judge: The judge with its guards.
        purpose: The names of the criteria.
        outcome: ``answered``; ``cached``; ``budget``, ``budget_exhausted`` and ``breaker_open``
            where a guard refused it; else how it failed (`judges.ERROR_TYPES`, ``cancelled``, or a
            class's name).
        was_sent: Whether a call was made.
        usage: What the provider counted; None where it did not say.
        cost_usd: None where the price is not known.
    """

    judge: Any
    purpose: str
    outcome: str
    was_sent: bool = True
    usage: JudgeUsage | None = None
    cost_usd: float | None = None
    duration_s: float = 0.0

    @property
    def model(self) -> str:
        """Return the name of the model that is asked."""
        return str(self.judge.model)

    @property
    def error_type(self) -> str | None:
        """Return the error of a call that was sent. Return None if it succeeded or was not sent."""
        return self.outcome if self.was_sent and self.outcome != ANSWERED else None


class Judgement(Value):
    """The model that judged a result (the provider's name for it, else the requested one) and its
    usage. Tokens and cost are set on the first of the call's criteria only, and None if unknown.
    `left_out_chars` is the number of characters of the case that the judge was not shown;
    `untrusted` means that `judge_health` no longer trusts the judge on this criterion."""

    model: str = ""
    response_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    from_cache: bool = False
    left_out_chars: int | None = None
    system_fingerprint: str | None = None
    untrusted: bool = False


class CallObserver(Protocol):
    """Observes every judge call, on the event loop, so it must not block; its exceptions are
    suppressed.
    """

    def on_call(self, call: JudgeCall) -> None:
        """Receive a judge call that has ended."""


OBSERVER: ContextVar[CallObserver | None] = ContextVar("agenteval_judge_observer", default=None)
"""The observer of the judge calls of this context."""


@contextmanager
def observed_by(observer: CallObserver) -> Iterator[None]:
    """Let the observer see every judge call of this context during the block.

    Those of the tasks started in it are seen too.
    """
    token = OBSERVER.set(observer)
    try:
        yield
    finally:
        OBSERVER.reset(token)


BATCH: ContextVar[Any] = ContextVar("agenteval_batch", default=None)
"""The `judges.batches.BatchAnswers` of an evaluation that runs, whose judges are asked in a batch.
"""
