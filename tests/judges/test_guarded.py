"""Guarded: cache, breaker and budget around a judge, in this order."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from agenteval_otel.errors import EvaluationSkipped, JudgeError
from agenteval_otel.evaluators.judges.base import Guarded
from agenteval_otel.evaluators.judges.breaker import BreakerSettings, CircuitBreaker
from agenteval_otel.evaluators.judges.budget import BudgetLimiter, Price, SpendLimits
from agenteval_otel.evaluators.judges.cache import CacheSettings, VerdictCache
from agenteval_otel.evaluators.judges.ledger import MemoryLedger
from agenteval_otel.judges import JudgeUsage, OpenAICompatibleJudge, Verdict
from agenteval_otel.models.judge_calls import JudgeCall, observed_by
from agenteval_otel.testing import ManualClock, ModelReply, ModelServer
from tests.judges.asking import QUESTION, hosted
from tests.judges.doubles import CountingJudge, request_of, verdict


class Observer:
    """Keeps its calls."""

    def __init__(self) -> None:
        self.calls: list[JudgeCall] = []

    def on_call(self, call: JudgeCall) -> None:
        self.calls.append(call)

    @property
    def outcomes(self) -> list[str]:
        return [call.outcome for call in self.calls]


def budget(**limits: Any) -> BudgetLimiter:
    return BudgetLimiter(
        SpendLimits(prices={"small-*": Price(input=1.0, output=5.0)}, **limits),
        ledger=MemoryLedger(),
        clock=ManualClock(1e9),
        draw=lambda: 0.0,
    )


def cache() -> VerdictCache:
    return VerdictCache(clock=ManualClock(1e9))


def breaker(**settings: Any) -> CircuitBreaker:
    return CircuitBreaker(BreakerSettings(**settings), clock=ManualClock())


def fails_with(word: str, *, retryable: bool = False, usage: JudgeUsage | None = None) -> Any:
    def answer(number: int) -> None:
        raise JudgeError(f"call {number}", error_type=word, retryable=retryable, usage=usage)

    return answer


def ask(guarded: Guarded, request: Any = None) -> Verdict:
    return asyncio.run(guarded.judge(request or request_of(fingerprint="f0")))


def test_a_verdict_carries_its_price() -> None:
    """Its cost is that of the price table; without a price that of the judge itself."""
    assert ask(Guarded(CountingJudge(), budget=budget())).cost_usd == pytest.approx(100e-6 + 250e-6)
    counts_itself = CountingJudge(
        model="odd", answer=lambda _: verdict().model_copy(update={"cost_usd": 0.5})
    )
    assert ask(Guarded(counts_itself, budget=budget())).cost_usd == 0.5
    assert ask(Guarded(CountingJudge(model="odd"), budget=budget())).cost_usd is None


def test_a_cached_verdict_costs_nothing() -> None:
    """It is marked, and has no usage."""
    judge = CountingJudge()
    guarded = Guarded(judge, budget=budget(usd_per_day=1.0), cache=cache())
    first, second = ask(guarded), ask(guarded)
    assert (judge.calls, first.from_cache, second.from_cache) == (1, False, True)
    assert second.answer == first.answer
    assert (second.usage, second.cost_usd, second.duration_s) == (JudgeUsage(calls=0), 0.0, 0.0)


def test_other_questions_and_models_have_other_verdicts() -> None:
    """Fingerprint, model and settings are the key; a request without a fingerprint is not cached."""
    shared = cache()
    small, large = CountingJudge(), CountingJudge(model="large-1")
    for judge in (small, large):
        guarded = Guarded(judge, cache=shared)
        for fingerprint in ("f0", "f1", "f0", "", ""):
            ask(guarded, request_of(fingerprint=fingerprint))
    assert (small.calls, large.calls) == (4, 4)


@pytest.mark.parametrize(
    "word", ["refusal", "truncated", "malformed_answer", "rate_limited", "timeout"]
)
def test_failures_are_not_kept(word: str) -> None:
    """The next call goes to the judge again."""
    judge = CountingJudge(answer=fails_with(word))
    guarded = Guarded(judge, cache=cache())
    for _ in range(3):
        with pytest.raises(JudgeError):
            ask(guarded)
    assert judge.calls == 3


def test_the_order_of_the_guards() -> None:
    """A hit passes an open breaker; an open breaker reserves nothing; a refused budget is no
    failure.
    """
    shared, gate, limiter = cache(), breaker(failures=1), budget(tokens_per_day=238 + 149)
    ask(Guarded(CountingJudge(), cache=shared))
    guarded = Guarded(
        CountingJudge(answer=fails_with("overloaded", retryable=True)),
        cache=shared,
        breaker=gate,
        budget=limiter,
    )
    with pytest.raises(JudgeError, match="call 1"):
        ask(guarded, request_of(fingerprint="f1"))
    assert gate.state == "open"
    assert ask(guarded).from_cache
    for _ in range(5):
        with pytest.raises(JudgeError) as caught:
            ask(guarded, request_of(fingerprint="f1"))
        assert caught.value.error_type == "breaker_open"
    well, observer = breaker(failures=1), Observer()
    short = Guarded(CountingJudge(), breaker=well, budget=budget(tokens_per_day=300))
    with observed_by(observer):
        ask(short)
        for _ in range(5):
            with pytest.raises(EvaluationSkipped, match="budget_exhausted"):
                ask(short)
    assert well.state == "closed"
    assert observer.outcomes == ["answered", *["budget_exhausted"] * 5]


def test_a_cancelled_question_is_observed() -> None:
    """It was sent, and may be billed."""
    judge, observer = CountingJudge(pause=asyncio.Event()), Observer()

    async def cancelled() -> None:
        task = asyncio.ensure_future(Guarded(judge).judge(request_of()))
        await judge.arrivals.get()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    with observed_by(observer):
        asyncio.run(cancelled())
    (call,) = observer.calls
    assert (call.error_type, call.was_sent, call.usage) == ("cancelled", True, None)


def test_a_broken_observer_breaks_nothing() -> None:
    """Its exceptions are suppressed; the verdict comes."""
    with observed_by(SimpleNamespace(on_call=lambda call: 1 / 0)):
        assert ask(Guarded(CountingJudge())) == verdict()


def test_settings_make_the_guards() -> None:
    """A judge has the guards of its settings; judges of one endpoint share the breaker."""

    settings = BreakerSettings(failures=7)
    item, two = (
        CountingJudge(breaker=settings, spend=SpendLimits(), cache=CacheSettings()).guarded()
        for _ in "ab"
    )
    assert item.breaker is two.breaker is not None
    assert item.budget is not None
    assert item.cache is not two.cache is not None
    bare = CountingJudge().guarded()
    assert (bare.breaker, bare.budget, bare.cache) == (None, None, None)


def test_hosted_judges_have_a_breaker_by_default() -> None:
    """A failing endpoint is left alone without any setting; ``breaker: null`` keeps calling it."""
    asked = BreakerSettings().failures + 2
    with ModelServer([ModelReply(status=500)]) as server:
        by_default = hosted(OpenAICompatibleJudge, server, max_retries=0)
        without = hosted(OpenAICompatibleJudge, server, max_retries=0, breaker=None)
        for judge in (by_default, without):
            for _ in range(asked):
                with pytest.raises(JudgeError):
                    ask(judge.guarded(), QUESTION)
        assert len(server.requests) == BreakerSettings().failures + asked
