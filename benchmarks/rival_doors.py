"""Ours and pydantic-evals behind one door, so that each case of the comparison is the same program
twice.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

from opentelemetry import _logs, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

__all__ = ["Door", "open_door"]


class Door:
    """One of the two, as it comes, with everything that it exports and logs kept."""

    def __init__(self) -> None:
        self.spans, self.events = InMemorySpanExporter(), InMemoryLogRecordExporter()
        traces = TracerProvider(shutdown_on_exit=False)
        traces.add_span_processor(SimpleSpanProcessor(self.spans))
        trace.set_tracer_provider(traces)
        logs = LoggerProvider(shutdown_on_exit=False)
        logs.add_log_record_processor(SimpleLogRecordProcessor(self.events))
        _logs.set_logger_provider(logs)
        self.logged: list[logging.LogRecord] = []
        keep = logging.Handler()
        keep.emit = self.logged.append  # type: ignore[method-assign]
        logging.getLogger().addHandler(keep)

    def scored(self) -> int:
        """How many results came out: events with a score."""
        return sum(
            "gen_ai.evaluation.score.value" in (record.log_record.attributes or {})
            for record in self.events.get_finished_logs()
        )

    def exported(self) -> list[str]:
        """Everything that left, as text: names, attributes and bodies of spans, their events and
        log events.
        """
        spans = [
            f"{span.name} {dict(span.attributes or {})} {span.status.description} "
            f"{[(event.name, dict(event.attributes or {})) for event in span.events]}"
            for span in self.spans.get_finished_spans()
        ]
        records = [record.log_record for record in self.events.get_finished_logs()]
        return spans + [
            f"{record.event_name} {record.body} {dict(record.attributes or {})}"
            for record in records
        ]


class _Ours(Door):
    """`@monitor`, rate 1."""

    def evaluate(
        self, score: Callable[..., Any], *, sampler: Any = None, enabled: bool = True
    ) -> Any:
        """The decorator with one evaluator: a function of the answer's text."""
        import agenteval_otel
        from agenteval_otel.evaluators import Func

        def scores(evaluation_input: Any) -> float:
            return float(score(evaluation_input.response_text))

        async def scores_async(evaluation_input: Any) -> float:
            return float(await score(evaluation_input.response_text))

        from asyncio import iscoroutinefunction

        function = scores_async if iscoroutinefunction(score) else scores
        evaluator = Func.of(function, criterion_name="case")
        chosen = {"sample_rate": 1.0} if sampler is None else {"sampler": sampler}
        agenteval_otel.configure(evaluators=[evaluator], enabled=enabled, **chosen)
        return agenteval_otel.monitor

    def evaluate_with(self, evaluator: Any) -> Any:
        """The decorator with one of our evaluators."""
        import agenteval_otel

        agenteval_otel.configure(evaluators=[evaluator], sample_rate=1.0)
        return agenteval_otel.monitor

    async def settle(self, timeout_s: float = 5.0) -> None:
        """Wait for what can still come."""
        import asyncio

        import agenteval_otel

        await asyncio.to_thread(agenteval_otel.flush, timeout_s)

    def known(self) -> int:
        """How many calls it can say the fate of."""
        import agenteval_otel

        return sum(agenteval_otel.accounting().values())

    def raising_sampler(self) -> Any:
        """A sampler of the user's that raises."""
        from agenteval_otel.sampling import Sampler

        class Broken(Sampler, type="BenchmarkBroken"):
            def decide(self, context: Any) -> Any:
                raise RuntimeError("the feature-flag service is down")

        return Broken()


class _Rivals(Door):
    """`@evaluate`, rate 1."""

    _number = itertools.count()

    def evaluate(
        self, score: Callable[..., Any], *, sampler: Any = None, enabled: bool = True
    ) -> Any:
        """The decorator with one evaluator: a function of the answer."""
        from asyncio import iscoroutinefunction
        from dataclasses import dataclass

        from pydantic_evals.evaluators import Evaluator

        @dataclass
        class Case(Evaluator[Any, Any, Any]):
            def evaluate(self, ctx: Any) -> Any:
                return score(ctx.output)

        @dataclass
        class AsyncCase(Evaluator[Any, Any, Any]):
            async def evaluate(self, ctx: Any) -> Any:
                return await score(ctx.output)

        return self._with(AsyncCase() if iscoroutinefunction(score) else Case(), sampler, enabled)

    def evaluate_with(self, evaluator: Any) -> Any:
        """The decorator with one of our evaluators behind its contract."""
        from benchmarks.subjects import same_as

        return self._with(same_as(evaluator), None, True)

    def _with(self, evaluator: Any, rate: Any, enabled: bool) -> Any:
        from pydantic_evals.online import OnlineEvalConfig, OnlineEvaluator

        self._outcomes = 0
        config = OnlineEvalConfig(
            default_sink=self._sink,
            enabled=enabled,
            default_sample_rate=1.0 if rate is None else rate,
        )
        return config.evaluate(OnlineEvaluator(evaluator=evaluator))

    def _sink(self, results: Any, failures: Any, context: Any) -> None:
        self._outcomes += len(results) + len(failures)

    async def settle(self, timeout_s: float = 5.0) -> None:
        """Wait for what can still come."""
        import asyncio

        from pydantic_evals.online import wait_for_evaluations

        try:
            # Its own limit does not hold for coroutines that hang.
            await asyncio.wait_for(wait_for_evaluations(timeout=timeout_s), timeout_s)
        except (TimeoutError, Exception):
            return

    def known(self) -> int:
        """How many calls it says the fate of: results, failures and log lines."""
        return self._outcomes + len(self.logged)

    def raising_sampler(self) -> Any:
        """A callable for its `sample_rate` that raises."""

        def rate(context: Any) -> float:
            raise RuntimeError("the feature-flag service is down")

        return rate


def open_door(subject: str) -> Any:
    """Ours or the rival's."""
    return _Ours() if subject == "ours" else _Rivals()
