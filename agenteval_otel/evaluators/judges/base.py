"""Contract of judges, and the guards around one: cache, circuit breaker and budget, in this order."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping
from typing import ClassVar

from agenteval_otel.components import Component
from agenteval_otel.errors import EvaluationSkipped, JudgeError
from agenteval_otel.evaluators.judges.answers import JudgeRequest, Verdict
from agenteval_otel.evaluators.judges.batches import (
    BATCHED,
    PRICE_SHARE,
    BatchAnswers,
    BatchQuestion,
)
from agenteval_otel.evaluators.judges.breaker import BreakerSettings, CircuitBreaker, breaker_of
from agenteval_otel.evaluators.judges.budget import BudgetLimiter, Reservation, SpendLimits
from agenteval_otel.evaluators.judges.cache import CacheSettings, VerdictCache
from agenteval_otel.models.judge_calls import (
    ANSWERED,
    BATCH,
    CACHED,
    OBSERVER,
    JudgeCall,
    JudgeUsage,
)
from agenteval_otel.models.value import copy_with

ERROR_TYPES = (
    "refusal", "truncated", "empty_answer", "malformed_answer", "context_overflow", "rate_limited", "overloaded",
    "server_error", "authentication", "bad_request", "not_found", "connection_error", "timeout", "budget_exhausted",
    "breaker_open",
)  # fmt: skip
"""Every ``error_type`` of a `JudgeError`: none of them is an answer, and none becomes a score."""


class Judge(Component, contract="judge"):
    """Asks a model for one JSON object.

    Implement `judge`, with ``type="..."`` in the class line where settings should name it. Runs on
    the caller's event loop (in a monitored process the background thread's), must not block it, and
    ends within a time limit of its own. Several calls may be under way at once, and on several
    loops.

    Attributes:
        model: The model's name at its provider.
        spend: What its calls may cost. None is no limit.
        breaker: When its endpoint is left alone. None is never.
        cache: Which of its verdicts are kept. None keeps none.
    """

    text_pattern: ClassVar[str] = r"^\w+:.+$"
    # No answer depends on these: neither an evaluator's fingerprint nor the key of a cached verdict
    # has them.
    fingerprint_exclude: ClassVar[frozenset[str]] = frozenset({"spend", "breaker", "cache"})

    takes_batches: ClassVar[bool] = False

    model: str = ""
    spend: SpendLimits | None = None
    breaker: BreakerSettings | None = None
    cache: CacheSettings | None = None

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Return the model's answer to the request.

        Raises:
            JudgeError: There is no verdict. ``error_type`` is one of `ERROR_TYPES`, and ``usage``
                is what was used all the same.
        """
        raise NotImplementedError

    def config_problem(self) -> str | None:
        """Return why it cannot answer now, or None if nothing is wrong.

        Only what is known without a call is reported.
        """
        return None

    def prepare(self) -> None:
        """Import heavy dependencies.

        It is called at start, on the thread that configures or decorates, and never while serving.
        It is not called while `config_problem` returns a problem. Its exceptions are logged and do
        not prevent the start.
        """

    async def submit_batch(self, requests: Mapping[str, JudgeRequest]) -> str:
        """Submit requests to the provider's batch API, each under its key. Return the batch id.

        Only judges with `takes_batches` have this method. The batch is sent once: `JudgeError` is
        raised without another attempt.
        """
        raise NotImplementedError

    async def batch_answers(
        self, batch_id: str, requests: Mapping[str, JudgeRequest]
    ) -> dict[str, Verdict | JudgeError] | None:
        """Return the answers of a batch by its questions' keys, or None while it has not ended.

        Raises `JudgeError`.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections of the running event loop. `judge` opens new ones."""

    def guarded(self) -> Guarded:
        """Return this judge behind the guards of its settings: the same object each time."""
        guarded: Guarded | None = self.__dict__.get("_guarded")
        if guarded is None:
            endpoint = "\0".join((self.type, str(getattr(self, "base_url", "")), self.model))
            budget = None if self.spend is None else BudgetLimiter(self.spend)
            breaker = None if self.breaker is None else breaker_of(endpoint, self.breaker)
            cache = None if self.cache is None else VerdictCache(self.cache)
            guarded = Guarded(self, budget=budget, breaker=breaker, cache=cache)
            # of two threads at once the first one's
            guarded = self.__dict__.setdefault("_guarded", guarded)
        return guarded


