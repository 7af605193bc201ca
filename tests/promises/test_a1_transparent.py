"""A1: the wrapped call gives the same object or raises the same exception, whatever fails inside
us.
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from contextvars import Context
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.instrumentation import scope as scopes
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with
from tests.promises.figures import Recorder
from tests.promises.hosts import (
    HOST_ERRORS,
    PROTOCOLS,
    SHAPES,
    Ended,
    Script,
    drive,
    end_of,
    random_program,
    walk,
)
from tests.promises.seams import (
    BACKGROUND_SEAMS,
    CALLER_SEAMS,
    COUNTING_SEAMS,
    SEAM_ERRORS,
    AskedRatio,
    Faults,
    KeptResults,
    Seam,
    injected_faults,
)

PROTOCOL_CASES = 1_500
SITUATIONS = (
    "no trace",
    "span ends late",
    "in a trace",
    "not sampled",
    "not sampled in a handler",
    "disabled",
)
LATE = {
    "LoadShedder.thin",
    "Providers.takes_late_spans",
    "MemoryPart.reserve",
    "live.score_attributes",
    "parts.end_agent_span",
}
AGENT_SPAN = {
    "trace.randomness_of",
    "Random.getrandbits",
    "handler.open_agent_span",
    "handler.end_agent_span",
    "Emitter.agent_tracer_now",
    "handler._pid",
}
NOT_MET = {
    "no trace": LATE,
    "span ends late": {"Span.is_recording", "handler.end_agent_span"},
    "in a trace": {seam.name for seam in CALLER_SEAMS if seam.owner is scopes} | AGENT_SPAN | LATE,
}
"""Seams that are not on the way of such calls."""


class Rig:
    """One set of handlers in every shape on one pipeline, and the script that they follow."""

    def __init__(self, telemetry: RecordedTelemetry, situation: str) -> None:
        self.tracer = telemetry.tracer()
        self.situation = situation
        self.evaluates = situation in NOT_MET
        unsampled = situation.startswith("not sampled")
        if situation == "span ends late":
            # On the background thread, with the SDK's own batch processor.
            telemetry.tracer_provider = TracerProvider(shutdown_on_exit=False)
            exporter = InMemorySpanExporter()
            telemetry.tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
        self.pipeline = pipeline_with(
            sampler=AskedRatio(ratio=0.0 if unsampled else 1.0),
            evaluators=(ResponseHealth(),),
            storage=(telemetry.storage(), KeptResults()),
            dispatcher=InlineDispatcher(),
            enabled=situation != "disabled",
            agent_span="always" if unsampled else "sampled",
        )
        if situation == "span ends late":
            self.pipeline.late_spans = True
            self.pipeline.load_shedder.keep = 0.9
        self.script = Script()
        self.handlers = {
            shape: monitor(pipeline=self.pipeline, agent=shape)(make(self.script))
            for shape, make in SHAPES.items()
        }
        self.call = self._drive
        self.calls = 1  # to a case
        if situation == "not sampled in a handler":
            self.call = monitor(pipeline=self.pipeline, agent="outer", sample_rate=1.0)(self._drive)
            self.calls = 2

    def run(self, shape: str, error: type[BaseException] | None, faults: Any) -> str | None:
        """Have a handler answer, or raise the error, under faults; gives what is wrong with its end."""
        answer = self.script.answer = [object()]
        raised = self.script.error = error() if error else None
        in_a_trace = self.situation == "in a trace"
        host = self.tracer.start_as_current_span("host", record_exception=False)
        with host if in_a_trace else nullcontext(), faults:
            ended = self.call(shape)
        return end_of(ended, answer, raised)

    def _drive(self, shape: str) -> Ended:
        return drive(self.handlers[shape], "question")

    def counted(self) -> int:
        return sum(self.pipeline.accounting.outcomes().values())


@pytest.fixture(scope="module")
def faults() -> Iterator[Faults]:
    with injected_faults() as installed:
        yield installed


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_failing_seam_reaches_the_caller(
    faults: Faults, telemetry: RecordedTelemetry, situation: str, promise: Recorder
) -> None:
    """Whatever seam raises whatever error, each shape of handler ends as it would alone, and is
    counted once.
    """
    rig = Rig(telemetry, situation)
    faults.reached.clear()
    reserved = MEMORY.open_spans.used_bytes
    seams = (*CALLER_SEAMS, *(BACKGROUND_SEAMS if rig.evaluates else ()), *COUNTING_SEAMS)
    wrong: Counter[str] = Counter()
    cases = list(itertools.product(seams, SEAM_ERRORS, SHAPES, (None, *HOST_ERRORS)))
    for seam, error, shape, host_error in cases:
        before = rig.counted()
        # An own context for each case: a scope that could not be left stays in it.
        problem = Context().run(rig.run, shape, host_error, faults.armed(seam, error))
        gained = rig.counted() - before
        if gained > rig.calls or (gained < rig.calls and seam not in COUNTING_SEAMS):
            problem = problem or f"{rig.calls} calls, {gained} outcomes"
        if problem:
            wrong[f"{seam.name}: {problem} ({shape}, {error.__name__})"] += 1
    assert not wrong, wrong.most_common(20)
    assert MEMORY.open_spans.used_bytes == reserved
    promise("A1", figure=f"{len(cases)} cases, 0 differences")
    if rig.evaluates:
        unreached = {seam.name for seam in seams} - faults.reached
        assert unreached <= NOT_MET[situation], "a seam that no case reaches proves nothing"


@pytest.mark.parametrize("shape", PROTOCOLS)
@pytest.mark.parametrize("situation", ["no trace", "not sampled"])
def test_protocols_are_those_of_the_handler(
    faults: Faults,
    telemetry: RecordedTelemetry,
    shape: str,
    situation: str,
    promise: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Step by step, sends, throws and closes give the same values and the same exceptions with the
    same contexts.
    """
    rig, dice = Rig(telemetry, situation), random.Random(f"{shape} {situation}")
    plain, monitored = PROTOCOLS[shape], monitor(pipeline=rig.pipeline)(PROTOCOLS[shape])
    ignored: Counter[str] = Counter()
    monkeypatch.setattr(
        sys, "unraisablehook", lambda failed: ignored.update([repr(failed.exc_value)])
    )
    programs = [random_program(dice) for _ in range(PROTOCOL_CASES)]
    expected = [walk(plain, program) for program in programs]
    gc.collect()
    ignored_of_handler = ignored.copy()
    ignored.clear()
    nothing = Seam("nothing", None, "")
    for case, program in enumerate(programs):
        seam = dice.choice((nothing, *CALLER_SEAMS))
        before = rig.counted()
        with faults.armed(seam, dice.choice(SEAM_ERRORS)):
            seen = Context().run(walk, monitored, program)
        assert seen == expected[case], f"case {case} with {seam.name} broken: {program}"
        assert rig.counted() - before <= 1
    gc.collect()
    assert ignored == ignored_of_handler
    promise("A1", figure=f"{PROTOCOL_CASES} sequences of sends, throws and closes, 0 differences")
