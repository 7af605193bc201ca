"""B6: a provider in trouble is not stormed: retries are few, late enough, and of one layer; then it
is left alone.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest

from agenteval_otel.errors import JudgeError
from agenteval_otel.evaluators.judges.base import Guarded
from agenteval_otel.evaluators.judges.breaker import CircuitBreaker
from agenteval_otel.judges import (
    AnthropicJudge,
    BreakerSettings,
    Judge,
    JudgeRequest,
    OpenAICompatibleJudge,
)
from agenteval_otel.testing import ManualClock, ModelReply, ModelServer
from tests.judges.asking import FORM, hosted
from tests.promises.figures import Recorder, sized

CALLS, AT_ONCE, FREE = sized(150, 1_000), 64, 2
BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])


def _refused(status: int, retry_after: str | None = None) -> ModelReply:
    return ModelReply(
        status=status, headers={} if retry_after is None else {"Retry-After": retry_after}
    )


FAULTS: dict[str, tuple[ModelReply, float]] = {
    "429": (_refused(429), 0.0),
    "529": (_refused(529), 0.0),
    "503": (_refused(503), 0.0),
    "429, Retry-After 1": (_refused(429, "1"), 1.0),
    "529, Retry-After 1": (_refused(529, "1"), 1.0),
    "503, Retry-After 3600": (_refused(503, "3600"), 3600.0),
    "429, Retry-After a date": (
        _refused(429, format_datetime(datetime.now(UTC) + timedelta(hours=1))),
        3600.0,
    ),
    "429, Retry-After garbage": (_refused(429, "soon, perhaps; -1 nan"), 0.0),
    "429, Retry-After negative": (_refused(429, "-3600"), 0.0),
    "429, told to retry": (ModelReply(status=429, headers={"x-should-retry": "true"}), 0.0),
    "reset": (ModelReply(resets=True), 0.0),
    "time-out": (ModelReply(hangs="before"), 0.0),
}
"""What the provider does to every request, and how long it asks to wait."""


class Provider:
    """Does the same to every request, and notes when each question came."""

    def __init__(self, reply: ModelReply) -> None:
        self.came: dict[str, list[float]] = defaultdict(list)
        self._reply, self._lock = reply, threading.Lock()

    def __call__(self, body: dict[str, Any]) -> ModelReply:
        (number,) = re.findall(r"question (\d+)\.", str(body))
        with self._lock:
            self.came[number].append(time.monotonic())
        return self._reply

    @property
    def attempts(self) -> int:
        return sum(map(len, self.came.values()))

    def shortest_wait_s(self) -> float:
        """The shortest time between two tries of one question; infinite where none was tried again."""
        waits = [later - first for times in self.came.values() for first, later in pairwise(times)]
        return min(waits, default=float("inf"))


def _question(number: int) -> JudgeRequest:
    return JudgeRequest(system="You judge.", prompt=f"question {number}.", answer_form=FORM)


async def _ask_all(judge: Any, calls: int, at_once: int = AT_ONCE) -> list[str]:
    places, words = asyncio.Semaphore(at_once), []

    async def ask(number: int) -> None:
        async with places:
            try:
                await judge.judge(_question(number))
                words.append("answer")
            except JudgeError as error:
                words.append(error.error_type)

    await asyncio.gather(*map(ask, range(calls)))
    return words


@BOTH
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.sized
def test_a_tenth_on_top_at_most(kind: type[Judge], fault: str, promise: Recorder) -> None:
    """Whatever all requests meet: at most 1.1 of them a call, no try before it was asked for, no
    second layer.
    """
    reply, asked_s = FAULTS[fault]
    provider = Provider(reply)
    deadline_s = 0.5 if reply.hangs else 60.0
    with ModelServer([provider]) as server:
        words = asyncio.run(
            _ask_all(hosted(kind, server, breaker=None, deadline_s=deadline_s), CALLS)
        )
        assert len(server.requests) == provider.attempts
    assert len(words) == CALLS
    assert "answer" not in words
    assert provider.attempts <= 1.1 * CALLS + FREE
    assert max(map(len, provider.came.values()), default=0) <= 3
    assert provider.shortest_wait_s() >= asked_s
    if asked_s > deadline_s or reply.hangs:
        assert provider.attempts <= CALLS, "nobody waits for longer than the deadline"
    promise("B6", figure=f"{provider.attempts} requests for {CALLS} calls")


@BOTH
@pytest.mark.parametrize("fault", FAULTS)
def test_the_circuit_opens_within_twenty_calls(
    kind: type[Judge], fault: str, promise: Recorder
) -> None:
    """Of a thousand calls one after another twenty reach the endpoint at most, the rest is refused
    at once.
    """
    reply, _ = FAULTS[fault]
    provider, clock = Provider(reply), ManualClock()
    breaker = CircuitBreaker(BreakerSettings(), clock=clock)
    with ModelServer([provider]) as server:
        judge = hosted(kind, server, breaker=None, deadline_s=0.02 if reply.hangs else 60.0)
        words = asyncio.run(_ask_all(Guarded(judge, breaker=breaker), 1_000, at_once=1))
    reached = len(words) - words.count("breaker_open")
    assert reached <= 20
    assert provider.attempts <= 1.1 * reached + FREE
    assert breaker.state == "open"
    promise("B6", figure=f"circuit opened after {reached} calls")


@BOTH
def test_half_open_lets_one_probe_through(kind: type[Judge], promise: Recorder) -> None:
    """Sixty-four calls meet a circuit that is half open: one reaches the endpoint, as long as it
    takes to answer.
    """
    clock = ManualClock()
    breaker = CircuitBreaker(BreakerSettings(), clock=clock)
    slow = ModelReply(status=503, delay_s=0.1)
    provider = Provider(slow)

    async def work(judge: Judge) -> list[int]:
        guarded = Guarded(judge, breaker=breaker)
        await _ask_all(guarded, 200, at_once=1)
        actual = []
        for open_s in (15, 30, 60):
            clock.advance(open_s + 0.1)
            before = provider.attempts
            words = await _ask_all(guarded, AT_ONCE)
            assert words.count("breaker_open") == AT_ONCE - 1
            actual.append(provider.attempts - before)
        return actual

    with ModelServer([provider]) as server:
        probes = asyncio.run(work(hosted(kind, server, breaker=None, max_retries=0)))
    assert probes == [1, 1, 1]
    promise("B6", figure=f"half open: 1 probe of {AT_ONCE} calls")
