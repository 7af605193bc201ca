"""What is compared: the bare handler, a raw OpenTelemetry span, pydantic-evals and ours, set up as
their users would.

All of them run with the same tracer provider: the SDK's, with a batch processor whose exporter
throws the spans away.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator

__all__ = [
    "ANSWER", "QUESTION", "SAMPLED_OUT_RATE", "Ours", "RawSpan", "Rival", "answer", "answer_async",
    "same_as", "use_tracing",
]  # fmt: skip

QUESTION = "What is the capital of France, and why?"
ANSWER = (
    "The capital of France is Paris, the seat of its government since the Middle Ages. " * 13
)[:1024]
SAMPLED_OUT_RATE = 0.5
"""A ratio that passes the traces of `_HighIds` over, always."""
_PATIENCE_S = 300.0


def answer(question: str) -> str:
    """The handler."""
    return ANSWER


async def answer_async(question: str) -> str:
    """The handler, async."""
    return ANSWER


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class _HighIds(IdGenerator):
    """Trace ids whose low 64 bits lie above the middle, so that a draw at `SAMPLED_OUT_RATE` always
    says no.
    """

    def __init__(self) -> None:
        self._next = itertools.count(1)

    def generate_span_id(self) -> int:
        return next(self._next)

    def generate_trace_id(self) -> int:
        return (1 << 127) | (1 << 63) | next(self._next)


def use_tracing() -> trace.Tracer:
    """Set the process's tracer provider and give a tracer of the application's."""
    provider = TracerProvider(id_generator=_HighIds(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere(), max_queue_size=8192))
    trace.set_tracer_provider(provider)
    return provider.get_tracer("host")


class RawSpan:
    """The handler in a span with five attributes: what tracing a call costs by itself.

    Args:
        tracer: By default the process's.
    """

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = tracer

    def wrap(self, handler: Callable[..., Any]) -> Any:
        """The traced handler."""
        tracer = self._tracer or trace.get_tracer("host")

        def traced(*args: Any) -> Any:
            with tracer.start_as_current_span("invoke_agent answer", attributes=_FIVE):
                return handler(*args)

        async def traced_async(*args: Any) -> Any:
            with tracer.start_as_current_span("invoke_agent answer", attributes=_FIVE):
                return await handler(*args)

        return traced_async if asyncio.iscoroutinefunction(handler) else traced

    def drain(self) -> None:
        """Nothing waits."""

    def evaluated(self) -> int:
        """Nothing is evaluated."""
        return 0


_FIVE: dict[str, Any] = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "answer",
    "gen_ai.request.model": "model",
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.usage.output_tokens": 240,
}


class Ours:
    """agenteval_otel by its public names, as the process's own, with one trivial evaluator.

    Args:
        rate: Share of the calls that is sampled; None where a sampler decides.
        enabled: False switches it off.
        evaluators: In place of the trivial one.
        shedding: False switches load shedding off, for runs that are meant to take a whole core.
        settings: More settings.
    """

    def __init__(
        self,
        *,
        rate: float | None = 1.0,
        enabled: bool = True,
        evaluators: Any = None,
        shedding: bool = True,
        **settings: Any,
    ) -> None:
        import agenteval_otel
        from benchmarks.evaluators import Busy

        chosen = evaluators or [Busy(criterion_name="trivial", loops=0, execution="inline")]
        if not shedding:
            names = agenteval_otel.Settings.model_fields.keys() & {
                "load_shedding",
                "shedding",
                "restraint",
            }
            settings |= {name: {"enabled": False} for name in names}
        agenteval_otel.configure(evaluators=chosen, sample_rate=rate, enabled=enabled, **settings)
        self._package = agenteval_otel

    def wrap(self, handler: Any) -> Any:
        """The monitored handler."""
        return self._package.monitor(handler)

    def settle(self, calls: int) -> None:
        """Wait until so many calls have an outcome."""
        until = time.monotonic() + _PATIENCE_S
        while sum(self._package.accounting().values()) < calls and time.monotonic() < until:
            time.sleep(0.002)

    def drain(self) -> None:
        """Wait until everything is evaluated and emitted."""
        self._package.flush(_PATIENCE_S)

    def evaluated(self) -> int:
        """How many calls were evaluated, by its own accounting."""
        return self._package.accounting()["evaluated"]


class Rival:
    """pydantic_evals.online, with its defaults and one evaluator of `loops` turns; `limit` is how
    many run at once.
    """

    def __init__(
        self,
        *,
        rate: float = 1.0,
        enabled: bool = True,
        evaluators: Sequence[Any] = (),
        limit: int = 10,
        loops: int = 0,
    ) -> None:
        from pydantic_evals.online import OnlineEvalConfig, OnlineEvaluator

        self._counted, self._lock = 0, threading.Lock()
        self._config = OnlineEvalConfig(
            default_sample_rate=rate, enabled=enabled, default_sink=self._sink
        )
        chosen = [same_as(each) for each in evaluators] or [_trivial(loops)]
        self._evaluators = [
            OnlineEvaluator(evaluator=each, max_concurrency=limit) for each in chosen
        ]

    def _sink(self, results: Any, failures: Any, context: Any) -> None:
        with self._lock:
            self._counted += len(results)

    def wrap(self, handler: Any) -> Any:
        """The handler with online evaluation."""
        return self._config.evaluate(*self._evaluators)(handler)

    def drain(self, timeout_s: float = 300.0) -> None:
        """Wait for the evaluations of sync handlers; those of async ones are awaited with `wait`."""
        asyncio.run(self.wait(timeout_s))

    async def wait(self, timeout_s: float = 300.0) -> None:
        """Wait for every evaluation, on the loop that started them."""
        from pydantic_evals.online import wait_for_evaluations

        await wait_for_evaluations(timeout=timeout_s)

    def evaluated(self) -> int:
        """How many results arrived."""
        return self._counted


def same_as(inner: Any) -> Any:
    """One of our evaluators behind the rival's contract, so that only what surrounds it differs."""
    from dataclasses import dataclass
    from inspect import isawaitable

    from pydantic_evals.evaluators import Evaluator

    from agenteval_otel import EvaluationInput

    @dataclass
    class Same(Evaluator[Any, Any, Any]):
        async def evaluate(self, ctx: Any) -> dict[str, float]:
            results = inner.evaluate(
                EvaluationInput(prompt=QUESTION, response=ctx.output), inner.criteria()
            )
            results = await results if isawaitable(results) else results
            return {result.criterion_name: float(result.score) for result in results}

    return Same()


def _trivial(loops: int = 0) -> Any:
    from dataclasses import dataclass

    from pydantic_evals.evaluators import Evaluator

    from benchmarks.loops import busy

    @dataclass
    class Busy(Evaluator[Any, Any, Any]):
        def evaluate(self, ctx: Any) -> float:
            busy(loops)
            return 1.0

    return Busy()
