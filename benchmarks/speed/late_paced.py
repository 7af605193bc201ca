"""The plain form that ours is measured against: a script's worth of code, and nothing of what a
user needs.

The caller starts the agent span and queues it; a background thread scores the answer, ends the span
with its true end time and its results and emits event and metrics, while the application's batch
processors have room.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import _logs, metrics, trace

from benchmarks.speed.application import Application

__all__ = ["LatePaced"]

_ROOM = 512
"""How many spans or events may wait in a batch processor, a quarter of its queue: one batch."""
_LOOK_EVERY = 32
_AGENT: dict[str, Any] = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "answer",
    "gen_ai.request.model": "model",
    "agenteval.evaluation.sampled": True,
    "agenteval.evaluation.criteria": ("trivial",),
}
_RESULTS: dict[str, Any] = {
    "gen_ai.evaluation.trivial.score": 1.0,
    "gen_ai.evaluation.trivial.label": "pass",
    "agenteval.evaluation.overall_score": 1.0,
    "gen_ai.evaluation.module": "answer",
    "gen_ai.evaluation.has_ground_truth": False,
}
_LABELS = {
    "gen_ai.evaluation.name": "trivial",
    "gen_ai.agent.name": "answer",
    "gen_ai.request.model": "model",
}
_EVENT: dict[str, Any] = {
    **_LABELS,
    "gen_ai.evaluation.score.value": 1.0,
    "gen_ai.evaluation.score.label": "pass",
    "gen_ai.evaluation.evaluator.id": "trivial",
    "gen_ai.evaluation.evaluator.version": "1",
    "gen_ai.evaluation.evaluator.type": "deterministic",
    "agenteval.evaluation.score.normalized": 1.0,
    "agenteval.sampling.probability": 1.0,
    "agenteval.sampling.reason": "ratio",
}


class LatePaced:
    """A background thread behind an unbounded queue."""

    def __init__(self, application: Application, score: Callable[[str], float]) -> None:
        self._waiting: queue.SimpleQueue[tuple[Any, str, int] | None] = queue.SimpleQueue()
        self._processors = [
            each._batch_processor for each in (application.spans_wait, application.events_wait)
        ]
        self._score, self._calls, self._done = score, 0, 0
        self._tracer, self._logger = trace.get_tracer("late_paced"), _logs.get_logger("late_paced")
        meter = metrics.get_meter("late_paced")
        self._histograms = [meter.create_histogram(name) for name in ("score", "lag")]
        threading.Thread(target=self._run, daemon=True).start()

    def wrap(self, handler: Any) -> Any:
        """The handler with an agent span."""

        def call(question: str) -> str:
            span = self._tracer.start_span("invoke_agent answer", attributes=_AGENT)
            with trace.use_span(span, end_on_exit=False):
                answer: str = handler(question)
            self._calls += 1
            self._waiting.put((span, answer, time.time_ns()))
            return answer

        return call

    def settle(self, calls: int) -> None:
        """Wait until so many answers are scored and handed to the processors."""
        while self._done < calls:
            time.sleep(0.002)

    def drain(self) -> None:
        """Wait for all of them."""
        self.settle(self._calls)

    def _run(self) -> None:
        while (taken := self._waiting.get()) is not None:
            if self._done % _LOOK_EVERY == 0:
                while any(len(processor._queue) > _ROOM for processor in self._processors):
                    time.sleep(0.002)
            self._emit(*taken)
            self._done += 1

    def _emit(self, span: Any, answer: str, ended_ns: int) -> None:
        value = self._score(answer)
        span.set_attributes({**_RESULTS, "gen_ai.evaluation.trivial.score": value})
        span.end(ended_ns)
        context = trace.set_span_in_context(span)
        self._logger.emit(
            event_name="gen_ai.evaluation.result",
            context=context,
            timestamp=ended_ns,
            severity_number=_logs.SeverityNumber.INFO,
            body="trivial: pass",
            attributes=dict(_EVENT),
        )
        for histogram in self._histograms:
            histogram.record(value, _LABELS, context=context)
