"""Fault injection: the places inside us where something may break, by name, and how one of them is made to raise.

Every seam is replaced once by a function that calls the original unless it is armed. So a handler that is decorated
inside `injected_faults` has the seams built in, and a case costs no more than setting two names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import Span

from agenteval_otel.capture import Arguments, calls
from agenteval_otel.engine import live, response
from agenteval_otel.engine.live import Engine
from agenteval_otel.engine.run import Run
from agenteval_otel.engine.sampled import SamplingRecord
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.execution import Executor
from agenteval_otel.instrumentation import handler as handlers
from agenteval_otel.instrumentation import scope as scopes
from agenteval_otel.instrumentation import wrappers
from agenteval_otel.instrumentation.handler import Handler
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.pipeline.load_shedding import LoadShedder
from agenteval_otel.runtime import fork
from agenteval_otel.runtime import log as logging
from agenteval_otel.runtime.memory import MemoryPart
from agenteval_otel.sampling import RatioSampler, SamplingContext, SamplingDecision
from agenteval_otel.storage import EvaluationStorageProvider, FanOutStorage
from agenteval_otel.telemetry import Accounting, Providers, emitter
from agenteval_otel.telemetry.emitter import Emitter
from agenteval_otel.telemetry.metrics import Instruments, ResultTotals
from agenteval_otel.telemetry.spans import EventLog

__all__ = [
    "BACKGROUND_SEAMS", "CALLER_SEAMS", "COUNTING_SEAMS", "SEAM_ERRORS", "AskedRatio", "Faults", "KeptResults", "Seam",
    "Unprintable", "injected_faults",
]  # fmt: skip


class Seam(NamedTuple):
    """Where a part of ours can be made to fail."""

    name: str
    owner: Any
    attribute: str


class Unprintable(Exception):
    """An exception that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("not shown")

    __repr__ = __str__


SEAM_ERRORS: tuple[type[Exception], ...] = (RuntimeError, RecursionError, MemoryError, StopIteration, Unprintable)


class _Scope:
    """Stands in for the context variable, whose methods cannot be replaced."""

    def __init__(self, variable: Any) -> None:
        self.get, self.set, self.reset = variable.get, variable.set, variable.reset


_scope = _Scope(calls.CURRENT)


class AskedRatio(RatioSampler):
    """A ratio that is asked with a context, like a sampler of the user's, instead of by the randomness alone."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return super().decide(context)


class KeptResults(EvaluationStorageProvider, type="kept_results"):
    """A place for results beside telemetry, which keeps none."""

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        assert aggregated.results


CALLER_SEAMS: tuple[Seam, ...] = (
    Seam("enter", Handler, "enter"),
    Seam("leave", Handler, "leave"),
    Seam("sampler.decide", AskedRatio, "decide"),
    Seam("sampling context", handlers, "SamplingContext"),
    Seam("randomness", handlers, "randomness_of"),
    Seam("random numbers", fork.RANDOM, "getrandbits"),
    Seam("load shedding", LoadShedder, "thin"),
    Seam("host's loop", handlers, "get_running_loop"),
    Seam("current span", handlers, "_current_context"),
    Seam("span context", Span, "get_span_context"),
    Seam("is recording", Span, "is_recording"),
    Seam("set_attributes", Span, "set_attributes"),
    Seam("captured call", handlers, "_fresh_call"),
    Seam("prompt parameter", Arguments, "prompt"),
    Seam("take", calls, "take"),
    Seam("wall clock", handlers, "_now_ns"),
    Seam("tick clock", handlers, "_tick_ns"),
    Seam("process id", handlers, "_pid"),
    Seam("scope get", _scope, "get"),
    Seam("scope set", _scope, "set"),
    Seam("scope reset", _scope, "reset"),
    Seam("tracer now", Emitter, "tracer_now"),
    Seam("takes late spans", Providers, "takes_late_spans"),
    Seam("memory of open spans", MemoryPart, "reserve"),
    Seam("open agent span", handlers, "open_agent_span"),
    Seam("end agent span", handlers, "end_agent_span"),
    Seam("span to context", scopes, "Context"),
    Seam("context attach", scopes, "attach_context"),
    Seam("context detach", scopes, "detach_context"),
    Seam("context current", scopes, "current_context"),
    Seam("pipeline.submit", Pipeline, "submit"),
    Seam("dispatcher.submit", InlineDispatcher, "submit"),
)
"""What runs on the caller's thread."""

