"""FanOutStorage: several providers, one that breaks does not touch the others."""

from __future__ import annotations

import asyncio
from typing import Any

from agenteval_otel import monitor
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import EvaluationStorageProvider
from agenteval_otel.storage.base import FanOutStorage
from tests.storage.samples import aggregated
from tests.testing.doubles import Free, Keeping


class Broken(Keeping):
    """Raises in everything."""

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        raise OSError("disk full")

    async def close(self) -> None:
        raise OSError("gone")


class Hanging(Keeping):
    """Never comes back, unless it is cancelled."""

    cancelled = 0

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            Hanging.cancelled += 1
            raise


class Closing(Keeping):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


class Named(EvaluationStorageProvider, type="named_in_this_test"):
    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        raise ValueError


def test_one_that_raises_does_not_touch_the_others() -> None:
    """Every provider gets the result; a failing one is reported by its name; the number of saves is returned."""
    failures: list[tuple[str, str]] = []
    first, last = Keeping(), Keeping()
    fan_out = FanOutStorage([first, Broken(), Named(), last], lambda name, error: failures.append((name, repr(error))))
    value = aggregated()
    assert asyncio.run(fan_out.save_result(value)) == 2
    assert first.saved == last.saved == [value]
    assert failures == [("Broken", "OSError('disk full')"), ("named_in_this_test", "ValueError()")]
    assert repr(fan_out) == "<FanOutStorage Keeping, Broken, named_in_this_test, Keeping>"


def test_one_that_hangs_is_cut_off() -> None:
    """A save has a time limit: a provider that hangs is cancelled and reported, and the others still save."""
    failures: list[str] = []
    last = Keeping()
    fan_out = FanOutStorage(
        [Hanging(), last], lambda name, error: failures.append(type(error).__name__), timeout_s=0.02
    )
    assert asyncio.run(fan_out.save_result(aggregated())) == 1
    assert (len(last.saved), failures, Hanging.cancelled) == (1, ["TimeoutError"], 1)


def test_all_are_closed() -> None:
    """Closing reaches every provider that can be closed, whatever the others do."""
    failures: list[str] = []
    closing = Closing()
    fan_out = FanOutStorage([Broken(), Keeping(), closing], lambda name, error: failures.append(name))
    asyncio.run(fan_out.close())
    assert closing.closed == 1
    assert failures == ["Broken"]


def test_the_pipeline_counts_what_failed(pipeline: Pipeline) -> None:
    """A storage that breaks is counted by its name; the answer is evaluated all the same."""
    kept = Keeping()
    made = Pipeline(
        sampler=RatioSampler(), evaluators=(Free(),), storage=(Broken(), kept), dispatcher=InlineDispatcher()
    )

    @monitor(pipeline=made)
    def handler(question: str) -> str:
        return "answer"

    assert handler("q") == "answer"
    assert len(kept.saved) == 1
    assert made.accounting.failures == {"storage:Broken": 1}
    assert made.accounting.outcomes()["evaluated"] == 1
    assert made.shutdown(1)


def test_shutdown_closes_the_storage() -> None:
    """When a pipeline is shut down its storage providers are closed, once."""
    closing: Any = Closing()
    made = Pipeline(sampler=RatioSampler(), evaluators=(Free(),), storage=(closing,), dispatcher=InlineDispatcher())

    @monitor(pipeline=made)
    def handler(question: str) -> str:
        return "answer"

    handler("q")
    assert made.shutdown(5)
    assert made.shutdown(5)
    assert closing.closed == 1
