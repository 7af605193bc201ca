"""An application whose answers a model judges, for the backend tests: `python -m tests.backends.reviewed SECONDS`.

The judge is the real client of Anthropic against a provider on loopback, with a spend limit, a breaker and a cache; now
and then the provider is overloaded. A burst now and then is more than its small queue takes. Where everything goes is
what the `OTEL_*` variables say.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from typing import Any

from agenteval_otel import annotate, configure, flush, monitor, shutdown
from agenteval_otel.evaluators import Coherence
from agenteval_otel.judges import AnthropicJudge, BreakerSettings, CacheSettings, SpendLimits
from agenteval_otel.pipeline import PoolDispatcher
from agenteval_otel.testing import ModelReply, ModelServer

AGENT = "assistant"
EVERY_S = 0.25
BURST, BURST_EVERY = 40, 10
OVERLOADED_EVERY = 7
VERDICT = '{"evidence": [], "reason": "it reads well", "score": %d}'


def replies() -> Any:
    """What the provider says: mostly good verdicts, some bad ones, and now and then that it is overloaded."""
    numbers = itertools.count(1)

    def reply(_: dict[str, Any]) -> ModelReply | str:
        number = next(numbers)
        if number % OVERLOADED_EVERY == 0:
            return ModelReply(status=400)
        return VERDICT % (2 if number % 5 == 0 else 5)

    return reply


@monitor(agent=AGENT)
def answer(number: int) -> str:
    annotate(model="scripted-1")
    return f"The parcel number {number} is on its way and arrives within two days."


def traffic(seconds: float) -> Iterator[int]:
    """Numbers, one by one and now and then many at once, for so long."""
    until, numbers = time.monotonic() + seconds, itertools.count()
    for turn in itertools.count():
        for _ in range(BURST if turn % BURST_EVERY == BURST_EVERY - 1 else 1):
            yield next(numbers)
        if time.monotonic() >= until:
            return
        time.sleep(EVERY_S)


def main(seconds: float) -> None:
    """Answers for so long and leaves nothing behind; fails unless everything was sent."""
    with ModelServer([replies()]) as provider:
        judge = AnthropicJudge(
            base_url=provider.url, api_key="none", model="judge-1", max_retries=0,
            spend=SpendLimits(prices={"*": {"input": 1.0, "output": 5.0}}, usd_per_day=5.0),
            breaker=BreakerSettings(), cache=CacheSettings(),
        )  # fmt: skip
        configure(
            sample_rate=1.0, evaluators=[Coherence(judge=judge, objective=0.7)], dispatcher=PoolDispatcher(max_items=16)
        )
        for number in traffic(seconds):
            answer(number)
        everything = flush(20.0)
        shutdown(5.0)
    if not everything:
        raise SystemExit("not everything was exported")


if __name__ == "__main__":
    main(float(sys.argv[1]))