BACKGROUND_SEAMS: tuple[Seam, ...] = (
    Seam("engine.process", Engine, "process"),
    Seam("build_input", live, "build_input"),
    Seam("sampling record", SamplingRecord, "of"),
    Seam("run", live, "Run"),
    Seam("run.start", Run, "start"),
    Seam("executor.mode", Executor, "mode"),
    Seam("evaluator", ResponseHealth, "score"),
    Seam("evaluated response", live, "EvaluatedResponse"),
    Seam("aggregate", response, "aggregate"),
    Seam("reference", response, "reference_of"),
    Seam("scores on the span", live, "score_attributes"),
    Seam("end agent span late", live, "end_agent_span"),
    Seam("emit", Emitter, "emit"),
    Seam("prepare", Emitter, "prepare"),
    Seam("room for spans", Emitter, "has_room_for_spans"),
    Seam("event attributes", emitter, "event_attributes"),
    Seam("run attributes", emitter, "run_attributes"),
    Seam("open run span", emitter, "open_run_span"),
    Seam("events", EventLog, "emit"),
    Seam("event log", Providers, "events"),
    Seam("tracer", Providers, "tracer"),
    Seam("totals", ResultTotals, "add"),
    Seam("histograms", Instruments, "record_score"),
    Seam("span end", Span, "end"),
    Seam("storage", KeptResults, "save_result"),
    Seam("storage of all", FanOutStorage, "save_result"),
)
"""What runs on the background thread."""

COUNTING_SEAMS: tuple[Seam, ...] = (
    Seam("accounting.outcome_counts", Accounting, "outcome_counts"),
    Seam("accounting.fail", Accounting, "fail"),
    Seam("settle", Pipeline, "_settle"),
    Seam("broken", Pipeline, "broken"),
    Seam("log", type(logging.log), "warning"),
)
"""The counting itself: while it is broken a call may be missing from the outcomes, but never be counted twice."""

_SECOND_SEAMS = frozenset({"accounting.fail", "broken", "log"})


class Faults:
    """Which seam raises now, and what.

    Attributes:
        reached: Names of the seams that have raised.
    """

    def __init__(self) -> None:
        self.armed: frozenset[str] = frozenset()
        self.error: type[Exception] = RuntimeError
        self.reached: set[str] = set()

    def arm(self, seam: Seam, error: type[Exception]) -> None:
        """From now on this seam raises; one that is only met when something broke, together with another."""
        self.error = error
        self.armed = frozenset({seam.name, "aggregate"} if seam.name in _SECOND_SEAMS else {seam.name})

    def disarm(self) -> None:
        """No seam raises."""
        self.armed = frozenset()

    def around(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """The original, unless its seam is armed."""

        @functools.wraps(original, updated=())
        def seam(*args: Any, **kwargs: Any) -> Any:
            if name in self.armed:
                self.reached.add(name)
                raise self.error("injected")
            return original(*args, **kwargs)

        return seam


@contextmanager
def injected_faults() -> Iterator[Faults]:
    """Replace every seam for the length of the block; decorate handlers inside of it."""
    faults = Faults()
    undo: list[tuple[Any, str, Any, bool]] = []
    try:
        for module in (handlers, scopes, wrappers):
            undo.append((module, "CURRENT", module.CURRENT, True))
            module.CURRENT = _scope  # type: ignore[attr-defined]
        undo.append((handlers, "_LOOP_EVERY", handlers._LOOP_EVERY, True))
        handlers._LOOP_EVERY = 1
        for seam in (*CALLER_SEAMS, *BACKGROUND_SEAMS, *COUNTING_SEAMS):
            own = seam.attribute in vars(seam.owner)
            original = getattr(seam.owner, seam.attribute)
            undo.append((seam.owner, seam.attribute, original, own))
            setattr(seam.owner, seam.attribute, faults.around(seam.name, original))
        yield faults
    finally:
        for owner, attribute, original, own in reversed(undo):
            if own:
                setattr(owner, attribute, original)
            else:
                delattr(owner, attribute)
