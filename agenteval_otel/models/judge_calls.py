"""The outcome of a judge's call, and its observers.

The observers are in the context, because judges are shared.
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
    """Usage of a judgement, with retries.

    Attributes:
        input_tokens: Without cached tokens.
        output_tokens: With the model's thinking.
        calls: How many requests were sent.
    """

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
        outcome: ``answered`` or ``cached``. It is ``budget``, ``budget_exhausted`` or
            ``breaker_open`` where a guard refused the call. Otherwise it tells how the call failed
            (`judges.ERROR_TYPES`, ``cancelled``, or a class's name).
        was_sent: Whether a call was made.
        usage: What the provider counted. None where it did not say.
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
        if not self.was_sent or self.outcome == ANSWERED:
            return None
        return self.outcome


class Judgement(Value):
    """Names the model that judged a result, with its usage.

    Tokens and cost are set on the first of the call's criteria only, and None if unknown.

    Attributes:
        model: The provider's name for it, else the requested one.
        left_out_chars: The number of characters of the case that the judge was not shown.
        untrusted: `judge_health` no longer trusts the judge on this criterion.
    """

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
    """Observes every judge call.

    It runs on the event loop, so it must not block. Its exceptions are suppressed.
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
