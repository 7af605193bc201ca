"""A1: the wrapped call gives the same object or raises the same exception, whatever fails inside us."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context

import pytest

from agenteval_otel import monitor
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.testing import InlineDispatcher, RecordedTelemetry
from tests.promises.figures import Recorder
from tests.promises.hosts import HOST_ERRORS, SHAPES, Ended, Script, drive, end_of
from tests.promises.protocols import PROTOCOLS, random_program, walk
from tests.promises.seams import (
    CALLER_SEAMS,
    COUNTING_SEAMS,
    POOL_SEAMS,
    SEAM_ERRORS,
    AskedRatio,
    Sabotage,
    Seam,
    sabotage,
)

PROTOCOL_CASES = 1_500
SITUATIONS = ("no trace", "in a trace", "not sampled", "not sampled in a handler", "disabled")
NOT_MET = {
    "no trace": {"set_attributes", "is recording"},
    "in a trace": {"draw", "random numbers", "open agent span", "end agent span", "tracer now", "span to context"},
}
"""Seams that are not on the way of such calls."""


class Rig:
    """One set of handlers in every shape on one pipeline, and the script that they follow."""

    def __init__(self, telemetry: RecordedTelemetry, situation: str) -> None:
        self.telemetry, self.situation = telemetry, situation
        self.evaluates = situation in ("no trace", "in a trace")
        unsampled = situation.startswith("not sampled")
        self.pipeline = Pipeline(
            sampler=AskedRatio(ratio=0.0 if unsampled else 1.0), evaluators=(ResponseHealth(),),
            storage=(telemetry.storage(),), dispatcher=InlineDispatcher(), enabled=situation != "disabled",
            own_span="always" if unsampled else "sampled",
        )  # fmt: skip
        self.script = Script()
        self.handlers = {
            shape: monitor(pipeline=self.pipeline, agent=shape)(make(self.script)) for shape, make in SHAPES.items()
        }
        self.outer = monitor(pipeline=self.pipeline, agent="outer", sample_rate=1.0)(lambda work, shape: work(shape))
        self.calls = 0

    @contextmanager
    def scene(self) -> Iterator[None]:
        """The host's surroundings of a call."""
        if self.situation != "in a trace":
            yield
            return
        with self.telemetry.tracer().start_as_current_span("host", record_exception=False):
            yield

    def run(
        self,
        saboteur: Sabotage,
        shape: str,
        error: type[BaseException] | None,
        seam: tuple[Seam, type[Exception]],
    ) -> str | None:
        """One case; gives what was wrong with it."""
        self.script.answer, self.script.error = (answer := [object()]), (raised := error() if error else None)
        with self.scene():
            saboteur.arm(*seam)
            try:
                ended = self.outer(self._drive, shape) if "in a handler" in self.situation else self._drive(shape)
            finally:
                saboteur.disarm()
        self.calls += 2 if "in a handler" in self.situation else 1
        return end_of(ended, answer, raised)

    def _drive(self, shape: str) -> Ended:
        return drive(self.handlers[shape], "question")

    def counted(self) -> int:
        """The sum of all outcomes."""
        return sum(self.pipeline.accounting.outcomes().values())


@pytest.fixture(scope="module")
def saboteur() -> Iterator[Sabotage]:
    with sabotage() as installed:
        yield installed


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_failing_seam_reaches_the_caller(
    saboteur: Sabotage, telemetry: RecordedTelemetry, situation: str, promise: Recorder
) -> None:
    """Whatever seam raises whatever error, each shape of handler ends as it would alone, and is counted once."""
    rig = Rig(telemetry, situation)
    seams = (*CALLER_SEAMS, *(POOL_SEAMS if rig.evaluates else ()), *COUNTING_SEAMS)
    wrong: Counter[str] = Counter()
    cases = list(itertools.product(seams, SEAM_ERRORS, SHAPES, (None, *HOST_ERRORS)))
    for seam, error, shape, host_error in cases:
        counted, calls = rig.counted(), rig.calls
        # An own context for each case: a scope that could not be left stays in it.
        problem = Context().run(rig.run, saboteur, shape, host_error, (seam, error))
        gained, made = rig.counted() - counted, rig.calls - calls
        if gained > made or (gained < made and seam not in COUNTING_SEAMS):
            problem = problem or f"{made} calls, {gained} outcomes"
        if problem:
            wrong[f"{seam.name}: {problem} ({shape}, {error.__name__})"] += 1
    assert not wrong, wrong.most_common(20)
    promise("A1", figure=f"{len(cases)} cases, 0 differences")
    if rig.evaluates:
        unreached = {seam.name for seam in seams} - saboteur.reached
        assert unreached <= NOT_MET[situation], "a seam that no case reaches proves nothing"


@pytest.mark.parametrize("shape", PROTOCOLS)
@pytest.mark.parametrize("situation", ["no trace", "not sampled"])
def test_protocols_are_those_of_the_handler(
    saboteur: Sabotage, telemetry: RecordedTelemetry, shape: str, situation: str, promise: Recorder
) -> None:
    """Step by step, sends, throws and closes give the same values and the same exceptions with the same contexts."""
    rig, dice = Rig(telemetry, situation), random.Random(f"{shape} {situation}")
    plain, monitored = PROTOCOLS[shape], monitor(pipeline=rig.pipeline)(PROTOCOLS[shape])
    nothing = Seam("nothing", None, "")
    for case in range(PROTOCOL_CASES):
        program = random_program(dice)
        seam = dice.choice((nothing, *CALLER_SEAMS))
        expected = walk(plain, program)
        before = rig.counted()
        saboteur.arm(seam, dice.choice(SEAM_ERRORS))
        try:
            found = Context().run(walk, monitored, program)
        finally:
            saboteur.disarm()
        assert found == expected, f"case {case} with {seam.name} broken: {program}"
        assert rig.counted() - before <= 1
    promise("A1", figure=f"{PROTOCOL_CASES} sequences of sends, throws and closes, 0 differences")
