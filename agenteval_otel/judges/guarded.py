"""Guarded: a judge behind its cache, its circuit breaker and its governor, in this order.

What was answered before costs nothing and needs no endpoint that is well; an endpoint in trouble is not paid for; and
only a call that may be paid for is made. Guards never change an answer, and what they refuse is no answer.
"""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from agenteval_otel.errors import EvaluationSkipped, JudgeError
from agenteval_otel.judges.breaker import CircuitBreaker, breaker_of
from agenteval_otel.judges.cache import VerdictCache, key_of
from agenteval_otel.judges.governor import Governor, Reservation
from agenteval_otel.models.value import replaced

if TYPE_CHECKING:
    from agenteval_otel.judges.base import Judge, JudgeRequest, JudgeUsage, Verdict

__all__ = ["CallObserver", "Guarded", "guard"]

_OF_NO_MATTER: Final = {
    "spend", "breaker", "cache", "api_key", "api_key_env", "deadline_s", "max_retries", "retry_share", "retry_base_s",
    "max_answer_bytes", "allow_private", "extra_headers",
}  # fmt: skip


class CallObserver(Protocol):
    """Is told of every call that was made; what it raises is counted and goes no further."""

    def on_call(
        self,
        purpose: str,
        model: str,
        usage: JudgeUsage | None,
        cost_usd: float | None,
        duration_s: float,
        error_type: str | None,
    ) -> None:
        """A call has ended. Must not block: it is said on the event loop.

        Args:
            purpose: What it was for: the names of the criteria.
            model: The model that was asked.
            usage: What the provider counted; None where it did not say.
            cost_usd: What that costs in US dollars; None where the price is not known.
            duration_s: How long it took, in seconds.
            error_type: How it failed (`judges.ERROR_TYPES`, ``cancelled``, or a class's name); None where it did not.
        """
        ...


class Guarded:
    """Asks a judge as often as its guards allow; has the judge's own `judge`.

    Equal requests at the same time are one call: the others wait for it and get what it gets. All guards may be shared
    by several judges, loops and threads.

    Args:
        judge: Whom to ask.
        governor: What may be spent; None is no limit.
        breaker: When the endpoint is left alone; None is never.
        cache: What was answered before; None asks always.
        observer: Is told of every call that is made, not of hits, skips and refusals of the breaker.
        clock: Monotonic seconds.

    Attributes:
        observer_failures: How often the observer has raised.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        governor: Governor | None = None,
        breaker: CircuitBreaker | None = None,
        cache: VerdictCache[Verdict] | None = None,
        observer: CallObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner, self.governor, self.breaker, self.cache, self.observer = judge, governor, breaker, cache, observer
        self._clock = clock
        self._asked = _asked_of(judge)
        self._flights: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[_Landed[Verdict] | None]] = {}
        self.observer_failures = 0

    def __repr__(self) -> str:
        return f"<Guarded {self.inner.type} {self.model} {self.breaker!r} {self.governor!r} {self.cache!r}>"

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.inner.model

    async def judge(self, request: JudgeRequest) -> Verdict:
        """The judge's answer, or the one that it gave before: then ``from_cache``, with nothing used.

        Raises:
            JudgeError: As the judge does; ``breaker_open`` at once where the endpoint is left alone.
            EvaluationSkipped: ``budget`` or ``budget_exhausted``: no call was made, to spare money.
        """
        cache = self.cache
        if cache is None or not request.fingerprint:
            return await self._called(request)
        key = self._key(request)
        known = await cache.get(key)
        return _again(known) if known is not None else await self._alone(request, key, cache)

    def forget(self, request: JudgeRequest) -> None:
        """Forget the verdict on a request whose answer turned out to be of no use, such as one out of range."""
        if self.cache is not None and request.fingerprint:
            self.cache.forget(self._key(request))

    async def close(self) -> None:
        """Let go of the judge's connections that the running event loop holds."""
        await self.inner.close()

    def _key(self, request: JudgeRequest) -> str:
        return key_of(request.fingerprint, self._asked)

    async def _alone(self, request: JudgeRequest, key: str, cache: VerdictCache[Verdict]) -> Verdict:
        flight = (asyncio.get_running_loop(), key)
        while (other := self._flights.get(flight)) is not None:
            landed = await asyncio.shield(other)
            if landed is not None:
                cache.hits += 1
                return _again(landed.result())
            # It was cancelled, which was not meant for us: one of those who waited goes instead.
        own = self._flights[flight] = flight[0].create_future()
        landed = None
        try:
            verdict = await self._called(request)
            landed = _Landed(verdict, None)
            cache.put(key, verdict)
            return verdict
        except Exception as error:
            landed = _Landed(None, error)
            raise
        finally:
            del self._flights[flight]
            own.set_result(landed)

    async def _called(self, request: JudgeRequest) -> Verdict:
        if self.breaker is None:
            return await self._paid(request)
        passage = self.breaker.enter()
        try:
            verdict = await self._paid(request)
        except JudgeError as error:
            passage.failed(error)
            raise
        except BaseException:
            passage.abandoned()
            raise
        passage.answered()
        return verdict

    async def _paid(self, request: JudgeRequest) -> Verdict:
        reservation = None if self.governor is None else await self.governor.reserve(request, self.model)
        began = self._clock()
        try:
            verdict = await self.inner.judge(request)
        except BaseException as error:
            usage = error.usage if isinstance(error, JudgeError) else None
            self._ended(request, reservation, began, usage, error_type=_word_of(error))
            raise
        cost = self._ended(request, reservation, began, verdict.usage, cost_usd=verdict.cost_usd)
        return verdict if cost == verdict.cost_usd else replaced(verdict, {"cost_usd": cost})

    def _ended(
        self,
        request: JudgeRequest,
        reservation: Reservation | None,
        began: float,
        usage: JudgeUsage | None,
        *,
        error_type: str | None = None,
        cost_usd: float | None = None,
    ) -> float | None:
        # Nothing here waits: a task that is cancelled settles too.
        duration_s = self._clock() - began
        if self.governor is not None and reservation is not None:
            cost_usd = self.governor.settle(reservation, usage, error_type=error_type, cost_usd=cost_usd)
        if self.observer is not None:
            try:
                self.observer.on_call(request.purpose, self.model, usage, cost_usd, duration_s, error_type)
            except Exception:
                self.observer_failures += 1
        return cost_usd


