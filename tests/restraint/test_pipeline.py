"""Restraint on the route of an answer: who looks, when it ends, and what stepping down does to a call."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.dispatch import PoolDispatcher
from agenteval_otel.evaluators import Func, ResponseHealth
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.restraint import RestraintSettings
from agenteval_otel.restraint.ladder import FULL, OFF, REDUCED
from agenteval_otel.sampling import FunctionSampler, RatioSampler, Sampler
from agenteval_otel.testing import InlineDispatcher

DEADLINE_S = 20.0


class Kept:
    """A storage provider that keeps what it is given."""

    type = "kept"

    def __init__(self) -> None:
        self.results: list[AggregatedEvaluationResult] = []

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Keep it."""
        self.results.append(aggregated)


async def judged(given: Any) -> bool:
    """An async evaluator."""
    return True


@pytest.fixture
def make() -> Iterator[Callable[..., Pipeline]]:
    made: list[Pipeline] = []

    def make(sampler: Sampler | None = None, **more: Any) -> Pipeline:
        parts: dict[str, Any] = {"dispatcher": PoolDispatcher(linger_s=0.0), **more}
        made.append(
            Pipeline(
                sampler=sampler or RatioSampler(),
                evaluators=(ResponseHealth(), Func.of(judged)),
                storage=(Kept(),),
                **parts,
            )
        )
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.shutdown(5.0)


def answering(pipeline: Pipeline) -> Callable[[], str]:
    return monitor(pipeline=pipeline, agent="support")(lambda: "An answer.")


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it holds before the deadline."""
    pause, deadline = threading.Event(), time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.02)
    return True


def stepped_down(pipeline: Pipeline, level: int, share: float) -> None:
    """As after trouble: the ladder stands there, and what doors read says so."""
    restraint = pipeline.restraint
    restraint._ladder.level, restraint._ladder.share = level, share
    restraint._ladder.moved_at = time.monotonic()
    restraint._looked_at = time.monotonic() + 3_600  # however slow this machine is, somebody has just looked
    restraint.keep, restraint.code_only = (0.0 if level == OFF else share), level >= 2


def is_attended(pipeline: Pipeline) -> bool:
    return pipeline.restraint._attended() is not None


def test_the_pool_looks_while_there_is_work_and_then_no_more(make: Callable[..., Pipeline]) -> None:
    """Nobody looks before the first call; a moment after the last one nobody does again."""
    pipeline = make()
    assert not is_attended(pipeline)
    answering(pipeline)()
    assert pipeline.flush(DEADLINE_S)
    assert is_attended(pipeline)
    assert eventually(lambda: not is_attended(pipeline))


def test_it_recovers_by_itself_without_calls(make: Callable[..., Pipeline]) -> None:
    """Stepped down and idle, the pool goes on looking until sampling is full again."""
    pipeline = make()
    answering(pipeline)()
    assert pipeline.flush(DEADLINE_S)
    stepped_down(pipeline, REDUCED, 0.6)
    assert eventually(lambda: pipeline.restraint.keep is None)
    assert pipeline.restraint.level == FULL


def test_a_retired_pool_ends_although_sampling_is_reduced(make: Callable[..., Pipeline]) -> None:
    """The look keeps no thread: what is retired ends, and the next worker's loop is looked after anew."""
    pipeline = make()
    answer = answering(pipeline)
    answer()
    assert pipeline.flush(DEADLINE_S)
    stepped_down(pipeline, REDUCED, 0.999)
    pipeline.dispatcher.retire()
    assert eventually(lambda: not any(one.name == "agenteval-pool" for one in threading.enumerate()))
    before = pipeline.restraint._looked_at
    for _ in range(50):
        answer()
    assert pipeline.flush(DEADLINE_S)
    assert pipeline.restraint._looked_at != before


