"""Contract of judges: a question in, one JSON object out; or a `JudgeError` that says which way it failed.

The values here are what evaluators, guards and judges exchange. None of them holds a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from agenteval_otel.components import Component
from agenteval_otel.hosted.copies import BareCopies
from agenteval_otel.hosted.replies import RETRYABLE
from agenteval_otel.judges.breaker import BreakerSettings
from agenteval_otel.judges.cache import CacheSettings
from agenteval_otel.judges.spend import SpendLimits
from agenteval_otel.models.value import Value

if TYPE_CHECKING:
    from agenteval_otel.judges.guarded import Guarded

__all__ = ["ERROR_TYPES", "RETRYABLE", "Judge", "JudgeRequest", "JudgeUsage", "Verdict"]

ERROR_TYPES = (
    "refusal", "truncated", "empty_answer", "malformed_answer", "context_overflow", "rate_limited", "overloaded",
    "server_error", "authentication", "bad_request", "not_found", "connection_error", "timeout", "budget_exhausted",
    "breaker_open",
)  # fmt: skip
"""Every ``error_type`` of a `JudgeError`: none of them is an answer, and none becomes a score."""


class JudgeRequest(Value):
    """What a judge is asked.

    Attributes:
        system: The instruction; trusted text.
        prompt: The question, rendered; untrusted text is in it as JSON data behind a random delimiter already.
        answer_form: JSON Schema of the answer, an object's.
        max_tokens: Most tokens of the answer; a model's thinking counts.
        purpose: Names of the criteria, for metrics; few different words.
        fingerprint: Hexadecimal digits of the rubric and of what is judged, without the delimiter; for caches.
    """

    system: str = ""
    prompt: str
    answer_form: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})
    max_tokens: int = Field(default=1024, ge=1)
    purpose: str = ""
    fingerprint: str = ""


class JudgeUsage(Value):
    """What a judgement has used, retries with it.

    Attributes:
        input_tokens: Tokens of the question that were read in full; those of caches are not among them.
        output_tokens: Tokens of the answer, with the model's thinking.
        cache_read_tokens: Tokens of the question that the provider had kept.
        cache_write_tokens: Tokens of the question that the provider keeps from now on.
        calls: Requests that were sent.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    calls: int = 1

    def plus(self, other: JudgeUsage) -> JudgeUsage:
        """Both together."""
        return JudgeUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            calls=self.calls + other.calls,
        )


class Verdict(Value):
    """A judge's answer.

    Attributes:
        answer: The JSON object that the judge answered with; its fields are not checked yet.
        raw: The answer's text as it came; content.
        usage: What it has used.
        model: The model that answered, as the provider names it.
        response_id: The provider's id of the answer.
        duration_s: From the question to the answer, retries and waits between them included.
        cost_usd: Its price, where the guard knows prices.
        from_cache: It was asked before; nothing was used.
        probability: With what probability the governor let the call be made, above 0 to 1; 1 where nothing limits it.
    """

    answer: dict[str, Any]
    raw: str = ""
    usage: JudgeUsage = JudgeUsage()
    model: str = ""
    response_id: str | None = None
    duration_s: float = 0.0
    cost_usd: float | None = None
    from_cache: bool = False
    probability: float = Field(default=1.0, gt=0.0, le=1.0)


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
            JudgeError: There is none; ``error_type`` is one of `ERROR_TYPES`, ``usage`` what was used all the same.
        """
        raise NotImplementedError

    def trouble(self) -> str | None:
        """Why it could not be asked now, as far as that is seen without asking; None where nothing is in the way."""
        return None

    async def close(self) -> None:
        """Let go of the connections that the running event loop holds; `judge` opens new ones where it is called."""

    def guarded(self) -> Guarded:
        """This judge behind the guards that its settings name: the same one each time."""
        found: Guarded | None = self.__dict__.get("_guarded")
        if found is None:
            from agenteval_otel.judges.guarded import guard

            # Two threads at once: the first one's is everybody's.
            found = self.__dict__.setdefault("_guarded", guard(self, Verdict))
        return found
