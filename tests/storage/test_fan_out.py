"""FanOutStorage: several providers, one that breaks does not touch the others."""

from __future__ import annotations

import asyncio
from typing import Any

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import EvaluationStorageProvider
from agenteval_otel.storage.base import FanOutStorage
from tests.pipelines import pipeline_with
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

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        await asyncio.get_running_loop().create_future()


class Closing(Keeping):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


class Named(EvaluationStorageProvider, type="named_in_this_test"):
    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        raise ValueError


def test_one_that_breaks_does_not_touch_the_others() -> None:
    """Every provider gets the result; one that raises, or hangs beyond the time limit, is reported
    by its name.
    """
    failures: list[tuple[str, str]] = []
    first, last = Keeping(), Closing()
    fan_out = FanOutStorage(
        [first, Broken(), Named(), Hanging(), last],
        lambda name, error: failures.append((name, repr(error))),
        timeout_s=0.02,
    )
    value = aggregated()
    assert asyncio.run(fan_out.save_result(value)) == 2
    assert first.saved == last.saved == [value]
    broken, named, hanging = failures
    assert (broken, named) == (
        ("Broken", "OSError('disk full')"),
        ("named_in_this_test", "ValueError()"),
    )
    assert hanging == ("Hanging", "TimeoutError()")
    failures.clear()
    asyncio.run(fan_out.close())
    assert (last.closed, failures) == (1, [("Broken", "OSError('gone')")])
    assert repr(fan_out) == "<FanOutStorage Keeping, Broken, named_in_this_test, Hanging, Closing>"


def test_the_pipeline_counts_what_failed_and_closes() -> None:
    """A storage that breaks is counted by its name, the answer is evaluated; a shutdown closes the
    storage, once.
    """
    closing: Any = Closing()
    storage = (Broken(), closing)
    made = pipeline_with(
        sampler=RatioSampler(), evaluators=(Free(),), storage=storage, dispatcher=InlineDispatcher()
    )
    assert monitor(pipeline=made)(str.upper)("q") == "Q"
    assert len(closing.saved) == 1
    assert made.accounting.failures == {"storage:Broken": 1}
    assert made.accounting.outcomes()["evaluated"] == 1
    assert [made.flush(5), made.flush(5)] == [False, True], "a flush tells of it, once"
    assert made.shutdown(5)
    assert made.shutdown(5)
    assert closing.closed == 1