def guard(judge: Judge, verdicts: type[Verdict], *, observer: CallObserver | None = None) -> Guarded:
    """The judge behind the guards that its settings (`spend`, `breaker`, `cache`) name."""
    spend, breaker, cache = (getattr(judge, name, None) for name in ("spend", "breaker", "cache"))
    return Guarded(
        judge,
        governor=None if spend is None else Governor(spend),
        breaker=None if breaker is None else breaker_of(_endpoint_of(judge), breaker),
        cache=None if cache is None else VerdictCache(verdicts, cache),
        observer=observer,
    )


T = TypeVar("T")


class _Landed(NamedTuple, Generic[T]):
    """How a call ended that others waited for."""

    verdict: T | None
    error: Exception | None

    def result(self) -> T:
        if self.error is None:
            assert self.verdict is not None
            return self.verdict
        raise _copied(self.error)


def _copied(error: Exception) -> Exception:
    """An error of one's own: raised in two tasks, one would grow the other's trace. What was used counts once."""
    if not isinstance(error, JudgeError | EvaluationSkipped):
        return error
    copied: Any = copy.copy(error)
    if isinstance(copied, JudgeError):
        copied.usage = None
    return copied  # type: ignore[no-any-return]


def _again(verdict: Verdict) -> Verdict:
    nothing = type(verdict.usage)(calls=0)
    return replaced(verdict, {"usage": nothing, "cost_usd": 0.0, "duration_s": 0.0, "from_cache": True})


def _endpoint_of(judge: Judge) -> str:
    """What a judge asks: equal for judges that share an endpoint."""
    return "\0".join((judge.type, str(getattr(judge, "base_url", "")), judge.model))


def _asked_of(judge: Judge) -> str:
    """The settings of a judge that its answers may depend on; those of another may have others."""
    return json.dumps(judge.model_dump(mode="json", fallback=repr, exclude=_OF_NO_MATTER), sort_keys=True, default=repr)


def _word_of(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return error.error_type if isinstance(error, JudgeError) else type(error).__name__
