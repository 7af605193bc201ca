"""The seams inside us, by name, and a saboteur that makes one of them raise.

Every seam is replaced once by a function that calls the original unless it is armed. So a handler that is decorated
inside `sabotage` has the seams built in, and a case costs no more than setting two names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import Span

from agenteval_otel.capture import PromptParameter
from agenteval_otel.capture import calls as calls_room
from agenteval_otel.dispatch import InlineDispatcher
from agenteval_otel.engine import EvaluationRunner
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.execution import Executor
from agenteval_otel.instrumentation import door as door_room
from agenteval_otel.instrumentation import scope as scope_room
from agenteval_otel.instrumentation import wrappers as wrappers_room
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.pipeline import plan as plan_room
from agenteval_otel.pipeline import route as pipeline_room
from agenteval_otel.runtime import log as log_room
from agenteval_otel.sampling import RatioSampler, SamplingContext, SamplingDecision, ratio
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.storage import otlp as otlp_room
from agenteval_otel.telemetry import Accounting, Providers
from agenteval_otel.telemetry.events import EventLog
from agenteval_otel.telemetry.metrics import Instruments, ResultTotals

__all__ = ["CALLER_SEAMS", "COUNTING_SEAMS", "POOL_SEAMS", "SEAM_ERRORS", "Sabotage", "Seam", "Unprintable", "sabotage"]


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


_scope = _Scope(door_room.CURRENT)


class AskedRatio(RatioSampler):
    """A ratio that is asked with a context, like a sampler of the user's, instead of by the draw alone."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return super().decide(context)


CALLER_SEAMS: tuple[Seam, ...] = (
    Seam("sampler.decide", AskedRatio, "decide"),
    Seam("sampling context", door_room, "SamplingContext"),
    Seam("draw", door_room, "draw_from"),
    Seam("random numbers", ratio.RANDOM, "getrandbits"),
    Seam("current span", door_room, "_current_context"),
    Seam("span context", Span, "get_span_context"),
    Seam("is recording", Span, "is_recording"),
    Seam("set_attributes", Span, "set_attributes"),
    Seam("captured call", door_room, "_fresh_call"),
    Seam("prompt parameter", PromptParameter, "of"),
    Seam("take", calls_room, "take"),
    Seam("wall clock", door_room, "_now_ns"),
    Seam("tick clock", door_room, "_tick_ns"),
    Seam("scope get", _scope, "get"),
    Seam("scope set", _scope, "set"),
    Seam("scope reset", _scope, "reset"),
    Seam("tracer now", OtlpStorageProvider, "tracer_now"),
    Seam("open agent span", door_room, "open_agent_span"),
    Seam("end agent span", door_room, "end_agent_span"),
    Seam("span to context", trace, "set_span_in_context"),
    Seam("context attach", otel_context, "attach"),
    Seam("context detach", otel_context, "detach"),
    Seam("context current", otel_context, "get_current"),
    Seam("pipeline.submit", Pipeline, "submit"),
    Seam("dispatcher.submit", InlineDispatcher, "submit"),
)
"""What runs on the caller's thread."""

POOL_SEAMS: tuple[Seam, ...] = (
    Seam("process", Pipeline, "_process"),
    Seam("build_input", pipeline_room, "build_input"),
    Seam("open run span", plan_room, "open_run_span"),
    Seam("runner.run", EvaluationRunner, "run"),
    Seam("executor.run", Executor, "run"),
    Seam("evaluator", ResponseHealth, "score"),
    Seam("aggregate", pipeline_room, "aggregate"),
    Seam("reference", pipeline_room, "reference_of"),
    Seam("storage", OtlpStorageProvider, "save_result"),
    Seam("event attributes", otlp_room, "event_attributes"),
    Seam("run attributes", otlp_room, "run_attributes"),
    Seam("events", EventLog, "emit"),
    Seam("tracer", Providers, "tracer"),
    Seam("totals", ResultTotals, "add"),
    Seam("histograms", Instruments, "record_score"),
    Seam("span end", Span, "end"),
)
"""What runs on the pool's thread."""

COUNTING_SEAMS: tuple[Seam, ...] = (
    Seam("accounting.cell", Accounting, "cell"),
    Seam("accounting.fail", Accounting, "fail"),
    Seam("settle", Pipeline, "_settle"),
    Seam("broken", Pipeline, "broken"),
    Seam("log", type(log_room.log), "warning"),
)
"""The counting itself: while it is broken a call may be missing from the outcomes, but never be counted twice."""

SECOND_SEAMS = frozenset(seam for seam in COUNTING_SEAMS if seam.name in ("accounting.fail", "broken", "log"))


class Sabotage:
    """Which seam raises now, and what."""

    def __init__(self) -> None:
        self.armed: frozenset[str] = frozenset()
        self.error: type[Exception] = RuntimeError
        self.reached: set[str] = set()

    def arm(self, seam: Seam, error: type[Exception]) -> None:
        """From now on this seam raises; one that is only met when something broke, together with another."""
        self.armed, self.error = frozenset({seam.name, "aggregate"} if seam in SECOND_SEAMS else {seam.name}), error

    def disarm(self) -> None:
        """No seam raises."""
        self.armed = frozenset()

    def around(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """The original, unless its seam is armed."""

        @functools.wraps(original)
        def seam(*args: Any, **kwargs: Any) -> Any:
            if name in self.armed:
                self.reached.add(name)
                raise self.error("injected")
            return original(*args, **kwargs)

        return seam


@contextmanager
def sabotage() -> Iterator[Sabotage]:
    """Replace every seam for the length of the block; decorate handlers inside of it."""
    saboteur = Sabotage()
    undo: list[tuple[Any, str, Any, bool]] = []
    try:
        for room in (door_room, scope_room, wrappers_room):
            undo.append((room, "CURRENT", room.CURRENT, True))
            room.CURRENT = _scope  # type: ignore[attr-defined]
        for seam in (*CALLER_SEAMS, *POOL_SEAMS, *COUNTING_SEAMS):
            own = seam.attribute in vars(seam.owner)
            original = getattr(seam.owner, seam.attribute)
            undo.append((seam.owner, seam.attribute, original, own))
            setattr(seam.owner, seam.attribute, saboteur.around(seam.name, original))
        yield saboteur
    finally:
        for owner, attribute, original, own in reversed(undo):
            if own:
                setattr(owner, attribute, original)
            else:
                delattr(owner, attribute)
