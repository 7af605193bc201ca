"""What is compared, each set up as its users would, its limits raised where they would lose calls.

Modules of the packages are imported when a subject is made: Splunk's library lives in an
environment without ours.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from benchmarks import subjects
from benchmarks.loops import busy
from benchmarks.speed.application import Application
from benchmarks.speed.late_paced import LatePaced

__all__ = ["TITLES", "make"]

TITLES = {
    "bare": "bare call",
    "raw": "raw span",
    "ours": "ours",
    "ours_thread": "ours, thread",
    "pydantic": "pydantic-evals",
    "splunk": "Splunk",
    "late": "late paced",
}
"""The table's columns, by subject."""
_UNBOUNDED = 100_000


def make(
    subject: str,
    application: Application | None,
    *,
    rate: float = 1.0,
    loops: int = 0,
    execution: str = "inline",
    evaluators: Sequence[Any] = (),
    shedding: bool = True,
    **settings: Any,
) -> Any:
    """A subject with one evaluator: `wrap(handler)`, `settle(calls)` until so many are scored,
    `drain()` until all is emitted.

    Args:
        subject: One of `TITLES`.
        application: The application's providers, which are the process's; None where it has none.
        rate: Share of the calls that is sampled.
        loops: How much pure Python the evaluator computes; 0 for a trivial one.
        execution: Where our evaluator runs.
        evaluators: Evaluators of ours in place of that one.
        shedding: False switches our load shedding off, for rows that take a whole core on purpose.
        settings: Settings of ours.
    """
    if subject == "bare":
        return _Bare()
    if subject == "raw":
        return _Raw()
    if subject == "late" and application is not None:
        return LatePaced(application, lambda answer: 1.0)
    if subject == "pydantic":
        return _PydanticEvals(rate=rate, loops=loops, evaluators=evaluators, limit=_UNBOUNDED)
    if subject == "splunk":
        return _Splunk(rate, loops)
    if subject == "ours_thread":
        execution = "thread"
    from benchmarks.evaluators import Busy

    chosen = evaluators or [Busy(criterion_name="trivial", loops=loops, execution=execution)]
    return subjects.Ours(rate=rate, evaluators=chosen, shedding=shedding, **settings)


class _Bare:
    def wrap(self, handler: Any) -> Any:
        return handler

    def settle(self, calls: int) -> None:
        """Nothing waits."""

    def drain(self) -> None:
        """Nothing waits."""


class _Raw(_Bare):
    def wrap(self, handler: Any) -> Any:
        return subjects.RawSpan().wrap(handler)


class _PydanticEvals(subjects.Rival):
    def settle(self, calls: int) -> None:
        self.drain()


class _Splunk:
    """`splunk-otel-util-genai` with its evaluations: the agent span as its instrumentations would
    make it.

    The queue of 100 is raised; scores are named "relevance", as those of other names leave no
    event.
    """

    def __init__(self, rate: float, loops: int) -> None:
        os.environ["OTEL_INSTRUMENTATION_GENAI_EVALS_EVALUATORS"] = "computing"
        os.environ["OTEL_INSTRUMENTATION_GENAI_EVALS_QUEUE_SIZE"] = str(_UNBOUNDED)
        os.environ["OTEL_INSTRUMENTATION_GENAI_EVALUATION_SAMPLE_RATE"] = str(rate)
        from opentelemetry.util.genai import types
        from opentelemetry.util.genai.evals.base import Evaluator
        from opentelemetry.util.genai.evals.registry import register_evaluator
        from opentelemetry.util.genai.handler import get_telemetry_handler

        class Computing(Evaluator):
            def default_metrics_by_type(self) -> Any:
                return {"AgentInvocation": ("relevance",)}

            def evaluate_agent(self, invocation: Any) -> Any:
                busy(loops)
                return [types.EvaluationResult(metric_name="relevance", score=1.0, label="pass")]

        def computing(
            metrics: Any = None, *, invocation_type: Any = None, options: Any = None
        ) -> Any:
            return Computing(metrics, invocation_type=invocation_type, options=options)

        register_evaluator(
            "computing", computing, default_metrics={"AgentInvocation": ("relevance",)}
        )
        self._types, self._telemetry = types, get_telemetry_handler()

    def wrap(self, handler: Any) -> Any:
        if asyncio.iscoroutinefunction(handler):

            async def call_async(question: str) -> Any:
                invocation = self._start(question)
                return self._stop(invocation, await handler(question))

            return call_async

        def call(question: str) -> Any:
            invocation = self._start(question)
            return self._stop(invocation, handler(question))

        return call

    def _start(self, question: str) -> Any:
        types = self._types
        message = types.InputMessage(role="user", parts=[types.Text(content=question)])
        invocation = types.AgentInvocation(name="answer", model="model", input_messages=[message])
        return self._telemetry.start_agent(invocation)

    def _stop(self, invocation: Any, answer: str) -> str:
        types = self._types
        message = types.OutputMessage(
            role="assistant", parts=[types.Text(content=answer)], finish_reason="stop"
        )
        invocation.output_messages = [message]
        self._telemetry.stop_agent(invocation)
        return answer

    def settle(self, calls: int) -> None:
        self._telemetry.wait_for_evaluations()

    def drain(self) -> None:
        self._telemetry.wait_for_evaluations()
