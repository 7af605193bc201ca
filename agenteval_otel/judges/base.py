"""Contract of judges: a question in, one JSON object out; or a `JudgeError` that says which way it failed.

The values here are what evaluators, guards and judges exchange. None of them holds a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from agenteval_otel.components import Component
from agenteval_otel.http_client.copies import BareCopies
from agenteval_otel.http_client.replies import RETRYABLE
from agenteval_otel.judges.breaker import BreakerSettings
from agenteval_otel.judges.cache import CacheSettings
from agenteval_otel.judges.request import JudgeRequest, JudgeUsage, Verdict
from agenteval_otel.judges.spend import SpendLimits

if TYPE_CHECKING:
    from agenteval_otel.judges.guarded import Guarded

__all__ = ["ERROR_TYPES", "RETRYABLE", "Judge", "JudgeRequest", "JudgeUsage", "Verdict"]

ERROR_TYPES = (
    "refusal", "truncated", "empty_answer", "malformed_answer", "context_overflow", "rate_limited", "overloaded",
    "server_error", "authentication", "bad_request", "not_found", "connection_error", "timeout", "budget_exhausted",
    "breaker_open",
)  # fmt: skip
"""Every ``error_type`` of a `JudgeError`: none of them is an answer, and none becomes a score."""


class Judge(BareCopies, Component, contract="judge"):
    """Asks a model, and gives its answer as one JSON object.

    Implement `judge`, with ``type="..."`` in the class line where settings should name it. Runs on the event loop of
    whoever asks (in a monitored process the background thread's), must not block it, and ends within a time of its own.
    Several questions may be under way at once, and on several loops.

    Attributes:
        model: The model that is asked, as its provider names it.
        spend: What its calls may cost; None is no limit.
        breaker: When its endpoint is left alone; None is never.
        cache: Which of its answers are kept for the same question; None keeps none.
    """

    # No answer depends on these: neither the fingerprint of who asks nor the key of a verdict that was kept has them.
    unversioned: ClassVar[frozenset[str]] = frozenset({"spend", "breaker", "cache"})

    model: str = ""
    spend: SpendLimits | None = None
    breaker: BreakerSettings | None = None
    cache: CacheSettings | None = None

    async def judge(self, request: JudgeRequest) -> Verdict:
        """The model's answer to the request.

        Raises:
            JudgeError: No verdict; ``error_type`` is one of `ERROR_TYPES`, ``usage`` what was used all the same.
        """
        raise NotImplementedError

    def config_problem(self) -> str | None:
        """Why it could not be asked now, as far as that is seen without asking; None where nothing is in the way."""
        return None

    async def close(self) -> None:
        """Let go of the connections that the running event loop holds; `judge` opens new ones where it is called."""

    def guarded(self) -> Guarded:
        """This judge behind the guards that its settings name: the same one each time."""
        wrapper: Guarded | None = self.__dict__.get("_guarded")
        if wrapper is None:
            from agenteval_otel.judges.guarded import guard

            # Two threads at once: the first one's is everybody's.
            wrapper = self.__dict__.setdefault("_guarded", guard(self, Verdict))
        return wrapper
