"""Fault injection: the places inside us where something may break, by name, and how one of them is
made to raise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.trace import Span

from agenteval_otel.capture import calls
from agenteval_otel.capture.calls import Arguments
from agenteval_otel.engine import evaluation, live, parts, response
from agenteval_otel.engine.live import Engine
from agenteval_otel.engine.load_shedding import LoadShedder
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.engine.run import Run
from agenteval_otel.engine.sampled import SamplingRecord
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.instrumentation import handler as handlers
from agenteval_otel.instrumentation import scope as scopes
from agenteval_otel.instrumentation import wrappers
from agenteval_otel.instrumentation.handler import Handler
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.runtime import fork
from agenteval_otel.runtime import log as logging
from agenteval_otel.runtime.memory import MemoryPart
from agenteval_otel.sampling import RatioSampler, SamplingContext, SamplingDecision, trace
from agenteval_otel.storage import EvaluationStorageProvider
from agenteval_otel.storage.base import FanOutStorage
from agenteval_otel.telemetry import Accounting, Providers, emitter
from agenteval_otel.telemetry.emitter import Emitter
from agenteval_otel.telemetry.metrics import Instruments, ResultTotals
from agenteval_otel.telemetry.spans import EventLog


class Seam(NamedTuple):
    name: str
    owner: Any
    attribute: str


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not shown")

    __repr__ = __str__


SEAM_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    RecursionError,
    MemoryError,
    StopIteration,
    Unprintable,
)


class _Scope:
    """Stands in for the context variable, whose methods cannot be replaced."""

    def __init__(self, variable: Any) -> None:
        self.get, self.set, self.reset = variable.get, variable.set, variable.reset


_scope = _Scope(calls.CURRENT)


class AskedRatio(RatioSampler):
    """A ratio that is asked with a context, like a sampler of the user's, instead of by the
    randomness alone.
    """

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return super().decide(context)


class KeptResults(EvaluationStorageProvider, type="kept_results"):
    """A place for results beside telemetry, which does not keep them."""

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        assert aggregated.results


def _seams(*places: tuple[Any, str]) -> tuple[Seam, ...]:
    """A seam for each of these attributes, named by its module or class."""
    actual = []
    for owner, attributes in places:
        name = getattr(owner, "__name__", type(owner).__name__).rpartition(".")[2]
        actual += [
            Seam(f"{name}.{attribute}", owner, attribute) for attribute in attributes.split()
        ]
    return tuple(actual)


CALLER_SEAMS = _seams(
    (Handler, "enter leave"),
    (AskedRatio, "decide"),
    (LoadShedder, "thin"),
    (fork.RANDOM, "getrandbits"),
    (
        handlers,
        "SamplingContext get_running_loop _current_context _fresh_call _now_ns _tick_ns _pid",
    ),
    (trace, "randomness_of"),
    (handlers, "open_agent_span end_agent_span"),
    (Span, "get_span_context is_recording set_attributes"),
    (Arguments, "prompt"),
    (calls, "take"),
    (_scope, "get set reset"),
    (scopes, "Context attach_context detach_context current_context"),
    (Emitter, "agent_tracer_now"),
    (Providers, "takes_late_spans"),
    (MemoryPart, "reserve"),
    (Pipeline, "submit"),
    (InlineDispatcher, "submit"),
)
"""What runs on the caller's thread."""

BACKGROUND_SEAMS = _seams(
    (Engine, "process"),
    (live, "build_input"),
    (parts, "end_agent_span"),
    (evaluation, "Run EvaluatedResponse score_attributes"),
    (SamplingRecord, "of"),
    (Run, "start"),
    (ResponseHealth, "score"),
    (response, "aggregate reference_of"),
    (Emitter, "emission send prepare"),
    (emitter, "event_attributes run_attributes open_run_span"),
    (EventLog, "emit"),
    (Providers, "events tracer has_room_for_spans"),
    (ResultTotals, "add"),
    (Instruments, "record_score"),
    (Span, "end"),
    (KeptResults, "save_result"),
    (FanOutStorage, "save_result"),
)
"""What runs on the background thread."""

COUNTING_SEAMS = _seams(
    (Accounting, "outcome_counts fail"),
    (Pipeline, "_settle broken"),
    (type(logging.log), "warning"),
)
"""The counting itself: while it is broken a call may be missing from the outcomes, but never be
counted twice.
"""

_SECOND_SEAMS = frozenset({"Accounting.fail", "Pipeline.broken", COUNTING_SEAMS[-1].name})


class Faults:
    """Which seam raises now, and what.

    Attributes:
        reached: Names of the seams that have raised.
    """

    def __init__(self) -> None:
        self.broken: frozenset[str] = frozenset()
        self.error: type[Exception] = RuntimeError
        self.reached: set[str] = set()

    @contextmanager
    def armed(self, seam: Seam, error: type[Exception]) -> Iterator[None]:
        """In the block this seam raises; one that is only met when something broke, together with
        another.
        """
        self.error = error
        self.broken = frozenset(
            {seam.name, "aggregate"} if seam.name in _SECOND_SEAMS else {seam.name}
        )
        try:
            yield
        finally:
            self.broken = frozenset()

    def around(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:

        @functools.wraps(original, updated=())
        def seam(*args: Any, **kwargs: Any) -> Any:
            if name in self.broken:
                self.reached.add(name)
                raise self.error("injected")
            return original(*args, **kwargs)

        return seam


@contextmanager
def injected_faults() -> Iterator[Faults]:
    """Replace every seam once, by a function that calls the original unless it is armed; decorate
    handlers inside.
    """
    faults = Faults()
    with pytest.MonkeyPatch.context() as patch:
        for module in (handlers, scopes, wrappers):
            patch.setattr(module, "CURRENT", _scope)
        patch.setattr(handlers, "_LOOP_EVERY", 1)
        for name, owner, attribute in (*CALLER_SEAMS, *BACKGROUND_SEAMS, *COUNTING_SEAMS):
            patch.setattr(owner, attribute, faults.around(name, getattr(owner, attribute)))
        yield faults
