"""The follower of a task hears its outcome, and later that its results are exported and stored."""

from __future__ import annotations

import pytest

from agenteval_otel import configure
from agenteval_otel.config import default_pipeline
from agenteval_otel.config.process import export_results
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.engine.task import Follower, Task
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import EvaluationStorageProvider
from tests.pipelines import pipeline_with


class Noting(Follower):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def settle(self, outcome: str) -> None:
        self.notes.append(outcome)

    def delivered(self) -> None:
        self.notes.append("delivered")


class FailingAtFirst:
    """A store that is away for its first result."""

    def __init__(self) -> None:
        self.calls = 0

    async def save_result(self, result: AggregatedEvaluationResult) -> None:
        self.calls += 1
        if self.calls == 1:
            raise OSError("away")

    async def close(self) -> None:
        return None


def submit(pipeline: Pipeline) -> Noting:
    task = Task(pipeline.handler("shop"), "shop", pipeline.answers)
    task.input = EvaluationInput(prompt="When?", response="On Tuesday.", agent="shop")
    follower = task.follower = Noting()
    pipeline.submit(task, 100)
    return follower


def test_it_is_told_once_and_after_the_outcome(pipeline: Pipeline) -> None:
    follower = submit(pipeline)
    assert follower.notes == ["evaluated"]
    assert pipeline.export(5.0)
    assert pipeline.export(5.0)
    assert follower.notes == ["evaluated", "delivered"]
    assert pipeline.shutdown(5.0)


def test_an_export_that_fails_keeps_it_waiting() -> None:
    pipeline = pipeline_with(
        sampler=RatioSampler(),
        evaluators=(ResponseHealth(),),
        storage=(FailingAtFirst(),),
        dispatcher=InlineDispatcher(),
    )
    first = submit(pipeline)
    assert not pipeline.export(5.0)
    assert first.notes == ["evaluated"]
    second = submit(pipeline)
    assert pipeline.export(5.0)
    assert first.notes == second.notes == ["evaluated", "delivered"]
    assert pipeline.shutdown(5.0)


class Refusing(EvaluationStorageProvider, type="refusing"):
    """A store that says of nothing that it is saved."""

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Take it, and never say that it is saved."""

    def flush(self, timeout_s: float) -> bool:
        return False


def test_each_pipeline_delivers_its_own_across_a_reload() -> None:
    """What the pipeline before has evaluated is delivered by its own receivers, also where those of the
    next one are away, and the other way about.
    """
    configure(evaluators=[ResponseHealth()])
    before = default_pipeline()
    of_before = submit(before)
    assert before.dispatcher.flush(5.0)
    configure(evaluators=[ResponseHealth()], storage=[Refusing()], sampler=RatioSampler(ratio=0.5))
    of_next = submit(default_pipeline())
    assert default_pipeline().dispatcher.flush(5.0)
    assert not export_results(5.0)
    assert of_before.notes == ["evaluated", "delivered"]
    before.export(5.0)
    assert of_next.notes == ["evaluated"]


def test_a_flush_that_raises_keeps_it_waiting(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver whose thread is ended, say."""
    follower = submit(pipeline)
    with monkeypatch.context() as patch:

        def ends(deadline: float, *, with_metrics: bool = True) -> bool:
            raise SystemExit

        patch.setattr(pipeline, "_flush_emitters", ends)
        with pytest.raises(SystemExit):
            pipeline.export(5.0)
    assert follower.notes == ["evaluated"]
    assert pipeline.export(5.0)
    assert follower.notes == ["evaluated", "delivered"]


def test_what_is_dropped_at_the_end_is_never_delivered(pipeline: Pipeline) -> None:
    task = Task(pipeline.handler("shop"), "shop", pipeline.answers)
    follower = task.follower = Noting()
    assert task.take_end()
    task.finish("dropped_shutdown")
    pipeline.export(5.0)
    assert follower.notes == ["dropped_shutdown"]
