"""Streams of verdicts, and an agent whose answers pass or fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from agenteval_otel import monitor
from agenteval_otel.engine.capabilities.objectives.watch import Objectives, ObjectiveSettings
from agenteval_otel.engine.objectives import BreachSettings, ObjectiveCrossing
from agenteval_otel.engine.objectives.track import ObjectiveVerdict, Track
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import CriterionEvaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, Score
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with

PASS, FAIL = ObjectiveVerdict(passed=True), ObjectiveVerdict(passed=False)
QUICK = BreachSettings(false_alarm_every=500, recover_after=40, minimum=10)
Stream = Callable[[Random, float], ObjectiveVerdict]


def plain(random: Random, rate: float) -> ObjectiveVerdict:
    """A verdict of a stream in which every answer is seen."""
    return PASS if random.random() < rate else FAIL


def adaptive(random: Random, rate: float) -> ObjectiveVerdict:
    """A verdict of a stream in which what looks bad is seen for sure, and of the rest one in
    twenty.
    """
    while True:
        passed = random.random() < rate
        probability = 1.0 if random.random() < (0.1 if passed else 0.8) else 0.05
        if random.random() < probability:
            return ObjectiveVerdict(passed=passed, probability=probability, least=probability)


def until(track: Track, stream: Stream, random: Random, rate: float, most: int = 50_000) -> int:
    """How many verdicts of that rate it takes to change something."""
    for number in range(1, most):
        if track.add(stream(random, rate), 0.0) is not None:
            return number
    return most


def answers(
    track: Track, verdicts: Sequence[ObjectiveVerdict], *, now_s: float = 0.0
) -> Iterator[ObjectiveCrossing]:
    """What the verdicts change."""
    for verdict in verdicts:
        change = track.add(verdict, now_s)
        if change is not None:
            yield change


class Good(CriterionEvaluator, type="ObjectiveTestGood"):
    """Passes the answer ``good``, fails on ``broken``, abstains from ``nothing``; says a category
    of ``word``.
    """

    criterion_name: str = "good"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        text = evaluation_input.response_text
        if text == "broken":
            raise ValueError("no")
        if text == "nothing":
            raise EvaluationSkipped("nothing to say")
        return Score(value="calm", label="calm") if text == "word" else Score(value=text == "good")


class Kept(list[ObjectiveCrossing]):
    """A callback that keeps its crossings."""

    def __call__(self, crossing: ObjectiveCrossing) -> None:
        self.append(crossing)


def watched_by(pipeline: Pipeline) -> Objectives:
    """What watches the objectives of a pipeline."""
    objectives = pipeline.capabilities.of(Objectives)
    assert objectives is not None
    return objectives


def pipeline_of(
    telemetry: RecordedTelemetry,
    *,
    objective: float | None = 0.9,
    breach: BreachSettings = QUICK,
    on_breach: Any = None,
    on_recovery: Any = None,
    ratio: float = 1.0,
    **arguments: Any,
) -> tuple[Pipeline, Callable[..., Any]]:
    """A pipeline that evaluates inline, and what has its agent answer: ``ask("good", times=3)``."""
    pipeline = pipeline_with(
        **{
            "sampler": RatioSampler(ratio=ratio),
            "evaluators": (Good(),),
            "storage": (telemetry.storage(),),
            "dispatcher": InlineDispatcher(),
            "criteria": ()
            if objective is None
            # All answers of a test may be of one trace, and of one second.
            else (EvaluationCriteria(name="good", objective=objective, independent=True),),
            "capabilities": (
                Objectives.made_by(ObjectiveSettings(breach, on_breach, on_recovery)),
            ),
            **arguments,
        }
    )

    def ask(answer: str, *, times: int = 1, agent: str = "shop") -> None:
        handler = monitor(agent=agent, pipeline=pipeline)(lambda text: text)
        for _ in range(times):
            handler(answer)

    return pipeline, ask
