"""Guarded: a judge behind its cache, its circuit breaker and its budget, in this order.

What was answered before costs nothing and needs no endpoint that is well; an endpoint in trouble is not paid for; and
only a call that may be paid for is made. Guards never change an answer, and what they refuse is no answer.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from agenteval_otel.errors import EvaluationSkipped, JudgeError
from agenteval_otel.judges.breaker import CircuitBreaker, breaker_of
from agenteval_otel.judges.budget import BudgetLimiter, Reservation
from agenteval_otel.judges.cache import VerdictCache, key_of
from agenteval_otel.models.judge_calls import ANSWERED, CACHED, OBSERVER, JudgeCall
from agenteval_otel.models.value import replaced

if TYPE_CHECKING:
    from agenteval_otel.judges.base import Judge
    from agenteval_otel.judges.request import JudgeRequest, JudgeUsage, Verdict

__all__ = ["TIMED_OUT", "Guarded", "guard"]

TIMED_OUT: Final = "timeout"
"""Message of a cancellation by who waited as long as it would."""


class Guarded:
    """Asks a judge as often as its guards allow; has the judge's own `judge`.

    Equal requests at the same time are one call: the others wait for it and get what it gets. All guards may be shared
    by several judges, loops and threads.

    Args:
        judge: Whom to ask.
        budget: What may be spent; None is no limit.
        breaker: When the endpoint is left alone; None is never.
        cache: What was answered before; None asks always.
        clock: Monotonic seconds.

    Attributes:
        observer_failures: How often an observer (`models.judge_calls`) has raised.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        budget: BudgetLimiter | None = None,
        breaker: CircuitBreaker | None = None,
        cache: VerdictCache[Verdict] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner, self.budget, self.breaker, self.cache = judge, budget, breaker, cache
        self._clock = clock
        self._versions = judge.versioned()
        self._flights: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[_CallResult[Verdict] | None]] = {}
        self.observer_failures = 0

    def __repr__(self) -> str:
        return f"<Guarded {self.inner.type} {self.model} {self.breaker!r} {self.budget!r} {self.cache!r}>"

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.inner.model

    @property
    def label(self) -> str:
        """The judge's type and model, as on metrics."""
        return f"{self.inner.type}:{self.model}"

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
        return await self._alone(request, key, cache) if known is None else self._again(request, known)

    def forget(self, request: JudgeRequest) -> None:
        """Forget the verdict on a request whose answer turned out to be of no use, such as one out of range."""
        if self.cache is not None and request.fingerprint:
            self.cache.forget(self._key(request))

    async def close(self) -> None:
        """Let go of the judge's connections that the running event loop holds."""
        await self.inner.close()

    def _key(self, request: JudgeRequest) -> str:
        return key_of(request.fingerprint, self._versions)

    async def _alone(self, request: JudgeRequest, key: str, cache: VerdictCache[Verdict]) -> Verdict:
        flight = (asyncio.get_running_loop(), key)
        while (other := self._flights.get(flight)) is not None:
            call_result = await asyncio.shield(other)
            if call_result is not None:
                verdict = call_result.result()
                cache.hits += 1
                return self._again(request, verdict, probability=verdict.probability)
            # It was cancelled, which was not meant for us: one of those who waited goes instead.
        own = self._flights[flight] = flight[0].create_future()
        call_result = None
        try:
            verdict = await self._called(request)
            call_result = _CallResult(verdict, None)
            cache.put(key, verdict)
            return verdict
        except Exception as error:
            call_result = _CallResult(None, error)
            raise
        finally:
            del self._flights[flight]
            own.set_result(call_result)

    async def _called(self, request: JudgeRequest) -> Verdict:
        if self.breaker is None:
            return await self._paid(request)
        try:
            permit = self.breaker.enter()
        except JudgeError as error:
            self._tell(JudgeCall(self, request.purpose, error.error_type, was_sent=False))
            raise
        try:
            verdict = await self._paid(request)
        except JudgeError as error:
            permit.failed(error)
            raise
        except asyncio.CancelledError as error:
            # The executor says so when it ends what took too long; what else is cancelled says nothing of the endpoint.
            if TIMED_OUT in error.args:
                permit.failed(JudgeError("no answer in time", error_type="timeout"))
            permit.abandoned()
            raise
        except BaseException:
            permit.abandoned()
            raise
        permit.answered()
        return verdict

    async def _paid(self, request: JudgeRequest) -> Verdict:
        try:
            reservation = None if self.budget is None else await self.budget.reserve(request, self.model)
        except EvaluationSkipped as skipped:
            self._tell(JudgeCall(self, request.purpose, str(skipped), was_sent=False))
            raise
        began, probability = self._clock(), 1.0 if reservation is None else reservation.probability
        try:
            verdict = await self.inner.judge(request)
        except BaseException as error:
            usage = None
            if isinstance(error, JudgeError):
                usage, error.probability = error.usage, probability
            self._ended(request, reservation, began, usage, outcome=_word_of(error))
            raise
        cost = self._ended(request, reservation, began, verdict.usage, cost_usd=verdict.cost_usd)
        if cost == verdict.cost_usd and probability == verdict.probability:
            return verdict
        return replaced(verdict, {"cost_usd": cost, "probability": probability})

    def _ended(
        self,
        request: JudgeRequest,
        reservation: Reservation | None,
        began: float,
        usage: JudgeUsage | None,
        *,
        outcome: str = ANSWERED,
        cost_usd: float | None = None,
    ) -> float | None:
        # Nothing here waits: a task that is cancelled settles too.
        duration_s = self._clock() - began
        if self.budget is not None and reservation is not None:
            error_type = None if outcome == ANSWERED else outcome
            cost_usd = self.budget.settle(reservation, usage, error_type=error_type, cost_usd=cost_usd)
        self._tell(JudgeCall(self, request.purpose, outcome, True, usage, cost_usd, duration_s))
        return cost_usd

    def _again(self, request: JudgeRequest, verdict: Verdict, *, probability: float = 1.0) -> Verdict:
        """A verdict that was paid for already. That it would come was certain, but for who waited for the call."""
        self._tell(JudgeCall(self, request.purpose, CACHED, was_sent=False))
        return replaced(verdict, {
            "usage": type(verdict.usage)(calls=0), "cost_usd": 0.0, "duration_s": 0.0, "from_cache": True,
            "probability": probability,
        })  # fmt: skip

    def _tell(self, call: JudgeCall) -> None:
        observer = OBSERVER.get()
        if observer is None:
            return
        try:
            observer.on_call(call)
        except Exception:
            self.observer_failures += 1


def guard(judge: Judge, verdicts: type[Verdict]) -> Guarded:
    """The judge behind the guards that its settings (`spend`, `breaker`, `cache`) name."""
    spend, breaker, cache = (getattr(judge, name, None) for name in ("spend", "breaker", "cache"))
    return Guarded(
        judge,
        budget=None if spend is None else BudgetLimiter(spend),
        breaker=None if breaker is None else breaker_of(_endpoint_of(judge), breaker),
        cache=None if cache is None else VerdictCache(verdicts, cache),
    )


T = TypeVar("T")


class _CallResult(NamedTuple, Generic[T]):
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


def _endpoint_of(judge: Judge) -> str:
    """What a judge asks: equal for judges that share an endpoint."""
    return "\0".join((judge.type, str(getattr(judge, "base_url", "")), judge.model))


def _word_of(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return error.error_type if isinstance(error, JudgeError) else type(error).__name__