class Guarded:
    """Asks a judge behind its guards. It has the same method `judge` as the judge.

    Judges, loops and threads may share guards.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        budget: BudgetLimiter | None = None,
        breaker: CircuitBreaker | None = None,
        cache: VerdictCache | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inner = judge
        self.budget = budget
        self.breaker = breaker
        self.cache = cache
        self._clock = clock
        self._version = judge.fingerprint_source()

    @property
    def model(self) -> str:
        return self.inner.model

    @property
    def label(self) -> str:
        """Return the judge's type and model, as on metrics."""
        return f"{self.inner.type}:{self.model}"

    @property
    def name(self) -> str:
        """Return the label with a digest of what its answers depend on.

        The same judge has the same name after a restart too.
        """
        digest = hashlib.sha256(self._version.encode()).hexdigest()
        return f"{self.label}:{digest[:16]}"

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Return the judge's verdict, or the cached one.

        A cached verdict has ``from_cache``, and nothing used.

        Raises:
            JudgeError: The judge raises it. If the endpoint is left alone, ``breaker_open`` is
                raised at once.
            EvaluationSkipped: ``budget`` or ``budget_exhausted``: no call was made, to stay within
                the limits.
        """
        if self.cache is None or not request.fingerprint:
            return await self._answer(request)
        key = self._key(request)
        cached = await self.cache.get(key)
        if cached is not None:
            self._notify(JudgeCall(self, request.purpose, CACHED, was_sent=False))
            changes = {
                "usage": JudgeUsage(calls=0),
                "cost_usd": 0.0,
                "duration_s": 0.0,
                "probability": 1.0,
                "from_cache": True,
            }
            return copy_with(cached, changes)
        verdict = await self._answer(request)
        self.cache.put(key, verdict)
        return verdict

    def keep(self, request: JudgeRequest, verdict: Verdict) -> None:
        """Keep a verdict in the cache as that on a request, such as one that a repair gave."""
        if self.cache is not None and request.fingerprint:
            self.cache.put(self._key(request), verdict)

    def forget(self, request: JudgeRequest) -> None:
        """Drop the cached verdict on a request, because its answer is of no use."""
        if self.cache is not None and request.fingerprint:
            self.cache.forget(self._key(request))

    async def close(self) -> None:
        await self.inner.close()

    def _key(self, request: JudgeRequest) -> str:
        text = f"{request.fingerprint}\0{self._version}"
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()

    async def _answer(self, request: JudgeRequest) -> Verdict:
        batch = BATCH.get()
        if batch is None:
            return await self._call(request)
        return await self._of_batch(batch, request)

    async def _of_batch(self, batch: BatchAnswers, request: JudgeRequest) -> Verdict:
        """Return the batch's answer to the request, or raise it if it is a `JudgeError`.

        Without an answer, the request is added to `missing` and `JudgeError` is raised.
        """
        keyed = request
        if not request.fingerprint:
            keyed = request.model_copy(update={"fingerprint": repr(request)})
        key = self._key(keyed)
        answer = batch.answers.get(key)
        if answer is None:
            if key not in batch.missing:
                reservation = await self._reserved_for_batch(request)
                batch.missing[key] = BatchQuestion(self, request, reservation)
            raise JudgeError("waits for a batch of the provider", error_type=BATCHED)
        if isinstance(answer, JudgeError):
            self._notify(JudgeCall(self, request.purpose, answer.error_type))
            raise answer
        self._notify(
            JudgeCall(self, request.purpose, ANSWERED, True, answer.usage, answer.cost_usd)
        )
        return answer

    async def _reserved_for_batch(self, request: JudgeRequest) -> Reservation:
        """Reserve the budget for a question of a batch.

        The most that the question may use counts as spent until it is answered.
        """
        if self.budget is None:
            return Reservation()
        try:
            reservation = await self.budget.reserve(request, self.model, price_share=PRICE_SHARE)
        except EvaluationSkipped as refusal:
            self._notify(JudgeCall(self, request.purpose, str(refusal), was_sent=False))
            raise
        self.budget.settle(reservation, None)
        return reservation

    def batch_answer(
        self, reservation: Reservation, answer: Verdict | JudgeError
    ) -> Verdict | JudgeError:
        """Return the answer with what it cost, and correct the budget. Never waits.

        Call it once for each question: each call corrects the budget.
        """
        usage = answer.usage or JudgeUsage()
        cost_usd = None if self.budget is None else self.budget.correct(reservation, usage)
        if isinstance(answer, JudgeError):
            answer.probability = reservation.probability
            return answer
        return copy_with(answer, {"cost_usd": cost_usd, "probability": reservation.probability})

    async def _call(self, request: JudgeRequest) -> Verdict:
        reservation = Reservation()
        with contextlib.ExitStack() as guards:
            try:
                if self.breaker is not None:
                    guards.enter_context(self.breaker.call())
                if self.budget is not None:
                    reservation = await self.budget.reserve(request, self.model)
            except (JudgeError, EvaluationSkipped) as refusal:
                outcome = refusal.error_type if isinstance(refusal, JudgeError) else str(refusal)
                self._notify(JudgeCall(self, request.purpose, outcome, was_sent=False))
                raise
            started = self._clock()
            try:
                verdict = await self.inner.judge(request)
                if not isinstance(verdict, Verdict):
                    raise JudgeError(
                        f"it returned {type(verdict).__name__}, no Verdict",
                        error_type="malformed_answer",
                    )
            except BaseException as error:
                usage = None
                outcome = type(error).__name__
                if isinstance(error, JudgeError):
                    usage = error.usage
                    outcome = error.error_type
                    error.probability = reservation.probability
                elif isinstance(error, asyncio.CancelledError):
                    outcome = "cancelled"
                may_be_charged = isinstance(error, JudgeError) and error.may_be_charged
                cost_usd = self._ended(
                    request, reservation, started, outcome, usage, may_be_charged=may_be_charged
                )
                if isinstance(error, JudgeError):
                    error.cost_usd = cost_usd
                raise
            cost_usd = self._ended(
                request, reservation, started, ANSWERED, verdict.usage, verdict.cost_usd
            )
            return copy_with(
                verdict, {"cost_usd": cost_usd, "probability": reservation.probability}
            )

    def _ended(
        self,
        request: JudgeRequest,
        reservation: Reservation,
        started: float,
        outcome: str,
        usage: JudgeUsage | None,
        cost_usd: float | None = None,
        *,
        may_be_charged: bool = False,
    ) -> float | None:
        # Nothing here waits: a task that is cancelled settles too.
        duration_s = self._clock() - started
        if self.budget is not None:
            error_type = None if outcome == ANSWERED or may_be_charged else outcome
            cost_usd = self.budget.settle(
                reservation, usage, error_type=error_type, cost_usd=cost_usd
            )
        # by the garbage collector, in a context that may have another observer
        if outcome != GeneratorExit.__name__:
            self._notify(
                JudgeCall(self, request.purpose, outcome, True, usage, cost_usd, duration_s)
            )
        return cost_usd

    def _notify(self, call: JudgeCall) -> None:
        observer = OBSERVER.get()
        if observer is not None:
            with contextlib.suppress(Exception):
                observer.on_call(call)