def test_when_off_answers_are_counted_and_not_taken(make: Callable[..., Pipeline]) -> None:
    """At off nothing reaches the pool; every call is counted as passed over."""
    pipeline = make()
    stepped_down(pipeline, OFF, 1 / 64)
    answer = answering(pipeline)
    for _ in range(20):
        assert answer() == "An answer."
    assert pipeline.accounting.outcomes()["dropped_stepdown"] == 20
    assert pipeline.dispatcher.state()["size"] == 0


def test_a_share_goes_on_with_its_probability(make: Callable[..., Pipeline]) -> None:
    """Reduced to a half, about half goes on, each with half of the sampler's probability; the outcomes add up."""
    pipeline = make(RatioSampler(ratio=0.8), dispatcher=InlineDispatcher())
    stepped_down(pipeline, REDUCED, 0.5)
    answer = answering(pipeline)
    for _ in range(1_000):
        answer()
    outcomes = pipeline.accounting.outcomes()
    assert sum(outcomes.values()) == 1_000
    assert 300 < outcomes["evaluated"] < 500
    assert 300 < outcomes["dropped_stepdown"] < 500
    (kept,) = pipeline.storage
    assert {result.sampling_probability for result in kept.results} == {0.4}


def test_what_is_decided_on_the_pool_is_thinned_there(make: Callable[..., Pipeline]) -> None:
    """A sampler that reads the answer is thinned after its decision."""
    pipeline = make(FunctionSampler(function=lambda given: 1.0), dispatcher=InlineDispatcher())
    stepped_down(pipeline, REDUCED, 0.5)
    answer = answering(pipeline)
    for _ in range(400):
        answer()
    outcomes = pipeline.accounting.outcomes()
    assert outcomes["evaluated"] + outcomes["dropped_stepdown"] == 400
    assert 130 < outcomes["evaluated"] < 270
    (kept,) = pipeline.storage
    assert {result.sampling_probability for result in kept.results} == {0.5}


def test_code_only_skips_evaluators_that_call_a_model(make: Callable[..., Pipeline]) -> None:
    """Their criteria are skipped as stepped down; the others are scored."""
    pipeline = make(dispatcher=InlineDispatcher())
    pipeline.restraint.code_only = True
    answering(pipeline)()
    (kept,) = pipeline.storage
    assert {result.criterion_name: result.skip_reason for result in kept.results[0].results} == {
        "response_health": None, "judged": "stepped_down",
    }  # fmt: skip


def test_an_inline_dispatcher_is_not_looked_after(make: Callable[..., Pipeline]) -> None:
    """It has no queue and no loop of ours."""
    pipeline = make(dispatcher=InlineDispatcher())
    answering(pipeline)()
    assert not is_attended(pipeline)


def test_the_settings_reach_it(make: Callable[..., Pipeline]) -> None:
    """A pipeline's limits are those that it was given."""
    settings = RestraintSettings(enabled=False, loop_lag_s=None)
    assert make(restraint=settings).restraint.settings is settings
    assert make().restraint.settings == RestraintSettings()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_begins_at_full(make: Callable[..., Pipeline]) -> None:
    """A parent's trouble is not its child's; the parent's stays."""
    pipeline = make()
    stepped_down(pipeline, OFF, 1 / 64)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (pipeline.restraint.level, pipeline.restraint.keep) == (FULL, None) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert pipeline.restraint.level == OFF


def test_a_part_that_breaks_holds_nobody_back(make: Callable[..., Pipeline]) -> None:
    """A dispatcher whose state cannot be read is not looked after, and sampling is full."""
    pipeline = make()
    stepped_down(pipeline, OFF, 1 / 64)

    def broken() -> Any:
        raise OSError("no")

    pipeline.restraint._queue._state = broken
    pipeline.restraint.keep = 0.999_999_999
    answer = answering(pipeline)
    answer()
    assert pipeline.flush(DEADLINE_S)
    assert (pipeline.restraint.level, pipeline.restraint.keep, pipeline.restraint.code_only) == (FULL, None, False)
