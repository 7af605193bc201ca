"""What is compared, each set up as its users would, its limits raised where they would lose calls.

Modules of the packages are imported when a subject is made: Splunk's library lives in an environment without ours.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import subjects
from benchmarks.loops import busy
from benchmarks.speed.application import Application
from benchmarks.speed.late_paced import LatePaced

__all__ = ["TITLES", "make"]

TITLES = {
    "bare": "bare call", "raw": "raw span", "ours": "ours", "ours_thread": "ours, thread",
    "pydantic": "pydantic-evals", "splunk": "Splunk", "late": "late paced",
}  # fmt: skip
"""The table's columns, by subject."""
_UNBOUNDED = 100_000
_PATIENCE_S = 300.0


def make(
    subject: str, application: Application, *, rate: float = 1.0, loops: int = 0, execution: str = "inline",
    evaluators: Sequence[Any] = (), shedding: bool = True, **settings: Any,
) -> Any:
    """A subject with one evaluator: `wrap(handler)`, `settle(calls)` until so many are scored,
    `drain()` until all is emitted.

    Args:
        subject: One of `TITLES`.
        application: The application's providers, which are the process's.
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
    if subject == "late":
        return LatePaced(application, lambda answer: 1.0)
    if subject == "pydantic":
        return _PydanticEvals(rate, loops, evaluators)
    if subject == "splunk":
        return _Splunk(rate, loops)
    if subject == "ours_thread":
        execution = "thread"
    return _Ours(evaluators or [_ours_evaluator(loops, execution)], rate, shedding, settings)


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


class _Ours:
    """`configure`, `monitor`, `accounting`, `flush`: nothing else of the package."""

    def __init__(self, evaluators: Sequence[Any], rate: float, shedding: bool, settings: dict[str, Any]) -> None:
        import agenteval_otel

        if not shedding:
            settings = settings | _without_shedding(agenteval_otel.Settings.model_fields)
        agenteval_otel.configure(evaluators=list(evaluators), sample_rate=rate, **settings)
        self._package = agenteval_otel

    def wrap(self, handler: Any) -> Any:
        return self._package.monitor(handler)

    def settle(self, calls: int) -> None:
        # The accounting paces; nothing in the table is counted by it.
        until = time.monotonic() + _PATIENCE_S
        while sum(self._package.accounting().values()) < calls and time.monotonic() < until:
            time.sleep(0.002)

    def drain(self) -> None:
        self._package.flush(_PATIENCE_S)


def _without_shedding(fields: Any) -> dict[str, Any]:
    name = next((name for name in ("load_shedding", "shedding", "restraint") if name in fields), None)
    return {name: {"enabled": False}} if name else {}


def _ours_evaluator(loops: int, execution: str) -> Any:
    from benchmarks.evaluators import Busy

    return Busy(criterion_name="trivial", loops=loops, execution=execution)


class _PydanticEvals:
    """`pydantic_evals.online`, its limit of ten at once raised."""

    def __init__(self, rate: float, loops: int, evaluators: Sequence[Any]) -> None:
        chosen = [_same_as(each) for each in evaluators] if evaluators else [_pydantic_evaluator(loops)]
        self._subject = subjects.Rival(rate=rate, evaluators=chosen, limit=_UNBOUNDED)
        self.wrap = self._subject.wrap

    def settle(self, calls: int) -> None:
        self._subject.drain(_PATIENCE_S)

    def drain(self) -> None:
        self._subject.drain(_PATIENCE_S)

    async def wait(self) -> None:
        """Async handlers' evaluations are waited for on their own loop."""
        await self._subject.wait(_PATIENCE_S)


def _pydantic_evaluator(loops: int) -> Any:
    from dataclasses import dataclass

    from pydantic_evals.evaluators import Evaluator

    @dataclass
    class Computing(Evaluator[Any, Any, Any]):
        def evaluate(self, ctx: Any) -> float:
            busy(loops)
            return 1.0

    return Computing()


def _same_as(inner: Any) -> Any:
    """An evaluator of ours behind pydantic-evals' contract, so that only what surrounds it differs."""
    from dataclasses import dataclass
    from inspect import isawaitable

    from pydantic_evals.evaluators import Evaluator

    from agenteval_otel import EvaluationInput

    @dataclass
    class Same(Evaluator[Any, Any, Any]):
        async def evaluate(self, ctx: Any) -> dict[str, float]:
            results = inner.evaluate(EvaluationInput(prompt=subjects.QUESTION, response=ctx.output), inner.criteria())
            results = await results if isawaitable(results) else results
            return {result.criterion_name: float(result.score) for result in results}

    return Same()


class _Splunk:
    """`splunk-otel-util-genai` with its evaluations: the agent span as its instrumentations would make it.

    The queue of 100 is raised; scores are named "relevance", as those of other names leave no event.
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

        def computing(metrics: Any = None, *, invocation_type: Any = None, options: Any = None) -> Any:
            return Computing(metrics, invocation_type=invocation_type, options=options)

        register_evaluator("computing", computing, default_metrics={"AgentInvocation": ("relevance",)})
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
        message = types.OutputMessage(role="assistant", parts=[types.Text(content=answer)], finish_reason="stop")
        invocation.output_messages = [message]
        self._telemetry.stop_agent(invocation)
        return answer

    def settle(self, calls: int) -> None:
        self._telemetry.wait_for_evaluations()

    def drain(self) -> None:
        self._telemetry.wait_for_evaluations()
